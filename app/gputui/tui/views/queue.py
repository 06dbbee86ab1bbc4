"""The queue: who waits for devices, at which place, and who has the devices that are not free."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.queue_outlook import (
    Occupied,
    Outlook,
    expectation,
    in_the_way,
    occupied_columns,
    turn_columns,
    who,
)
from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.views.text import (
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

_LEAST_COMMAND = 6
"""Cells below which the page has no column of commands: three letters of one say nothing."""
_NOBODY = " nobody is in line: w on the main screen waits for devices"


def worth_a_panel(app_state: AppState) -> bool:
    """Whether somebody waits, or somebody else holds a claim. (One's own are in the panel of jobs.)"""
    snapshot = app_state.snapshot
    return snapshot is not None and bool(snapshot.waiters or any(not claim.own for claim in snapshot.claims))


def lines_of_panel(app_state: AppState, width: int) -> tuple[int, int]:
    """How many lines the panel fills, and how many where no command is cut either: 0 where it has nothing to
    say."""
    if not worth_a_panel(app_state):
        return 0, 0
    snapshot, found = app_state.snapshot, app_state.outlook
    told = _told_in_panel(found, app_state)
    assert snapshot is not None
    rows = _in_line(found, snapshot)
    lines = [len(hanging(row, width)) for row in rows]
    heads = 1 + bool(found.turns and told) + _lines_of_told(told, snapshot, width)
    # (What the next one waits for, and who holds what, is what the panel is there for: it is never cut.)
    least = len(found.turns) + sum(lines[len(found.turns) :])
    return heads + least, heads + sum(lines)


def _lines_of_told(told: Sequence[Occupied], snapshot: Snapshot, width: int) -> int:
    return sum(len(hanging(row, width)) for row in _rows_of_told(told, snapshot))


def _rows_of_told(told: Sequence[Occupied], snapshot: Snapshot) -> list[Line]:
    return table_lines(occupied_columns(snapshot, commands=False), told)


def facts_of_panel(app_state: AppState) -> object:
    """All that the panel depends on: the texts of its rows, so that an age is as it is shown."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return None
    found = app_state.outlook
    reasons = [in_the_way(turn, snapshot) for turn in found.next[:1]]
    told = table_facts(occupied_columns(snapshot, commands=False), _told_in_panel(found, app_state))
    rows = table_facts(turn_columns(snapshot), found.turns)
    return rows, reasons, told, len(_listed(found, app_state))


def queue_panel(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule; who is in line; whose turn is next; who has claimed devices or does nothing with them.

    Of a long line the first ones are shown, the rule counts all; who holds what gives way to it. In two lines
    what is next says most. What the next one waits for is wrapped first, then who holds what, then the
    commands of those in line.
    """
    snapshot = app_state.snapshot
    if snapshot is None:
        return []
    found, room = app_state.outlook, height - 1
    turns = _in_line(found, snapshot)
    place = min(len(found.turns), max(0, room - len(found.next[:1])))
    rows = [*turns[:place], *turns[len(found.turns) :]]
    below = _told(_told_in_panel(found, app_state), found, app_state, room - len(rows))
    last = len(rows) + len(below)
    order = [*range(place, last), *range(place)]
    lines = wrapped_where_free([*rows, *below], width, room, order)
    return [headline(found, width, "Q"), *lines][:height]


def _told(told: Sequence[Occupied], found: Outlook, app_state: AppState, room: int) -> list[Line]:
    """Who holds what in `room` rows, under a heading where it stands below the line or where not all fit: the
    heading then says of how many, as every device that is not free has a row on the page only."""
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


def _in_line(found: Outlook, snapshot: Snapshot) -> list[Line]:
    """The rows of the panel about those who wait, and what the next one waits for."""
    reasons: list[Line] = [
        ((f" next {who(turn.waiter)}: ", "strong"), (in_the_way(turn, snapshot), ""))
        for turn in found.next[:1]
    ]
    return [*table_lines(turn_columns(snapshot), found.turns), *reasons]


def headline(found: Outlook, width: int, end: str = "") -> Line:
    """The rule at the top: how many are in line, how many of them are one's own, and what is said at its
    end."""
    count, ours = len(found.turns), sum(turn.waiter.ours for turn in found.turns)
    yours = (
        "" if not ours else ", yours" if ours == count == 1 else f", {'all' if ours == count else ours} yours"
    )
    tail = f"{count or 'nobody'} in line{yours}"
    return title("queue", width, tail, end)


def listed(found: Outlook, app_state: AppState, width: int) -> tuple[list[Line], list[int | None]]:
    """The whole page: two lines for each in line, then the devices that are not free. And which item each
    line shows, None for none: those in line, after them the devices."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return [clip(((" no reading yet", "dim"),), width)], [None]
    told: list[tuple[int | None, Line]] = []
    for place, (turn, row) in enumerate(
        zip(found.turns, table_lines(turn_columns(snapshot), found.turns), strict=True)
    ):
        reason = ((f"     {in_the_way(turn, snapshot)}", "dim" if turn.ahead else ""),)
        told += [(place, row), (place, reason)]
    if not found.turns:
        told.append((None, ((_NOBODY, "dim"),)))
    if found.occupied:
        told += [(None, ((" ", ""),)), (None, title("not free", width))]
        rows = table_lines(occupied_columns(snapshot), found.occupied)
        if width - min(width_of(row[:-1]) for row in rows) < _LEAST_COMMAND:
            rows = _rows_of_told(found.occupied, snapshot)
        told += enumerate(rows, len(found.turns))
        # (Part of the last item: whoever goes to the end sees it.)
        last = told[-1][0]
        told += [(last, line) for line in told_lines(expectation(found.occupied), "dim", width)]
    return [clip(line, width) for _, line in told], [item for item, _ in told]


def _listed(found: Outlook, app_state: AppState) -> list[Occupied]:
    """The devices that are not free, of those that the filter leaves."""
    listed = {device.key for device in app_state.rows}
    return [each for each in found.occupied if each.device.key in listed]


def _told_in_panel(found: Outlook, app_state: AppState) -> list[Occupied]:
    """The devices of which the panel says who has them."""
    return [
        each
        for each in _listed(found, app_state)
        if (each.claim and not (each.claim.own and each.claim.job))
        or each.hoarded
        or each.free_in is not None
    ]
