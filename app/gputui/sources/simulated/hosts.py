"""Simulated other boxes for the demo: three live, one silent, one unreachable."""

from __future__ import annotations

from gputui.inventory.light_dataclasses import replace
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.sources.hosts.reading import Reading
from gputui.sources.hosts.ssh import Way
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import Clock

_READ = {"gpu1": "shared", "gpu2": "rtx4090", "gpu3": "a100-mig", "lab": "dgx-2"}
"""The boxes that were ever read, and the demo box that each one shows."""
_SILENT, _SILENT_FOR = "gpu3", 40.0
_DEAD = "gpu4"
_AGO = 300.0
"""Seconds for which the boxes have been running when the page opens."""


class SimulatedChannels(Channels):
    """Channels without connections. `clock` returns seconds since the epoch."""

    def __init__(self, clock: Clock) -> None:
        super().__init__((), Way(1), 1.0)
        self._clock, self._opened = clock, clock()
        self._at: tuple[float, tuple[BoxState, ...]] = (-1.0, ())

    @property
    def states(self) -> tuple[BoxState, ...]:
        """The current states of the boxes, by whole seconds."""
        elapsed = float(int(self._clock() - self._opened))
        if elapsed != self._at[0]:
            self._at = elapsed, tuple(self._state(alias, elapsed) for alias in sorted((*_READ, _DEAD)))
        return self._at[1]

    def _state(self, alias: str, elapsed: float) -> BoxState:
        opened = self._opened
        if alias == _DEAD:
            return BoxState(alias, "dead", None, "connection refused", opened, "unreachable")
        silent = alias == _SILENT
        seconds = _AGO + (-_SILENT_FOR if silent else elapsed)
        snapshot = at(BOXES[_READ[alias]], seconds, opened - _AGO)
        state = BoxState(alias, "live", Reading(alias, snapshot, {}), None, opened)
        if not silent:
            return state
        return replace(state, state="stale", error="no recent reading", since=snapshot.time)
