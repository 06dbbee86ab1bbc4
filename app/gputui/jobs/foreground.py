"""A job that is followed as if it ran in this terminal: Ctrl-C reaches it, and it outlives us."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType, TracebackType

from gputui.inventory.job import Job, JobError
from gputui.jobs.process_tree import alive
from gputui.jobs.stop import stop
from gputui.jobs.wait import follow, refreshed

_STARTS_WITHIN = 2.0
"""Seconds that Ctrl-C waits until the record of a job says which process it is for."""
LEFT = 128 + signal.SIGHUP
"""The status of who has left a job behind."""


class LeftError(Exception):
    """Our terminal, or whoever started us, has gone; the job has been left."""


class Foreground:
    """The signals of a terminal, for one job.

    Entered before the job is started, so that no end of the terminal is missed in between: a job that only
    waits in line for somebody who has gone is stopped. One that runs goes on.
    """

    def __init__(self) -> None:
        self._job: Job | None = None
        self._gone = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Foreground:
        for number, answer in (
            (signal.SIGINT, self._interrupt),
            (signal.SIGHUP, self._hang_up),
            (signal.SIGTERM, self._hang_up),
        ):
            self._before[number] = signal.signal(number, answer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, answer in self._before.items():
            signal.signal(number, answer)  # type: ignore[arg-type]

    def output(self, job: Job) -> Iterator[bytes]:
        """The job's output until it has ended. Raises JobError, and LeftError when the terminal has gone."""
        self._job = job
        try:
            if self._gone:
                raise LeftError
            yield from follow(job)
        except (LeftError, GeneratorExit, OSError):
            self._leave(job)
            raise

    def _leave(self, job: Job) -> None:
        self._job = None
        with contextlib.suppress(JobError):
            if (now := refreshed(job)).state == "waiting":
                stop(now)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._job is None:
            raise KeyboardInterrupt
        with contextlib.suppress(JobError, OSError):
            now, deadline = refreshed(self._job), time.monotonic() + _STARTS_WITHIN
            while now.state == "starting" and time.monotonic() < deadline:
                # (Its output may be here before its record says which process it is.)
                time.sleep(0.02)
                now = refreshed(self._job)
            command = now.command
            if command is not None and alive(command):
                # (It leads a session, and so a group, of its own.)
                os.killpg(command.pid, signal.SIGINT)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._gone:
            return
        self._gone = True
        if self._job is not None:
            raise LeftError
