"""A log from some place on, and then what is added to it, until its job has ended."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

from gputui.jobs.job import Job, JobError
from gputui.jobs.wait import ending, refreshed

_PIECE = 64 * 1024
_MOST_BACK = 1024 * 1024
_LOOK_AGAIN = 0.1
"""Seconds between two looks at the log."""


def follow(job: Job, place: int = 0, live: bool = True) -> Iterator[bytes]:
    """The log's bytes from `place` on; with `live` until the job has ended. Raises JobError."""
    try:
        file = job.log.open("rb")
    except OSError as error:
        raise JobError(f"job {job.id} has no log that can be read: {error.strerror}") from None
    with file, ending(job) as end:
        file.seek(place)
        over = job.over or not live
        while True:
            while data := file.read(_PIECE):
                yield data
            if over:
                return
            if os.fstat(file.fileno()).st_size < file.tell():
                # Somebody has emptied it.
                file.seek(0)
                continue
            if _has_ended(end):
                # What it wrote last is still to be read.
                job = refreshed(job)
                over = job.over or job.state == "elsewhere"


def last_lines(log: Path, number: int) -> int:
    """The place in a log where its last `number` lines begin, at most a mebibyte before its end.

    A log that is not there begins at 0.
    """
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - _MOST_BACK)
            file.seek(start)
            data = file.read(_MOST_BACK)
    except OSError:
        return 0
    place = len(data) - data.endswith(b"\n")
    for _ in range(number):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return start
    return start + place + 1


def _has_ended(end: int | None) -> bool:
    """Let a moment pass, less when the job ends; whether it may have ended."""
    poll = select.poll()
    if end is not None:
        poll.register(end, select.POLLIN)
    return bool(poll.poll(_LOOK_AGAIN * 1000)) or end is None
