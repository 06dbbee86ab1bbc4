"""Which calls NVML refuses a GPU, and when each is asked again: a refusal is never remembered for ever.

A driver that is updated, or a MIG mode that is switched off, makes a call work that did not. What has never
answered is asked again after half a minute, then after a minute, and so on.
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0
"""Seconds between two tries of a call that the driver does not support."""
LONGEST_WAIT_AFTER_ERROR = 60.0
"""The same for a fact that never changes and could not be read: the next reading tries first."""


class Refusals:
    """What the driver refuses of one GPU, by the names of calls. `ticks` gives seconds that only grow."""

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._waits: dict[str, tuple[float, float]] = {}
        """When a call is asked again, and how long it had to wait for that."""
        self._answered: set[str] = set()

    def due(self, call: str) -> bool:
        """Whether the call may be made now."""
        wait = self._waits.get(call)
        return wait is None or self._ticks() >= wait[0]

    def refuses(self, call: str) -> bool:
        """Whether the last answer to it was a refusal that is remembered."""
        return call in self._waits

    def has_answered(self, call: str) -> bool:
        """Whether it has ever worked: then a refusal is trouble, and says nothing of what is supported."""
        return call in self._answered

    def answered(self, call: str) -> None:
        """The call has worked."""
        self._answered.add(call)
        self._waits.pop(call, None)

    def refused(self, call: str, first: float = FIRST_WAIT, longest: float = LONGEST_WAIT) -> None:
        """The call has been refused: it waits `first` seconds, then twice as long each time, to `longest`."""
        before = self._waits.get(call)
        wait = first if before is None else min(longest, max(1.0, 2 * before[1]))
        self._waits[call] = self._ticks() + wait, wait

    def forget(self) -> None:
        """Nothing is known any more: it is another device now, or one in another mode."""
        self._waits.clear()
        self._answered.clear()

    def ask_all(self) -> None:
        """Whatever is refused is due: the device has just come back."""
        self._waits.clear()
