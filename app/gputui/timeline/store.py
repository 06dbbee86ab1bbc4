"""Store and Timelines: the past of all devices in several resolutions, and the view on it.

A device takes 33 KiB (72 devices: 2.4 MiB); a figure that a device never has takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, floor, nan
from typing import Literal

from gputui.inventory.device import Device
from gputui.inventory.formatting import Seen
from gputui.inventory.light_dataclasses import dataclass, field, frozen
from gputui.inventory.snapshot import Snapshot
from gputui.timeline.ring import Ring

Metric = Literal["utilization", "memory", "power"]
"""Percent, bytes in use, W."""

METRICS: tuple[Metric, ...] = ("utilization", "memory", "power")

TIERS = ((1, 330), (10, 400), (60, 740))
"""The seconds in a bucket and the number of buckets: five minutes, an hour, twelve hours, and
a little more."""

_LEAST_BRIDGE = 15.0
"""The least time in seconds that bridges two consecutive readings: without focus, readings
are ten seconds apart."""

_UNSEEN = 120.0
"""The most seconds without readings in which a device counts as unused, where one process has it before and
after. A file has whole minutes only: 90 seconds without a screen are at most two of them."""

_MOST_ANSWERS = 1000
"""The most cached answers: a new one is added each time a device becomes free."""
_MOST_DEVICES = 1024
"""The most devices. Of more (MIG instances that are recreated all day), those that have been
gone for longest are dropped."""


@dataclass(slots=True)
class Past:
    """The past of one device: its rings, the finest first, and the last known 100 % values
    (None: not known)."""

    rings: dict[Metric, tuple[Ring, ...]] = field(default_factory=dict)
    memory_total: float | None = None
    power_limit: float | None = None

    def add(self, time: float, device: Device, bridge: float) -> None:
        self.memory_total = device.memory_total or self.memory_total
        self.power_limit = device.power_limit or self.power_limit
        for metric, value in (
            ("utilization", device.utilization),
            ("memory", device.memory_used),
            ("power", device.power),
        ):
            rings = self.rings.get(metric)  # type: ignore[call-overload]
            if rings is None:
                if value is None:
                    continue
                rings = self.new(metric)  # type: ignore[arg-type]
            for ring in rings:
                ring.add(time, value, bridge)

    def new(self, metric: Metric) -> tuple[Ring, ...]:
        """Start to keep a figure."""
        self.rings[metric] = rings = tuple(Ring(width, size) for width, size in TIERS)
        return rings

    @property
    def newest(self) -> int:
        """The last minute with any data, since the epoch; 0 for none."""
        return max((0, *(rings[-1].head for rings in list(self.rings.values()))))

    def full(self, metric: Metric) -> float | None:
        """Return the 100 % value of a figure."""
        if metric == "utilization":
            return 100.0
        return self.memory_total if metric == "memory" else self.power_limit


class Store:
    """The past of every device by `Device.key`. It changes with each reading; views read it through
    `Timelines`.

    adopted  the number of times that a past from elsewhere was taken over
    unused   the cached results of `unused_since`, by its arguments
    """

    def __init__(self) -> None:
        self.devices: dict[str, Past] = {}
        self.adopted = 0
        self.unused: dict[tuple[object, ...], float] = {}

    def add(self, time: float, devices: Iterable[Device], pace: float = 1.0) -> None:
        """Note one reading of the devices; the next one comes about `pace` seconds later."""
        bridge = max(_LEAST_BRIDGE, 1.5 * pace)
        for device in devices:
            past = self.devices.get(device.key)
            if past is None:
                if len(self.devices) >= _MOST_DEVICES:
                    del self.devices[min(self.devices, key=lambda key: self.devices[key].newest)]
                past = self.devices[device.key] = Past()
            past.add(time, device, bridge)

    def adopt(self, older: Store) -> None:
        """Take over another store's data from before this store's first reading, device by device."""
        self.adopted += 1
        self.unused.clear()
        for key, theirs in older.devices.items():
            past = self.devices.setdefault(key, Past())
            past.memory_total = past.memory_total or theirs.memory_total
            past.power_limit = past.power_limit or theirs.power_limit
            for metric, rings in theirs.rings.items():
                for own, other in zip(past.rings.get(metric) or past.new(metric), rings, strict=True):
                    own.adopt(other)

    def after(self, snapshot: Snapshot, pace: float) -> Timelines:
        """Return the timelines after one more snapshot."""
        self.add(snapshot.time, map(snapshot.with_memory, snapshot.devices), pace)
        return Timelines(self, snapshot.time, self.adopted)


@frozen
class Span:
    """The time that a chart shows, in columns of equal length. Equal spans show the same columns.

    seconds, columns  the length and the number of columns
    last              the number of the newest column, which begins at `last` × `step` seconds since the epoch
    """

    seconds: int
    columns: int
    last: int

    @classmethod
    def at(cls, until: float, seconds: int, columns: int) -> Span:
        """Return the span whose newest column contains the moment `until`."""
        return cls(seconds, columns, floor(until * columns / seconds))

    @property
    def step(self) -> float:
        """The seconds in a column."""
        return self.seconds / self.columns

    def time(self, column: int) -> float:
        """Return when a column begins; the first column is 0."""
        return (self.last - self.columns + 1 + column) * self.step

    def column(self, time: float) -> int:
        """Return the column of a moment; it may be outside the span."""
        # Half a millionth, because a column's own beginning must fall into it.
        return floor(time / self.step + 5e-7) - self.last + self.columns - 1

    def buckets(self, width: int, column: int) -> tuple[int, int]:
        """Return the buckets of `width` seconds that overlap a column: the first, and the one
        after the last."""
        number, step = self.last - self.columns + 1 + column, self.step
        # A billionth: 60.000000001 and 59.999999999 are the same moment.
        return floor(number * step / width + 1e-9), ceil((number + 1) * step / width - 1e-9)


@frozen
class Timelines:
    """The past as of one reading. Two with equal `until` and `adopted` show the same.

    until    the time of that reading
    adopted  the number of pasts that were taken over from elsewhere
    """

    store: Store = field(repr=False, compare=False)
    until: float
    adopted: int = 0

    def has(self, key: str, metric: Metric) -> bool:
        """Return whether a figure was ever known."""
        past = self.store.devices.get(key)
        return past is not None and metric in past.rings

    def full(self, key: str, metric: Metric) -> float | None:
        """Return the 100 % value of a figure, None where that is not known."""
        past = self.store.devices.get(key)
        return past.full(metric) if past else None

    def at(self, key: str, metric: Metric, moment: float) -> tuple[float, int] | None:
        """Return a figure at a moment (seconds since the epoch); None where it is not known.

        The figure is the mean of the shortest stored time around the moment; its length in seconds is the
        second value.
        """
        past = self.store.devices.get(key)
        for ring in (past.rings.get(metric) or ()) if past else ():
            number = floor(moment / ring.width + 1e-6)
            if number < max(ring.first, ring.head - ring.size + 1):
                # A coarser ring may reach further back.
                continue
            value = ring.window(number, number + 1)[0]
            return (value, ring.width) if value == value else None
        return None

    def unused_since(
        self, key: str, until: float, utilization: float, memory: float, held: float | None = None
    ) -> float:
        """Return the moment since when a device has been unused up to `until`.

        Unused means at most these percent of utilization and bytes of memory. Return a `Seen` where nothing
        is known of the time before, `until` itself where that is so of all the time before it. A process has
        had the device since `held`: from then on, up to `_UNSEEN` seconds without readings do not end it.
        """
        past, place = self.store.devices.get(key), (key, until, utilization, memory, held, self.adopted)
        if past is None:
            return Seen(until)
        if place not in self.store.unused:
            if len(self.store.unused) > _MOST_ANSWERS:
                self.store.unused.clear()
            self.store.unused[place] = max(
                _within(past.rings.get("utilization", ()), until, utilization, held),
                _within(past.rings.get("memory", ()), until, memory, held),
            )
        return self.store.unused[place]

    def values(self, key: str, metric: Metric, span: Span, peaks: bool = False) -> Sequence[float]:
        """Return a figure in each column, its mean or its peak; NaN is unknown."""
        past = self.store.devices.get(key)
        rings = past.rings.get(metric) if past else None
        if rings is None:
            return [nan] * span.columns
        return _columns(_fitting(rings, span.seconds), span, peaks)


def _within(rings: Sequence[Ring], until: float, most: float, held: float | None) -> float:
    """Return the moment since when a figure is known to have been at most `most`, up to `until`; `held` as
    for `unused_since`."""
    for ring in rings:
        last = ceil(until / ring.width) - 1
        for value in reversed(ring.window(last - ring.size + 1, last + 1, peaks=True)):
            begins = last * ring.width
            last -= 1
            if value <= most:
                until = min(until, begins)
            elif value == value:
                # After a time without readings, it is unknown when the use ended.
                return until if until <= begins + ring.width else Seen(until)
            elif held is None or begins < held or until - begins > _UNSEEN:
                break
    return Seen(until)


def _columns(rings: Sequence[Ring], span: Span, peaks: bool) -> list[float]:
    ring = rings[0]
    bounds = _bounds(span, ring.width)
    first = bounds[0][0]
    data = ring.window(first, bounds[-1][1], peaks)
    found = [
        data[low - first] if high - low == 1 else _together(data[low - first : high - first], peaks)
        for low, high in bounds
    ]
    # A coarser ring may know the time before this ring began: a ring that was read from a file does. The
    # coarser bucket in which this ring began has no earlier data.
    began = ring.first * ring.width
    older = [each for each in rings[1:] if each.first < began // each.width]
    if older:
        coarse = older[0].width
        before = span.column(began // coarse * coarse)
        if before > 0 and any(value != value for value in found[:before]):
            coarser = _columns(older, span, peaks)
            for place in range(min(before, span.columns)):
                if found[place] != found[place]:
                    found[place] = coarser[place]
    return found


@lru_cache(maxsize=16)
def _bounds(span: Span, width: int) -> tuple[tuple[int, int], ...]:
    return tuple(span.buckets(width, column) for column in range(span.columns))


def _together(values: Sequence[float], peaks: bool) -> float:
    """Return the mean, or the peak; unknown values do not count."""
    total = sum(values)
    if total != total:
        values = [value for value in values if value == value]
        if not values:
            return nan
        total = sum(values)
    return max(values) if peaks else total / len(values)


def _fitting(rings: Sequence[Ring], seconds: int) -> Sequence[Ring]:
    """Return the finest ring that reaches back this far, and the coarser ones after it."""
    return next(
        (rings[place:] for place, ring in enumerate(rings) if ring.width * (ring.size - 2) >= seconds),
        rings[-1:],
    )
