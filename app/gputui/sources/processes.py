"""Who owns a process, what it runs and since when: the operating system's side of a pid that a driver named.

NVML reports the host's pids. Inside a container they name nothing, or the wrong process, so nothing is
looked up there; a process that may not be looked at is still somebody's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputui.inventory.process import ANOTHER_NAMESPACE, ENDED, OWNER_UNKNOWN

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Linux gives the initial pid namespace this fixed inode (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What the system says of one pid; `note` says why it says nothing; `started` is epoch seconds."""

    user: str | None = None
    command: str | None = None
    started: float | None = None
    note: str | None = None


class ProcessTable:
    """Owners by pid, each looked up once. `host_pids`: whether the driver's pids are ours too."""

    def __init__(self, host_pids: bool | None = None) -> None:
        self._host_pids = in_initial_namespace() if host_pids is None else host_pids
        self._known: dict[int, tuple[Any, Owner]] = {}

    def owner(self, pid: int) -> Owner:
        """The owner of `pid` now; a pid that the system has given to another process is looked up anew."""
        if not self._host_pids:
            return Owner(note=ANOTHER_NAMESPACE)
        # psutil takes 20 ms to import, and a box with nobody on it never needs it.
        import psutil

        known = self._known.get(pid)
        if known and known[0].is_running():
            return known[1]
        try:
            process = psutil.Process(pid)
            owner = _look(process)
        except psutil.NoSuchProcess:
            self._known.pop(pid, None)
            return Owner(note=OWNER_UNKNOWN if _exists(pid) else ENDED)
        self._known[pid] = (process, owner)
        return owner

    def forget_all_but(self, pids: set[int]) -> None:
        """Drop what is known of processes that no device runs any more."""
        for pid in self._known.keys() - pids:
            del self._known[pid]


def in_initial_namespace() -> bool:
    """Whether this process sees the machine's own pids; True where the system has no pid namespaces."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def _look(process: Any) -> Owner:
    import psutil

    facts: dict[str, Any] = {}
    for name, ask in (
        ("user", process.username),
        ("command", lambda: " ".join(process.cmdline()) or process.name()),
        ("started", process.create_time),
    ):
        try:
            facts[name] = ask()
        except (psutil.AccessDenied, psutil.ZombieProcess):
            facts[name] = None
    return Owner(**facts, note=OWNER_UNKNOWN if facts["user"] is None else None)


def _exists(pid: int) -> bool:
    """Whether there is such a process though /proc hides it (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
