"""Pid namespaces (namespaces(7)): the one of this process, and whether it is the machine's own."""

from __future__ import annotations

import os

_INITIAL = "pid:[4026531836]"
"""Linux gives the initial pid namespace this fixed inode (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""


def pid_namespace() -> str | None:
    """Return the namespace in which our pids are valid; None where the system has no pid namespaces."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - `pick` calls this, and pathlib costs 5 ms
    except OSError:
        return None


def in_initial_namespace() -> bool:
    """Return whether this process sees the machine's own pids; True where there are no pid namespaces."""
    return pid_namespace() in (None, _INITIAL)
