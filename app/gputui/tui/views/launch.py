"""The launch line: what Enter starts and `y` copies; wrapped, and cut at its end only."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, clip, title, wrap


def launch(app_state: AppState, width: int, most: int, room_for_remarks: int | None = None) -> list[Line]:
    """A rule, and at most `most` lines: the launch line, its warnings, and remarks where there is room.

    Remarks come only within `room_for_remarks` lines (None: as `most`).
    """
    name = f"launch: {app_state.launcher}" if app_state.options.command else "launch"
    tail = "the demo's example: e edits it" if app_state.is_example else ""
    lines = [title(name, width, tail)]
    if not app_state.options.command:
        shown = app_state.launch.line if app_state.selection.decided else ""
        hint = "e types the command" if not shown else "…  e types the command"
        lines.append(clip(((" $ ", "prompt"), (f"{shown} " if shown else "", ""), (hint, "dim")), width))
        return lines
    warnings = (*app_state.launch.warnings, *app_state.warnings)
    style = "" if app_state.selection.decided else "dim"
    wrapped = wrap(app_state.launch.line, width - 4)
    warning_lines = _warnings(warnings, width, most)
    room = max(1, most - len(warning_lines))
    if len(wrapped) > room:
        wrapped = [*wrapped[: room - 1], f"{wrapped[room - 1][: width - 20]} … (e shows all)"]
    for place, text in enumerate(wrapped):
        lines.append(clip(((" $ " if place == 0 else "   ", "prompt"), (text, style)), width))
    lines += warning_lines
    with_remarks = most if room_for_remarks is None else room_for_remarks
    left = max(0, with_remarks - len(warning_lines) - len(wrapped))
    return lines + _remarks(app_state.launch.remarks, width, left)


def _remarks(remarks: Sequence[str], width: int, most: int) -> list[Line]:
    """As many remarks as there are lines; the first ones whole, as far as lines are left over."""
    lines: list[Line] = []
    shown = remarks[:most]
    spare = most - len(shown)
    for remark in shown:
        pieces = wrap(remark, width - 5)
        pieces = [*pieces[:spare], " ".join(pieces[spare:])] if len(pieces) > spare + 1 else pieces
        spare -= len(pieces) - 1
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
