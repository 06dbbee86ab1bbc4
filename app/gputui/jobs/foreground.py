"""Follow a job as if it ran in this terminal: Ctrl-C reaches it, and it outlives this process."""

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
"""Seconds that Ctrl-C waits until the record of a job names the process to interrupt."""
LEFT = 128 + signal.SIGHUP
"""The exit status of a call that has left its job behind."""


class LeftError(Exception):
    """Our terminal or our parent process has gone; the job has been left."""


class Foreground:
    """The handlers of the terminal's signals, for one job.

    Enter it before the job is started, so that a hangup of the terminal in between is not missed. A job that
    still waits in line is stopped when the terminal has gone; a running job continues.
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
                # Its output may arrive before its record names its process.
                time.sleep(0.02)
                now = refreshed(self._job)
            command = now.command
            if command is not None and alive(command):
                # It leads its own session, and therefore its own process group.
                os.killpg(command.pid, signal.SIGINT)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._gone:
            return
        self._gone = True
        if self._job is not None:
            raise LeftError
