"""Sends signals to processes on devices: only to our own, and never to a new process with the same pid."""

from __future__ import annotations

import os

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
        # psutil checks once more that it is the same process, just before it sends.
        there.send_signal(number)
    except psutil.NoSuchProcess:
        raise SignalError(f"pid {process.pid} has ended") from None
    except psutil.AccessDenied:
        raise SignalError(f"pid {process.pid}: not permitted") from None
