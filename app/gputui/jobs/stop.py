"""Stop a job: a signal to its process group, then SIGKILL to all of its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from gputui.inventory.job import STOP, Job, JobError
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.process import Identity
from gputui.jobs.process_tree import alive, family, own_scope, session, writers
from gputui.jobs.record import write_finished
from gputui.jobs.wait import refreshed, wait_for
from gputui.system.files import write_private

GRACE = 10.0
"""Default seconds between the signal and SIGKILL, as for `docker stop`."""
_PATIENCE = 10.0
"""Seconds that SIGKILL may take: a process that waits for a driver does not end at once."""
_ASK_AGAIN = 0.05


@frozen
class Stopped:
    """The outcome of a stop: the job afterwards, and a sentence for people."""

    job: Job
    message: str


def stop(job: Job, number: int = signal.SIGTERM, grace: float = GRACE, why: str = "") -> Stopped:
    """Stop a job and wait until it has ended. Raises JobError when it cannot be stopped from here.

    The job's supervisor stops it, and continues if we are interrupted. Without a supervisor, or where the
    request cannot be written (a full disk), we stop the job ourselves. For a job that has ended, only the
    processes that it left behind are stopped; having none is not an error. `why` is kept in the record.
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
    """Ask the supervisor to stop the job. False where the request cannot be written, as on a full disk.

    The default signal and grace need no written request.
    """
    file = job.folder / STOP
    try:
        write_private(file, f"{number:d} {grace} {why}\n")
    except OSError:
        if (number, grace) != (signal.SIGTERM, GRACE):
            return False
        try:
            # An earlier request must not apply.
            file.unlink(missing_ok=True)
        except OSError:
            return False
    _send(supervisor, signal.SIGTERM)
    _send(supervisor, signal.SIGCONT)
    return True


def _stop_ourselves(job: Job, number: int, grace: float, why: str) -> int | None:
    """Stop the job without its supervisor. Returns the number of processes that needed SIGKILL, None when
    there was nothing to stop."""
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
        # Add the processes that they started meanwhile.
        processes = left | _members(job)
    if not left and job.ended is None:
        with contextlib.suppress(OSError):
            # Where the record cannot be written, the end of the job stays unknown.
            write_finished(job.folder, time.time(), stop=int(number), killed=len(killed), why=why or None)
    return len(killed)


def _members(job: Job) -> set[Identity]:
    """All processes of a job except its supervisor: the command's descendants, its session, the log's
    writers.

    The session counts only while the command itself is alive: a session is named by a pid, which the system
    may reuse. The log identifies the other processes: only processes of the job write to it.
    """
    others = {os.getpid(), *([job.supervisor.pid] if job.supervisor else [])}
    roots = writers(job.log) - others
    if job.command is not None and job.scope == own_scope() and alive(job.command):
        roots |= {job.command.pid} | session(job.command.pid)
    return {process for process in family(roots) if process.pid not in others}


def _alive(processes: set[Identity]) -> set[Identity]:
    return {process for process in processes if alive(process)}


def _send(process: Identity, number: int) -> None:
    """Send a signal to that very process, and to no other process that has its pid by now."""
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
