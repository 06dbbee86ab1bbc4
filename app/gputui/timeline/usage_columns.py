"""The columns of usage, on the command line and on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.inventory.columns import Column
from gputui.inventory.formatting import UNKNOWN, duration, energy, number, printable, size
from gputui.timeline.usage import BY, Figures, Names

Row = tuple[Names, Figures]
_BAR = 16


def usage_columns(by: str, rows: Sequence[Row], labels: Mapping[str, str]) -> list[Column[Row]]:
    """The columns of rows by one of `BY`, the last one a bar: the time held, its filled part busy."""
    most = max((each.held for _, each in rows), default=0.0)

    def bar(row: Row) -> str:
        held, busy = (round(_BAR * seconds / most) if most else 0 for seconds in (row[1].held, row[1].busy))
        return "█" * min(busy, held) + "░" * (held - busy)

    def named(name: str) -> Column[Row]:
        none = "nobody" if name == "user" else UNKNOWN
        return Column(name.upper(), lambda row: printable(labels.get(row[0][name], row[0][name])) or none)

    def hours(name: str) -> Column[Row]:
        return Column(name.upper(), lambda row: _hours(getattr(row[1], name)), right=True)

    return [
        *map(named, BY[by]),
        *map(hours, ("held", "busy", "idle")),
        Column("UTIL", lambda row: number(row[1].utilization, "%"), right=True),
        Column("ENERGY", lambda row: energy(row[1].joules), right=True),
        Column("PEAK", lambda row: size(row[1].peak or None), right=True),
        Column("WAITED", lambda row: duration(row[1].waited) if row[1].waited else UNKNOWN, right=True),
        Column("", bar, "free"),
    ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f}h" if seconds >= 3600 else duration(seconds)
