"""Runs the variants of an experiment as jobs: on devices that are held for all of them, or each on its own.

On held devices (`gputui compare`), the variants run one after another; with `memory`, several run at the same
time if their memory fits. Their jobs are tied to this process and end with it.

With devices of its own for each (`gputui each`), the next variant starts when its devices are free. Until
then it has one place in the queue, like any other launch. Without `memory`, the devices belong to its job
alone and are free when the job ends. With `memory`, several variants share one claim, which this process also
holds while one of them runs; no variant joins them while others are waiting in the queue. The jobs are not
tied to this process: if it is killed, they continue, and `--resume` adopts them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from gputui.allocating.allocate import allocate
from gputui.allocating.allocate_in_turn import TurnListener
from gputui.allocating.allocation import Allocation
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.allocating.queue import in_line_for, waiters
from gputui.choosing.named_devices import NamingError, devices_named
from gputui.choosing.sharing import tasks_that_fit
from gputui.inventory.device import Device
from gputui.inventory.formatting import MIB, printable
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.experiments.log_figures import read_figures
from gputui.jobs.experiments.record import Change, Experiment, Run
from gputui.jobs.experiments.request import ExperimentRequest, Variant
from gputui.jobs.log_file import end_of
from gputui.jobs.record import without_secrets_of
from gputui.jobs.start import detached, start_job, start_leased_job
from gputui.jobs.stop import stop
from gputui.jobs.store import Stored, stored
from gputui.jobs.wait import wait_for_any
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.start import StartError
from gputui.requesting.launch_request import LaunchRequest
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.sources.source import NoSourceError, Source, Want
from gputui.system import landlock
from gputui.system.ending_signals import EndedError, without_signals
from gputui.system.environment import Environ
from gputui.vendors.registry import vendors_of

RUN_FOLDER = "{run}"
"""In a command, this is replaced by the folder of the run, which is made for it."""
_SETTLING, _PAUSE = 2.0, 0.25
"""Seconds after the end of a run for which the devices are tried again before this process joins the queue,
and seconds between two tries. A driver's utilization is a mean over up to a second, which can include the
ended run."""
_SOON, _PACE = 0.1, 1.0
"""Seconds before the first reading of a run's devices, and the longest time between two readings."""
_MOST_LOG, _MOST_LINES = MIB, 20_000
"""Bytes and lines at the end of a log that are searched for figures: a training prints them at its end."""
_LONGEST_NAME = 60


class Planned(NamedTuple):
    """A variant, and its launch before it has devices."""

    variant: Variant
    prepared: PreparedLaunch


def launch_on(
    planned: Planned,
    allocation: Allocation,
    environ: Environ,
    options: LaunchOptions | None = None,
    prove: bool = True,
) -> Launch:
    """Make the launch of a variant on these devices, with `options` in place of its own; see
    `PreparedLaunch.launch`. Raises RequestError."""
    prepared = planned.prepared
    asked = prepared.asked if options is None else replace(prepared.asked, options=options)
    launch = replace(prepared, asked=asked).launch(allocation, environ, prove=prove)
    if launch.refusal is not None:
        raise RequestError(launch.refusal)
    return detached(launch, environ)


def varies_names(variant: Variant) -> bool:
    """Whether a variant names its devices among those that are held for all."""
    return any(axis.kind == "gpus" for axis, _ in variant.settings)


def most_devices(planned: Planned) -> int | None:
    """The number of devices of a variant that gets the first of those that are held; None for all of them."""
    request = planned.prepared.request
    return request.size if request.names is None else None


def own_devices(planned: Planned, held: Allocation) -> Allocation:
    """The devices of a variant among those that are held for all. Raises RequestError."""
    names = planned.prepared.request.names
    if names is None or not varies_names(planned.variant):
        return held._replace(devices=held.devices[: most_devices(planned)])
    try:
        named = devices_named(names, held.snapshot, held.request.vendor)
    except NamingError as error:
        raise RequestError(f"{planned.variant.label}: {error}") from None
    keys = {device.key for device in held.devices}
    return held._replace(devices=tuple(device for device in named if device.key in keys))


class Listener(TurnListener, Protocol):
    """Receives the events of an experiment."""

    def begins(self, experiment: Experiment, place: int, run: Run, devices: Sequence[str]) -> None:
        """A run of the variant with the index `place` has begun on these devices (labels), as the job
        `run.job`."""

    def ended(self, experiment: Experiment, place: int, run: Run) -> None:
        """A run has ended; it may be started again later."""

    def remark(self, text: str) -> None:
        """There is a warning or a note for the user; the experiment continues."""

    def changed(self, experiment: Experiment, change: Change | None) -> None:
        """The experiment has changed and should be written to its record; None: more than one run has."""


class _Running:
    """A run in progress: its job, the devices that it shares, and measurements since it began. These are the
    peak memory and, for each device, the integral of its utilization and the time over which it is known."""

    def __init__(
        self,
        job: Job,
        held: Allocation | None = None,
        devices: Sequence[Device] = (),
        limit: float | None = None,
    ) -> None:
        self.job, self.held = job, held
        now = self._last = time.monotonic()
        self._pause = _SOON
        self.next, self.latest = now + _SOON if devices else math.inf, now + (limit or math.inf)
        """The times at which its devices are read next and at which it is stopped."""
        self.peak_memory: int | None = None
        self._weighed = {device.key: (0.0, 0.0) for device in devices}

    def add_reading(self, snapshot: Snapshot | None) -> None:
        """Add a reading of the devices; after None, the devices are not read any more."""
        if snapshot is None:
            self.next = math.inf
            return
        now = time.monotonic()
        passed, self._last = now - self._last, now
        self._pause = min(2 * self._pause, _PACE)
        self.next = now + self._pause
        for key, (weighed, known) in self._weighed.items():
            device = snapshot.by_key.get(key)
            if device is None or device.fault is not None:
                continue
            memory = snapshot.memory(device)[0]
            if memory is not None:
                self.peak_memory = max(memory, self.peak_memory or 0)
            if device.utilization is not None:
                self._weighed[key] = weighed + passed * device.utilization, known + passed

    @property
    def utilizations(self) -> tuple[float | None, ...]:
        """The mean utilization of each device over the run in percent, None where it is not known."""
        return tuple(weighed / known if known else None for weighed, known in self._weighed.values())


class RunsElsewhereError(JobError):
    """Runs of the experiment are in progress in another place, where this process cannot see them."""


class _AgainError(Exception):
    """A run ended while this process was in the queue: trying again at once is better than waiting."""


@dataclass(eq=False)
class Runner:
    """Runs one experiment. The field `experiment` is always up to date, also after an exception.

    request  with its secrets, and with the options of the call that resumes the experiment
    planned  the variants in their order
    opened   opens the source of the box; its argument is whether the variants use no devices
    held     the devices that all variants run on, None where each has its own
    reads    whether memory and utilization of devices are measured
    """

    experiment: Experiment
    request: ExperimentRequest
    planned: Sequence[Planned]
    environ: Environ
    job_environ: Environ
    opened: Callable[[bool], AbstractContextManager[Source]]
    listener: Listener
    held: Allocation | None = None
    reads: bool = True
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _source: Source | None = None
    _todo: deque[tuple[int, int]] = field(default_factory=deque)
    _running: dict[tuple[int, int], _Running] = field(default_factory=dict)
    """The runs in progress, by the index of the variant and the round."""
    _halted: bool = False
    _settled: float = 0.0
    _tie: int | None = None

    @cached_property
    def _most(self) -> int:
        """The most runs at the same time. On the CPU, nothing else limits their number."""
        one_by_one = self._on_cpu or (self.held is not None and self.request.memory is None)
        return self.request.jobs or (1 if one_by_one else len(self.planned))

    @cached_property
    def _on_cpu(self) -> bool:
        no_device = self.held is not None and not self.held.devices
        return no_device or any(each.prepared.request.cpu_only for each in self.planned)

    def run(self) -> Experiment:
        """Make every run that is not done. Each variant runs once before any variant runs again, so that a
        change over time (heat, other people's load) does not affect one variant only.

        If a variant cannot get devices, no further run starts, and the error is raised when the runs in
        progress have ended. A signal (EndedError) stops the runs in progress, except that SIGHUP leaves those
        that are not tied to this process. Also raises JobError.
        """
        trouble: Exception | None = None
        with self._stack:
            if self.held is not None:
                self._tie = self._stack.enter_context(_tie())
            try:
                self._adopt()
                while self._running or (self._todo and not self._halted):
                    if not self._todo or self._halted or len(self._running) >= self._most:
                        self._collect()
                        continue
                    try:
                        self._next()
                    except _AgainError:
                        continue
                    except (NotEnoughError, RequestError, NoSourceError, JobError) as error:
                        # The runs in progress continue to their end.
                        trouble, self._halted = error, True
            except BaseException as error:
                # After any other exception, `--resume` adopts the runs that are not tied to this process.
                if self._tie is not None or (isinstance(error, EndedError) and not error.hangs_up):
                    self._stop_all()
                self._keep(replace(self.experiment, state="stopped", ended=time.time()))
                raise
        done = not self._todo and trouble is None
        self._keep(replace(self.experiment, state="done" if done else "stopped", ended=time.time()))
        if trouble is not None:
            raise trouble
        return self.experiment

    def _adopt(self) -> None:
        jobs = stored(self.job_environ)
        found, by_id = with_outcome_of_jobs(self.experiment, jobs), {job.id: job for job in jobs.jobs}
        again = []
        for number in range(1, found.request.repeat + 1):
            for place, row in enumerate(found.rows):
                run = row.run_of(number)
                if run is not None and run.state == "running":
                    job = by_id[run.job or ""]
                    if job.state == "elsewhere":
                        where = f"task {place + 1} runs on {job.scope.host!r}"
                        raise RunsElsewhereError(f"{where}: resume the {found.request.kind} there")
                    self._running[place, number] = _Running(job, limit=self.request.timeout)
                elif run is None or run.state != "done":
                    self._todo.append((place, number))
                    if run is not None:
                        again.append(found.change(place, Run(number, None, "waiting", attempts=0)))
        if self.request.warm_up and self._todo:
            self._todo.appendleft((0, 0))
        self._keep(replace(found.with_changes(again), state="running", ended=None))

    # Starting

    def _next(self) -> None:
        """Start the next run, once there are devices for it. Raises _AgainError, and the errors of
        `allocate`."""
        planned = self.planned[self._todo[0][0]]
        held = self.held
        # On the CPU, only --jobs limits the number of runs at the same time.
        if held is None or (held.devices and self._sharing(held)):
            with self.opened(planned.prepared.request.cpu_only) as source:
                held = self._devices(planned.prepared, source)
        if held is None:
            return
        try:
            self._start(planned, held)
        finally:
            if held is not self.held and not self._sharing(held):
                # The job, if one has started, has inherited the lease.
                held.release()

    def _devices(self, planned: PreparedLaunch, source: Source) -> Allocation | None:
        """Get devices for a run. None: there are none yet, and some time has passed or a run has ended."""
        if self.held is not None:
            if self._with_room([self.held], source):
                return self.held
            self._collect()
            return None
        held = self._free_now(planned, source) or self._of_running(planned, source)
        if held is None and time.monotonic() < self._settled and not self._others_wait(own=0):
            self._collect(_PAUSE)
            return None
        return held or self._allocated(planned, source, math.inf)

    def _sharing(self, held: Allocation | None) -> list[_Running]:
        """The runs in progress that share these devices."""
        return [each for each in self._running.values() if held is not None and each.held is held]

    def _free_now(self, planned: PreparedLaunch, source: Source) -> Allocation | None:
        """Allocate devices that are free now and that no other launch is waiting for; None if there are
        none."""
        if not planned.request.picks and not planned.request.cpu_only:
            # Without a wait, `allocate` would use named devices even if they are busy.
            return None
        try:
            return self._allocated(planned, source, None)
        except NotEnoughError:
            return None

    def _allocated(self, planned: PreparedLaunch, source: Source, wait: float | None) -> Allocation:
        request, approve = replace(planned.request, wait=wait), planned.approve(self.environ)
        return allocate(request, source, self.environ, self.listener, True, approve, self._sleep)

    def _of_running(self, planned: PreparedLaunch, source: Source) -> Allocation | None:
        """Return devices of runs in progress that have memory for another run; None if there are none, or if
        others are in the queue for them."""
        shared = [each.held for each in self._running.values() if each.held is not None]
        found = self._with_room(
            [held for held in shared if held.request.size == planned.request.size], source
        )
        if found is None or not planned.request.picks:
            return None
        held, now = found
        if in_line_for([device.key for device in held.devices], self.environ, now):
            return None
        planned.approve(self.environ)(held.devices, vendors_of(now.devices))
        return held

    def _with_room(self, among: Sequence[Allocation], source: Source) -> tuple[Allocation, Snapshot] | None:
        """The shared devices with memory for most further runs, and the box; None without any."""
        need = self.request.memory
        if need is None or not among:
            return None
        now = source.read(Want.VERDICT | Want.HOST | Want.MODES)

        def room(held: Allocation) -> int:
            return min((fits(device, held) for device in held.devices), default=0)

        def fits(device: Device, held: Allocation) -> int:
            there = now.by_key.get(device.key)
            if there is None or there.fault is not None or there.compute_mode not in (None, "default"):
                return 0
            then = held.snapshot.memory_free(device)
            return tasks_that_fit(need, then, now.memory_free(there), len(self._sharing(held)))

        found = max(among, key=room)
        return (found, now) if room(found) > 0 else None

    def _start(self, planned: Planned, held: Allocation) -> None:
        place, number = self._todo.popleft()
        before = self.experiment.rows[place].run_of(number)
        run = Run(number, None, "running", attempts=(before.attempts if before else 0) + 1)
        try:
            launch, asked = self._make_launch(planned, held, place, number)
            labels = tuple(map(held.snapshot.label, launch.devices))
            if number:
                change = Change(place, run, labels, without_secrets_of(launch).line)
                self.experiment = self.experiment.with_changes([change])
            with without_signals():
                shared = held if held is self.held or self.request.memory is not None else None
                job = self._job(launch, place, number, held, shared, asked)
                seen = launch.devices if self.reads and not self._on_cpu else ()
                self._running[place, number] = _Running(job, shared, seen, self.request.timeout)
                self._record_owner(shared)
                run = replace(run, job=job.id, started=job.started)
                self._record_run(place, run)
        except StartError as error:
            self._ended(place, replace(run, state="failed", status=error.status, reason=str(error)))
            return
        self.listener.begins(self.experiment, place, run, labels)

    def _make_launch(
        self, planned: Planned, held: Allocation, place: int, number: int
    ) -> tuple[Launch, LaunchRequest]:
        """Run the command of `--before`, and return the launch of a run and its request. Raises
        StartError."""
        name = str(place + 1) if number == 1 else f"{place + 1}.{number}"
        folder = Path(self.experiment.directory or Path.cwd()) / self.experiment.id / name
        asked = planned.prepared.asked
        options = _in_folder(asked.options, str(folder))
        before = self.request.before.replace(RUN_FOLDER, shlex.quote(str(folder)))
        try:
            if options != asked.options or before != self.request.before:
                folder.mkdir(parents=True, exist_ok=True)
            own = own_devices(planned, held) if held is self.held else held
            launch = launch_on(planned, own, self.environ, options)
            # For held devices, the user has been informed before.
            for text in launch.notes if held is not self.held else ():
                self.listener.remark(text)
            if before and (status := self._status_of(before, launch)):
                # As in `rm -r out; python t.py`, the command starts nevertheless.
                self.listener.remark(f"warning: --before ended with status {status}")
        except OSError as error:
            raise StartError(f"{folder}: {error.strerror}", 126) from None
        return launch, replace(asked, options=options)

    def _status_of(self, before: str, launch: Launch) -> int:
        """Run the command of `--before` where the launch will run, and as confined. Raises OSError."""
        environ = launch.started.environment(self.job_environ)

        def start() -> subprocess.Popen[bytes]:
            words, nothing = ("/bin/sh", "-c", before), subprocess.DEVNULL
            return subprocess.Popen(words, env=environ, cwd=launch.directory, stdin=nothing, stdout=2)

        with landlock.started(launch.left_out, start) as process:
            try:
                return process.wait()
            except BaseException:
                process.kill()
                raise

    def _job(
        self,
        launch: Launch,
        place: int,
        number: int,
        held: Allocation,
        shared: Allocation | None,
        asked: LaunchRequest,
    ) -> Job:
        """Start the job of a run. Raises StartError, JobError."""
        lease, name = held.lease, job_name(self.experiment, place, number)
        part = self.experiment.part_of_run(place, number)
        if shared is None:
            return start_leased_job(launch, self.job_environ, lease, name, asked, part)
        descriptors, records = (lease.passed_on, lease.records) if lease else ((), ())
        return start_job(
            launch,
            self.job_environ,
            name,
            descriptors,
            claims=records,
            request=asked,
            tie=self._tie,
            part=part,
        )

    def _record_owner(self, held: Allocation | None) -> None:
        """Record the run that began last as the owner of a shared claim."""
        jobs = [each.job for each in self._sharing(held)]
        if held is None or held.lease is None or not jobs:
            return
        last = max(jobs, key=lambda job: job.created)
        others = [job.supervisor.pid for job in jobs if job.supervisor is not None and job is not last]
        if last.command is not None:
            supervisor = last.supervisor.pid if last.supervisor is not None else None
            held.lease.belongs_to(last.command.pid, last.id, supervisor, *others)

    # While runs are in progress

    def _sleep(self, seconds: float) -> None:
        """Wait in the queue. Raises _AgainError if a run has ended and no other launch is in the queue,
        because its devices can be taken at once then; also if no further run is to start."""
        if self._collect(seconds) and (self._halted or not self._others_wait(own=1)):
            raise _AgainError

    def _others_wait(self, own: int) -> bool:
        """Whether others are in the queue; `own` is the number of places in it that belong to this
        process."""
        return sum(not waiter.silent for waiter in waiters(self.environ)) > own

    def _collect(self, seconds: float = math.inf) -> bool:
        """Wait until a run ends, or until `seconds` have passed, and read the devices of the runs meanwhile.
        Return whether a run has ended, by itself or by its timeout."""
        deadline = time.monotonic() + seconds
        while True:
            by_id = {running.job.id: key for key, running in self._running.items()}
            due = min((min(each.next, each.latest) for each in self._running.values()), default=deadline)
            wait = max(0.0, min(deadline, due) - time.monotonic())
            over = wait_for_any([running.job for running in self._running.values()], wait)
            for job in over:
                self._finish(by_id[job.id], job)
            if over or self._check_due():
                return True
            if time.monotonic() >= deadline:
                return False

    def _check_due(self) -> bool:
        """Read the devices that are due, and stop the runs that are past their timeout. Return whether any
        was stopped."""
        now = time.monotonic()
        due = [each for each in self._running.values() if each.next <= now]
        snapshot = self._read_devices() if due and self.reads else None
        for each in due:
            each.add_reading(snapshot)
        late = [key for key, each in self._running.items() if each.latest <= now]
        for key in late:
            self._finish(key, stop(self._running[key].job).job, late=True)
        return bool(late)

    def _read_devices(self) -> Snapshot | None:
        """Read the devices. If they cannot be read, return None and measure no more."""
        try:
            if self._source is None:
                self._source = self._stack.enter_context(self.opened(False))
            return self._source.read(Want.LOAD | Want.HOST)
        except NoSourceError as error:
            self.reads = False
            self.listener.remark(f"warning: memory and utilization are no longer measured: {error}")
            return None

    # Ending

    def _finish(self, key: tuple[int, int], job: Job, late: bool = False) -> None:
        with without_signals():
            running = self._running.pop(key)
            self._settled = time.monotonic() + _SETTLING
            if running.held is not None and running.held is not self.held and not self._sharing(running.held):
                running.held.release()
            self._record_owner(running.held)
            self._ended(key[0], self._with_measurements(key, running, job, late))

    def _with_measurements(
        self, key: tuple[int, int], running: _Running, job: Job, late: bool = False
    ) -> Run:
        """Return the run with the outcome of its job and the measurements of its devices."""
        place, number = key
        before = self.experiment.rows[place].run_of(number) or Run(number, job.id, "running")
        run = run_with_outcome(before, job, self.experiment)
        known = [each for each in running.utilizations if each is not None]
        return replace(
            run,
            state="timeout" if late and run.state != "done" else run.state,
            peak_memory=running.peak_memory,
            utilization=sum(known) / len(known) if known else None,
            utilizations=running.utilizations if known else (),
        )

    def _ended(self, place: int, run: Run) -> None:
        failed = run.state not in ("done", "running")
        again = run.state == "failed" and run.attempts <= self.request.retry and not self._halted
        if again:
            self._todo.append((place, run.round))
        elif failed and self.request.stop_on_failure:
            self._halted = True
        self._record_run(place, replace(run, state="waiting") if again else run)
        self.listener.ended(self.experiment, place, run)

    def _stop_all(self) -> None:
        """Stop all runs in progress, in parallel."""
        from concurrent.futures import ThreadPoolExecutor

        with without_signals(), ThreadPoolExecutor(len(self._running) or 1) as threads:
            jobs = threads.map(_stopped, [each.job for each in self._running.values()])
            for (key, each), job in zip(self._running.items(), jobs, strict=True):
                if isinstance(job, JobError):
                    self._record_run(key[0], Run(key[1], each.job.id, "failed", reason=str(job)))
                else:
                    self._record_run(key[0], self._with_measurements(key, each, job))

    def _record_run(self, place: int, run: Run) -> None:
        if run.round:
            change = self.experiment.change(place, run)
            self._keep(self.experiment.with_changes([change]), change)

    def _keep(self, experiment: Experiment, change: Change | None = None) -> None:
        self.experiment = experiment
        self.listener.changed(experiment, change)


def job_name(experiment: Experiment, place: int, number: int = 1) -> str:
    """Return the name of the job of a run. For a task it is "k3f9.12" (`gputui jobs log k3f9.12`), and
    "k3f9.12.2" in the second round. For a variant of a comparison it has the label, as users see no number of
    a variant."""
    if experiment.request.kind == "comparison":
        label = experiment.rows[place].label
        return printable(f"{experiment.id} {label}")[:_LONGEST_NAME].rstrip()
    return f"{experiment.id}.{place + 1}" + (f".{number}" if number > 1 else "")


def run_with_outcome(run: Run, job: Job, experiment: Experiment) -> Run:
    """Return the run with the outcome of its job, or as running if the job is not over."""
    if not job.over:
        return replace(run, state="running", job=job.id, started=job.started)
    metric = experiment.request.metric
    figures = read_figures(last_lines(job.log), re.compile(metric) if metric is not None else None)
    return replace(
        run,
        state="done" if job.state == "done" else "stopped" if job.state == "stopped" else "failed",
        job=job.id,
        status=job.exit_status,
        reason="how it ended is not known" if job.state == "ended" else None,
        wall=job.ended - job.started if job.ended is not None and job.started is not None else None,
        runtime=figures.runtime,
        steps_per_second=figures.steps_per_second,
        metric=figures.metric,
        signal=job.signal,
        started=job.started,
        ended=job.ended,
    )


def with_outcomes(found: Iterable[Experiment], read: Callable[[], Stored]) -> tuple[Experiment, ...]:
    """Update those of the experiments that no process runs from the records of their jobs. `read` reads these
    records; it is called only if a run is not over. Raises what it raises."""
    jobs = cache(read)
    return tuple(
        each
        if each.state == "running" or each.runs_over == each.runs_in_all
        else with_outcome_of_jobs(each, jobs())
        for each in found
    )


def with_outcome_of_jobs(experiment: Experiment, jobs: Stored) -> Experiment:
    """Update an experiment that no process runs from the records of its jobs, which may have changed since
    its record was written.

    The job of a task is also found by its name, as the process may have been killed before it wrote the id.
    """
    named = experiment.request.kind == "sweep"
    by_id = {job.id: job for job in jobs.jobs}
    by_name = {job.name: job for job in jobs.jobs if named and job.created >= experiment.created}
    changes = []
    for place, row in enumerate(experiment.rows):
        for number in range(1, experiment.request.repeat + 1):
            run = row.run_of(number) or Run(number, None, "waiting", attempts=0)
            if run.state == "done":
                continue
            job = by_name.get(job_name(experiment, place, number)) or by_id.get(run.job or "")
            if job is not None and (job.id != run.job or run.state == "running"):
                run = run_with_outcome(replace(run, attempts=max(1, run.attempts)), job, experiment)
                changes.append(experiment.change(place, run))
            elif job is None and run.state == "running":
                run = replace(run, state="failed", reason="the record of its job is gone")
                changes.append(experiment.change(place, run))
    return experiment.with_changes(changes)


def _in_folder(options: LaunchOptions, folder: str) -> LaunchOptions:
    """Replace {run} by the folder of a run everywhere in launch options."""

    def filled(text: str) -> str:
        return text.replace(RUN_FOLDER, folder)

    return replace(
        options,
        command=tuple(map(filled, options.command)),
        additions=tuple((name, filled(value)) for name, value in options.additions),
        directory=options.directory and filled(options.directory),
        logs=options.logs and filled(options.logs),
    )


@contextlib.contextmanager
def _tie() -> Iterator[int]:
    """Yield the read end of a pipe whose write end closes when this process ends, in whatever way."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


def _stopped(job: Job) -> Job | JobError:
    """Stop a job; the error if that is impossible because its record is gone."""
    try:
        return stop(job).job
    except JobError as error:
        return error


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log, which are searched for figures."""
    # A progress bar ends its lines with a carriage return.
    data = end_of(log, _MOST_LOG)[1].replace(b"\r", b"\n")
    return [line.decode(errors="replace") for line in data.rsplit(b"\n", _MOST_LINES)[-_MOST_LINES:]]
