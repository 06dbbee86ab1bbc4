"""The launch line: the text that Enter starts and `y` copies; wrapped, and cut only at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size

from gputui.inventory.formatting import counted
from gputui.launching.shell_words import command_line
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.layout import LaunchRoom
from gputui.tui.views.text import (
    Line,
    cells_of,
    clip,
    flow,
    hanging,
    prompt_lines,
    title,
    width_of,
    wrap,
)

_NARROW = 40
"""The width in cells below which a cut launch line without a rule does not name the key that copies it."""

_NAMED = 60
"""The width in cells from which the end of cut warnings names the key that shows all."""

_ADDED = 56
"""Cells that a selection usually adds to the launch line: the variables that name its devices."""

_OF_LAUNCHER = 36
"""The same of the words of a launcher."""


def lines_wanted(app_state: AppState, width: int) -> int:
    """The lines that the launch line takes once devices are selected."""
    options = app_state.options
    if not options.command:
        return 1
    added = _ADDED if app_state.launcher == "python" else _ADDED + _OF_LAUNCHER
    return len(wrap(f"{'x' * added} {command_line(options.additions, options.command)}", width - 4))


def launch(
    app_state: AppState, width: int, room: LaunchRoom, page: bool = False, asking: bool = False
) -> list[Line]:
    """A rule where there is room for one, the launch line, its warnings, and remarks: on the main screen
    always as many lines, so that a selection moves nothing.

    page    whether it is drawn on the launch page, which has all of it and so names no key for more
    asking  whether a question over it has the launch line and the warnings: the lines are then blank
    """
    name, keymap, decided = _title(app_state), app_state.screen.keymap, app_state.selection.decided
    edit, copy, key, run, job = (
        key_of(action, keymap) for action in ("edit", "copy", "launch_page", "launch", "detach")
    )
    # Enter goes on once the command is typed; the key that edits only takes it.
    line, to_type = app_state.launch.line, f"{run} asks for a command and starts it"
    tail = [f"the demo's example: {edit} to edit"] if app_state.is_example else []
    if not app_state.options.command:
        line, tail = (f"{line} …", [to_type]) if decided else (to_type, [])
    lines = prompt_lines(wrap(line, width - 4), "" if decided else "dim")
    # The launch line keeps at least one line: what Enter starts matters more than the notes on it.
    told = (*app_state.launch.warnings, *app_state.warnings)
    refusal, shown = app_state.launch.refusal, told
    if refusal is not None and decided:
        told = (refusal, *(each for each in told if each != refusal))
        # Until that is solved, the rule is enough for the others.
        shown = told if page else told[:1]
    warnings = _warnings(shown, width, room.lines, len(lines), "" if page else key)
    if hidden := told[len(shown) * bool(warnings) :]:
        tail = [f"{counted(len(hidden), 'more warning' if warnings else 'warning')}: {key}", *tail]
    lines_of_it = max(1, room.lines - len(warnings))
    if len(lines) > lines_of_it:
        more = " …"
        if room.ruled and not page:
            tail = [f"{copy} copies all", f"{key} shows it", *tail]
        elif width >= _NARROW:
            more = f" … ({copy} copies all)"
        lines = _ending(lines[:lines_of_it], more, width)
    if asking:
        return _in_room([title(name, width)], [], room, page)
    lines += warnings
    more = " …" if page else f" … ({key} shows all)"
    remarks = _remarks(app_state.launch.remarks, width, max(0, room.lines - len(lines)), more)
    if app_state.launch.remarks and not remarks and not page and not tail:
        tail = [f"{key} shows notes"]
    if app_state.options.command and not (page or app_state.is_example):
        tail.append(f"{run} run · {job} as a job")
    return _in_room([title(name, width, *tail)], [*lines, *remarks], room, page)


def _in_room(rule: list[Line], lines: list[Line], room: LaunchRoom, page: bool) -> list[Line]:
    blank: list[Line] = [] if page else [((" ", ""),)] * (room.lines - len(lines))
    return [*(rule if room.ruled else ()), *lines, *blank]


def _title(app_state: AppState) -> str:
    """The program that starts; the launcher that will start where nothing is selected yet."""
    if not app_state.options.command:
        return "launch"
    # The unchanged line has no launcher; the plain one adds nothing to it.
    shown = app_state.selection.decided or app_state.launcher == "python"
    return f"launch: {app_state.starter}{'' if shown else ', once GPUs are selected'}"


def _remarks(remarks: Sequence[str], width: int, most: int, more: str) -> list[Line]:
    """The first remarks in at most `most` lines, whole where all have room. `more` is appended if something
    is left out."""
    rows: list[Line] = [(("   · ", "dim"), (remark, "dim")) for remark in remarks]
    every = [line for row in rows for line in hanging(row, width)]
    return every if len(every) <= most else _ending([clip(row, width) for row in rows[:most]], more, width)


def _warnings(warnings: Sequence[str], width: int, room: int, taken: int, key: str) -> list[Line]:
    """The warnings in the lines that the launch line, which wants `taken` of them, leaves, or in half of the
    room.

    Each is shown whole on its own lines. Where these are too many, short ones are beside each other, and a
    long one is cut to one line. If even these do not fit, the last line counts the others, with the `key` for
    all.
    """
    sign = ("  ! ", "warn")
    rows = [(sign, (warning, "warn")) for warning in warnings]
    lines: list[Line] = [line for row in rows for line in hanging(((" ", ""), *row), width)]
    kept = max(room // 2, room - taken)
    if len(lines) > kept:
        lines = flow(rows, width)
    if len(lines) <= kept:
        return lines
    others = sum(line.count(sign) for line in lines[kept:])
    more = f" … {counted(others, 'more warning')}"
    return _ending(lines[:kept], f"{more}: {key}" if key and width >= _NAMED else more, width)


def _ending(lines: list[Line], end: str, width: int) -> list[Line]:
    """The lines with these words at the end of the last line, which is cut to make room."""
    if lines:
        *head, (text, style) = lines[-1]
        room = width - width_of(tuple(head)) - cells_of(end)
        if cells_of(text) > room:
            text = set_cell_size(text, max(0, room)).rstrip()
        lines[-1] = clip((*head, (text.removesuffix("…") + end, style)), width)
    return lines
