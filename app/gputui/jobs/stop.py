"""Stopping a job: a signal to its process group, then SIGKILL to every process of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from gputui.inventory.job import STOP, Job, JobError
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.process import Identity
from gputui.jobs.process_tree import alive, family, here, session, writers
from gputui.jobs.record import write_finished
from gputui.jobs.wait import refreshed, wait_for
from gputui.system.files import write_private

GRACE = 10.0
"""Seconds between the signal and SIGKILL, unless told otherwise: as `docker stop`."""
_PATIENCE = 10.0
"""Seconds that SIGKILL may take; a process that waits for a driver does not die at once."""
_ASK_AGAIN = 0.05


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of a stop: the job afterwards, and a sentence for people."""

    job: Job
    message: str


def stop(job: Job, number: int = signal.SIGTERM, grace: float = GRACE, why: str = "") -> Stopped:
    """Stop a job and wait until it has ended. Raises JobError when it cannot be stopped from here.

    The job's supervisor does it, and goes on with it should we be interrupted. Without a supervisor, or where
    it cannot be told how (a full disk), we do it ourselves. Of a job that has ended, only what it left behind
    is stopped; nothing left is no error. `why` is kept in its record.
    """
    began = time.monotonic()
    while (job := refreshed(job)).state == "starting":
        time.sleep(_ASK_AGAIN)
    if job.state == "elsewhere":
        raise JobError(f"job {job.id} belongs to {job.scope.host!r}; it can be stopped there")
    supervisor = job.supervisor if not job.over and job.supervisor and alive(job.supervisor) else None
    if supervisor is not None and _ask(job, supervisor, number, grace, why):
        job = wait_for(job, grace + _PATIENCE)
        return Stopped(job, _message(job, number, time.monotonic() - began, job.killed))
    killed = _stop_ourselves(job, number, grace, why)
    if killed is None:
        return Stopped(job, f"job {job.id} has ended already: nothing is left of it to stop")
    job = wait_for(job, _PATIENCE) if supervisor else refreshed(job)
    return Stopped(job, _message(job, number, time.monotonic() - began, killed))


def _message(job: Job, number: int, seconds: float, killed: int) -> str:
    sent = f"job {job.id}: {signal.Signals(number).name}"
    if not job.over:
        return f"{sent}, and SIGKILL; it has not ended after {seconds:.0f}s (waiting for a driver?)"
    if killed:
        many = "1 process" if killed == 1 else f"{killed} processes"
        return f"{sent}, and SIGKILL for {many} after {seconds:.1f}s"
    return f"{sent}; it ended after {seconds:.1f}s"


def _ask(job: Job, supervisor: Identity, number: int, grace: float, why: str) -> bool:
    """Whether the supervisor could be asked: on a full disk it cannot be told how to stop.

    It need not be where it is to stop as it does without being told.
    """
    file = job.folder / STOP
    try:
        write_private(file, f"{number:d} {grace} {why}\n")
    except OSError:
        if (number, grace) != (signal.SIGTERM, GRACE):
            return False
        try:
            # What was asked for earlier.
            file.unlink(missing_ok=True)
        except OSError:
            return False
    _send(supervisor, signal.SIGTERM)
    return True


def _stop_ourselves(job: Job, number: int, grace: float, why: str) -> int | None:
    """How many processes needed SIGKILL; None when there was nothing to stop."""
    processes = _members(job)
    if not processes:
        return None
    began = time.monotonic()
    for process in processes:
        _send(process, number)
        _send(process, signal.SIGCONT)
    while (left := _alive(processes)) and time.monotonic() - began < grace:
        time.sleep(_ASK_AGAIN)
    killed: set[Identity] = set()
    while (left := _alive(processes)) and time.monotonic() - began < grace + _PATIENCE:
        for process in left:
            _send(process, signal.SIGKILL)
        killed |= left
        time.sleep(_ASK_AGAIN)
        # What they started meanwhile.
        processes = left | _members(job)
    if not left and job.ended is None:
        with contextlib.suppress(OSError):
            # (A record that cannot be written leaves the job as one whose end is not known, which is true.)
            write_finished(job.folder, time.time(), stop=int(number), killed=len(killed), why=why or None)
    return len(killed)


def _members(job: Job) -> set[Identity]:
    """Every process of a job without its supervisor: the command's descendants, its session, its writers.

    The session only while the command itself is alive: a session is named by a pid, which may be given again.
    The log tells the others: nobody else writes to it.
    """
    others = {os.getpid(), *([job.supervisor.pid] if job.supervisor else [])}
    roots = writers(job.log) - others
    if job.command is not None and job.scope == here() and alive(job.command):
        roots |= {job.command.pid} | session(job.command.pid)
    return {process for process in family(roots) if process.pid not in others}


def _alive(processes: set[Identity]) -> set[Identity]:
    return {process for process in processes if alive(process)}


def _send(process: Identity, number: int) -> None:
    """A signal to that very process, and to no other that has its pid by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not hasattr(signal, "pidfd_send_signal"):
            if alive(process):
                os.kill(process.pid, number)
            return
        descriptor = os.pidfd_open(process.pid)
        try:
            if alive(process):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
