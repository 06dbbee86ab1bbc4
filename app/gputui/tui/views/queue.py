"""The queue: the waiters for devices in their order, and the holders of the devices that are not free."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.queue_outlook import Occupied, Outlook
from gputui.choosing.queue_text import (
    blocking_reason,
    expectation,
    occupied_columns,
    turn_columns,
    waiter_name,
)
from gputui.inventory.snapshot import Snapshot
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.table import why_no_rows
from gputui.tui.views.text import (
    Line,
    clip,
    column_widths,
    hanging,
    table_facts,
    table_lines,
    title,
    told_lines,
    width_of,
    wrapped_where_free,
)

_LEAST_COMMAND = 6
"""Cells below which the page has no column of commands: three letters of a command say nothing."""
_NOBODY = " nobody is in line: w on the main screen waits for devices"


_MOST_TURNS = 100
"""The most waiters for which the panel has lines."""


def worth_a_panel(app_state: AppState) -> bool:
    """Whether anybody waits, or another user holds a claim. The user's own claims are in the panel of
    jobs."""
    snapshot = app_state.snapshot
    return snapshot is not None and bool(snapshot.waiters or any(not claim.own for claim in snapshot.claims))


def lines_of_panel(app_state: AppState, width: int) -> int:
    """The number of lines that the panel fills; 0 where it has no content. It exists for the next waiter's
    reason and for the holders, whose lines are never cut."""
    snapshot = app_state.snapshot
    if snapshot is None or not worth_a_panel(app_state):
        return 0
    found = app_state.outlook
    (turns, reasons), told = _in_line(found, snapshot), _told_in_panel(found, app_state)
    whole = [hanging(row, width) for row in (*reasons, *_rows_of_told(told, snapshot))]
    return 1 + len(turns) + bool(turns and told) + sum(map(len, whole))


def _rows_of_told(told: Sequence[Occupied], snapshot: Snapshot) -> list[Line]:
    return table_lines(occupied_columns(snapshot, commands=False), told)


def facts_of_panel(app_state: AppState) -> object:
    """All values that the panel depends on: its own texts, so that an age changes only with the shown
    text."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return None
    found = app_state.outlook
    reasons = [blocking_reason(turn, snapshot) for turn in found.next[:1]]
    told = table_facts(occupied_columns(snapshot, commands=False), _told_in_panel(found, app_state))
    rows = table_facts(turn_columns(snapshot), found.turns[:_MOST_TURNS])
    return rows, reasons, told, len(_listed(found, app_state)), len(found.turns)


def queue_panel(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule, the waiters, the next waiter's reason, and the holders of claimed or idle devices.

    Of a long queue the first waiters are shown, and the rule counts all; the queue takes precedence over the
    holders. In two lines, the next waiter's reason is the most informative. It is wrapped first, then the
    holders, then the commands of the waiters.
    """
    snapshot = app_state.snapshot
    if snapshot is None:
        return []
    found, room = app_state.outlook, height - 1
    turns, reasons = _in_line(found, snapshot)
    place = min(len(turns), max(0, room - len(reasons)))
    rows = [*turns[:place], *reasons]
    below = _told(_told_in_panel(found, app_state), found, app_state, room - len(rows))
    last = len(rows) + len(below)
    order = [*range(place, last), *range(place)]
    lines = wrapped_where_free([*rows, *below], width, room, order)
    return [headline(found, width, key_of("queue", app_state.screen.keymap)), *lines][:height]


def _told(told: Sequence[Occupied], found: Outlook, app_state: AppState, room: int) -> list[Line]:
    """The holders of devices in `room` rows. They have a heading below the queue, or where not all fit: the
    heading then counts all devices that are not free, which only the page lists."""
    snapshot = app_state.snapshot
    if snapshot is None or not told or room < 1:
        return []
    rows = _rows_of_told(told, snapshot)
    if not found.turns and len(rows) <= room:
        return rows
    if room == 1:
        numbers = ",".join(snapshot.label(each.device) for each in told)
        return [((f" not free: GPU {numbers}", "dim"),)]
    shown, every = min(room - 1, len(rows)), len(_listed(found, app_state))
    count = f" ({shown} of {every} shown)" if shown < every else ""
    return [((f" not free{count}", "dim"),), *rows[:shown]]


def _in_line(found: Outlook, snapshot: Snapshot) -> tuple[list[Line], list[Line]]:
    """The rows of the panel about the waiters, and the row with the next waiter's reason."""
    reasons: list[Line] = [
        ((f" next: {waiter_name(turn.waiter)} · ", "strong"), (blocking_reason(turn, snapshot), ""))
        for turn in found.next[:1]
    ]
    return table_lines(turn_columns(snapshot), found.turns[:_MOST_TURNS]), reasons


def headline(found: Outlook, width: int, end: str = "") -> Line:
    """The rule at the top: the number of waiters, the number of the user's own, and the text `end`."""
    count, ours = len(found.turns), sum(turn.waiter.ours for turn in found.turns)
    yours = (
        "" if not ours else ", yours" if ours == count == 1 else f", {'all' if ours == count else ours} yours"
    )
    tail = f"{count or 'nobody'} in line{yours}"
    return title("queue", width, tail, end)


def listed(found: Outlook, app_state: AppState, width: int) -> tuple[list[Line], list[int | None]]:
    """The whole page: two lines for each waiter, then the devices that are not free. Also the index of the
    item that each line shows, None for none: the waiters, after them the devices."""
    snapshot = app_state.snapshot
    if snapshot is None:
        lines = told_lines(why_no_rows(app_state), "dim", width)
        return lines, [None] * len(lines)
    told: list[tuple[int | None, Line]] = []
    for place, (turn, row) in enumerate(
        zip(found.turns, table_lines(turn_columns(snapshot), found.turns), strict=True)
    ):
        reason = ((f"     {blocking_reason(turn, snapshot)}", "dim" if turn.ahead else ""),)
        told += [(place, row), (place, reason)]
    if not found.turns:
        told.append((None, ((_NOBODY, "dim"),)))
    if found.occupied:
        told += [(None, ((" ", ""),)), (None, title("not free", width))]
        columns = occupied_columns(snapshot)
        cells = column_widths(columns, found.occupied)
        # A column that may be empty for a moment keeps its place.
        cells = {each: cells.get(each, each.least) for each in columns if each in cells or each.least}
        rows = table_lines(columns, found.occupied, widths=cells)
        if width - min(width_of(row[:-1]) for row in rows) < _LEAST_COMMAND:
            rows = _rows_of_told(found.occupied, snapshot)
        told += enumerate(rows, len(found.turns))
        # These lines belong to the last item, so that a user who goes to the end sees them.
        last = told[-1][0]
        told += [(last, line) for line in told_lines(expectation(found.occupied), "dim", width)]
    return [clip(line, width) for _, line in told], [item for item, _ in told]


def _listed(found: Outlook, app_state: AppState) -> list[Occupied]:
    """The devices that are not free and pass the filter."""
    listed = {device.key for device in app_state.rows}
    return [each for each in found.occupied if each.device.key in listed]


def _told_in_panel(found: Outlook, app_state: AppState) -> list[Occupied]:
    """The devices whose holders the panel shows."""
    return [
        each
        for each in _listed(found, app_state)
        if (each.claim and not (each.claim.own and each.claim.job))
        or each.hoarded
        or each.free_in is not None
    ]
