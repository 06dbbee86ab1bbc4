"""The columns of usage, on the command line and on its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gputui.inventory.columns import Column, printed
from gputui.inventory.formatting import MIB, UNKNOWN, duration, number, printable, size
from gputui.timeline.usage import BY, Figures, Names

Row = tuple[Names, Figures]
MOST_ROWS = 200
"""The rows that are listed: of a year there are thousands of jobs, which nobody reads."""
_WIDEST_BAR = 32
_HELD = 512 * MIB
"""More memory in use than on a free device, by the default rules."""
_LEGEND, _UNKNOWN = "█ busy ░ idle", " · unknown"
_NOBODY = {"user": "nobody", "job": "no job", "device": "in line"}


def usage_columns(
    by: str, rows: Sequence[Row], labels: Mapping[str, str], width: int | None
) -> list[Column[Row]]:
    """The columns of rows by one of `BY` in `width` cells (None: any number). Where there is room for its
    legend, the last one is a bar: the GPU time, busy, idle, and unknown."""

    def named(name: str) -> Column[Row]:
        none = _NOBODY.get(name, UNKNOWN)
        return Column(name.upper(), lambda row: printable(labels.get(row[0][name], row[0][name])) or none)

    def figure(name: str, text: Callable[[Figures], str]) -> Column[Row]:
        # Who held nothing has no such figures: that is not the same as an unknown one.
        return Column(name, lambda row: text(row[1]) if row[1].held else "", right=True)

    columns = [
        *map(named, BY[by]),
        Column("GPU TIME", lambda row: _time(row[1].held), right=True),
        figure("IDLE", lambda each: _time(each.idle) if each.busy + each.idle else UNKNOWN),
        figure("UTIL", lambda each: number(each.utilization, "%")),
        Column("kWh", lambda row: _kilowatt_hours(row[1]), right=True),
        figure("PEAK MEM", lambda each: size(each.peak or None)),
        Column("WAITED", lambda row: duration(row[1].waited) if row[1].waited else "", right=True),
    ]
    most = max((each.held for _, each in rows), default=0.0)
    known = all(each.busy + each.idle >= 0.99 * each.held for _, each in rows)
    legend = _LEGEND if known else _LEGEND + _UNKNOWN
    left = _WIDEST_BAR if width is None else width - max(map(len, printed(columns, rows))) - 3
    if left < len(legend):
        return columns
    cells = min(left, _WIDEST_BAR)

    def bar(row: Row) -> str:
        if not row[1].held:
            if by == "device" and row[1].peak > _HELD:
                return "held, no visible process"
            unused = "not in use" if "user" not in row[0] else "unused GPUs"
            return unused if row[1].energy_known else ""
        held, busy, rest = (
            round(cells * _rounded(seconds) / _rounded(most))
            for seconds in (row[1].held, row[1].busy, row[1].busy + row[1].idle)
        )
        return "█" * min(busy, held) + "░" * (min(rest, held) - busy) + "·" * (held - rest)

    return [*columns, Column(legend, bar, "free")]


def _rounded(seconds: float) -> int:
    """The seconds as they are shown: in tenths of an hour, below that in minutes, below ten of these in
    seconds; a small amount is not nothing. The bars are made of these: equal figures have equal bars."""
    unit = 360 if seconds >= 3600 else 60 if seconds >= 600 else 1
    return max(unit, round(seconds / unit) * unit) if seconds else 0


def _time(seconds: float) -> str:
    whole = _rounded(seconds)
    if whole >= 3600:
        return f"{whole / 3600:.1f}h"
    if 60 <= whole < 600:
        return f"{whole // 60}m{whole % 60:02}s"
    return duration(whole) if whole else "0"


def _kilowatt_hours(figures: Figures) -> str:
    if figures.joules is None:
        return "" if figures.waited and not figures.held else UNKNOWN
    amount = figures.joules / 3.6e6
    return f"{amount:.1f}" if amount >= 0.05 else f"{max(0.01, amount):.2f}" if amount else "0"
