"""Timelines of utilization, memory and power: charts of the past, one above the other, over one time axis.

Every chart goes from 0 to 100 %, of the memory and of the power limit: three percent of jitter must not look
like work. The panel's charts hold no figures of the present, which the table has: behind them stands the mean
or the highest of what they show, so that they change only when a new column begins. The page, which has no
table, has the present figures too.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, UNKNOWN, printable, size
from gputui.timeline.store import METRICS, Metric, Timelines
from gputui.timeline.store import Span as TimeSpan
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, clip, fit, padded, title

ZOOMS = (60, 300, 900, 3600, 3 * 3600, 12 * 3600)
"""Seconds that a chart may span."""

USUAL_ZOOM = 300

_TAGS: dict[Metric, str] = {"utilization": "util", "memory": "mem", "power": "power"}
_STYLES: dict[Metric, str] = {"utilization": "load", "memory": "memory", "power": "power"}
_TAG = 5
"""Cells of the longest tag."""
_SCALE = 6
"""Cells of "100.0G"."""
_FIGURE = 7
"""Cells of a figure behind a chart, " 100.0G"."""
_SUMMARIES: dict[Metric, str] = {"utilization": "avg", "memory": "max", "power": "avg"}
"""What that figure is of the span that the chart shows."""
_BESIDE = ((170, 3), (76, 2))
"""From how many cells on so many charts of one device stand beside each other."""
_BESIDE_ON_PAGE = ((120, 3),)
"""The same on the page, which has all three in any case."""
_FIGURES = 12
"""Cells of the figures behind the chart of one device, " max 100.0G"."""
_WITH_FIGURES = 50
"""Cells from which on there are some."""
_MARKED = 6
"""Lines from which on the page has a line for the mark of the cursor."""

_STEPS = " ▁▂▃▄▅▆▇█"
_MOST_ROWS = 24
"""Lines of the tallest chart of a list; one device alone takes all there are."""

_TICKS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600)
"""Seconds from one mark of the axis to the next."""
_TICK_ROOM = 12
"""Cells from one mark to the next, at least."""

_REDRAWN = 10.0
"""Seconds after which the newest column is drawn again where it lasts longer."""

_BLANK: Line = ((" ", ""),)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where things stand on charts that were drawn: for the mouse, and for a cursor in time.

    lefts    cells before the first column of each of the charts that stand beside each other
    span     the time that the columns show
    devices  the key of the device that each line shows, "" for a line of none
    metrics  what the charts show
    """

    lefts: tuple[int, ...]
    span: TimeSpan
    devices: tuple[str, ...]
    metrics: tuple[Metric, ...] = METRICS

    def moment(self, x: int) -> float | None:
        """When the column at a cell of a line begins, None where there is no column."""
        columns = (x - left for left in self.lefts)
        return next((self.span.time(each) for each in columns if 0 <= each < self.span.columns), None)


def charts_key(app_state: AppState, width: int = 160, zoom: int = USUAL_ZOOM) -> Hashable:
    """What charts of about this width show: while it stays the same, they need not be drawn again."""
    timelines, snapshot = app_state.timelines, app_state.snapshot
    if timelines is None or snapshot is None:
        return None
    beside = _beside(width, None)
    step = min(zoom / _columns(width, _gutter(1, beside), beside), _REDRAWN)
    return timelines.until // step, timelines.adopted, tuple(device.key for device in snapshot.devices)


def zoom_name(zoom: int) -> str:
    """ "5m", "12h"."""
    return f"{zoom // 3600}h" if zoom >= 3600 else f"{zoom // 60}m"


# What is drawn where


def timelines_pane(app_state: AppState, width: int, height: int, zoom: int = USUAL_ZOOM) -> list[Line]:
    """A rule, the charts of as many devices as fit, and the axis."""
    if app_state.snapshot is None or height < 3:
        return []
    devices = charted(app_state)
    if len(devices) == 1:
        charts = device_timeline(app_state, devices[0].key, width, height - 1, zoom)
        return [title("timelines", width, f"last {zoom_name(zoom)}"), *charts]
    lines, frame = all_timelines(app_state, width, height - 1, zoom)
    missing = len(devices) - len({*frame.devices} - {""}) if frame else 0
    more = f"{missing} more: h  " if missing > 0 else ""
    return [title("timelines", width, f"{more}last {zoom_name(zoom)}"), *lines]


def charted(app_state: AppState, metric: Metric | None = None) -> list[Device]:
    """The devices that have a past to show, in the box's order; of one metric only, where it is given."""
    snapshot, timelines = app_state.snapshot, app_state.timelines
    if snapshot is None or timelines is None:
        return []
    wanted = METRICS if metric is None else (metric,)
    return [d for d in snapshot.devices if any(timelines.full(d.key, each) is not None for each in wanted)]


def all_timelines(
    app_state: AppState,
    width: int,
    height: int,
    zoom: int,
    metric: Metric | None = None,
    first: int = 0,
    cursor: float | None = None,
    current: str | None = None,
    page: bool = False,
) -> tuple[list[Line], Frame | None]:
    """The charts of all devices from the `first` one on, as many as fit, above one axis.

    metric  the only one to show; None: as many as there is room for
    first   how many devices are scrolled past
    cursor  a moment that is marked;  current: the key of a device that is
    page    every figure is shown, as long as one device fits, with what it is now
    """
    timelines, snapshot = app_state.timelines, app_state.snapshot
    devices = charted(app_state, metric)
    if timelines is None or snapshot is None or not devices:
        return [], None
    label = max(len(printable(snapshot.label(device))) for device in devices)
    known = [each for each in METRICS if any(timelines.full(d.key, each) for d in devices)]
    beside = min(_beside(width, metric, _BESIDE_ON_PAGE if page else _BESIDE), len(known))
    left = _gutter(label, beside)
    columns = _columns(width, left, beside)
    span = _span(timelines, columns, zoom)
    # Charts beside each other have a heading, one alone has a tag.
    tag, heads = (0, 1) if beside > 1 else (_TAG + 1, 0)
    marked = page and height >= _MARKED
    room = height - 1 - heads - marked
    # (Behind the last device no gap is needed.)
    tall = (room + 1) // len(devices)
    rows, gap = _layout(tall if tall > 2 else max(1, room // len(devices)), metric, known[:beside])
    if page and metric is None and beside == 1:
        each_tall = max(min(room, len(known)), room // len(devices))
        gap = int(each_tall > len(known))
        rows = _stacked(each_tall - gap, known)
    # (Lines that are not enough for all make the charts of the first devices taller: none is left blank.)
    over = room + gap - len(devices) * (gap + sum(tall for _, tall in rows)) if gap and not first else 0
    between: Line = (("  ", ""),)
    lines: list[Line] = []
    shown: list[str] = []
    for place, device in enumerate(devices[first:]):
        block: list[Line] = []
        taller = 0 <= place < over
        for charts, tall in [(rows[0][0], rows[0][1] + taller), *rows[1:]]:
            if not any(timelines.full(device.key, each) for each in charts):
                continue
            drawn = [
                _with_figure(
                    timelines, device.key, each, span, tall, cursor, not gap, device if page else None
                )
                for each in charts
            ]
            for place, parts in enumerate(zip(*drawn, strict=True)):
                # What a chart is of stands at its foot, where also the idle ones are.
                foot = place == tall - 1
                mark = "▸" if device.key == current and foot and charts == rows[0][0] else " "
                name = printable(snapshot.label(device)) if foot and charts == rows[0][0] else ""
                front = (f"{mark} {fit(name, label, right=True)} ", "cursor" if mark != " " else "strong")
                tagged = (fit(_TAGS[charts[0]] if foot else "", tag), "dim")
                block.append((front, tagged, *_joined(parts, between)))
        gaps = [_BLANK] * gap if lines and block else []
        if not block or len(lines) + len(gaps) + len(block) > room:
            continue
        lines += gaps + block
        shown += [""] * len(gaps) + [device.key] * len(block)
    if heads:
        titles = [
            (
                (fit(each, columns), "dim"),
                (fit("now" if page else _SUMMARIES[each], _FIGURE, right=True), "dim"),
            )
            for each in known[:beside]
        ]
        lines.insert(0, ((" " * left, ""), *_joined(titles, between)))
        shown.insert(0, "")
    blank = ((" " * _FIGURE, ""),)
    lines.append(((" " * left, ""), *_joined([(*_axis(span), *blank)] * beside, between)))
    if marked:
        lines.append(((" " * left, ""), *_joined([(*_mark(span, cursor), *blank)] * beside, between)))
    lefts = tuple(left + place * (columns + _FIGURE + 2) for place in range(beside))
    return [line if line == _BLANK else padded(clip(line, width), width) for line in lines], Frame(
        lefts, span, tuple(shown), tuple(each for charts, _ in rows for each in charts)
    )


def _joined(parts: Sequence[Line], between: Line) -> Line:
    """The parts of a line one behind the other."""
    return tuple(span for place, part in enumerate(parts) for span in (*(between if place else ()), *part))


def _beside(width: int, metric: Metric | None, widths: Sequence[tuple[int, int]] = _BESIDE) -> int:
    """How many charts of one device stand beside each other."""
    return 1 if metric else next((count for least, count in widths if width >= least), 1)


def _columns(width: int, left: int, beside: int) -> int:
    """The columns of each chart, with room for a figure behind each."""
    return max(1, (width - left - 2 * (beside - 1)) // beside - _FIGURE)


def _with_figure(
    timelines: Timelines,
    key: str,
    metric: Metric,
    span: TimeSpan,
    tall: int,
    cursor: float | None,
    close: bool,
    device: Device | None = None,
) -> list[Line]:
    """A chart before a figure that sums it up, or before that of the `device` now; blank where nothing is
    known. `close`: another chart is just above."""
    full = timelines.full(key, metric)
    if full is None:
        return [((" " * (span.columns + _FIGURE), ""),)] * tall
    peaks = _SUMMARIES[metric] == "max"
    known = [value for value in timelines.values(key, metric, span, peaks) if value == value]
    figure = ""
    if known:
        figure = _amount(metric, max(known) if peaks else sum(known) / len(known))
    if device is not None:
        figure = _now(device, metric)
    return [
        (*drawn, (fit(figure if place == tall - 1 else "", _FIGURE, right=True), ""))
        for place, drawn in enumerate(_chart(timelines, key, metric, span, tall, full, cursor, close))
    ]


def _stacked(tall: int, metrics: Sequence[Metric]) -> list[tuple[tuple[Metric, ...], int]]:
    """The charts of a device below each other: the first ones get the lines that are left over."""
    each, over = divmod(max(1, tall), len(metrics))
    heights = [min(_MOST_ROWS, each + (place < over)) for place in range(len(metrics))]
    return [((metric,), high) for metric, high in zip(metrics, heights, strict=True) if high]


def present(app_state: AppState) -> Hashable:
    """The figures that the page shows of now: while they stay the same, they need not be drawn again."""
    devices = app_state.snapshot.devices if app_state.snapshot else ()
    return tuple((device.utilization, device.memory_used, device.power) for device in devices)


def _now(device: Device, metric: Metric) -> str:
    values = {"utilization": device.utilization, "memory": device.memory_used, "power": device.power}
    value = values[metric]
    return UNKNOWN if value is None else _amount(metric, value)


def _layout(
    tall: int, metric: Metric | None, beside: Sequence[Metric]
) -> tuple[list[tuple[tuple[Metric, ...], int]], int]:
    """The charts of each device that stand beside each other, with their lines, from the top down; and the
    lines between devices. Each device has `tall` lines."""
    gap = 1 if tall > 2 else 0
    tall = max(1, tall - gap)
    if metric is not None:
        return [((metric,), min(tall, _MOST_ROWS))], gap
    if len(beside) > 1:
        return [(tuple(beside), min(tall, _MOST_ROWS))], gap
    if tall == 1:
        return [(("utilization",), 1)], gap
    if tall == 2:
        return [(("utilization",), 1), (("memory",), 1)], gap
    rest = min(3, tall // 3)
    first = min(_MOST_ROWS, tall - 2 * rest)
    return [(("utilization",), first), (("memory",), rest), (("power",), rest)], gap


def device_timeline(
    app_state: AppState, key: str, width: int, height: int, zoom: int = USUAL_ZOOM
) -> list[Line]:
    """Utilization, memory and power of one device over the last `zoom` seconds (one of `ZOOMS`), and their
    axis: at most `height` lines of `width` cells; nothing where there is no room or nothing is known."""
    return device_charts(app_state, key, width, height, zoom)[0]


def device_charts(
    app_state: AppState,
    key: str,
    width: int,
    height: int,
    zoom: int,
    metric: Metric | None = None,
    cursor: float | None = None,
    page: bool = False,
) -> tuple[list[Line], Frame | None]:
    """`device_timeline`, or only one metric of it, with a moment that is marked (`cursor`); on the timelines'
    own `page` with what each figure is now, and its highest, mean and lowest value in the span."""
    timelines = app_state.timelines
    if timelines is None:
        return [], None
    left = _TAG + _SCALE + 3
    wanted = [each for each in ((metric,) if metric else METRICS) if timelines.has(key, each)]
    marked = page and height >= _MARKED
    height -= marked
    wanted = wanted[: max(0, height - 1)]
    if not wanted or width < left + _TICK_ROOM:
        return [], None
    figures = _FIGURES if page and width >= _WITH_FIGURES else 0
    span = _span(timelines, width - left - figures, zoom)
    gap = 1 if height - 1 >= 4 * len(wanted) - 1 else 0
    tall, over = divmod(height - 1 - gap * (len(wanted) - 1), len(wanted))
    lines: list[Line] = []
    for place, each in enumerate(wanted):
        lines += [_BLANK] * (gap if place else 0)
        full = timelines.full(key, each) or _highest(timelines, key, each, span)
        rows = tall + (place < over)
        device = app_state.snapshot.by_key.get(key) if figures and app_state.snapshot else None
        told = _told(timelines, device, each, span, rows) if device is not None else [""] * rows
        half = _half(rows)
        for n, drawn in enumerate(_outlined(timelines, key, each, span, rows, full, cursor)):
            scale = _amount(each, full) if n == 0 else "0" if n == rows - 1 > 1 else ""
            if half is not None and n == rows - 1 - half:
                scale = _amount(each, full / 2)
            tag = _TAGS[each] if n == 0 else ""
            front = (f" {fit(tag, _TAG)} {fit(scale, _SCALE, right=True)} ", "dim")
            lines.append((front, *drawn, (fit(told[n], figures, right=True), "" if n == 0 else "dim")))
    shown = (key,) * len(lines)
    lines.append(((" " * left, ""), *_axis(span)))
    if marked:
        lines.append(((" " * left, ""), *_mark(span, cursor)))
    return lines, Frame((left,), span, shown, tuple(wanted))


def _told(timelines: Timelines, device: Device, metric: Metric, span: TimeSpan, rows: int) -> list[str]:
    """What stands behind the chart of one device: now, and the highest, mean and lowest value."""
    means = [value for value in timelines.values(device.key, metric, span) if value == value]
    peaks = [value for value in timelines.values(device.key, metric, span, peaks=True) if value == value]
    told = [f"now {_now(device, metric):>6}"]
    if means and peaks:
        named = {"max": max(peaks), "mean": sum(means) / len(means), "min": min(means)}
        told += [f"{name} {_amount(metric, value):>6}" for name, value in named.items()]
    return [*told[:rows], *[""] * (rows - len(told))]


def read_out(app_state: AppState, device: Device, frame: Frame, moment: float) -> str:
    """What was known of a device at a moment: "13:02:10 GPU 3: 97 %, 66.1 GiB, 610 W"."""
    timelines, snapshot = app_state.timelines, app_state.snapshot
    if timelines is None or snapshot is None:
        return ""
    span = frame.span
    column = span.column(moment)
    known = [
        _words(metric, timelines.values(device.key, metric, span)[column])
        if 0 <= column < span.columns and timelines.has(device.key, metric)
        else "–"
        for metric in METRICS
    ]
    clock = time.strftime("%H:%M:%S" if span.step < 60 else "%H:%M", time.localtime(moment))
    figures = ", ".join(known) if any(each != "–" for each in known) else "no reading"
    return f"{clock} GPU {printable(snapshot.label(device))}: {figures}"


def _words(metric: Metric, value: float) -> str:
    if value != value:
        return "–"
    if metric == "memory":
        return f"{value / GIB:.1f} GiB"
    return f"{value:.0f} {'%' if metric == 'utilization' else 'W'}"


def _amount(metric: Metric, value: float) -> str:
    if metric == "memory":
        return size(int(value))
    return f"{value:.0f}{'%' if metric == 'utilization' else 'W'}"


def _highest(timelines: Timelines, key: str, metric: Metric, span: TimeSpan) -> float:
    """What a chart without a known 100 % goes to."""
    return max((v for v in timelines.values(key, metric, span) if v == v), default=0.0) or 1.0


def _gutter(label: int, beside: int) -> int:
    """Cells before the first column: a device's label, and a tag where there is no heading."""
    return label + 3 + (0 if beside > 1 else _TAG + 1)


def _span(timelines: Timelines, columns: int, zoom: int) -> TimeSpan:
    return TimeSpan.at(timelines.until, zoom, max(1, columns))


# One chart


def _chart(
    timelines: Timelines,
    key: str,
    metric: Metric,
    span: TimeSpan,
    tall: int,
    full: float,
    cursor: float | None,
    close: bool = False,
) -> list[Line]:
    """`tall` lines of a chart from 0 to `full`, the newest column at the right. Where another one is just
    above (`close`), an eighth of a line stays free between them."""
    most = tall * 8 - close
    # A figure that is known has a base line at least; an unknown one has none.
    scale = most / full
    values = timelines.values(key, metric, span)
    levels = [0 if value != value else int(value * scale + 0.5) or 1 for value in values]
    if max(levels) > most:
        levels = [min(level, most) for level in levels]
    style = _STYLES[metric]
    marked = span.column(cursor) if cursor is not None else -1
    rows: list[Line] = []
    for line in reversed(range(tall)):
        text = "".join(map(_steps(line, tall).__getitem__, levels))
        if 0 <= marked < span.columns:
            here = text[marked] if text[marked] != " " else "│"
            rows.append(((text[:marked], style), (here, "cursor"), (text[marked + 1 :], style)))
        else:
            rows.append(((text, style),))
    return rows


def _outlined(
    timelines: Timelines,
    key: str,
    metric: Metric,
    span: TimeSpan,
    tall: int,
    full: float,
    cursor: float | None,
) -> list[Line]:
    """As `_chart`, with a bright edge over a dim body, dotted lines at 50 and 100 %, and a dim mark at the
    highest value of a column where that is well above its mean."""
    most = tall * 8

    def levels(peaks: bool) -> list[int]:
        scaled = timelines.values(key, metric, span, peaks)
        return [0 if v != v else min(most, int(v * most / full + 0.5) or 1) for v in scaled]

    columns = list(zip(levels(False), levels(True), strict=True))
    dotted = {tall - 1, _half(tall)} if tall > 2 else set()
    marked = span.column(cursor) if cursor is not None else -1

    def cell(line: int, place: int, level: int, peak: int) -> tuple[str, str]:
        top = (level - 1) // 8
        text, style = " ", ""
        if level and line < top:
            text, style = "█", "rest"
        elif level and line == top:
            text, style = _steps(line, tall)[level], _STYLES[metric]
        elif level and peak > level + 8 and line == (peak - 1) // 8:
            text, style = "─", "dim"
        elif level and line in dotted:
            text, style = "┈", "rest"
        if place == marked:
            return (text if text not in " ┈" else "│"), "cursor"
        return text, style

    rows: list[Line] = []
    for line in reversed(range(tall)):
        cells = [cell(line, place, *each) for place, each in enumerate(columns)]
        runs = groupby(cells, key=lambda each: each[1])
        rows.append(tuple(("".join(text for text, _ in run), style) for style, run in runs))
    return rows


def _half(tall: int) -> int | None:
    """The line of 50 %, counted from below; None where the chart is too low for one."""
    return (tall * 4 - 1) // 8 if tall >= 5 else None


@cache
def _steps(line: int, tall: int) -> tuple[str, ...]:
    """By level, in eighths of a line: the part of one column that falls into one line, counted from below."""
    return tuple(_STEPS[min(8, max(0, level - line * 8))] for level in range(tall * 8 + 1))


# The axis


def _mark(span: TimeSpan, cursor: float | None) -> Line:
    """The line below the axis: it has the mark of the cursor, so that the axis stays to be read."""
    marked = span.column(cursor) if cursor is not None else -1
    if not 0 <= marked < span.columns:
        return ((" " * span.columns, ""),)
    return (" " * marked, ""), ("▲", "cursor"), (" " * (span.columns - marked - 1), "")


def _axis(span: TimeSpan) -> Line:
    """Marks with their times: back from now, or of the clock where hours are shown."""
    least = 60 if span.seconds > 120 else 1
    tick = next((t for t in _TICKS if t >= least and t / span.step >= _TICK_ROOM), _TICKS[-1])
    cells = ["─"] * span.columns
    for column, label in reversed(_ticks(span, tick)):
        text = f"╵{label}"
        if column >= 0 and column + len(text) <= span.columns - len("now") - 1:
            cells[column : column + len(text)] = text
    if span.columns > 4:
        cells[-4:] = " now"
    return (("".join(cells), "dim"),)


def _ticks(span: TimeSpan, tick: int) -> Sequence[tuple[int, str]]:
    """The columns of the marks, and their labels."""
    if span.seconds <= 3600:
        back = range(tick, span.seconds, tick)
        return [(span.columns - 1 - round(ago / span.step), _ago(ago)) for ago in back]
    start, end = span.time(0), span.time(span.columns)
    # Whole hours of the clock on the wall, not of UTC.
    offset = time.localtime(end).tm_gmtoff
    moments = range(int(-(-(start + offset) // tick)) * tick, int(end + offset), tick)
    return [
        (span.column(moment - offset), time.strftime("%H:%M", time.localtime(moment - offset)))
        for moment in moments
    ]


def _ago(seconds: int) -> str:
    return f"-{seconds // 60}m" if seconds % 60 == 0 else f"-{seconds}s"
