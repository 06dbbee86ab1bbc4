"""`--after` and `--after-ok`: a launch that starts when other jobs of ours have ended."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputui.inventory.formatting import Tell
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.store import Stored, readable_job, stored
from gputui.jobs.wait import wait_for_any
from gputui.requesting.launch_request import LaunchRequest, jobs_of
from gputui.system.environment import Environ
from gputui.system.lock_holders import ancestors


class AwaitedJobError(JobError):
    """A job that had to end well has not."""

    code, status = "awaited_job_failed", 5


def settled(asked: LaunchRequest, environ: Environ, follows: bool) -> LaunchRequest:
    """The request with the ids of the jobs that it names, and with a place in line when they have ended.

    `follows`: this process itself waits, so no such job may contain it. Raises JobError, also where one has
    ended already and not well.
    """
    jobs, there = _awaited(asked, environ)
    # Here only to refuse jobs of other machines.
    wait_for_any(jobs, 0)
    if follows:
        _refuse_circle(jobs, there)
    first = len(jobs_of(asked.after))
    _refuse_failed(jobs[first:])
    ids = [job.id for job in jobs]
    after, after_ok = ",".join(ids[:first]) or None, ",".join(ids[first:]) or None
    # Right after a job its devices are not free yet: the driver's figures still show it.
    wait = math.inf if asked.devices.wait is None else asked.devices.wait
    return replace(asked, after=after, after_ok=after_ok, devices=replace(asked.devices, wait=wait))


def wait_for_jobs(asked: LaunchRequest, environ: Environ, tell: Tell = bool) -> None:
    """Wait until the jobs of a settled request have ended. Raises AwaitedJobError, JobError."""
    jobs, _ = _awaited(asked, environ)
    while True:
        _refuse_failed(jobs[len(jobs_of(asked.after)) :])
        running = [job for job in jobs if not job.over]
        if not running:
            return
        tell(f"waits for the end of {', '.join(job.id for job in running)}")
        over = {job.id: job for job in wait_for_any(running)}
        jobs = [over.get(job.id, job) for job in jobs]


def _awaited(asked: LaunchRequest, environ: Environ) -> tuple[list[Job], Stored]:
    there = stored(environ)
    return [readable_job(word, there, newest=True) for word in asked.awaited], there


def _refuse_circle(jobs: Sequence[Job], there: Stored) -> None:
    """Raise JobError where one of the jobs, or one that such a job waits for, contains this process. (A
    job waits for older jobs only: there is no other circle.)"""
    running = {job.id: job for job in there.jobs if not job.over}
    containing = {job.supervisor.pid: job for job in running.values() if job.supervisor is not None}
    own = next((containing[pid] for pid in ancestors() if pid in containing), None)
    left = [*jobs]
    while left and own is not None:
        job = left.pop()
        if job.id == own.id:
            raise JobError(f"this call is part of job {own.id} and would wait for its own end: use --detach")
        left += [running.pop(id) for id in (*job.after, *job.after_ok) if id in running]


def _refuse_failed(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.over and job.state != "done":
            how = job.how_ended.rstrip(",")
            raise AwaitedJobError(f"job {job.id} {how}: nothing is started (--after-ok)")
