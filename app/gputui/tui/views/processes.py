"""The processes on each device, the holders of devices without processes, and the people who have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from gputui.choosing.verdict import GLYPHS
from gputui.inventory.columns import Column
from gputui.inventory.formatting import number, size
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.process import Process
from gputui.inventory.snapshot import ProcessGroup
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import Fold, Row, folded, groups
from gputui.tui.views.table import filter_in_title
from gputui.tui.views.text import (
    Line,
    clip,
    column_widths,
    table_lines,
    title,
    wrapped_where_free,
)

_WIDE = 50
"""Cells from which the panel has room for a column of process ids."""
_MOST_USER = 12

_COMMAND = 24
"""Cells that a command keeps before an optional column is shown."""


# On the main screen


def _tone(fold: Fold) -> str:
    return "strong" if fold.current else ""


_WIDE_PANEL: tuple[Column[Fold], ...] = (
    Column("GPU", lambda fold: fold.row.label, "dim"),
    Column("USER", lambda fold: fold.row.user, _tone, most=_MOST_USER),
    Column("MEMORY", lambda fold: fold.row.memory, _tone, right=True),
    Column("FOR", lambda fold: fold.row.age, _tone, right=True, least=6),
    Column("PID", lambda fold: fold.row.pid, "dim", right=True),
    Column("COMMAND", lambda fold: fold.row.short, lambda fold: _tone(fold) or "dim"),
)
_NARROW_PANEL = tuple(column for column in _WIDE_PANEL if column.name != "PID")

_ORDERED = "idle first, then yours"
"""The order of the rows."""

_MOST_BELOW_HEADING = 5
"""Most devices that need a line each before the names of the columns get one."""


def lines_with_heading(app_state: AppState) -> int:
    """From how many lines on the panel names its columns: with a row for each device, or for several. The
    number of devices does not change, so that nothing moves when processes start and end."""
    return 2 + min(len(app_state.rows), _MOST_BELOW_HEADING)


def _with_cursor(app_state: AppState, found: Sequence[ProcessGroup], room: int) -> list[ProcessGroup]:
    """The groups that have a row, in their order: those of the device at the cursor, and the first others."""

    def elsewhere(place: int) -> bool:
        return all(device.key != app_state.cursor for device, _ in found[place])

    return [found[place] for place in sorted(sorted(range(len(found)), key=elsewhere)[:room])]


def devices_to_come(app_state: AppState) -> int:
    """How many of the listed devices have no process and may get one at any time."""
    return sum(app_state.verdicts[device.key].state in ("free", "claimed") for device in app_state.rows)


def processes(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule, and a row for each job with its processes; a wide panel wraps commands where lines are free.

    The rule has the number of hidden rows, and the key of the page with all of them.
    """
    headed = height >= lines_with_heading(app_state)
    found, room = app_state.once(groups), height - 1 - headed
    shown = folded(app_state, _with_cursor(app_state, found, room))
    hidden = len(found) - len(shown)
    key = key_of("processes", app_state.screen.keymap)
    # Above a list of busy devices of others, the order would be wrong for the first row.
    process = shown[0].row.process if shown else None
    ordered = headed and process is not None and (shown[0].idle or process.own)
    tails = _ORDERED if ordered else "", f"{hidden} more: {key}" if hidden else key
    lines = [title("processes", width, filter_in_title(app_state), *tails)]
    if not found:
        return [*lines, clip(((_nothing(app_state), "dim"),), width)] if app_state.snapshot else lines
    rows = table_lines(_WIDE_PANEL if width >= _WIDE else _NARROW_PANEL, shown, heading=headed)
    heading, rows = rows[:headed], rows[headed:]
    for place, fold in enumerate(shown):
        if fold.idle:
            *head, command = rows[place]
            rows[place] = (*head, (f"{GLYPHS['idle']} ", "idle"), command)
    wholes = wrapped_where_free(rows, width - 1, room if width >= _WIDE else 0)
    return [*lines, *heading, *chain.from_iterable(wholes)]


def _nothing(app_state: AppState) -> str:
    """The text in place of processes."""
    if app_state.filter_hides_all:
        return " none: no GPU matches the filter"
    listed = any(device.processes is not None for device in app_state.rows)
    return " none" if listed or not app_state.rows else " the driver does not list processes"


# On a page


def _figure(text: Callable[[Process], str]) -> Callable[[Row], str]:
    return lambda row: text(row.process) if row.process else ""


# Figures change, but the widths of their columns must not.
_DEVICE = Column[Row]("GPU", lambda row: row.label, "dim", right=True)
_PID = Column[Row]("PID", lambda row: row.pid, "dim", right=True)
_USER = Column[Row]("USER", lambda row: row.user, lambda row: "strong" if row.person else "", most=18)
_LOAD = Column[Row]("LOAD", _figure(lambda process: number(process.sm, "%")), right=True, least=4)
_MEMORY = Column[Row]("MEMORY", lambda row: row.memory, right=True)
_CPU = Column[Row]("CPU", _figure(lambda process: number(process.host_cpu, "%")), right=True, least=5)
_RAM = Column[Row]("RAM", _figure(lambda process: size(process.host_memory)), right=True, least=6)
_AGE = Column[Row]("FOR", lambda row: row.age, right=True, least=6)
_WHERE = Column[Row]("WHERE", lambda row: row.where, "dim")

_STATE = Column[Row](
    "STATE", lambda row: row.state, lambda row: "idle" if row.idle else "" if row.process else row.state
)

_ORDER = (_DEVICE, _PID, _USER, _LOAD, _MEMORY, _CPU, _RAM, _AGE, _WHERE, _STATE)
_OPTIONAL = (_LOAD, _CPU, _RAM, _WHERE)
"""The columns that are shown where the command keeps enough room, the most important first."""


@frozen
class Listing:
    """A heading, the index of the row that each line shows, and `lines(first, end)`, which draws a range.

    Only a range is drawn: of two thousand processes, fifty are on the screen.
    """

    heading: Line
    items: tuple[int, ...]
    lines: Callable[[int, int], list[Line]]


def listed(
    found: Sequence[Row], width: int, height: int | None = None, of_one_device: bool = False
) -> Listing:
    """The rows in columns; a tree is indented. Load, CPU, RAM and the container have columns where the
    command keeps enough room; programs are without their paths.

    Of a list that fits in `height` lines, as many rows are wrapped as there is room for; the others are cut.
    """
    widths = _columns(found, width, of_one_device)
    room = max(10, width - 1 - sum(cells + 2 for cells in widths.values()))

    def where(row: Row) -> str:
        return f" ({row.where})" if row.where and _WHERE not in widths else ""

    def command(row: Row) -> str:
        branch = "  " * (row.depth - 1) + "└ " if row.depth else ""
        return branch + row.short + where(row)

    def tone(row: Row) -> str:
        return "warn" if row.person else "" if row.process else "dim"

    widths[Column("COMMAND", command, tone)] = room
    (heading,) = table_lines([], [], heading=True, widths=widths)
    if height is not None and len(found) <= height:
        whole = wrapped_where_free(table_lines([], found, widths=widths), width, height)
        items = tuple(place for place, lines in enumerate(whole) for _ in lines)
        every = list(chain.from_iterable(whole))
        return Listing(clip(heading, width), items, lambda first, end: every[first:end])

    def some(first: int, end: int) -> list[Line]:
        return [clip(line, width) for line in table_lines([], found[first:end], widths=widths)]

    return Listing(clip(heading, width), tuple(range(len(found))), some)


def _columns(found: Sequence[Row], width: int, of_one_device: bool) -> dict[Column[Row], int]:
    """The columns before the command that fit, in their order, with their widths in cells."""
    widths = column_widths(_ORDER[1 if of_one_device else 0 :], found)
    optional = [column for column in _OPTIONAL if column in widths]
    left = width - 1 - sum(cells + 2 for column, cells in widths.items() if column not in optional)
    for column in optional:
        if left - widths[column] - 2 >= _COMMAND:
            left -= widths[column] + 2
        else:
            del widths[column]
    return widths
