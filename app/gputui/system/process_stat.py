"""One process from /proc/PID/stat (proc(5)): its state, parent, session and start; and its descendants.

Programs that live as long as a command load this file by its path (jobs/supervise.py, time_limit.py), so it
imports nothing of gputui and little else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


class ProcessStat:
    """Facts that every user may read about every process, unless /proc is mounted with hidepid.

    state    "R", "S", …; "Z" and "X" have ended
    parent   the process that started it, or has adopted it
    session  the pid of the session's leader, which no other process gets as long as the session exists
    ticks    its start in clock ticks since the boot
    """

    def __init__(self, state: str, parent: int, session: int, ticks: int) -> None:
        self.state, self.parent, self.session, self.ticks = state, parent, session, ticks

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.state not in "ZX"


def process_stat(pid: int) -> ProcessStat | None:
    """Return the process that has this pid now; None where there is none, or it is not visible."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - a Path for each would cost more
            return stat_of(file.read())
    except OSError:
        return None


def stat_of(data: bytes) -> ProcessStat | None:
    """Return the process in such a file; None where it is not one."""
    # The name in the second field may have spaces and parentheses of its own.
    fields = data.rpartition(b")")[2].split()
    try:
        return ProcessStat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def pids() -> Iterator[int]:
    """Yield the pids of the visible processes; none without /proc."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - twice as fast as making a Path of each
    except OSError:
        return
    yield from (int(name) for name in names if name.isdigit())


def family(roots: set[int]) -> dict[int, ProcessStat]:
    """Return the running processes among `roots`, and all their descendants, by their pids."""
    there = {pid: stat for pid in pids() if (stat := process_stat(pid))}
    found = roots & there.keys()
    # A process whose first thread has ended looks like a zombie, and may have children.
    while more := {pid for pid, stat in there.items() if stat.parent in found} - found:
        found |= more
    return {pid: there[pid] for pid in found if there[pid].runs}


def owner_of(pid: int) -> int | None:
    """Return the uid of a process, root's if it is not dumpable (prctl(2)); None where there is none."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - a Path for each would cost more
    except OSError:
        return None


def exists(pid: int) -> bool:
    """Return whether such a process exists even if /proc is missing or hides it (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
