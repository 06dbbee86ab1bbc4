"""The device table: a heading and one row per device, in the listed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gputui.choosing.verdict import GLYPHS, UsedBy
from gputui.choosing.verdict_text import brief, idle_text, your_job
from gputui.inventory.device import Device
from gputui.inventory.formatting import duration, printable
from gputui.sources.source import Want
from gputui.tui.app_state import NO_DEVICES, AppState
from gputui.tui.device_rows import RISING
from gputui.tui.views.columns import BEFORE, Cell, Columns, label_of
from gputui.tui.views.text import Line, Span, cells_of, clip, fit, padded, place_mark, wrap

_GAP = "   "
"""The gap before the note at the right end of the heading."""
_BEFORE_STATE = "  "

OWN_JOB = "▶"
"""The sign of a device that the user's own job has."""

_LONG_ENOUGH = 60
"""Seconds after which "free" is followed by how long the device has been free."""

_LINES_OF_FILTER = 3
"""Lines for the text of a filter that matches nothing."""

_LONGEST_FILTER = 30
"""The most cells of a filter in a text."""

_SORTED_IN_STATE = ("state", "user")
"""The sort orders whose value is in the column of the state."""


class Table(NamedTuple):
    """The lines of a table, and what they show.

    keys   the device of each line below the heading
    lit    the line of the cursor, None where it is not among them
    needs  the facts that a source has to read for the displayed columns
    """

    lines: list[Line]
    keys: tuple[str, ...] = ()
    lit: int | None = None
    needs: Want = Want.PROCESSES | Want.OWNERS


def table(app_state: AppState, width: int, height: int, top: int = 0) -> Table:
    """The table in `height` lines, starting at row `top`."""
    rows = app_state.rows
    if not rows:
        return Table(nothing(app_state, width))
    columns = columns_of(app_state, width)
    shown = rows[top : top + max(1, height - 1)]
    lines = [heading(app_state, columns, width, top, len(rows) - top - len(shown))]
    lines += [row(app_state, device, columns, width) for device in shown]
    lit = next((n for n, device in enumerate(shown, 1) if device.key == app_state.cursor), None)
    return Table(lines, tuple(device.key for device in shown), lit, columns.needs)


def columns_of(app_state: AppState, width: int) -> Columns:
    """The columns that fit into `width`; the user's own columns leave room for the states."""
    states = app_state.once(_states) if app_state.screen.columns else {}
    words = [states[device.key][1] for device in app_state.rows] if states else []
    return Columns.of(app_state, width, max((2 + cells_of(each) for each in words), default=0))


def heading(app_state: AppState, columns: Columns, width: int, above: int = 0, below: int = 0) -> Line:
    """The names of the columns, and notes on a sort, a filter, and devices above and below."""
    c, gap, sort = columns, " " * columns.gap, app_state.screen.sort
    sign = "▲" if sort in RISING else "▼"
    state = f"STATE{sign}" if sort == "state" else f"STATE{sign} by user" if sort == "user" else "STATE"
    names: list[tuple[str | None, str]] = [(None, " " * BEFORE + fit("#", c.label, right=not c.tree))]
    names += [
        (column.id, gap + fit(column.heading + sign * (column.id == sort), cells, right=column.right))
        for column, cells in c.shown
    ]
    names.append((sort if sort in _SORTED_IN_STATE else None, _BEFORE_STATE + state))
    hidden = [f"{mark} {count} more" for mark, count in (("▲", above), ("▼", below)) if count > 0]
    notes = [" ".join(hidden)] if hidden else []
    if app_state.screen.filter:
        notes.insert(0, _filter_note(app_state, width - sum(cells_of(name) for _, name in names)))
    shown, ids = _names_that_fit(names, notes, width)
    if sort is not None and sort not in ids:
        notes.insert(0, f"{sort}{sign}")
        shown, _ = _names_that_fit(names, notes, width)
    line: Line = ((fit(shown, width), "dim"),)
    return _with_mark(line, f"{_GAP}{'  '.join(notes)}", width) if notes else line


def _names_that_fit(
    names: Sequence[tuple[str | None, str]], notes: Sequence[str], width: int
) -> tuple[str, list[str | None]]:
    """The names of columns next to the notes, each whole or not at all; and the sort order of each."""
    room = width - (cells_of("  ".join(notes)) + len(_GAP) if notes else 0)
    text, ids = "", []
    for id, name in names:
        if cells_of(text + name) > room:
            break
        text += name
        ids.append(id)
    return text, ids


def _filter_note(app_state: AppState, room: int) -> str:
    """How many of all devices are listed, and why not all, in the `room` beside the names of the columns."""
    listed, every = len(app_state.rows), len(app_state.box.devices)
    hidden, words = _hidden_and_selected(app_state), printable(app_state.screen.filter)
    words = f"“{words}”" + (f", hides {hidden} selected" if hidden else "")
    short = f"{listed} of {every}: {words}, esc"
    notes = f"{listed} of {every}: filter {words}, esc clears", f"{short} clears"
    return next((note for note in notes if cells_of(_GAP + note) <= room), short)


def _hidden_and_selected(app_state: AppState) -> int:
    """How many selected devices the filter hides."""
    return len({*app_state.selection} - {device.key for device in app_state.rows})


def filter_in_title(app_state: AppState) -> str:
    """The note on the filter in the title of a panel that follows it; "" without one."""
    return f"filter: {_short_filter(app_state)}" if app_state.screen.filter else ""


def _short_filter(app_state: AppState) -> str:
    words = printable(app_state.screen.filter)
    return words if cells_of(words) <= _LONGEST_FILTER else fit(words, _LONGEST_FILTER)


def _with_mark(line: Line, mark: str, width: int) -> Line:
    """The line with a mark over its right end."""
    mark = fit(mark, min(width, cells_of(mark)))
    room = width - cells_of(mark)
    *before, last = line
    while before and not last[0].strip():
        last = before.pop()
    kept = clip((*before, (last[0].rstrip(), last[1])), room)
    return (*padded(kept, room), (mark, "key"))


def nothing(app_state: AppState, width: int) -> list[Line]:
    """The text in place of the devices when there are none."""
    words = why_no_rows(app_state)
    if app_state.filter_hides_all:
        words += ": esc clears it"
    return [((" ", ""),), *(((f"  {piece}", "dim"),) for piece in wrap(words, width - 4))]


def rows_of_table(app_state: AppState) -> int:
    """How many lines the table has below its heading; 0 for a text that takes all the room.

    Where a filter hides all devices, the panels stay.
    """
    return len(app_state.rows) or (_LINES_OF_FILTER if app_state.filter_hides_all else 0)


def why_no_rows(app_state: AppState) -> str:
    """Why no device is listed; for a filter, also how many devices it hides."""
    if app_state.problem:
        return app_state.problem
    if app_state.snapshot is None:
        return "reading the box …"
    hidden = len(app_state.box.devices)
    if not hidden:
        return NO_DEVICES
    selected = _hidden_and_selected(app_state)
    also = f", {selected} selected" if selected else ""
    return f"no GPU matches the filter “{_short_filter(app_state)}” ({hidden} hidden{also})"


def row(app_state: AppState, device: Device, columns: Columns, width: int) -> Line:
    """One device in exactly `width` cells. Equal boards give equal lines, so that unchanged rows stay."""
    c, gap = columns, " " * columns.gap
    rank = app_state.selection.rank(device.key)
    given = not app_state.limits or device.key in app_state.limits.keys
    sign, words, look = state_of(app_state, device)
    # The whole row has the tone of its state: one glance finds the free devices. Numbers of a busy device are
    # quieter than its state.
    tone = "dim" if device.mig or not given else look
    numbers = "busy-quiet" if tone.startswith("busy") else tone
    label = fit(label_of(app_state, device, c.tree), c.label, right=not c.tree)
    spans: list[Span] = [
        ("▸" if device.key == app_state.cursor else " ", "cursor"),
        *place_mark(rank),
        (label, "strong" if rank is not None else numbers),
    ]
    memory = app_state.box.memory(device)
    for column, cells in c.shown:
        spans.append((gap, ""))
        spans += column.spans(device, Cell(cells, numbers, tone, c.box, memory))
    cause = app_state.verdicts[device.key].cause
    if cells_of(words) > c.state - 2 and isinstance(cause, UsedBy):
        unused = idle_text(cause, app_state.box.time)
        if not unused:
            # At the end is how long the device has been in use.
            words, _, age = words.rpartition(" ")
            words = f"{fit(words, c.state - 3 - len(age))} {age}"
        elif unused in words:
            # Without the program, which is what matters least of one that does nothing.
            words = f"{words.split()[0]} {words[words.index(unused) :]}"
    spans += [(f"{_BEFORE_STATE}{sign} ", look), (words, look if given else tone)]
    return padded(tuple(spans), width)


StateShown = tuple[str, str, str]
"""A sign, words and a style."""


def state_of(app_state: AppState, device: Device) -> StateShown:
    """How the state of a device is shown: the same in the table, the tree and the matrix."""
    if app_state.limits and device.key not in app_state.limits.keys:
        state = app_state.verdicts[device.key].state
        return GLYPHS[state], f"not yours, {state}", state
    return app_state.once(_states)[device.key]


def _states(app_state: AppState) -> dict[str, StateShown]:
    return {device.key: _state(app_state, device) for device in app_state.box.devices}


def _state(app_state: AppState, device: Device) -> StateShown:
    """The same without regard to limits. The words are the brief text of the verdict, with how long the
    device has been free; or the text of our job on it, after what else is there."""
    verdict, now = app_state.verdicts[device.key], app_state.box.time
    job = app_state.own_job_on(device.key, shared=True)
    if job is not None and app_state.own_job_on(device.key) is not None:
        return OWN_JOB, your_job(job, now), "mine"
    main = verdict.cause.processes[0] if isinstance(verdict.cause, UsedBy) else None
    words = brief(verdict, now)
    if job is not None:
        return OWN_JOB, f"{words}, {your_job(job, now)}", verdict.shown
    lasting = app_state.seconds_in_state(device.key)
    if verdict.free and lasting >= _LONG_ENOUGH:
        words = f"{words} {duration(lasting)}"
    if verdict.shown != "busy" or main is None:
        return GLYPHS[verdict.shown], words, verdict.shown
    # Who uses nothing is told at once by the tone, and after a while by the word.
    look = "mine" if main.own else "busy-low" if device.utilization == 0 else "busy"
    return GLYPHS["busy"], words, look
