"""The queue: the waiters for devices in their order, and when the devices that are not free will be."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.queue_outlook import Occupied, Outlook
from gputui.choosing.queue_text import next_in_line, occupied_columns, turn_columns
from gputui.inventory.snapshot import Snapshot
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.table import why_no_rows
from gputui.tui.views.text import (
    ItemLines,
    Line,
    clip,
    hanging,
    table_lines,
    title,
    told_lines,
    width_of,
)

_LEAST_COMMAND = 12
"""Cells below which there is no column of commands: less is only the name of an interpreter."""


def _next(found: Outlook, snapshot: Snapshot) -> list[Line]:
    return [((f" {who}", "strong"), (why, "")) for who, why in next_in_line(found, snapshot)]


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
