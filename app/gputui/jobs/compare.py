"""Runs the variants of a comparison as jobs, one after another, on devices that are held for all of them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.jobs.job import Job
from gputui.jobs.log_file import read_data
from gputui.jobs.start import start_job
from gputui.jobs.stop import stop
from gputui.jobs.wait import wait_for
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.start import StartError
from gputui.planning.comparison import Comparison, Run, RunState
from gputui.planning.comparison_log import Figures, read_figures
from gputui.system.ending_signals import without_signals

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease

_SOON, _PACE = 0.1, 1.0
"""Seconds to the first reading of a run, and between two of them later on."""
_MOST_LOG, _MOST_LINES = 1024 * 1024, 20_000
"""Bytes at the end of a log in which figures are looked for: they are told at the end of a training."""
_LONGEST_NAME = 60


class Reading(NamedTuple):
    """One device at one moment; None is "not known". Bytes in use, and percent."""

    memory: int | None
    utilization: float | None


Read = Callable[[Collection[str]], Sequence[Reading]]
"""Reads the devices with these keys; nothing where they cannot be read."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A variant that is to be run, in the order of the comparison's rows."""

    launch: Launch
    options: LaunchOptions


class Listener(Protocol):
    """Who is told how a comparison goes on."""

    def begins(self, comparison: Comparison, row: int, run: Run) -> None:
        """A run has begun; `run.job` is its job."""

    def ended(self, comparison: Comparison, row: int, run: Run) -> None:
        """A run has ended."""

    def changed(self, comparison: Comparison) -> None:
        """The comparison is another one since: to be kept. Raises what ends the comparison."""


class Comparing:
    """One comparison on its way. `comparison` is as it stands, whatever ends it.

    `limit` are the seconds that a run may take, None for any. `read` is None without devices to be read.
    `warm_up`: the first variant runs once before, and is not counted: it fills the caches of files and
    kernels for all of them.
    """

    def __init__(
        self,
        comparison: Comparison,
        planned: Sequence[Planned],
        environ: Mapping[str, str],
        listener: Listener,
        lease: Lease | None = None,
        read: Read | None = None,
        limit: float | None = None,
        constraints: Sequence[str] = (),
        warm_up: bool = False,
    ) -> None:
        self.comparison = comparison
        self._planned, self._environ, self._listener = planned, environ, listener
        self._lease, self._read, self._limit = lease, read, limit
        self._constraints, self._warm_up = constraints, warm_up
        self._metric = re.compile(comparison.metric) if comparison.metric is not None else None

    def run(self) -> Comparison:
        """Run every variant once, then again as often as is asked for, so that what changes with time (heat,
        other people's load) does not change one variant only.

        What is raised meanwhile (Ctrl-C) stops the variant that runs; the rows so far stay.
        """
        try:
            self._set(self.comparison)
            if self._warm_up:
                self._run(0, 0)
            for number in range(1, self.comparison.repeat + 1):
                for row in range(len(self._planned)):
                    self._run(row, number)
            self._set(replace(self.comparison, state="done", ended=time.time()))
        except BaseException:
            self._set(replace(self.comparison, state="stopped", ended=time.time()))
            raise
        return self.comparison

    def _set(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self._listener.changed(comparison)

    def _run(self, row: int, number: int) -> None:
        planned = self._planned[row]
        job: Job | None = None
        run = Run(number, None, "running")
        meter = _Meter(self._read, [device.key for device in planned.launch.devices])
        with _tie() as tie:
            try:
                with without_signals():
                    job = self._start(row, planned, tie)
                    run = replace(run, job=job.id)
                    self._put(row, run)
                self._listener.begins(self.comparison, row, run)
                job, late = self._wait(job, meter)
                state: RunState = "done" if job.state == "done" else "failed"
                if late:
                    state = "timeout"
                elif job.stop is not None:
                    state = "stopped"
                run = self._came_to(job, state, run, meter)
            except StartError as error:
                run = replace(run, state="failed", status=error.status, reason=str(error))
            except BaseException:
                if job is not None:
                    # (Should we be killed, or interrupted once more, the job is stopped as it is tied to us.)
                    self._put(row, self._came_to(stop(job).job, "stopped", run, meter))
                raise
            self._put(row, run)
            self._listener.ended(self.comparison, row, run)

    def _start(self, row: int, planned: Planned, tie: int) -> Job:
        """Start a variant as a job that inherits the lease, which stays ours. Raises StartError, JobError."""
        lease = self._lease
        comparison = self.comparison
        name = printable(f"{comparison.id} {comparison.label(comparison.rows[row])}")[:_LONGEST_NAME].rstrip()
        job = start_job(
            planned.launch,
            self._environ,
            name,
            lease.passed_on if lease else (),
            claims=lease.records if lease else (),
            options=planned.options,
            constraints=self._constraints,
            tie=tie,
        )
        if lease is not None and job.command is not None:
            lease.belongs_to(job.command.pid, job.id, job.supervisor.pid if job.supervisor else None)
        return job

    def _wait(self, job: Job, meter: _Meter) -> tuple[Job, bool]:
        """The job when it has ended, and whether that is because it took too long. Raises JobError."""
        began, pause = time.monotonic(), _SOON
        while not (job := wait_for(job, pause)).over:
            meter.read()
            pause = min(2 * pause, _PACE)
            if self._limit is not None:
                left = began + self._limit - time.monotonic()
                if left <= 0:
                    return stop(job).job, True
                pause = min(pause, left)
        return job, False

    def _came_to(self, job: Job, state: RunState, run: Run, meter: _Meter) -> Run:
        wall = job.ended - job.started if job.ended is not None and job.started is not None else None
        figures = _figures(job, self._metric)
        return replace(
            run,
            state=state,
            status=job.exit_status,
            wall=wall,
            runtime=figures.runtime,
            steps_per_second=figures.steps_per_second,
            metric=figures.metric,
            peak_memory=meter.peak_memory,
            utilization=meter.utilization,
            signal=job.signal,
        )

    def _put(self, row: int, run: Run) -> None:
        """The comparison with this run in place of the one of its round; 0 is the one that does not count."""
        if run.round == 0:
            return
        rows = list(self.comparison.rows)
        others = [each for each in rows[row].runs if each.round != run.round]
        rows[row] = replace(rows[row], runs=(*others, run))
        self._set(replace(self.comparison, rows=tuple(rows)))


@contextlib.contextmanager
def _tie() -> Iterator[int]:
    """The reading end of a pipe whose other end is closed when we end, however."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


class _Meter:
    """The most memory and the mean utilization of devices over the time of a run."""

    def __init__(self, read: Read | None, keys: Collection[str]) -> None:
        self._read, self._keys = read if keys else None, keys
        self._last = time.monotonic()
        self._weighed, self._time = 0.0, 0.0
        self.peak_memory: int | None = None

    @property
    def utilization(self) -> float | None:
        """The mean over devices and time, None where it is not known."""
        return self._weighed / self._time if self._time else None

    def read(self) -> None:
        if self._read is None:
            return
        readings = self._read(self._keys)
        now = time.monotonic()
        passed, self._last = now - self._last, now
        memory = [each.memory for each in readings if each.memory is not None]
        self.peak_memory = max([*memory, self.peak_memory or 0]) if memory else self.peak_memory
        load = [each.utilization for each in readings if each.utilization is not None]
        if load:
            self._weighed += passed * sum(load) / len(load)
            self._time += passed


def _figures(job: Job, metric: re.Pattern[str] | None) -> Figures:
    """What the end of a job's log says; nothing where it cannot be read."""
    try:
        with job.log.open("rb", buffering=0) as file:
            return read_figures(_lines(file.fileno()), metric)
    except OSError:
        return Figures()


def _lines(descriptor: int) -> Iterator[str]:
    """The last lines of a log."""
    place, found = max(0, os.fstat(descriptor).st_size - _MOST_LOG), bytearray()
    while len(found) < 2 * _MOST_LOG:
        start, data = read_data(descriptor, place, _MOST_LOG)
        if not data:
            break
        place = start + len(data)
        found += data
    # (A bar ends its lines with a carriage return.)
    for line in found.replace(b"\r", b"\n").rsplit(b"\n", _MOST_LINES)[-_MOST_LINES:]:
        yield line.decode(errors="replace")
