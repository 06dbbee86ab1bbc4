"""Runs the tasks of a sweep as jobs, each on devices of its own, the next one when devices can be had.

A sweep has one place in line at most, like anybody who waits: for its next task. Without `memory` a task's
devices are its job's alone and free for all when it ends. With `memory`, tasks run beside one another in one
claim, which this process holds too as long as one of them runs; none is added while others are in line.

The jobs are not tied to this process: if it is killed they go on, and who resumes the sweep adopts them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Protocol

from gputui.allocating.allocate import allocate
from gputui.allocating.allocate_in_turn import TurnListener
from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.allocating.queue import in_line_for, waiters
from gputui.allocating.request import Request
from gputui.choosing.sharing import tasks_that_fit
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.job import Job, JobError
from gputui.jobs.kept_records import KeptError
from gputui.jobs.start import start_job, start_leased_job
from gputui.jobs.stop import stop
from gputui.jobs.store import stored
from gputui.jobs.sweeps import as_it_stands, came_to, last_job
from gputui.jobs.wait import refreshed, wait_for_any
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.start import StartError
from gputui.planning.sweep import Sweep, Task, job_name
from gputui.sources.source import NoSourceError, Source, Want
from gputui.system.ending_signals import EndedError, without_signals
from gputui.vendors.registry import vendors_of

_SETTLING, _PAUSE = 2.0, 0.25
"""Seconds after the end of a task for which its devices are tried again before we get in line, and between
two tries: a driver's utilization is a mean over up to a second, in which the task still ran."""


@dataclass(frozen=True, slots=True)
class Planned:
    """How a task gets its devices, and what is started on them. `launch` raises RequestError."""

    request: Request
    approve: Approve
    launch: Callable[[Allocation], Launch]
    options: LaunchOptions


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sweep may do.

    jobs      how many tasks run at once, at most; None for as many as devices can be had
    memory    bytes that a task needs of each device, where tasks may share devices
    retries   how often a task that has failed is started again
    stops     whether no further task starts after one has failed for good
    """

    jobs: int | None = None
    memory: int | None = None
    retries: int = 0
    stops: bool = False


class Listener(TurnListener, Protocol):
    """Who is told how a sweep goes on."""

    def begins(self, sweep: Sweep, task: Task) -> None:
        """A task runs, as the job `task.job`."""

    def ended(self, sweep: Sweep, task: Task) -> None:
        """A task has ended, or waits to be started again."""

    def changed(self, sweep: Sweep) -> None:
        """The sweep is another one since: to be kept. Raises what ends the sweep."""


@dataclass(eq=False)
class _Held:
    """Devices that tasks run on beside one another: their claim, and which tasks."""

    allocation: Allocation
    tasks: set[int] = field(default_factory=set)


@dataclass
class _Running:
    job: Job
    held: _Held | None = None


class _AgainError(Exception):
    """While we were in line, something changed that is better tried at once than waited for."""


class Sweeping:
    """One sweep on its way; `sweep` is as it stands, whatever ends it.

    `planned` are the tasks in their order, `opened` opens the source of the box (for tasks without devices,
    with True).
    """

    def __init__(
        self,
        sweep: Sweep,
        planned: Sequence[Planned],
        environ: Mapping[str, str],
        job_environ: Mapping[str, str],
        opened: Callable[[bool], AbstractContextManager[Source]],
        listener: Listener,
        limits: Limits,
        constraints: Sequence[str] = (),
    ) -> None:
        self.sweep = sweep
        self._planned, self._environ, self._job_environ = planned, environ, job_environ
        self._opened, self._listener, self._limits = opened, listener, limits
        self._constraints = constraints
        self._todo: deque[int] = deque()
        self._running: dict[int, _Running] = {}
        self._shared: list[_Held] = []
        self._halted = False
        self._settled = 0.0

    def run(self) -> Sweep:
        """Run every task that has not ended well. Tasks that run already are adopted.

        What is raised when a task can get no devices ends the sweep after the tasks that run; a signal
        (EndedError) stops these, except SIGHUP: they go on without us. Raises also KeptError, JobError.
        """
        trouble: Exception | None = None
        try:
            self._adopt()
            while self._running or (self._todo and not self._halted):
                if (
                    not self._todo
                    or self._halted
                    or len(self._running) >= (self._limits.jobs or len(self._planned))
                ):
                    self._collect(None)
                    continue
                try:
                    self._next()
                except _AgainError:
                    continue
                except (NotEnoughError, RequestError, NoSourceError, JobError) as error:
                    # Those that run come to their end.
                    trouble, self._halted = error, True
        except BaseException as error:
            # (Whatever else ends us, those that run are adopted by who resumes the sweep.)
            if isinstance(error, EndedError) and not error.hangs_up:
                self._stop_all()
            self._set(replace(self.sweep, state="stopped", ended=time.time()))
            raise
        done = not self._todo and trouble is None
        self._set(replace(self.sweep, state="done" if done else "stopped", ended=time.time()))
        if trouble is not None:
            raise trouble
        return self.sweep

    def _adopt(self) -> None:
        jobs = stored(self._job_environ)
        self.sweep = as_it_stands(self.sweep, jobs)
        tasks, running = [], {}
        for place, task in enumerate(self.sweep.tasks):
            if task.state == "running":
                job = last_job(self.sweep, task, jobs)
                if job is None or job.state == "elsewhere":
                    where = repr(job.scope.host) if job is not None else "another place"
                    raise KeptError(f"task {task.number} runs on {where}: resume the sweep there")
                running[place] = _Running(job)
            elif task.state != "done":
                self._todo.append(place)
                task = Task(task.number, task.words, task.label)
            tasks.append(task)
        self._running = running
        self._set(replace(self.sweep, state="running", ended=None, tasks=tuple(tasks)))

    # Starting

    def _next(self) -> None:
        """Start the next task when it has devices. Raises _AgainError, and what `allocate` raises."""
        place = self._todo[0]
        planned = self._planned[place]
        with self._opened(planned.request.cpu_only) as source:
            held = self._at_once(planned, source) or self._beside(planned, source)
            while held is None and time.monotonic() < self._settled and not self._others(own=0):
                if not self._running:
                    time.sleep(_PAUSE)
                elif self._collect(_PAUSE):
                    raise _AgainError
                held = self._at_once(planned, source)
            held = held or self._in_turn(planned, source)
        try:
            with without_signals():
                self._start(place, held)
        finally:
            if self._limits.memory is not None and held.tasks:
                if held not in self._shared:
                    self._shared.append(held)
            else:
                # (Its job, if there is one, has inherited the lease.)
                held.allocation.release()

    def _at_once(self, planned: Planned, source: Source) -> _Held | None:
        """Devices that are free now and that nobody is in line for."""
        if not planned.request.picks and not planned.request.cpu_only:
            # (Without a wait, named devices would be used though they are busy.)
            return None
        try:
            return self._allocated(planned, source, None)
        except NotEnoughError:
            return None

    def _in_turn(self, planned: Planned, source: Source) -> _Held:
        return self._allocated(planned, source, float("inf"))

    def _allocated(self, planned: Planned, source: Source, wait: float | None) -> _Held:
        request = replace(planned.request, wait=wait)
        return _Held(
            allocate(request, source, self._environ, self._listener, True, planned.approve, self._sleep)
        )

    def _beside(self, planned: Planned, source: Source) -> _Held | None:
        """Devices of tasks that run, with room for one more; None where others are in line for them."""
        need = self._limits.memory
        alike = [held for held in self._shared if held.allocation.request.size == planned.request.size]
        if need is None or not alike or not planned.request.picks:
            return None
        now = source.read(Want.VERDICT | Want.HOST | Want.MODES)
        found = max(alike, key=lambda held: _room(held, need, now))
        keys = [device.key for device in found.allocation.devices]
        if _room(found, need, now) < 1 or in_line_for(keys, self._environ, now):
            return None
        planned.approve(found.allocation.devices, vendors_of(now.devices))
        return found

    def _start(self, place: int, held: _Held) -> None:
        self._todo.popleft()
        task, planned, lease = self.sweep.tasks[place], self._planned[place], held.allocation.lease
        labels = held.allocation.labels
        task = replace(task, state="running", devices=labels, attempts=task.attempts + 1, reason=None)
        name = job_name(self.sweep.id, task.number)
        try:
            launch = planned.launch(held.allocation)
            if self._limits.memory is None:
                job = start_leased_job(
                    launch, self._job_environ, lease, name, planned.options, self._constraints
                )
            else:
                job = start_job(
                    launch,
                    self._job_environ,
                    name,
                    lease.passed_on if lease else (),
                    claims=lease.records if lease else (),
                    options=planned.options,
                    constraints=self._constraints,
                )
        except StartError as error:
            self._ended(place, replace(task, state="failed", status=error.status, reason=str(error)))
            return
        shared = None
        if self._limits.memory is not None:
            held.tasks.add(place)
            shared = held
        self._running[place] = _Running(job, shared)
        self._tell_whose(shared)
        task = replace(task, job=job.id, started=job.started)
        self._put(place, task)
        self._listener.begins(self.sweep, task)

    def _tell_whose(self, held: _Held | None) -> None:
        """Write into a shared claim whose it is: the task's that began last."""
        if held is None or held.allocation.lease is None or not held.tasks:
            return
        jobs = [self._running[place].job for place in sorted(held.tasks) if place in self._running]
        last = max(jobs, key=lambda job: job.created)
        others = [job.supervisor.pid for job in jobs if job.supervisor is not None and job is not last]
        if last.command is not None:
            supervisor = last.supervisor.pid if last.supervisor is not None else None
            held.allocation.lease.belongs_to(last.command.pid, last.id, supervisor, others)

    # Ending

    def _sleep(self, seconds: float) -> None:
        """Rest in line. Raises _AgainError when a task has ended and nobody else is in line: its devices can
        be taken at once then, and the place in line is worth nothing."""
        if not self._running:
            time.sleep(seconds)
            return
        if not self._collect(seconds):
            return
        if self._halted or not self._others(own=1):
            raise _AgainError

    def _others(self, own: int) -> bool:
        """Whether others are in line, where we have so many places ourselves."""
        return sum(not waiter.silent for waiter in waiters(self._environ)) > own

    def _collect(self, seconds: float | None) -> bool:
        """Wait until tasks end, at most so long; whether any did."""
        by_id = {running.job.id: place for place, running in self._running.items()}
        over = wait_for_any([running.job for running in self._running.values()], seconds)
        for job in over:
            self._came_to_end(by_id[job.id], job)
        return bool(over)

    def _came_to_end(self, place: int, job: Job) -> None:
        with without_signals():
            running = self._running.pop(place)
            self._settled = time.monotonic() + _SETTLING
            held = running.held
            if held is not None:
                held.tasks.discard(place)
                if held.tasks:
                    self._tell_whose(held)
                else:
                    self._shared.remove(held)
                    held.allocation.release()
            self._ended(place, came_to(self.sweep.tasks[place], job))

    def _ended(self, place: int, task: Task) -> None:
        again = task.state == "failed" and task.attempts <= self._limits.retries and not self._halted
        if again:
            self._todo.append(place)
        elif task.state != "done" and self._limits.stops:
            self._halted = True
        self._put(place, replace(task, state="waiting") if again else task)
        self._listener.ended(self.sweep, task)

    def _stop_all(self) -> None:
        """Stop the tasks that run, all at once."""
        with without_signals():
            running = dict(self._running)
            # (A job that cannot be stopped from here is one whose record is gone.)
            threads = [Thread(target=_stop, args=(each.job,)) for each in running.values()]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for place, each in running.items():
                task = self.sweep.tasks[place]
                try:
                    task = came_to(task, refreshed(each.job))
                except JobError as error:
                    task = replace(task, state="failed", reason=str(error))
                self._put(place, task)

    def _put(self, place: int, task: Task) -> None:
        tasks = list(self.sweep.tasks)
        tasks[place] = task
        self._set(replace(self.sweep, tasks=tuple(tasks)))

    def _set(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._listener.changed(sweep)


def _stop(job: Job) -> None:
    try:
        stop(job)
    except JobError:
        # Its record has been removed: the row says so.
        return


def _room(held: _Held, need: int, now: Snapshot) -> int:
    """How many more tasks fit on devices that are shared."""
    found = []
    for device in held.allocation.devices:
        there = now.by_key.get(device.key)
        if there is None or there.fault is not None or there.compute_mode not in (None, "default"):
            return 0
        then = held.allocation.snapshot.memory_free(device)
        found.append(tasks_that_fit(need, then, now.memory_free(there), len(held.tasks)))
    return min(found, default=0)
