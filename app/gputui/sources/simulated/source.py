"""The source that plays a simulated box."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from gputui.inventory.device import Among
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.matrix_text import MOST_BYTES, MatrixError, read
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES, DEFAULT
from gputui.sources.simulated.details import detailed, host_load
from gputui.sources.simulated.motion import at, past_at
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.rehearsal import queued, served, stopped
from gputui.sources.simulated.spec import Box, Choose
from gputui.sources.source import Clock, NoSourceError, Want
from gputui.system.files import open_given

_PAST = (range(3_700, 330, -13), range(43_200, 3_600, -89))
"""Seconds before the box was opened, in stretches.

The steps are primes: with other steps, tasks that come and go at whole minutes would always be seen at the
same point of their cycle. The stretches overlap by more than a step, so that no minute between them is
unknown.
"""


class SimulatedSource:
    """A simulated box that changes in real time from the moment it is opened, and by what the person does.

    `clock` returns seconds since the epoch; a screenshot or a test passes its own. `wait_in_line` and `stop`
    may be called from any thread.
    """

    def __init__(self, box: Box, clock: Clock = time.time) -> None:
        self.box, self.label = box, f"demo {box.name}"
        self._clock = clock
        self._opened: float | None = None
        self._changing = Lock()
        self._looked_at: frozenset[str] = frozenset()
        self._with_load = False

    def open(self) -> None:
        if self._opened is None:
            self._opened = self._clock()

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        self.open()
        assert self._opened is not None
        elapsed = self._clock() - self._opened
        with self._changing:
            self.box = served(self.box, elapsed, self._opened)
        snapshot = at(self.box, elapsed, self._opened)
        if Want.DETAILS in want:
            self._looked_at = frozenset(d.key for d in snapshot.devices if among is None or d.key in among)
        self._with_load = self._with_load or Want.HOST in want
        if self._looked_at:
            snapshot = detailed(snapshot, self.box, elapsed, self._looked_at)
        if self._with_load:
            snapshot = replace(
                snapshot, host=replace(snapshot.host, load=host_load(snapshot, self.box, elapsed))
            )
        return snapshot

    @property
    def simulated(self) -> SimulatedSource:
        """This source, also where another source that adds to it has been asked."""
        return self

    def wait_in_line(
        self,
        command: Sequence[str],
        count: int,
        keys: Sequence[str] | None,
        choose: Choose | None = None,
        at_once: bool = False,
    ) -> str:
        """Put a job of the person in line for `count` devices, of those with these keys or (None) of all, or
        `at_once` on them; return its id. It only exists here: no command is started. `choose` says which of
        the free devices it takes: here, nothing knows which are the best."""
        with self._changing:
            self.box, id = queued(self.box, self._elapsed, command, count, keys, choose, at_once)
        return id

    def stop(self, id: str) -> bool:
        """Stop one of the person's own jobs, or take it out of the line; return whether it is a job of this
        box."""
        with self._changing:
            self.box = stopped(self.box, self._elapsed, id)
        return any(job.id == id for job in self.box.jobs)

    @property
    def _elapsed(self) -> float:
        return self._clock() - (self._opened or self._clock())

    def past(self) -> Iterator[list[Snapshot]]:
        """Yield the box at moments of the last twelve hours: first the last minutes, then the hour before
        them, then the rest, each from its oldest moment on. Takes about half a second in total."""
        now = self._clock()
        opened = now if self._opened is None else self._opened
        for moments in (range(330, int(opened - now) - 1, -2), *_PAST):
            yield [past_at(self.box, -float(ago), opened) for ago in moments]

    def close(self) -> None:
        """Nothing: a box goes on while nobody reads it, and so do the jobs on it."""


def named(name: str | None) -> SimulatedSource:
    """Return the box of that name, or the box in a file with the output of `nvidia-smi topo -m`.

    None is the box that `--demo` shows. Raise NoSourceError.
    """
    name = name or DEFAULT
    if not is_box(name):
        raise NoSourceError(no_box(name))
    return SimulatedSource(BOXES[name] if name in BOXES else _printed(Path(name)))


def is_box(name: str) -> bool:
    """Return whether a word names a box: one of `--demo list`, or what can only be the name of a file."""
    return name in BOXES or "/" in name or name.endswith(".txt")


def no_box(name: str) -> str:
    """Return the message that a word names no box."""
    return f"no demo box is called {name!r}; there are: {', '.join(BOXES)}"


def _printed(file: Path) -> Box:
    try:
        with open_given(str(file)) as stream:
            # One byte more than allowed, to detect a text that is too long.
            text = stream.read(MOST_BYTES + 1).decode(errors="replace")
        return box_of(read(text), printable(file.stem))
    except OSError as error:
        raise NoSourceError(f"cannot read {str(file)!r}: {error.strerror}") from None
    except MatrixError as error:
        raise NoSourceError(
            f"{str(file)!r} is neither a recording nor a matrix of `nvidia-smi topo -m`: {error}"
        ) from None
