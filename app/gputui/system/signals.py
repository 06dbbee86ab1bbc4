"""Sends signals to processes on devices: only to our own, and never to a new process with the same pid."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

from gputui.inventory.process import Process


class SignalError(Exception):
    """The signal was not sent; the message says why."""


def send(process: Process, number: int) -> None:
    """Send the signal. Raise SignalError for another user's process, for another pid namespace, and for a
    process that no longer exists (its pid may belong to another process by now)."""
    if process.note is not None:
        raise SignalError(f"pid {process.pid}: {process.note}")
    import psutil

    try:
        there = psutil.Process(process.pid)
        if there.status() == psutil.STATUS_ZOMBIE:
            raise SignalError(f"pid {process.pid} has ended")
        uids = there.uids()
        started = there.create_time()
    except psutil.Error:
        raise SignalError(f"pid {process.pid} has ended") from None
    if process.started is None or abs(started - process.started) > 0.5:
        raise SignalError(f"pid {process.pid} is now another process")
    if uids.real != os.getuid():
        raise SignalError(f"pid {process.pid} is {process.user or 'somebody else'}'s, not yours")
    try:
        _send(there, number)
    except (ProcessLookupError, psutil.NoSuchProcess):
        raise SignalError(f"pid {process.pid} has ended") from None
    except (PermissionError, psutil.AccessDenied):
        raise SignalError(f"pid {process.pid}: not permitted") from None


def _send(there: Any, number: int) -> None:
    """Send through a descriptor of the process, where the system has those: no other process
    can receive it."""
    descriptor = _descriptor(there.pid)
    if descriptor is None:
        # psutil checks that it is the same process a moment before it sends.
        there.send_signal(number)
        return
    try:
        if there.is_running():
            signal.pidfd_send_signal(descriptor, number)
        else:
            raise ProcessLookupError
    finally:
        os.close(descriptor)


def _descriptor(pid: int) -> int | None:
    """Return a descriptor of a process; None on Linux before 5.3, and where a container's seccomp filter is
    older.

    Raise ProcessLookupError.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise
