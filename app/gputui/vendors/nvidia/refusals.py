"""The calls that NVML refuses for a GPU, and when each is retried: no refusal is remembered for ever.

A call that failed can work after a driver update, or after MIG was switched off. A call that has never
answered is retried after half a minute, then after a minute, and so on.
"""

from __future__ import annotations

from gputui.sources.source import Clock

FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0
"""Seconds between two tries of a call that the driver does not support."""
LONGEST_WAIT_AFTER_ERROR = 60.0
"""The same for a fact that never changes and could not be read: the first retry is in the next reading."""


class Refusals:
    """The refusals of one GPU, or of a box, by the names of calls. `ticks` returns seconds of a monotonic
    clock."""

    def __init__(self, ticks: Clock) -> None:
        self._ticks = ticks
        self._waits: dict[str, tuple[float, float]] = {}
        """When a call is retried, and how long it had to wait for that."""
        self._answered: set[str] = set()

    def due(self, call: str) -> bool:
        """Return whether the call may be made now."""
        wait = self._waits.get(call)
        return wait is None or self._ticks() >= wait[0]

    def refuses(self, call: str) -> bool:
        """Return whether the last answer to it was a refusal that is remembered."""
        return call in self._waits

    def has_answered(self, call: str) -> bool:
        """Return whether it has ever worked: then a refusal is a failure, and not a lack of support."""
        return call in self._answered

    def answered(self, call: str) -> None:
        """Note that the call has worked."""
        self._answered.add(call)
        self._waits.pop(call, None)

    def refused(self, call: str, first: float = FIRST_WAIT, longest: float = LONGEST_WAIT) -> None:
        """Note a refusal: the call waits `first` seconds, then twice as long each time, up to `longest`."""
        before = self._waits.get(call)
        wait = first if before is None else min(longest, max(1.0, 2 * before[1]))
        self._waits[call] = self._ticks() + wait, wait

    def forget(self) -> None:
        """Forget everything: it is another device now, or the device is in another mode."""
        self._waits.clear()
        self._answered.clear()

    def ask_all(self) -> None:
        """Make every refused call due: the device has just come back."""
        self._waits.clear()
