"""Timelines of utilization, memory and power: charts of the past, one above the other, over one time axis.

Every chart goes from 0 to 100 %, of the memory and of the power limit: three percent of jitter must not look
like work. The panel's charts come without present figures, which are in the table: to their right stands the
mean or the maximum of what they show, so that they change only when a new column begins. The page has no
table, and so it has the present figures, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Sequence
from math import floor, log10

from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, duration, printable, size
from gputui.inventory.light_dataclasses import dataclass
from gputui.timeline.store import METRICS, Metric, Timelines
from gputui.timeline.store import Span as TimeSpan
from gputui.tui.app_state import AppState
from gputui.tui.views.chart import TICK_ROOM, axis, chart, half_line, mark, outlined
from gputui.tui.views.table import filter_in_title, why_no_rows
from gputui.tui.views.text import Line, clip, fit, padded, title

ZOOMS = (60, 300, 900, 3600, 3 * 3600, 12 * 3600)
"""Seconds that a chart may span."""

USUAL_ZOOM = 300

_TAGS: dict[Metric, str] = {"utilization": "util", "memory": "mem", "power": "power"}
_TAG = 5
"""Cells of the longest tag."""
_SCALE = 6
"""Cells of "100.0G"."""
_FIGURE = 7
"""Cells of a figure behind a chart, " 100.0G"."""
_SUMMARIES: dict[Metric, str] = {"utilization": "avg", "memory": "max", "power": "avg"}
"""Whether that figure is the mean or the maximum of the span that the chart shows."""
_BESIDE = ((170, 3), (76, 2))
"""The width in cells from which so many charts of one device stand side by side."""
_BESIDE_ON_PAGE = ((120, 3),)
"""The same on the page, which has all three in any case."""
_FIGURES = 12
"""Cells of the figures behind the chart of one device, " max 100.0G"."""
_WITH_FIGURES = 50
"""The width in cells from which there are such figures."""
_LEAST_STACKED = 3
"""The height in lines from which the charts of one device stand one below the other, as wide as the panel."""
_LEAST_OUTLINED = 4
"""The height in lines from which a chart in a list has dotted lines at 50 and 100 %."""
_MARKED = 6
"""The height in lines from which the page has a line for the mark of the cursor."""

_NO_LIMIT = "no limit"
"""The label of a chart whose 100 % is unknown: its top is a round number."""

_SHARED = "memory (the host's RAM, shared)"

_AT_CURSOR = "at ▲"
"""Shown instead of "now" while the figures are those at the mark of the cursor."""
_GAP = ("  ", "")
"""Between two charts that stand side by side."""

_MOST_ROWS = 24
"""Lines of the tallest chart of a list; one device alone takes all there are."""

_REDRAWN = 10.0
"""Seconds after which the newest column is drawn again, where a column lasts longer."""

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

    @property
    def shown(self) -> frozenset[str]:
        """The keys of the devices that are shown."""
        return frozenset(self.devices) - {""}

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
    shown = tuple((device.key, _is_lost(app_state, device)) for device in app_state.rows)
    return timelines.until // step, timelines.adopted, shown, app_state.screen.filter


def zoom_name(zoom: int) -> str:
    """ "5m", "12h"."""
    return f"{zoom // 3600}h" if zoom >= 3600 else f"{zoom // 60}m"


# What is drawn where


def timelines_pane(app_state: AppState, width: int, height: int, zoom: int = USUAL_ZOOM) -> list[Line]:
    """A rule, the charts of as many devices as fit, and the axis."""
    if app_state.snapshot is None or height < 3:
        return []
    devices = charted(app_state)
    tail = [filter_in_title(app_state), f"last {zoom_name(zoom)}"]
    if len(devices) == 1:
        lines = device_timeline(app_state, devices[0].key, width, height - 1, zoom)
    else:
        lines, frame = all_timelines(app_state, width, height - 1, zoom)
        missing = len(devices) - len(frame.shown) if frame else 0
        tail.insert(0, f"{missing} more: h" if missing > 0 else "")
    return [title("timelines", width, "  ".join(filter(None, tail))), *lines]


def charted(app_state: AppState, metric: Metric | None = None) -> list[Device]:
    """The listed devices that have a past to show, as they are listed; of one metric only, where it is given.

    The driver knows no utilization of a MIG instance, nor of a GPU that is divided into them.
    """
    timelines = app_state.timelines
    if timelines is None:
        return []
    wanted = METRICS if metric is None else (metric,)
    return [d for d in app_state.rows if any(_has_chart(timelines, d.key, each) for each in wanted)]


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
    page    every figure is shown, as long as one device fits, with what it is now, or was at the cursor
    """
    timelines = app_state.timelines
    devices = charted(app_state, metric)
    if timelines is None or not devices:
        return [], None
    grid = _grid(app_state, timelines, devices, width, height, zoom, metric, cursor, page)
    taller = _taller(timelines, devices, grid)
    lines: list[Line] = []
    shown: list[str] = []
    tops: list[int] = []
    for device in devices[first:]:
        rows = _rows_of(timelines, device, grid, taller.get(device.key, 0))
        block = _block(app_state, timelines, device, grid, rows, device.key == current)
        gaps = [_BLANK] * grid.gap if lines else []
        if len(lines) + len(gaps) + len(block) > grid.room:
            break
        tops.append(len(lines) + len(gaps))
        lines += gaps + block
        shown += [""] * len(gaps) + [device.key] * len(block)
    blank = grid.room - len(lines)
    if blank < len(tops) and (grid.gap or grid.rows[0][1] > 1):
        # (Fewer lines than devices are left over: the charts stay equally high, and the axis at the foot.)
        for number in range(blank, 0, -1):
            at = tops[number * (len(tops) - 1) // blank]
            lines.insert(at, _BLANK)
            shown.insert(at, "")
    if grid.beside > 1:
        lines.insert(0, _headings(app_state, grid, [device.key for device in devices]))
        shown.insert(0, "")
    lines += _feet(grid)
    frame = Frame(
        grid.lefts, grid.span, tuple(shown), tuple(each for charts, _ in grid.rows for each in charts)
    )
    return [line if line == _BLANK else padded(clip(line, width), width) for line in lines], frame


_Rows = list[tuple[tuple[Metric, ...], int]]
"""The charts of one device from the top down: those that stand beside each other, and their lines."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where the charts of a list of devices stand.

    label          cells of the longest label of a device
    beside         how many charts of one device stand beside each other; they have headings, one alone a tag
    left, columns  cells before the first column, and the columns of each chart
    span           the time that they show;  cursor: a moment that is marked
    rows, gap      the charts of a device that has all of them, and the lines between two devices
    room           lines for all devices;  marked: whether the mark of the cursor has a line
    page           whether the figures are those of a moment, and not of the span
    outlined       whether the charts have dotted lines at 50 and 100 %: most of a tall, idle one is blank
    """

    label: int
    beside: int
    left: int
    columns: int
    span: TimeSpan
    cursor: float | None
    rows: _Rows
    gap: int
    room: int
    marked: bool
    page: bool
    outlined: bool = False

    @property
    def tag(self) -> int:
        """Cells of the tag before a chart."""
        return 0 if self.beside > 1 else _TAG + 1

    @property
    def lefts(self) -> tuple[int, ...]:
        """Cells before each of the charts that stand beside each other."""
        return tuple(self.left + place * (self.columns + _FIGURE + 2) for place in range(self.beside))


def _grid(
    app_state: AppState,
    timelines: Timelines,
    devices: Sequence[Device],
    width: int,
    height: int,
    zoom: int,
    metric: Metric | None,
    cursor: float | None,
    page: bool,
) -> _Grid:
    """The grid for these devices; the arguments are those of `all_timelines`."""
    label = max(len(_label(app_state, device)) for device in devices)
    known = [each for each in METRICS if any(_has_chart(timelines, d.key, each) for d in devices)]
    beside = min(_beside(width, metric, _BESIDE_ON_PAGE if page else _BESIDE), len(known))
    stacked = page or (height - 1) // len(devices) > _LEAST_STACKED * len(known)
    if stacked and not page:
        beside = min(beside, 1)
    left = _gutter(label, beside)
    columns = _columns(width, left, beside)
    marked = page and height >= _MARKED
    room = height - 1 - (beside > 1) - marked
    if stacked and metric is None and beside == 1:
        tall = max(min(room, len(known)), room // len(devices))
        gap = int(tall > len(known))
        rows = _stacked(tall - gap, known)
    else:
        # (No gap is needed below the last device.)
        tall = (room + 1) // len(devices)
        rows, gap = _layout(tall if tall > 2 else max(1, room // len(devices)), metric, known[:beside])
    span = _span(timelines, columns, zoom)
    outlined = not page and metric is None and rows[0][1] >= _LEAST_OUTLINED
    return _Grid(label, beside, left, columns, span, cursor, rows, gap, room, marked, page, outlined)


def _block(
    app_state: AppState, timelines: Timelines, device: Device, grid: _Grid, rows: _Rows, current: bool
) -> list[Line]:
    """The lines of one device, which has these `rows`."""
    block: list[Line] = []
    for charts, tall in rows:
        drawn = [
            _with_figure(app_state, timelines, device, each, grid, tall, not grid.gap) for each in charts
        ]
        for place, parts in enumerate(zip(*drawn, strict=True)):
            # A chart's tag stands at its foot, the only line that an idle chart reaches.
            foot = place == tall - 1
            named = foot and len(block) < tall
            name = fit(_label(app_state, device) if named else "", grid.label, right=True)
            mark, style = ("▸", "cursor") if named and current else (" ", "strong")
            tag = (fit(_tag(app_state, charts[0], (device.key,)) if foot else "", grid.tag), "dim")
            block.append(((f"{mark} {name} ", style), tag, *_joined(parts)))
    return block


def _taller(timelines: Timelines, devices: Sequence[Device], grid: _Grid) -> dict[str, int]:
    """How many lines more the first chart of each device has, by its key, where all fit and lines are left
    over. They are equally high: lines that are too few for all stand between them, blank."""
    used = sum(tall for device in devices for _, tall in _rows_of(timelines, device, grid))
    left = grid.room - used - grid.gap * (len(devices) - 1)
    return {device.key: max(0, left) // len(devices) for device in devices}


def _rows_of(timelines: Timelines, device: Device, grid: _Grid, taller: int = 0) -> _Rows:
    """The rows of one device, the first one so many lines `taller` than in the grid."""
    (charts, tall), *others = _charts_of(timelines, device, grid)
    return [(charts, min(_MOST_ROWS, tall + taller)), *others]


def _charts_of(timelines: Timelines, device: Device, grid: _Grid) -> _Rows:
    """The rows of the grid that have a chart of the device; else the first one with what is known of it."""
    found = [
        (charts, tall)
        for charts, tall in grid.rows
        if any(_has_chart(timelines, device.key, each) for each in charts)
    ]
    if found or grid.beside > 1:
        return found or grid.rows[:1]
    return [((next(each for each in METRICS if _has_chart(timelines, device.key, each)),), grid.rows[0][1])]


def _headings(app_state: AppState, grid: _Grid, keys: Collection[str]) -> Line:
    """What each of the charts side by side shows, and what the figure to its right is."""
    moment = "now" if grid.cursor is None else _AT_CURSOR
    names = [
        (
            (fit(_SHARED if _tag(app_state, each, keys) == "RAM" else each, grid.columns), "dim"),
            (fit(moment if grid.page else _SUMMARIES[each], _FIGURE, True), "dim"),
        )
        for each in grid.rows[0][0]
    ]
    return ((" " * grid.left, ""), *_joined(names))


def _feet(grid: _Grid) -> list[Line]:
    """The axis below each of the charts, and the mark of the cursor."""
    lines = [axis(grid.span), *([mark(grid.span, grid.cursor)] if grid.marked else [])]
    return [((" " * grid.left, ""), *_joined([(*line, (" " * _FIGURE, ""))] * grid.beside)) for line in lines]


def _joined(parts: Sequence[Line]) -> Line:
    """The parts of a line one behind the other, with a gap between them."""
    return tuple(span for place, part in enumerate(parts) for span in (*((_GAP,) if place else ()), *part))


def _tag(app_state: AppState, metric: Metric, keys: Collection[str]) -> str:
    """The tag before a chart. Memory that all these devices share with the host is called RAM."""
    devices = app_state.snapshot.by_key if app_state.snapshot else {}
    if metric == "memory" and keys and all(key in devices and devices[key].unified for key in keys):
        return "RAM"
    return _TAGS[metric]


def _label(app_state: AppState, device: Device) -> str:
    return printable(app_state.snapshot.label(device)) if app_state.snapshot else ""


def _has_chart(timelines: Timelines, key: str, metric: Metric) -> bool:
    """Whether a figure was ever known of a device, and what 100 % of it is."""
    return timelines.has(key, metric) and timelines.full(key, metric) is not None


def _beside(width: int, metric: Metric | None, widths: Sequence[tuple[int, int]] = _BESIDE) -> int:
    """How many charts of one device stand beside each other."""
    return 1 if metric else next((count for least, count in widths if width >= least), 1)


def _columns(width: int, left: int, beside: int) -> int:
    """The columns of each chart, with room for a figure behind each."""
    return max(1, (width - left - 2 * (beside - 1)) // beside - _FIGURE)


def _with_figure(
    app_state: AppState,
    timelines: Timelines,
    device: Device,
    metric: Metric,
    grid: _Grid,
    tall: int,
    close: bool,
) -> list[Line]:
    """A chart before its figure; where nothing is known in the span, why. `close`: another chart is just
    above."""
    peaks = _SUMMARIES[metric] == "max"
    known = [v for v in timelines.values(device.key, metric, grid.span, peaks) if v == v]
    full = timelines.full(device.key, metric)
    if not known or full is None:
        blank: Line = ((" " * (grid.columns + _FIGURE), ""),)
        why = (fit(_why_unknown(app_state, device, metric), grid.columns + _FIGURE), "dim")
        return [*[blank] * (tall - 1), (why,)]
    if grid.page:
        figure = _at_moment(app_state, device, metric, grid.cursor)
    elif _is_lost(app_state, device):
        # (A mean of the past would look like a present one.)
        figure = "lost"
    else:
        figure = _amount(metric, max(known) if peaks else sum(known) / len(known))
    return [
        (*drawn, (fit(figure if place == tall - 1 else "", _FIGURE, right=True), ""))
        for place, drawn in enumerate(
            outlined(timelines, device.key, metric, grid.span, tall, full, grid.cursor)
            if grid.outlined
            else chart(timelines, device.key, metric, grid.span, tall, full, grid.cursor, close)
        )
    ]


def _stacked(tall: int, metrics: Sequence[Metric]) -> _Rows:
    """The charts of a device below each other: the first ones get the lines that are left over."""
    each, over = divmod(max(1, tall), len(metrics))
    heights = [min(_MOST_ROWS, each + (place < over)) for place in range(len(metrics))]
    return [((metric,), high) for metric, high in zip(metrics, heights, strict=True) if high]


def _layout(tall: int, metric: Metric | None, beside: Sequence[Metric]) -> tuple[_Rows, int]:
    """The charts of a device in `tall` lines, one of which may be the gap to the next device."""
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


# The figures of a moment


def present(app_state: AppState) -> Hashable:
    """The figures that the page shows of now: while they stay the same, they need not be drawn again."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return ()
    return tuple((device.utilization, snapshot.memory(device), device.power) for device in snapshot.devices)


def clock(span: TimeSpan, moment: float) -> str:
    """The time of day of a moment, as exact as the columns are."""
    return time.strftime("%H:%M:%S" if span.step < 60 else "%H:%M", time.localtime(moment))


def _at_moment(app_state: AppState, device: Device, metric: Metric, cursor: float | None) -> str:
    """A figure at the cursor; without one, now."""
    if cursor is None:
        return _now(app_state, device, metric)
    found = _value_at(app_state.timelines, device.key, metric, cursor)
    return UNKNOWN if found is None else _amount(metric, found[0])


def _now(app_state: AppState, device: Device, metric: Metric) -> str:
    memory = app_state.snapshot.memory(device)[0] if app_state.snapshot else None
    value = {"utilization": device.utilization, "memory": memory, "power": device.power}[metric]
    if value is None:
        return "lost" if _is_lost(app_state, device) else UNKNOWN
    return _amount(metric, value)


def _value_at(
    timelines: Timelines | None, key: str, metric: Metric, moment: float
) -> tuple[float, int] | None:
    """A figure at a moment and the seconds that it is the mean of, None where it is not known. (They are not
    a column's: its length depends on the width of the chart.)"""
    return timelines.at(key, metric, moment) if timelines is not None else None


def why_no_charts(app_state: AppState, device: Device | None, metric: Metric | None) -> str:
    """Why there is no chart of one device, or (None) of any that is listed."""
    if app_state.timelines is None or app_state.snapshot is None:
        return "no reading yet"
    if device is not None:
        return _why_unknown(app_state, device, metric or "utilization")
    if not app_state.rows:
        return why_no_rows(app_state)
    return f"no {metric or 'utilization, memory or power'} known of any device"


def _is_lost(app_state: AppState, device: Device) -> bool:
    return app_state.verdicts[device.key].state == "lost"


def _why_unknown(app_state: AppState, device: Device, metric: Metric) -> str:
    """What stands in the place of a chart of which nothing is known."""
    if _is_lost(app_state, device):
        return "lost"
    if app_state.timelines is not None and app_state.timelines.has(device.key, metric):
        return f"no {metric} limit known"
    by_mig = device.parent is not None or (device.mig and metric == "utilization")
    return f"no {metric} (MIG)" if by_mig else f"no {metric} known"


# One device


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
    if not wanted or width < left + TICK_ROOM:
        return [], None
    figures = _FIGURES if page and width >= _WITH_FIGURES else 0
    span = _span(timelines, width - left - figures, zoom)
    gap = 1 if height - 1 >= 4 * len(wanted) - 1 else 0
    tall, over = divmod(height - 1 - gap * (len(wanted) - 1), len(wanted))
    lines: list[Line] = []
    for place, each in enumerate(wanted):
        lines += [_BLANK] * (gap if place else 0)
        limit = timelines.full(key, each)
        full = limit or _top(timelines, key, each, span)
        rows = tall + (place < over)
        device = app_state.snapshot.by_key.get(key) if figures and app_state.snapshot else None
        told = _told(app_state, timelines, device, each, span, rows, cursor) if device else [""] * rows
        half = half_line(rows)
        for n, drawn in enumerate(outlined(timelines, key, each, span, rows, full, cursor)):
            scale = _amount(each, full) if n == 0 else "0" if n == rows - 1 > 1 else ""
            if half is not None and n == rows - 1 - half:
                scale = _amount(each, full / 2)
            tag = _tag(app_state, each, (key,)) if n == 0 else ""
            front = (f" {fit(tag, _TAG)} {fit(scale, _SCALE, right=True)} ", "dim")
            if n == 1 and limit is None:
                front = (f" {fit(_NO_LIMIT, _TAG + _SCALE + 1)} ", "dim")
            lines.append((front, *drawn, (fit(told[n], figures, right=True), "" if n == 0 else "dim")))
    shown = (key,) * len(lines)
    lines.append(((" " * left, ""), *axis(span)))
    if marked:
        lines.append(((" " * left, ""), *mark(span, cursor)))
    return lines, Frame((left,), span, shown, tuple(wanted))


def _told(
    app_state: AppState,
    timelines: Timelines,
    device: Device,
    metric: Metric,
    span: TimeSpan,
    rows: int,
    cursor: float | None,
) -> list[str]:
    """What stands behind the chart of one device: now, or at the cursor, and the highest, mean and lowest
    value."""
    means = [value for value in timelines.values(device.key, metric, span) if value == value]
    peaks = [value for value in timelines.values(device.key, metric, span, peaks=True) if value == value]
    when = "now" if cursor is None else _AT_CURSOR
    told = [f"{when} {_at_moment(app_state, device, metric, cursor):>6}"]
    if means and peaks:
        named = {"max": max(peaks), "mean": sum(means) / len(means), "min": min(means)}
        told += [f"{name} {_amount(metric, value):>6}" for name, value in named.items()]
    return [*told[:rows], *[""] * (rows - len(told))]


def read_out(app_state: AppState, device: Device, frame: Frame, moment: float) -> str:
    """What was known of a device at a moment: "13:02:10 GPU 3: 97 %, 66.1G, 610 W"; of one further back
    also the time that these are the means of."""
    if app_state.timelines is None or app_state.snapshot is None:
        return ""
    known = [(metric, _value_at(app_state.timelines, device.key, metric, moment)) for metric in METRICS]
    figures = ", ".join("–" if found is None else _words(metric, found[0]) for metric, found in known)
    seconds = max((found[1] for _, found in known if found is not None), default=0)
    if not seconds:
        figures = "no reading"
    elif seconds > 1:
        figures += f" (mean of {duration(seconds)})"
    return f"{clock(frame.span, moment)} GPU {_label(app_state, device)}: {figures}"


def _words(metric: Metric, value: float) -> str:
    if metric == "memory":
        return size(int(value))
    return f"{value:.0f} {'%' if metric == 'utilization' else 'W'}"


def _amount(metric: Metric, value: float) -> str:
    if metric == "memory":
        return size(int(value))
    return f"{value:.0f}{'%' if metric == 'utilization' else 'W'}"


def _top(timelines: Timelines, key: str, metric: Metric, span: TimeSpan) -> float:
    """What a chart without a known 100 % goes to: a round number well above the highest value in the span, so
    that it does not look full."""
    highest = max((v for v in timelines.values(key, metric, span, peaks=True) if v == v), default=0.0)
    unit = 10.0 ** floor(log10(max(1.0, highest)))
    return next(step * unit for step in (2, 5, 10, 20) if step * unit >= 1.5 * highest)


def _gutter(label: int, beside: int) -> int:
    """Cells before the first column: a device's label, and a tag where there is no heading."""
    return label + 3 + (0 if beside > 1 else _TAG + 1)


def _span(timelines: Timelines, columns: int, zoom: int) -> TimeSpan:
    return TimeSpan.at(timelines.until, zoom, max(1, columns))
