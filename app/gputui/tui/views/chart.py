"""A single chart: the values over a span of time as lines of blocks, and the axis below them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from gputui.timeline.store import Span
from gputui.tui.views.text import Line

_STEPS = " ▁▂▃▄▅▆▇█"

_TICKS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600)
"""Seconds from one mark of the axis to the next."""
TICK_ROOM = 11
"""The least cells from one mark to the next: a chart is no narrower."""


def chart(
    means: Sequence[float],
    peaks: Sequence[float],
    span: Span,
    tall: int,
    full: float,
    cursor: float | None,
    close: bool,
    ruled: bool,
) -> list[Line]:
    """A chart of these means in `tall` lines from 0 to `full`, the newest column at the right; above the mean
    of a column, a second shade goes up to its highest value (`peaks`) where that is well above.

    close     whether another chart may be directly above: an eighth of a line stays free between them
    ruled     whether there are dotted lines at 50 and 100 %
    """
    levels, highest = (_levels(values, tall * 8 - close, full) for values in (means, peaks))
    dotted = {tall - 1, half_line(tall)} if ruled and tall > 2 else set()
    marked = _marked(span, cursor)

    def cell(line: int, place: int, level: int, peak: int) -> tuple[str, str]:
        text, style = " ", "load"
        filled = level - line * 8
        shaded = filled if peak <= level + 8 else peak - line * 8
        if filled > 0:
            text = _STEPS[min(8, filled)]
            style = "load-peaked" if filled < 8 <= shaded else "load"
        elif level and shaded > 0:
            text, style = _STEPS[min(8, shaded)], "rest"
        elif level and line in dotted:
            text, style = "┈", "rest"
        if place == marked:
            return (text if text not in " ┈" else "│"), "cursor"
        return text, style

    rows: list[Line] = []
    for line in reversed(range(tall)):
        cells = [cell(line, place, *each) for place, each in enumerate(zip(levels, highest, strict=True))]
        runs = groupby(cells, key=lambda each: each[1])
        rows.append(tuple(("".join(text for text, _ in run), style) for style, run in runs))
    return rows


def _marked(span: Span, cursor: float | None) -> int:
    """The column of the cursor; one outside the span for none."""
    return -1 if cursor is None else span.column(cursor)


def _levels(values: Sequence[float], most: int, full: float) -> list[int]:
    """The values in eighths of a line, `most` at most: a known value is at least 1, an unknown value is 0."""
    scale = most / full
    levels = [0 if v != v else int(v * scale + 0.5) or 1 for v in values]
    return levels if max(levels) <= most else [min(level, most) for level in levels]


def half_line(tall: int) -> int | None:
    """The line of 50 %, counted from below; None where the chart is too low for it."""
    return (tall * 4 - 1) // 8 if tall >= 5 else None


# The axis


def mark(span: Span, cursor: float | None) -> Line:
    """The line below the axis with the cursor's mark, so that the axis stays readable."""
    marked = _marked(span, cursor)
    if not 0 <= marked < span.columns:
        return ((" " * span.columns, ""),)
    return (" " * marked, ""), ("▲", "cursor"), (" " * (span.columns - marked - 1), "")


def axis(span: Span) -> Line:
    """Marks with their times: back from now, or the time of day where hours are shown."""
    least = 60 if span.seconds > 120 else 1
    tick = next((t for t in _TICKS if t >= least and t / span.step >= TICK_ROOM), _TICKS[-1])
    cells = ["─"] * span.columns
    for column, label in reversed(_ticks(span, tick)):
        text = f"╵{label}"
        if column >= 0 and column + len(text) <= span.columns - len("now") - 1:
            cells[column : column + len(text)] = text
    if span.columns > 4:
        cells[-4:] = " now"
    return (("".join(cells), "dim"),)


def _ticks(span: Span, tick: int) -> Sequence[tuple[int, str]]:
    """The columns of the marks, and their labels."""
    if span.seconds <= 3600:
        back = range(tick, span.seconds, tick)
        return [(span.columns - 1 - round(ago / span.step), _ago(ago)) for ago in back]
    start, end = span.time(0), span.time(span.columns)
    # Whole hours of local time, not of UTC.
    offset = time.localtime(end).tm_gmtoff
    moments = range(int(-(-(start + offset) // tick)) * tick, int(end + offset), tick)
    return [
        (span.column(moment - offset), time.strftime("%H:%M", time.localtime(moment - offset)))
        for moment in moments
    ]


def _ago(seconds: int) -> str:
    return f"-{seconds // 60}m" if seconds % 60 == 0 else f"-{seconds}s"
