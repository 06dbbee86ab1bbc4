"""Wait for a job to end, and follow its log until then.

Where the system has pidfds (Linux 5.3), a job that ends wakes us; elsewhere the job is polled.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gputui.inventory.formatting import MIB
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Identity
from gputui.jobs.log_file import end_of, missing, read_data
from gputui.jobs.process_tree import alive, own_scope
from gputui.jobs.record import read_job
from gputui.jobs.record_folders import RecordError
from gputui.system.files import open_own

_ASK_AGAIN = 0.05
"""Seconds between two polls of a job without a pidfd."""
_LONGEST = 3600.0
"""Most seconds of one wait."""
_PIECE = 64 * 1024
"""Most bytes of a log that are read at once."""
_MOST_BACK = MIB
"""Bytes at the end of a log that are searched for its last lines."""
_LOOK_AGAIN = 0.1
"""Seconds between two polls of the log."""


def refreshed(job: Job) -> Job:
    """Read the job's record again. Raises JobError when the record has gone."""
    try:
        return read_job(job.folder, own_scope())
    except RecordError as error:
        raise JobError(f"job {job.id} has been removed in the meantime: {error}") from None


def wait_for(job: Job, timeout: float | None = None) -> Job:
    """The job once it has ended, or as it is after `timeout` seconds. Raises JobError, also where its record
    has been removed."""
    wait_for_any([job], timeout)
    return refreshed(job)


def wait_for_any(jobs: Sequence[Job], timeout: float | None = None) -> list[Job]:
    """Wait until a job has ended, and return all jobs that have; [] after `timeout` seconds.

    A job whose record has been removed counts as ended in an unknown way. Raises JobError for a job that
    belongs elsewhere: its processes are not visible here.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        jobs = [*map(_as_it_is, jobs)]
        over = [job for job in jobs if job.over]
        left = _LONGEST if deadline is None else deadline - time.monotonic()
        if over or left <= 0:
            return over
        with contextlib.ExitStack() as opened:
            found = [opened.enter_context(ending(job)) for job in jobs]
            known = [descriptor for descriptor in found if descriptor is not None]
            _readable(known, min(left, _LONGEST if len(known) == len(jobs) else _ASK_AGAIN))


def _as_it_is(job: Job) -> Job:
    try:
        job = refreshed(job)
    except JobError:
        return replace(job, state="ended")
    if job.state == "elsewhere":
        raise JobError(f"job {job.id} belongs to {job.scope.host!r}; it can be waited for there")
    return job


@contextmanager
def ending(job: Job) -> Iterator[int | None]:
    """A descriptor that becomes readable once the job's supervisor, or without one its command, has ended.

    None where the system has no pidfds, or the job has no live process.
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
        # Another process has received the pid just before.
        os.close(descriptor)
    return None


def _readable(descriptors: Sequence[int], seconds: float) -> None:
    # poll, not select: a descriptor may be above 1024 in a process with many open files.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)


def follow(job: Job, place: int = 0, live: bool = True) -> Iterator[bytes]:
    """Yield the log's bytes from offset `place` on; with `live` until the job has ended. Raises JobError.

    A line replaces each part that is missing because of the cap.
    """
    try:
        file = os.fdopen(open_own(job.log), "rb", buffering=0)
    except OSError as error:
        raise JobError(f"job {job.id} has no log that can be read: {error.strerror}") from None
    with file, ending(job) as end:
        over = job.over or not live
        while True:
            while True:
                start, data = read_data(file.fileno(), place, _PIECE)
                if start > place:
                    yield missing(start - place)
                place = start + len(data)
                if not data:
                    break
                yield data
            if over:
                return
            if os.fstat(file.fileno()).st_size < place:
                # Somebody has emptied it.
                place = 0
                continue
            if _has_ended(end):
                # The last output is still to be read.
                job = refreshed(job)
                over = job.over or job.state == "elsewhere"


def start_of_last_lines(log: Path, number: int) -> int:
    """The offset in a log where its last `number` lines begin, at most a mebibyte before its end.

    0 for a log that does not exist.
    """
    start, data = end_of(log, _MOST_BACK)
    place = len(data) - data.endswith(b"\n")
    for _ in range(number):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return start
    return start + place + 1


def _has_ended(end: int | None) -> bool:
    """Wait for a moment, or until the job ends. Returns whether the job may have ended."""
    poll = select.poll()
    if end is not None:
        poll.register(end, select.POLLIN)
    return bool(poll.poll(_LOOK_AGAIN * 1000)) or end is None
