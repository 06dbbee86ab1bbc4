"""Ring: one figure of one device over time, as the mean and the peak of equal spans. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from math import isfinite, nan

_NONE = array("f", (nan,))
_NEVER = 1 << 62
"""The first bucket of an empty ring, after all others."""


class Ring:
    """The last `size` buckets of `width` seconds each.

    Bucket n holds the seconds from n × `width` on (since the epoch), and is stored at n modulo `size`. NaN is
    unknown: there was no reading, or the driver did not report the figure.

    first, head  the first and the newest bucket that were ever written; -1 is the newest of none
    """

    __slots__ = ("_count", "_last", "_peak", "_sum", "first", "head", "means", "peaks", "size", "width")

    def __init__(self, width: int, size: int) -> None:
        self.width, self.size = width, size
        self.means, self.peaks = _NONE * size, _NONE * size
        self.first, self.head = _NEVER, -1
        self._sum, self._count, self._peak = 0.0, 0, 0.0
        self._last: tuple[float, float] | None = None

    def add(self, time: float, value: float | None, bridge: float) -> None:
        """Note a value read at `time`.

        If the previous value is at most `bridge` seconds older, it fills the time between them; a longer time
        without readings stays a gap.
        """
        if value is None or not isfinite(value):
            self._last = None
            return
        number = int(time // self.width)
        if number != self.head:
            self._open(number, time, bridge)
        self._sum += value
        self._count += 1
        self._peak = max(self._peak, value) if self._count > 1 else value
        slot = number % self.size
        self.means[slot] = self._sum / self._count
        self.peaks[slot] = self._peak
        self._last = (time, value)

    def put(self, number: int, mean: float, peak: float) -> None:
        """Write a whole bucket, which must follow the newest one."""
        self._open(number, 0.0, -1.0)
        slot = number % self.size
        self.means[slot], self.peaks[slot] = mean, peak

    def _open(self, number: int, time: float, bridge: float) -> None:
        """Make a bucket the newest one."""
        before, last = self.head, self._last
        if number > before >= 0:
            between = last[1] if last is not None and 0 <= time - last[0] <= bridge else nan
            self._fill(before + 1, number, between)
        else:
            # The clock was set back: earlier values for the time from now on are wrong.
            self._fill(number, before + 1, nan)
        self.first, self.head = min(self.first, number), number
        self._sum, self._count, self._peak = 0.0, 0, 0.0

    def _fill(self, start: int, end: int, value: float) -> None:
        for at, many in self._slots(max(start, end - self.size), end):
            self.means[at : at + many] = self.peaks[at : at + many] = array("f", (value,)) * many

    def _slots(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of buckets, and the number of consecutive buckets there."""
        while start < end:
            at = start % self.size
            many = min(end - start, self.size - at)
            yield at, many
            start += many

    def window(self, start: int, end: int, peaks: bool = False) -> list[float]:
        """Return the means (or the peaks) of the buckets from `start` to before `end`; NaN is unknown."""
        low = min(max(start, self.first, self.head - self.size + 1), end)
        high = max(low, min(end, self.head + 1))
        data = self.peaks if peaks else self.means
        at, many = low % self.size, high - low
        known = data[at : at + many]
        known += data[: many - len(known)]
        return [nan] * (low - start) + known.tolist() + [nan] * (end - high)

    def adopt(self, older: Ring) -> None:
        """Take over the buckets of another ring of this width and size from before this
        ring's first bucket."""
        if self.head < 0:
            self.head = older.head
        start = max(older.first, older.head - self.size + 1, self.head - self.size + 1)
        end = min(self.first, older.head + 1)
        if start < end:
            self.first = start
        for at, many in self._slots(start, end):
            self.means[at : at + many] = older.means[at : at + many]
            self.peaks[at : at + many] = older.peaks[at : at + many]
