"""Timelines of utilization, memory and power: charts of the past, in a column, over one time axis.

Every chart goes from 0 to 100 %, of the memory and of the power limit: three percent of jitter must not look
like work. The panel's charts have no present figures, which are in the table: to their right is the mean or
the maximum of the values that they show, so that they change only when a new column begins. The page has no
table, and so it has the present figures, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from math import floor, log10

from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, duration, printable, size
from gputui.inventory.light_dataclasses import frozen
from gputui.timeline.store import METRICS, Metric, Timelines
from gputui.timeline.store import Span as TimeSpan
from gputui.tui.app_state import AppState
from gputui.tui.views.chart import axis, chart, half_line, mark
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
_BEFORE_ONE = 1 + _TAG + 1 + _SCALE + 1
"""Cells before the charts of one device: the tag and the scale."""
_FIGURE = 7
"""Cells of a figure behind a chart, " 100.0G"."""
_SUMMARIES: dict[Metric, str] = {"utilization": "mean", "memory": "max", "power": "mean"}
"""Whether that figure is the mean or the maximum of the span that the chart shows."""
_BESIDE = ((120, 3), (76, 2))
"""The width in cells from which this many charts of one device are side by side."""
_BESIDE_ON_PAGE = _BESIDE[:1]
"""The same on the page, which has all three in any case."""
_FIGURES = 12
"""Cells of the figures behind the chart of one device, " max 100.0G"."""
_WITH_FIGURES = 50
"""The width in cells from which there are such figures."""
_LEAST_STACKED = 3
"""The height in lines from which the charts of one device are in a column, each as wide as the panel."""
_LEAST_RULED = 4
"""The height in lines from which a chart in a list has dotted lines at 50 and 100 %."""
_LOW = 2
"""The height in lines of charts that become higher where only some of them can have a line between them."""
_MARKED = 6
"""The height in lines from which the page has a line for the mark of the cursor."""

GAPS = "  blank: not recorded"
"""What the blank columns between bars are: nobody has read the devices then."""
_NO_LIMIT = "no limit"
"""The label of a chart whose 100 % is unknown: its top is a round number."""

_SHARED = "memory (the host's RAM, shared)"

_AT_CURSOR = "at ▲"
"""Shown instead of "now" while the figures are those at the mark of the cursor."""
_GAP = ("  ", "")
"""The gap between two charts side by side."""

_REDRAWN = 10.0
"""Seconds after which the newest column is drawn again, if a column spans a longer time."""

_BLANK: Line = ((" ", ""),)


@frozen
class Frame:
    """The positions on drawn charts: for the mouse, and for a cursor in time.

    lefts    cells before the first column of each of the charts side by side
    span     the time that the columns show
    devices  the key of the device that each line shows, "" for a line without a device
    metrics  the metrics that the charts show
    gaps     whether there are blank columns between bars
    """

    lefts: tuple[int, ...]
    span: TimeSpan
    devices: tuple[str, ...]
    metrics: tuple[Metric, ...] = METRICS
    gaps: bool = False

    @property
    def shown(self) -> frozenset[str]:
        """The keys of the devices that are shown."""
        return frozenset(self.devices) - {""}

    def moment(self, x: int) -> float | None:
        """The time at which the column at a cell begins, None where there is no column."""
        columns = (x - left for left in self.lefts)
        return next((self.span.time(each) for each in columns if 0 <= each < self.span.columns), None)


def charts_key(app_state: AppState, width: int, height: int) -> Hashable:
    """A cache key for the panel in this size: while it stays the same, they need not be drawn again."""
    timelines = app_state.timelines
    if timelines is None:
        return None
    stacked = (height - 1) // max(1, len(app_state.once(charted))) > _LEAST_STACKED
    beside = 1 if stacked else _beside(width)
    step = min(USUAL_ZOOM / _columns(width, _gutter(1, beside), beside), _REDRAWN)
    shown = tuple((device.key, _is_lost(app_state, device)) for device in app_state.rows)
    return timelines.until // step, timelines.adopted, shown, app_state.screen.filter


def zoomed(zoom: int, by: int) -> int:
    """The span that is `by` steps longer, or the nearer end of `ZOOMS`."""
    return ZOOMS[min(max(0, ZOOMS.index(zoom) + by), len(ZOOMS) - 1)]


def zoom_name(zoom: int) -> str:
    """The name of a zoom: "5m", "12h"."""
    return f"{zoom // 3600}h" if zoom >= 3600 else f"{zoom // 60}m"


# The charts of all devices


def timelines_pane(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule, the charts of all devices, and the axis."""
    if app_state.snapshot is None:
        return []
    devices = app_state.once(charted)
    lines, frame = charts_of(app_state, width, height - 1, device=devices[0] if len(devices) == 1 else None)
    past = f"last {zoom_name(USUAL_ZOOM)}{GAPS if frame and frame.gaps else ''}"
    return [title("timelines", width, filter_in_title(app_state), past), *lines]


def charted(app_state: AppState, metric: Metric | None = None) -> list[Device]:
    """The listed devices that have a past to show, in that order; of a single metric, if it is given.

    The driver reports no utilization of a GPU that is divided into MIG instances, and before Hopper none
    of an instance.
    """
    timelines = app_state.timelines
    if timelines is None:
        return []
    return [d for d in app_state.rows if any(_has_chart(timelines, d.key, each) for each in _wanted(metric))]


def _wanted(metric: Metric | None) -> Sequence[Metric]:
    return (metric,) if metric else METRICS


def charts_of(
    app_state: AppState,
    width: int,
    height: int,
    zoom: int = USUAL_ZOOM,
    metric: Metric | None = None,
    device: Device | None = None,
    first: int = 0,
    cursor: float | None = None,
    page: bool = False,
) -> tuple[list[Line], Frame | None]:
    """The charts of one device, or of as many devices as fit, above one axis: at most `height` lines of
    `width` cells; nothing where there is no room or nothing is known.

    zoom    the seconds of the span, one of `ZOOMS`
    metric  the only metric to show; None: as many as there is room for
    device  the only device to show: it takes all the room, and its charts have a scale
    first   how many devices of the list are scrolled out above
    cursor  a moment that is marked
    page    whether all metrics are shown, as long as one device fits, with the value now or at the cursor; of
            one device also the highest, mean and lowest value in the span
    """
    timelines = app_state.timelines
    if timelines is None or height < 2:
        return [], None
    devices = [device] if device else charted(app_state, metric)
    own = {
        each.key: [m for m in _wanted(metric) if _has_chart(timelines, each.key, m, one=device is not None)]
        for each in devices
    }
    if not any(own.values()):
        return [], None
    charts = _Charts(app_state, timelines, own, device is not None, width, height, zoom, cursor, page)
    found = charts.lines(devices[first:])
    lines = [line if line == _BLANK else padded(line, width) for line, _ in found]
    shown = tuple(key for _, key in found[: -len(charts.feet)])
    return lines, Frame(charts.lefts, charts.span, shown, charts.shown, charts.gaps)


class _Charts:
    """The charts of some devices, above one axis; the arguments are those of `charts_of`.

    In a list, every device has the same number of lines; a device with fewer known metrics has higher charts.
    On a wide screen, the charts of one device are side by side, under headings; otherwise in a column, each
    with a tag. One device alone has its charts in a column.
    """

    def __init__(
        self,
        app_state: AppState,
        timelines: Timelines,
        own: Mapping[str, Sequence[Metric]],
        one: bool,
        width: int,
        height: int,
        zoom: int,
        cursor: float | None,
        page: bool,
    ) -> None:
        self._app_state, self._timelines, self._cursor, self._page = app_state, timelines, cursor, page
        self._own, self._one = own, one
        """The metrics of each device that have a chart; whether it is one device on its own."""
        self._label = max(len(_label(app_state, app_state.box.by_key[key])) for key in own)
        """Cells of the longest label of a device."""
        metrics = [each for each in METRICS if any(each in metrics for metrics in own.values())]
        beside = min(_beside(width, _BESIDE_ON_PAGE if page else _BESIDE), len(metrics))
        if one or (not page and (height - 1) // len(own) > _LEAST_STACKED * len(metrics)):
            beside = 1
        left = _BEFORE_ONE if one else _gutter(self._label, beside)
        self._figure = _FIGURE
        """Cells of the figures behind a chart."""
        if one:
            self._figure = _FIGURES if page and width >= _WITH_FIGURES else 0
        columns = _columns(width, left, beside, self._figure)
        self.span = TimeSpan.at(timelines.until, zoom, columns)
        self.lefts = tuple(left + place * (columns + self._figure + 2) for place in range(beside))
        """Cells before each of the charts side by side."""
        marked = page and height >= _MARKED
        self.gaps = False
        """Whether there are blank columns between bars, once they are drawn."""
        self.feet = [axis(self.span), *([mark(self.span, cursor)] if marked else [])]
        """The axis, and the line for the mark of the cursor."""
        rows = 1 if beside > 1 else len(metrics)
        self._room = height - 1 - (beside > 1) - marked
        # The last device needs no gap below it.
        tall = (self._room + 1) // len(own)
        self._gap = int(tall > (max(2, rows) if page else 2))
        tall, self._gaps = (tall - 1, len(own) - 1) if self._gap else (self._room // len(own), 0)
        if self._gap and not page and tall == _LOW < self._room // len(own):
            # Charts are higher rather than that all have a line between them.
            (tall, self._gaps), self._gap = divmod(self._room, len(own)), 0
        self._tall = max(1, min(max(tall, rows if page else 1), self._room))
        """Lines of a device."""
        self.shown = tuple(metrics[: beside if beside > 1 else self._tall])
        """The metrics shown of a device for which all are known."""
        self._ruled = one or (not page and -(-self._tall // rows) >= _LEAST_RULED)
        """Whether charts have dotted lines at 50 and 100 %, as a tall chart of an idle device is mostly
        empty."""

    def lines(self, devices: Sequence[Device]) -> list[tuple[Line, str]]:
        """The lines of as many of these devices as fit, each with the key of its device, "" for none."""
        count = max(0, min(len(devices), (self._room + self._gap) // (self._tall + self._gap)))
        found: list[tuple[Line, str]] = []
        for place, device in enumerate(devices[:count]):
            # The lines between devices are spread evenly.
            after, here = (each * (self._gaps + 1) // len(self._own) for each in (place - 1, place))
            if place and here > after:
                found.append((_BLANK, ""))
            found += [(line, device.key) for line in self._block(device)]
        beside = len(self.lefts)
        if beside > 1:
            found.insert(0, (self._from_left(map(self._heading, self.shown)), ""))
        return found + [
            (self._from_left([(*line, (" " * self._figure, ""))] * beside), "") for line in self.feet
        ]

    def _from_left(self, parts: Iterable[Line]) -> Line:
        """One line from the parts at the places of the charts."""
        return ((" " * self.lefts[0], ""), *_joined(parts))

    def _heading(self, metric: Metric) -> Line:
        """The name of the metric of a chart, and the kind of the figure to its right."""
        name = _SHARED if _tag(self._app_state, metric, self._own) == "RAM" else metric
        figure = _moment(self._cursor) if self._page else _SUMMARIES[metric]
        return (fit(name, self.span.columns), "dim"), (fit(figure, _FIGURE, True), "dim")

    def _block(self, device: Device) -> list[Line]:
        """The lines of one device."""
        if len(self.lefts) > 1:
            return self._row(device, self.shown, self._tall, True)
        own = [each for each in self._own[device.key] if each in self.shown] or self._own[device.key][:1]
        gap = self._one and self._tall >= 4 * len(own) - 1
        # The first charts get the spare lines.
        tall, over = divmod(self._tall - gap * (len(own) - 1), len(own))
        block: list[Line] = []
        for place, each in enumerate(own):
            block += [_BLANK] * (gap and place > 0)
            block += self._row(device, (each,), tall + (place < over), not place)
        return block

    def _row(self, device: Device, metrics: Sequence[Metric], tall: int, named: bool) -> list[Line]:
        """The lines of these charts side by side; `named`: with the label of the device."""
        drawn = [self._with_figures(device, each, tall) for each in metrics]
        front = self._scale(device, metrics[0], tall) if self._one else self._name(device, metrics[0], named)
        front = [((" " * self.lefts[0], ""),)] * (tall - len(front)) + front
        return [(*before, *_joined(parts)) for before, *parts in zip(front, *drawn, strict=True)]

    def _name(self, device: Device, metric: Metric, named: bool) -> list[Line]:
        """What is before the bottom line of a chart, the only line that an idle chart reaches."""
        name = fit(_label(self._app_state, device) if named else "", self._label, right=True)
        current = named and self._page and device.key == self._app_state.cursor
        sign, style = ("▸", "cursor") if current else (" ", "strong")
        tag = _tag(self._app_state, metric, (device.key,)) if len(self.lefts) == 1 else ""
        return [((f"{sign} {name} ", style), (f"{tag:{self.lefts[0] - self._label - 3}}", "dim"))]

    def _scale(self, device: Device, metric: Metric, tall: int) -> list[Line]:
        """What is before the lines of the chart of one device."""
        full, half = self._full(device, metric), half_line(tall)
        tags = {0: _tag(self._app_state, metric, (device.key,))}
        if self._timelines.full(device.key, metric) is None:
            tags[1] = _NO_LIMIT
        scale = {tall - 1: "0" if tall > 2 else "", 0: _amount(metric, full)}
        if half is not None:
            scale[tall - 1 - half] = _amount(metric, full / 2)
        texts = [f" {tags.get(n, ''):{_TAG}} {scale.get(n, ''):>{_SCALE}} " for n in range(tall)]
        return [((fit(text, _BEFORE_ONE), "dim"),) for text in texts]

    def _full(self, device: Device, metric: Metric) -> float:
        """100 %; where it is unknown, a round number well above the highest value in the span, so that the
        chart does not look full."""
        full = self._timelines.full(device.key, metric)
        if full is not None:
            return full
        peaks = self._timelines.values(device.key, metric, self.span, peaks=True)
        highest = max((v for v in peaks if v == v), default=0.0)
        unit = 10.0 ** floor(log10(max(1.0, highest)))
        return next(step * unit for step in (2, 5, 10, 20) if step * unit >= 1.5 * highest)

    def _with_figures(self, device: Device, metric: Metric, tall: int) -> list[Line]:
        """A chart with its figures; where nothing is known in the span, the reason."""
        app_state, timelines, span = self._app_state, self._timelines, self.span
        highest = _SUMMARIES[metric] == "max"
        means = timelines.values(device.key, metric, span)
        peaks = timelines.values(device.key, metric, span, True) if highest or self._ruled else means
        known, known_peaks = ([v for v in values if v == v] for values in (means, peaks))
        if not known or metric not in self._own[device.key]:
            room = span.columns + self._figure
            blank: Line = ((" " * room, ""),)
            return [*[blank] * (tall - 1), ((fit(_why_unknown(app_state, device, metric), room), "dim"),)]
        now = _at_moment(app_state, device, metric, self._cursor) if self._page else ""
        of_span = {"max": max(known_peaks), "mean": sum(known) / len(known), "min": min(known)}
        if self._one:
            told = [(_moment(self._cursor), now), *((n, _amount(metric, v)) for n, v in of_span.items())]
            figures = [f"{name} {figure:>6}" for name, figure in told[:tall]]
            figures += [""] * (tall - len(figures))
        else:
            # Of a lost device, a mean of the past would look like a present value.
            lost = "lost" if _is_lost(app_state, device) else ""
            figures = [""] * (tall - 1) + [now or lost or _amount(metric, of_span[_SUMMARIES[metric]])]
        full = self._full(device, metric)
        there = [place for place, value in enumerate(means) if value == value]
        self.gaps |= there[-1] - there[0] >= len(there)
        # In a list, the figure and the bars agree.
        values = peaks if highest and not self._ruled else means
        lines = chart(values, peaks, span, tall, full, self._cursor, not self._one, self._ruled)
        return [
            (*line, (fit(figure, self._figure, right=True), "dim" if self._one and place else ""))
            for place, (line, figure) in enumerate(zip(lines, figures, strict=True))
        ]


def _moment(cursor: float | None) -> str:
    """The name of the moment of the figures on the page."""
    return "now" if cursor is None else _AT_CURSOR


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


def _has_chart(timelines: Timelines, key: str, metric: Metric, one: bool = False) -> bool:
    """Whether a value was ever known for a device, and its 100 %, which the chart of one device needs not."""
    return timelines.has(key, metric) and (one or timelines.full(key, metric) is not None)


def _beside(width: int, widths: Sequence[tuple[int, int]] = _BESIDE) -> int:
    """How many charts of one device are side by side."""
    return next((count for least, count in widths if width >= least), 1)


def _columns(width: int, left: int, beside: int, figure: int = _FIGURE) -> int:
    """The columns of each chart, with room for a figure after each."""
    return max(1, (width - 1 - left - 2 * (beside - 1)) // beside - figure)


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
    return f"{metric or 'utilization, memory and power'} unknown for every GPU"


def _is_lost(app_state: AppState, device: Device) -> bool:
    return app_state.verdicts[device.key].state == "lost"


def _why_unknown(app_state: AppState, device: Device, metric: Metric) -> str:
    """The text in place of a chart without known values."""
    if _is_lost(app_state, device):
        return "lost"
    timelines = app_state.timelines
    if timelines and timelines.has(device.key, metric) and timelines.full(device.key, metric) is None:
        return f"no {metric} limit known"
    by_mig = device.parent is not None or (device.mig and metric == "utilization")
    return f"no {metric} (MIG)" if by_mig else f"no {metric} known"


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


def _gutter(label: int, beside: int) -> int:
    """Cells before the first column: a device's label, and a tag where there is no heading."""
    return label + 3 + (0 if beside > 1 else _TAG + 1)
