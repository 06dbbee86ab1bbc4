"""The launch line: what Enter starts and `y` copies; wrapped, and cut at its end only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, clip, title, wrap

_NARROW = 40
"""Cells below which a launch line that is cut does not say how to see all of it."""

_ROOMY = 12
"""Lines that there must be for remarks to be wrapped: where there are fewer, panels say more."""


def launch(app_state: AppState, width: int, most: int, room_for_remarks: int | None = None) -> list[Line]:
    """A rule, and at most `most` lines: the launch line, its warnings, and remarks where there is room.

    Remarks come only within `room_for_remarks` lines (None: as `most`).
    """
    name = f"launch: {app_state.launcher}" if app_state.options.command else "launch"
    tail = "the demo's example: e to edit" if app_state.is_example else ""
    lines = [title(name, width, tail)]
    if not app_state.options.command:
        shown = app_state.launch.line if app_state.selection.decided else ""
        hint = "press e to type a command" if not shown else "…  press e to type a command"
        lines.append(clip(((" $ ", "prompt"), (f"{shown} " if shown else "", ""), (hint, "dim")), width))
        return lines
    warnings = (*app_state.launch.warnings, *app_state.warnings)
    style = "" if app_state.selection.decided else "dim"
    wrapped = wrap(app_state.launch.line, width - 4)
    # (One line is the launch line's: what Enter starts matters more than what there is to say of it.)
    warning_lines = _warnings(warnings, width, most) if most > 1 else []
    room = max(1, most - len(warning_lines))
    if len(wrapped) > room:
        more = " … (e shows all)" if width >= _NARROW else " …"
        wrapped = [*wrapped[: room - 1], f"{wrapped[room - 1][: width - 4 - len(more)]}{more}"]
    for place, text in enumerate(wrapped):
        lines.append(clip(((" $ " if place == 0 else "   ", "prompt"), (text, style)), width))
    lines += warning_lines
    with_remarks = most if room_for_remarks is None else room_for_remarks
    left = max(0, with_remarks - len(warning_lines) - len(wrapped))
    # (The launch page itself, which has all the room for them, names no key for more.)
    key = key_of("launch_page", app_state.screen.keymap) if room_for_remarks is not None else ""
    more, roomy = (f" … ({key} shows all)", _ROOMY) if key else (" …", 0)
    remarks = _remarks(app_state.launch.remarks, width, left, more, roomy)
    if app_state.launch.remarks and not remarks and key and not tail:
        lines[0] = title(name, width, f"{key} shows notes")
    return lines + remarks


def _remarks(remarks: Sequence[str], width: int, most: int, more: str, roomy: int) -> list[Line]:
    """As many remarks as there are lines; the first ones whole, as far as lines are left over. `more` stands
    at the end where that is not all. With less than `roomy` lines each has one."""
    lines: list[Line] = []
    shown = remarks[:most]
    spare = most - len(shown) if most >= roomy else 0
    cut = len(shown) < len(remarks)
    for remark in shown:
        pieces = wrap(remark, width - 5)
        over = len(pieces) > spare + 1
        pieces = pieces[: spare + 1]
        spare -= len(pieces) - 1
        cut = cut or over
        end = more if cut and remark is shown[-1] else " …" if over else ""
        if end:
            last, room = pieces[-1], max(0, width - 5 - cell_len(end))
            pieces[-1] = (set_cell_size(last, room).rstrip() if cell_len(last) > room else last) + end
        lines += [
            clip((("   · " if not place else "     ", "dim"), (piece, "dim")), width)
            for place, piece in enumerate(pieces)
        ]
    return lines


def _warnings(warnings: Sequence[str], width: int, most: int) -> list[Line]:
    """The warnings, whole: what matters most may stand at the end of one.

    A line each only where the launch line would have less than half of the room.
    """
    lines: list[Line] = []
    for warning in warnings:
        pieces = wrap(warning, width - 5)
        lines += [
            ((f"   {'!' if not place else ' '} ", "warn"), (text, "warn"))
            for place, text in enumerate(pieces)
        ]
    if 2 * len(lines) > max(most, 2 * len(warnings)):
        return [clip((("   ! ", "warn"), (warning, "warn")), width) for warning in warnings]
    return [clip(line, width) for line in lines]
