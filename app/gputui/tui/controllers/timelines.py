"""TimelineController: keeps the timelines: from readings, from a past found elsewhere, and in their file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import Sampler
from gputui.timeline.store import Store, Timelines
from gputui.tui.background import in_background

if TYPE_CHECKING:
    from gputui.sources.simulated.source import SimulatedSource
    from gputui.system.environment import Environ
    from gputui.timeline.keeper import Keeper


class TimelineController:
    """Call its methods on the screen's thread.

    found   called on another thread with a past that was found: `adopt` takes it over
    keeps   whether the timelines are of this machine, whose past is kept in a file
    """

    def __init__(
        self, sampler: Sampler, environ: Environ, keeps: bool, found: Callable[[Store], object]
    ) -> None:
        self._sampler, self._environ, self._keeps, self._found = sampler, environ, keeps, found
        self._store = Store()
        self._timelines: Timelines | None = None
        self._file: Keeper | None = None

    @property
    def not_kept(self) -> str | None:
        """Why the next run will not have the timelines of this run, None where it will."""
        return self._file.problem if self._file else None

    def start(self) -> None:
        """Look for a past on another thread: a home folder on a file server may not answer."""
        simulated = self._sampler.simulated
        if simulated is not None:
            in_background("compute the past", lambda: self._compute(simulated))
        elif self._keeps:
            # The first frame needs none.
            from gputui.timeline.keeper import Keeper

            self._file = file = Keeper(self._environ)
            in_background("read the past", lambda: self._found(file.read()))

    def _compute(self, simulated: SimulatedSource) -> None:
        # Found as a whole: times must not grow from stretch to stretch.
        whole = Store()
        for stretch in simulated.past():
            store, last = Store(), None
            for reading in stretch:
                store.add(reading.time, reading.devices, 1.0 if last is None else reading.time - last)
                last = reading.time
            whole.adopt(store)
        self._found(whole)

    def after(self, snapshot: Snapshot) -> Timelines:
        """The timelines after one more reading."""
        self._timelines = self._store.after(snapshot, self._sampler.pace)
        if self._file is not None:
            self._file.keep(self._store, snapshot)
        return self._timelines

    def adopt(self, older: Store) -> Timelines | None:
        """The timelines with the past that was found; None before the first reading."""
        self._store.adopt(older)
        if self._timelines is not None:
            self._timelines = Timelines(self._store, self._timelines.until, self._store.adopted)
        return self._timelines

    def close(self) -> None:
        """Release the file for another run."""
        if self._file is not None:
            self._file.close()
