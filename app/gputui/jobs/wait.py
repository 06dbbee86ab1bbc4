"""Waiting for a job to end, without asking again and again where the system can tell (Linux: pidfd)."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gputui.jobs.job import Identity, Job, JobError
from gputui.jobs.process_tree import alive, here
from gputui.jobs.record import RecordError, read_job

_ASK_AGAIN = 0.05
"""Seconds between two looks at a job that is about to start or to end."""
_LONGEST = 3600.0


def refreshed(job: Job) -> Job:
    """The job as it is now. Raises JobError when its record has gone."""
    try:
        return read_job(job.folder, here())
    except RecordError as error:
        raise JobError(f"job {job.id} has been forgotten meanwhile: {error}") from None


def wait_for(job: Job, timeout: float | None = None) -> Job:
    """The job once it has ended, or as it is after `timeout` seconds. Raises JobError.

    A job that belongs elsewhere cannot be waited for: its processes are not ours to see.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        job = refreshed(job)
        if job.over:
            return job
        if job.state == "elsewhere":
            raise JobError(f"job {job.id} belongs to {job.place.host!r}; it can be waited for there")
        left = _LONGEST if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return job
        with ending(job) as descriptor:
            if descriptor is None:
                time.sleep(min(left, _ASK_AGAIN))
            else:
                _readable(descriptor, min(left, _LONGEST))


@contextmanager
def ending(job: Job) -> Iterator[int | None]:
    """A descriptor that can be read once the job's supervisor, or without one its command, has ended.

    None where the system has no such thing, or the job has no process yet.
    """
    process = next((p for p in (job.supervisor, job.command) if p and alive(p)), None)
    descriptor = _pidfd(process) if process else None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _pidfd(process: Identity) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        if alive(process):
            return descriptor
        # The pid was given to another process just before.
        os.close(descriptor)
    return None


def _readable(descriptor: int, seconds: float) -> None:
    # (poll, not select: a descriptor may be above 1024 in a process with many files open.)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)
