"""Jobs for tests: they start in a state folder of the test's own, and end with the test."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gputui.inventory.job import Job
from gputui.inventory.process import Identity
from gputui.jobs.process_tree import alive
from gputui.jobs.start import start_job
from gputui.jobs.stop import stop
from gputui.jobs.store import all_jobs
from gputui.jobs.wait import refreshed, wait_for
from gputui.launching.launch import Launch

PATIENCE = 120.0
"""Seconds that a test waits for a condition, on a slow machine with all cores busy."""


def until(true: Callable[[], object]) -> None:
    """Wait until the condition holds.

    Most of the time is left to the processes that are waited for: some conditions start a program.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        begun = time.monotonic()
        if true():
            return
        now = time.monotonic()
        assert now < deadline, "it never came to be"
        time.sleep(min(max(0.01, 3 * (now - begun)), 0.5))


def end_jobs(environ: Mapping[str, str]) -> None:
    """End all jobs."""
    for job in all_jobs(environ):
        stop(job, signal.SIGKILL, 0)


class Desk:
    """A state folder to start jobs in, and gates at which they wait for the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.environ.pop("PYTHONUNBUFFERED", None)
        self.jobs = folder / "state" / "gputui" / "jobs"
        self._gates = 0

    def start(self, *argv: str, **more: object) -> Job:
        """Start a command as a job."""
        return start_job(Launch(argv), self.environ, **more)  # type: ignore[arg-type]

    def sh(self, script: str) -> Job:
        """Start a shell script as a job."""
        return self.start("/bin/sh", "-c", script)

    def gate(self) -> Gate:
        """A gate at which a job waits until the test opens it."""
        self._gates += 1
        return Gate(self.folder / f"gate{self._gates}")

    def end(self) -> None:
        """End all jobs."""
        end_jobs(self.environ)


class Gate:
    """A named pipe: `wait` is a shell command that waits at it, and `open` lets the waiting job continue."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self._pipe = pipe
        self.wait = f"read -r gate < {shlex.quote(str(pipe))}"

    def open(self) -> None:
        """Let the waiting job continue, once a job waits. A plain write would hang where none ever does."""
        until(self._opened)

    def _opened(self) -> bool:
        try:
            pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        os.write(pipe, b"go\n")
        os.close(pipe)
        return True


@contextmanager
def desk_at(folder: Path) -> Iterator[Desk]:
    """A desk whose jobs are ended on exit."""
    made = Desk(folder)
    try:
        yield made
    finally:
        made.end()


def ended(job: Job) -> Job:
    """The job, once it has ended."""
    job = wait_for(job, PATIENCE)
    assert job.over, job
    return job


def says(job: Job, text: str) -> None:
    """Wait until the log has this text."""
    # A job's record exists before its log.
    until(lambda: job.log.exists() and text in job.log.read_text(errors="replace"))


def kill_supervisor(job: Job) -> None:
    """Send SIGKILL to the job's supervisor, and wait until it is gone."""
    assert job.supervisor is not None
    os.kill(job.supervisor.pid, signal.SIGKILL)
    gone(job.supervisor)


def gone(*processes: Identity) -> None:
    """Wait until none of these processes runs."""
    until(lambda: not any(map(alive, processes)))


def command(job: Job) -> Identity:
    """The process of the job's command."""
    job = refreshed(job)
    assert job.command is not None
    return job.command
