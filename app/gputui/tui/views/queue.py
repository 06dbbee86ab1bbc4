"""The queue: the waiters for devices in their order, and when the devices that are not free will be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from gputui.choosing.queue_outlook import Occupied, Outlook
from gputui.choosing.queue_text import free_again, next_in_line, occupied_columns, turn_columns
from gputui.inventory.snapshot import Snapshot
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.layout import JOINED
from gputui.tui.views.table import why_no_rows
from gputui.tui.views.text import (
    ItemLines,
    Line,
    clip,
    hanging,
    table_facts,
    table_lines,
    title,
    told_lines,
    width_of,
    wrapped_where_free,
)

_LEAST_COMMAND = 12
"""Cells below which there is no column of commands: less is only the name of an interpreter."""
_MOST_TURNS = 100
"""The most waiters for which the panel has lines."""


def lines_of_panel(app_state: AppState, width: int) -> tuple[int, int]:
    """The number of lines that the panel fills, and the number where no command is cut; 0 where nobody waits:
    the table has the state of each device."""
    snapshot = app_state.snapshot
    if snapshot is None or not snapshot.waiters:
        return 0, 0
    found = app_state.outlook
    # The panel exists for the next waiter's reason and for when devices will be free: neither is ever cut.
    line, uncut = _line(found, snapshot), [*_next(found, snapshot)[:1], *devices_in_panel(found, snapshot)]
    least = 1 + len(line) + sum(len(hanging(row, width - 1)) for row in uncut)
    return least, least - len(line) + sum(len(hanging(row, width - 1)) for row in line)


def facts_of_panel(app_state: AppState) -> object:
    """All values that the panel depends on: its own texts, so that an age changes only with the shown
    text."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return None
    found = app_state.outlook
    rows = table_facts(turn_columns(snapshot), found.turns[:_MOST_TURNS])
    devices = table_facts(occupied_columns(snapshot)[:-1], found.in_the_way)
    return rows, next_in_line(found, snapshot)[:1], devices, len(found.turns), _numbers_of_jobs(app_state)


def queue_panel(app_state: AppState, width: int, height: int) -> list[Line]:
    """The beginning of the page in fewer lines: of a long line the first waiters, then the next one's reason,
    then when devices will be free. A mere heading has the numbers of the user's jobs, too.

    In two lines, the next waiter's reason is the most informative. It is wrapped first, then the rows of
    devices, then the commands of the waiters. A heading without rows below it is left out.
    """
    snapshot = app_state.snapshot
    if snapshot is None:
        return []
    found, room, key = app_state.outlook, height - 1, key_of("queue", app_state.screen.keymap)
    line, reasons = _line(found, snapshot), _next(found, snapshot)[:1]
    line = line[: max(0, room - len(reasons))]
    line = line if len(line) > 1 else []
    devices, left = devices_in_panel(found, snapshot), room - len(line) - len(reasons)
    if len(devices) > left:
        more: Line = ((f" … {len(found.in_the_way) - max(0, left - 2)} more: {key}", "dim"),)
        devices = [*devices[: left - 1], more] if left > 2 else []
    last = len(line) + len(reasons) + len(devices)
    order = [*range(len(line), last), *range(len(line))]
    wholes = wrapped_where_free([*line, *reasons, *devices], width - 1, room, order)
    rows = list(chain.from_iterable(wholes))
    jobs = _numbers_of_jobs(app_state)
    if jobs and not room and width >= JOINED:
        return [title("jobs, queue", width, jobs, f"{numbers(found)}: {key}")]
    return [title("queue", width, numbers(found), key), *rows][:height]


def _numbers_of_jobs(app_state: AppState) -> str:
    """The user's jobs, which have no panel of their own where the queue has only its heading; "" for none."""
    if not app_state.box.jobs or "jobs" in app_state.screen.hidden:
        return ""
    # Imported here: not needed without jobs.
    from gputui.tui.views import jobs

    return f"{jobs.numbers(app_state.box.jobs)}: {key_of('jobs', app_state.screen.keymap)}"


def _line(found: Outlook, snapshot: Snapshot) -> list[Line]:
    """The waiters below their heading; nothing where nobody waits."""
    turns = found.turns[:_MOST_TURNS]
    return table_lines(turn_columns(snapshot), turns, heading=True) if turns else []


def _next(found: Outlook, snapshot: Snapshot) -> list[Line]:
    return [((f" {who}", "strong"), (why, "")) for who, why in next_in_line(found, snapshot)]


def devices_in_panel(found: Outlook, snapshot: Snapshot) -> list[Line]:
    """The devices of which something is known of when they will be free, and the number of the others."""
    told = [each for each in found.in_the_way if free_again(each, snapshot.time)]
    others = len(found.in_the_way) - len(told)
    rest: list[Line] = [((f" unknown for the other {others}", "dim"),)] if told and others else []
    return [*_devices(told, snapshot), *rest]


def _devices(occupied: Sequence[Occupied], snapshot: Snapshot, width: int = 0) -> list[Line]:
    """The devices that are not free below their heading; with the commands where the `width` has room."""
    if not occupied:
        return []
    columns = occupied_columns(snapshot)
    rows = table_lines(columns, occupied, heading=True)
    if width - min(width_of(row[:-1]) for row in rows) >= _LEAST_COMMAND:
        return [clip(row, width) for row in rows]
    return table_lines(columns[:-1], occupied, heading=True)


def numbers(found: Outlook) -> str:
    """The number of waiters and that of the user's own: "2 in line, 1 yours"."""
    count, ours = len(found.turns), sum(turn.waiter.ours for turn in found.turns)
    yours = (
        "" if not ours else ", yours" if ours == count == 1 else f", {'all' if ours == count else ours} yours"
    )
    return f"{count or 'nobody'} in line{yours}"


def listed(found: Outlook, app_state: AppState, width: int) -> ItemLines:
    """The whole page: the waiters and the next ones' reasons, then the devices in their way. Also the
    index of the item that each line shows, None for none: the waiters, after them the devices."""
    snapshot = app_state.snapshot
    if snapshot is None:
        lines = told_lines(why_no_rows(app_state), "dim", width)
        return lines, [None] * len(lines)
    told: list[tuple[int | None, Line]] = []
    if found.turns:
        rows = table_lines(turn_columns(snapshot), found.turns, heading=True)
        told += zip([None, *range(len(found.turns))], rows, strict=True)
        told += [(None, piece) for row in _next(found, snapshot) for piece in hanging(row, width)]
    else:
        key = key_of("wait", app_state.screen.keymap)
        joins = f"{key} on the main screen joins it: the command starts once GPUs are free"
        told += [(None, line) for line in told_lines(joins, "dim", width)]
    if found.in_the_way:
        told += [(None, ((" ", ""),)), (None, title("when GPUs will be free", width))]
        for item, row in enumerate(_devices(found.in_the_way, snapshot, width), len(found.turns) - 1):
            told += [(item if item >= len(found.turns) else None, piece) for piece in hanging(row, width)]
    return [clip(line, width) for _, line in told], [item for item, _ in told]
