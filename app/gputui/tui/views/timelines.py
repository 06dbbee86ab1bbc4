"""Timelines of utilization, memory and power: charts of the past, in a column, over one time axis.

Every chart goes from 0 to 100 %, of the memory and of the power limit: three percent of jitter must not look
like work. The panel's charts have no present figures, which are in the table: to their right is the mean or
the maximum of the values that they show, so that they change only when a new column begins. The page has no
table, and so it has the present figures, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable, Sequence
from math import floor, log10

from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, duration, printable, size
from gputui.inventory.light_dataclasses import dataclass
from gputui.timeline.store import METRICS, Metric, Timelines
from gputui.timeline.store import Span as TimeSpan
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.chart import TICK_ROOM, axis, chart, half_line, mark, outlined
from gputui.tui.views.table import filter_in_title, why_no_rows
from gputui.tui.views.text import Line, fit, padded, title

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
"""The width in cells from which this many charts of one device are side by side."""
_BESIDE_ON_PAGE = ((120, 3),)
"""The same on the page, which has all three in any case."""
_FIGURES = 12
"""Cells of the figures behind the chart of one device, " max 100.0G"."""
_WITH_FIGURES = 50
"""The width in cells from which there are such figures."""
_LEAST_STACKED = 3
"""The height in lines from which the charts of one device are in a column, each as wide as the panel."""
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
"""The gap between two charts side by side."""

_MOST_ROWS = 24
"""Lines of the tallest chart of a list; the chart of a single device takes all the room."""

_REDRAWN = 10.0
"""Seconds after which the newest column is drawn again, if a column spans a longer time."""

_BLANK: Line = ((" ", ""),)


@dataclass(frozen=True, slots=True)
class Frame:
    """The positions on drawn charts: for the mouse, and for a cursor in time.

    lefts    cells before the first column of each of the charts side by side
    span     the time that the columns show
    devices  the key of the device that each line shows, "" for a line without a device
    metrics  the metrics that the charts show
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
        """The time at which the column at a cell begins, None where there is no column."""
        columns = (x - left for left in self.lefts)
        return next((self.span.time(each) for each in columns if 0 <= each < self.span.columns), None)


def charts_key(app_state: AppState, width: int, height: int, zoom: int = USUAL_ZOOM) -> Hashable:
    """A cache key for charts of this size: while it stays the same, they need not be drawn again."""
    timelines = app_state.timelines
    if timelines is None:
        return None
    stacked = (height - 2) // max(1, len(app_state.once(charted))) > _LEAST_STACKED
    beside = 1 if stacked else _beside(width, None)
    step = min(zoom / _columns(width, _gutter(1, beside), beside), _REDRAWN)
    shown = tuple((device.key, _is_lost(app_state, device)) for device in app_state.rows)
    return timelines.until // step, timelines.adopted, shown, app_state.screen.filter


def zoomed(zoom: int, by: int) -> int:
    """The span that is `by` steps longer, or the nearer end of `ZOOMS`."""
    return ZOOMS[min(max(0, ZOOMS.index(zoom) + by), len(ZOOMS) - 1)]


def zoom_name(zoom: int) -> str:
    """The name of a zoom: "5m", "12h"."""
    return f"{zoom // 3600}h" if zoom >= 3600 else f"{zoom // 60}m"


# The charts of all devices


def timelines_pane(app_state: AppState, width: int, height: int, zoom: int = USUAL_ZOOM) -> list[Line]:
    """A rule, the charts of as many devices as fit, and the axis."""
    if app_state.snapshot is None or height < 3:
        return []
    devices = app_state.once(charted)
    tail = [filter_in_title(app_state), f"last {zoom_name(zoom)}"]
    if len(devices) == 1:
        lines = device_charts(app_state, devices[0].key, width, height - 1, zoom)[0]
    else:
        lines, frame = all_timelines(app_state, width, height - 1, zoom)
        missing = len(devices) - len(frame.shown) if frame else 0
        key = key_of("timelines", app_state.screen.keymap)
        tail.insert(0, f"{missing} more {key}" if missing > 0 else "")
    return [title("timelines", width, *tail), *lines]


def charted(app_state: AppState, metric: Metric | None = None) -> list[Device]:
    """The listed devices that have a past to show, in that order; of a single metric, if it is given.

    The driver reports no utilization of a GPU that is divided into MIG instances, and before Hopper none
    of an instance.
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
    """The charts of all devices starting at `first`, as many as fit, above one axis.

    metric  the only metric to show; None: as many as there is room for
    first   how many devices are scrolled out above
    cursor  a moment that is marked;  current: the key of the marked device
    page    whether all metrics are shown, as long as one device fits, with the value now or at the cursor
    """
    timelines = app_state.timelines
    devices = charted(app_state, metric)
    if timelines is None or not devices:
        return [], None
    charts = _Charts(app_state, timelines, devices, width, height, zoom, metric, cursor, page)
    found = charts.lines(devices[first:], current)
    lines = [line if line == _BLANK else padded(line, width) for line, _ in found]
    shown = tuple(key for _, key in found[: -len(charts.feet)])
    return lines, Frame(charts.lefts, charts.span, shown, charts.shown)


class _Charts:
    """The charts of a list of devices, all of one size, above one axis; the arguments are those of
    `all_timelines`.

    On a wide screen, the charts of one device are side by side, under headings; otherwise in a column, each
    with a tag. Every device has the same number of lines; a device with fewer known metrics has higher
    charts.
    """

    def __init__(
        self,
        app_state: AppState,
        timelines: Timelines,
        devices: Sequence[Device],
        width: int,
        height: int,
        zoom: int,
        metric: Metric | None,
        cursor: float | None,
        page: bool,
    ) -> None:
        self._app_state, self._timelines, self._cursor, self._page = app_state, timelines, cursor, page
        self._keys = [device.key for device in devices]
        self._label = max(len(_label(app_state, device)) for device in devices)
        """Cells of the longest label of a device."""
        known = [each for each in METRICS if any(_has_chart(timelines, d.key, each) for d in devices)]
        known = [metric] if metric else known
        beside = min(_beside(width, metric, _BESIDE_ON_PAGE if page else _BESIDE), len(known))
        if not page and (height - 1) // len(devices) > _LEAST_STACKED * len(known):
            beside = 1
        rows = 1 if beside > 1 else len(known)
        left = _gutter(self._label, beside)
        columns = _columns(width, left, beside)
        self.span = _span(timelines, columns, zoom)
        self.lefts = tuple(left + place * (columns + _FIGURE + 2) for place in range(beside))
        """Cells before each of the charts side by side."""
        marked = page and height >= _MARKED
        self.feet = [axis(self.span), *([mark(self.span, cursor)] if marked else [])]
        """The axis, and the line for the mark of the cursor."""
        self._room = height - 1 - (beside > 1) - marked
        # The last device needs no gap below it.
        tall = (self._room + 1) // len(devices)
        self._gap = int(tall > (max(2, rows) if page else 2))
        tall = tall - 1 if self._gap else self._room // len(devices)
        self._tall = max(1, min(max(tall, rows if page else 1), self._room, _MOST_ROWS * rows))
        """Lines of a device."""
        self.shown = tuple(known[:beside] if beside > 1 else known[: self._tall])
        """The metrics shown of a device for which all are known."""
        self._outlined = not page and metric is None and -(-self._tall // rows) >= _LEAST_OUTLINED
        """Whether charts have dotted lines at 50 and 100 %, as a tall chart of an idle device is mostly
        empty."""

    def lines(self, devices: Sequence[Device], current: str | None) -> list[tuple[Line, str]]:
        """The lines of as many of these devices as fit, each with the key of its device, "" for none."""
        count = max(0, min(len(devices), (self._room + self._gap) // (self._tall + self._gap)))
        found: list[tuple[Line, str]] = []
        for place, device in enumerate(devices[:count]):
            if place:
                found += [(_BLANK, "")] * self._gap
            found += [(line, device.key) for line in self._block(device, device.key == current)]
        beside = len(self.lefts)
        if beside > 1:
            found.insert(0, (self._from_left(map(self._heading, self.shown)), ""))
        return found + [(self._from_left([(*line, (" " * _FIGURE, ""))] * beside), "") for line in self.feet]

    def _from_left(self, parts: Iterable[Line]) -> Line:
        """One line from the parts at the places of the charts."""
        return ((" " * self.lefts[0], ""), *_joined(parts))

    def _heading(self, metric: Metric) -> Line:
        """The name of the metric of a chart, and the kind of the figure to its right."""
        name = _SHARED if _tag(self._app_state, metric, self._keys) == "RAM" else metric
        moment = "now" if self._cursor is None else _AT_CURSOR
        figure = moment if self._page else _SUMMARIES[metric]
        return (fit(name, self.span.columns), "dim"), (fit(figure, _FIGURE, True), "dim")

    def _block(self, device: Device, current: bool) -> list[Line]:
        """The lines of one device."""
        rows: list[tuple[Sequence[Metric], int]] = [(self.shown, self._tall)]
        if len(self.lefts) == 1:
            own = [each for each in self.shown if _has_chart(self._timelines, device.key, each)]
            own = own or [each for each in METRICS if _has_chart(self._timelines, device.key, each)][:1]
            # The first charts get the spare lines.
            tall, over = divmod(self._tall, len(own))
            rows = [((each,), tall + (place < over)) for place, each in enumerate(own)]
        block: list[Line] = []
        for metrics, tall in rows:
            drawn = [self._with_figure(device, each, tall) for each in metrics]
            for place, parts in enumerate(zip(*drawn, strict=True)):
                # The tag of a chart is at its bottom line, the only line that an idle chart reaches.
                foot = place == tall - 1
                named = foot and len(block) < tall
                name = fit(_label(self._app_state, device) if named else "", self._label, right=True)
                sign, style = ("▸", "cursor") if named and current else (" ", "strong")
                tag = _tag(self._app_state, metrics[0], (device.key,)) if foot else ""
                tagged = (fit(tag, _TAG + 1 if len(self.lefts) == 1 else 0), "dim")
                block.append(((f"{sign} {name} ", style), tagged, *_joined(parts)))
        return block

    def _with_figure(self, device: Device, metric: Metric, tall: int) -> list[Line]:
        """A chart with its figure; where nothing is known in the span, the reason."""
        app_state, timelines, span = self._app_state, self._timelines, self.span
        highest = _SUMMARIES[metric] == "max"
        means = timelines.values(device.key, metric, span)
        peaks = timelines.values(device.key, metric, span, True) if highest or self._outlined else means
        known = [v for v in (peaks if highest else means) if v == v]
        full = timelines.full(device.key, metric)
        if not known or full is None:
            room = span.columns + _FIGURE
            blank: Line = ((" " * room, ""),)
            return [*[blank] * (tall - 1), ((fit(_why_unknown(app_state, device, metric), room), "dim"),)]
        if self._page:
            figure = _at_moment(app_state, device, metric, self._cursor)
        elif _is_lost(app_state, device):
            # A mean of the past would look like a present value.
            figure = "lost"
        else:
            figure = _amount(metric, max(known) if highest else sum(known) / len(known))
        if self._outlined:
            lines = outlined(means, peaks, span, tall, full, self._cursor)
        else:
            lines = chart(means, span, tall, full, self._cursor, close=not self._gap)
        return [
            (*line, (fit(figure if place == tall - 1 else "", _FIGURE, right=True), ""))
            for place, line in enumerate(lines)
        ]


def _joined(parts: Iterable[Line]) -> Line:
    """The parts of a line one after the other, with a gap between them."""
    return tuple(span for place, part in enumerate(parts) for span in (*((_GAP,) if place else ()), *part))


def _tag(app_state: AppState, metric: Metric, keys: Collection[str]) -> str:
    """The tag before a chart. Memory that all these devices share with the host is called RAM."""
    devices = app_state.box.by_key
    if metric == "memory" and keys and all(key in devices and devices[key].unified for key in keys):
        return "RAM"
    return _TAGS[metric]


def _label(app_state: AppState, device: Device) -> str:
    return printable(app_state.box.label(device))


def _has_chart(timelines: Timelines, key: str, metric: Metric) -> bool:
    """Whether a value was ever known for a device, and its 100 %."""
    return timelines.has(key, metric) and timelines.full(key, metric) is not None


def _beside(width: int, metric: Metric | None, widths: Sequence[tuple[int, int]] = _BESIDE) -> int:
    """How many charts of one device are side by side."""
    return 1 if metric else next((count for least, count in widths if width >= least), 1)


def _columns(width: int, left: int, beside: int) -> int:
    """The columns of each chart, with room for a figure after each."""
    return max(1, (width - left - 2 * (beside - 1)) // beside - _FIGURE)


# The figures of a moment


def clock(span: TimeSpan, moment: float) -> str:
    """The time of day of a moment, as exact as the columns are."""
    return time.strftime("%H:%M:%S" if span.step < 60 else "%H:%M", time.localtime(moment))


def _at_moment(app_state: AppState, device: Device, metric: Metric, cursor: float | None) -> str:
    """The value at the cursor; without one, now."""
    if cursor is None:
        memory = app_state.box.memory(device)[0]
        value = {"utilization": device.utilization, "memory": memory, "power": device.power}[metric]
        unknown = "lost" if _is_lost(app_state, device) else UNKNOWN
    else:
        found = app_state.timelines.at(device.key, metric, cursor) if app_state.timelines else None
        value, unknown = found[0] if found else None, UNKNOWN
    return unknown if value is None else _amount(metric, value)


def why_no_charts(app_state: AppState, device: Device | None, metric: Metric | None) -> str:
    """Why there is no chart of one device, or (None) of any listed device."""
    if device is None and not app_state.rows:
        return why_no_rows(app_state)
    if device is not None:
        return _why_unknown(app_state, device, metric or "utilization")
    return f"no {metric or 'utilization, memory or power'} known of any device"


def _is_lost(app_state: AppState, device: Device) -> bool:
    return app_state.verdicts[device.key].state == "lost"


def _why_unknown(app_state: AppState, device: Device, metric: Metric) -> str:
    """The text in place of a chart without known values."""
    if _is_lost(app_state, device):
        return "lost"
    if app_state.timelines is not None and app_state.timelines.has(device.key, metric):
        return f"no {metric} limit known"
    by_mig = device.parent is not None or (device.mig and metric == "utilization")
    return f"no {metric} (MIG)" if by_mig else f"no {metric} known"


# One device


def device_charts(
    app_state: AppState,
    key: str,
    width: int,
    height: int,
    zoom: int = USUAL_ZOOM,
    metric: Metric | None = None,
    cursor: float | None = None,
    page: bool = False,
) -> tuple[list[Line], Frame | None]:
    """Utilization, memory and power of one device, or only one `metric`, over the last `zoom` seconds (one of
    `ZOOMS`), and their axis: at most `height` lines of `width` cells; nothing where there is no room or
    nothing is known.

    cursor  a moment that is marked
    page    whether to add each metric's present value, and its highest, mean and lowest value in the span
    """
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
        device = app_state.box.by_key.get(key) if figures else None
        told = _told(app_state, timelines, device, each, span, rows, cursor) if device else [""] * rows
        half = half_line(rows)
        means, peaks = (timelines.values(key, each, span, highest) for highest in (False, True))
        for n, drawn in enumerate(outlined(means, peaks, span, rows, full, cursor)):
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
    """The text after the chart of one device: the value now or at the cursor, and the highest, mean and
    lowest value."""
    means = [value for value in timelines.values(device.key, metric, span) if value == value]
    peaks = [value for value in timelines.values(device.key, metric, span, peaks=True) if value == value]
    when = "now" if cursor is None else _AT_CURSOR
    told = [f"{when} {_at_moment(app_state, device, metric, cursor):>6}"]
    if means and peaks:
        named = {"max": max(peaks), "mean": sum(means) / len(means), "min": min(means)}
        told += [f"{name} {_amount(metric, value):>6}" for name, value in named.items()]
    return [*told[:rows], *[""] * (rows - len(told))]


def read_out(app_state: AppState, device: Device, frame: Frame, moment: float) -> str:
    """The known values of a device at a moment: "13:02:10 GPU 3: 97 %, 66.1G, 610 W"; further back also the
    time over which these are means."""
    if app_state.timelines is None:
        return ""
    known = [(metric, app_state.timelines.at(device.key, metric, moment)) for metric in METRICS]
    figures = ", ".join(_amount(metric, found[0], " ") if found else UNKNOWN for metric, found in known)
    seconds = max((found[1] for _, found in known if found), default=0)
    if not seconds:
        figures = "no reading"
    elif seconds > 1:
        figures += f" (mean of {duration(seconds)})"
    return f"{clock(frame.span, moment)} GPU {_label(app_state, device)}: {figures}"


def _amount(metric: Metric, value: float, before_unit: str = "") -> str:
    if metric == "memory":
        return size(int(value))
    return f"{value:.0f}{before_unit}{'%' if metric == 'utilization' else 'W'}"


def _top(timelines: Timelines, key: str, metric: Metric, span: TimeSpan) -> float:
    """The top of a chart without a known 100 %: a round number well above the highest value in the span, so
    that the chart does not look full."""
    highest = max((v for v in timelines.values(key, metric, span, peaks=True) if v == v), default=0.0)
    unit = 10.0 ** floor(log10(max(1.0, highest)))
    return next(step * unit for step in (2, 5, 10, 20) if step * unit >= 1.5 * highest)


def _gutter(label: int, beside: int) -> int:
    """Cells before the first column: a device's label, and a tag where there is no heading."""
    return label + 3 + (0 if beside > 1 else _TAG + 1)


def _span(timelines: Timelines, columns: int, zoom: int) -> TimeSpan:
    return TimeSpan.at(timelines.until, zoom, max(1, columns))
