"""The source that plays a simulated box."""

from __future__ import annotations

import time
from collections.abc import Callable

from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES, DEFAULT
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.spec import Box
from gputui.sources.source import NoSourceError, Want


class SimulatedSource:
    """A simulated box, moving in real time from the moment it is opened.

    `clock` gives seconds since the epoch; a picture or a test passes its own.
    """

    def __init__(self, box: Box, clock: Callable[[], float] = time.time) -> None:
        self.box, self.label = box, f"demo {box.name}"
        self._clock = clock
        self._opened: float | None = None

    def open(self) -> None:
        if self._opened is None:
            self._opened = self._clock()

    def read(self, want: Want = Want.ALL) -> Snapshot:
        self.open()
        assert self._opened is not None
        return at(self.box, self._clock() - self._opened, self._opened)

    def close(self) -> None:
        self._opened = None


def named(name: str | None) -> SimulatedSource:
    """The box of that name; None is the one that `--demo` shows. Raises NoSourceError for any other."""
    box = BOXES.get(name or DEFAULT)
    if box is None:
        raise NoSourceError(f"there is no demo box '{name}'; there are: {', '.join(BOXES)}")
    return SimulatedSource(box)
