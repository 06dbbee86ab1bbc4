"""The owner, command and start of the processes whose pids a driver reports.

NVML reports the host's pids. Inside a container they name no process or a wrong one, so nothing is looked up
there. A process that we may not inspect still has an owner: it is reported as unknown, never as none.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Collection
from typing import Any

from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.process import ANOTHER_NAMESPACE, ENDED, OWNER_UNKNOWN, Ancestor, Process
from gputui.system.containers import container
from gputui.system.file_locks import name_of
from gputui.system.namespaces import in_initial_namespace
from gputui.system.plain_processes import process_library
from gputui.system.process_stat import process_stat
from gputui.system.users import own_name

_MOST_ANCESTORS = 8
_MOST_CGROUP = 64 * 1024
MOST_COMMAND = 4096
"""Bytes of a command line that are read: one may have megabytes of arguments, and nobody reads them here."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What the system says of one pid; `note` says why it says nothing; `started` is epoch seconds.

    `ticks` is the start of the process in clock ticks since the boot, None where there was none to be seen.
    (With it here nothing more is kept of a process: others may start thousands of them, and psutil's object
    alone takes 1 KiB.)
    """

    user: str | None = None
    command: str | None = None
    started: float | None = None
    note: str | None = None
    container: str | None = None
    ancestors: tuple[Ancestor, ...] = ()
    ticks: int | None = field(default=None, compare=False, repr=False)
    own: bool = False

    def named(self, process: Process) -> Process:
        """The process as the driver lists it, with this owner. (Quicker than `replace`.)"""
        return Process(
            process.pid,
            process.kind,
            self.user,
            process.memory,
            self.command,
            self.started,
            self.note,
            self.container,
            self.ancestors,
            process.sm,
            process.host_cpu,
            process.host_memory,
            self.own,
        )


@dataclass(frozen=True, slots=True)
class HostUse:
    """What a process takes of the machine: percent of one CPU since the last look, bytes of RAM."""

    cpu: float | None = None
    memory: int | None = None


_NOT_LOOKED_UP = Owner()
_FOREIGN = Owner(note=ANOTHER_NAMESPACE)


class ProcessTable:
    """Owners by pid and start time, each looked up once. `host_pids`: whether the driver's pids are ours."""

    def __init__(self, host_pids: bool | None = None) -> None:
        self._host_pids = in_initial_namespace() if host_pids is None else host_pids
        self._known: dict[int, Owner] = {}
        self._measured: dict[int, tuple[int | None, Any]] = {}
        """The processes whose use was asked for last: their start, and psutil's object, which remembers the
        CPU time to compare with."""
        self._lines: dict[tuple[Any, str | None], tuple[Ancestor, ...]] = {}
        """A process as psutil has it, and those who started it: a thousand workers have one parent."""

    def owner(self, pid: int) -> Owner:
        """The owner of `pid` now; a pid that the system has given to another process is looked up anew."""
        if not self.lives(pid):
            self._known[pid] = self._look_up(pid)
        return self.last(pid)

    def last(self, pid: int) -> Owner:
        """What `owner` last answered, without asking the system; of a new pid nothing is known."""
        return self._known.get(pid, _NOT_LOOKED_UP)

    def still(self, pid: int) -> Owner:
        """The same, as long as the pid has not been given to another process since."""
        known = self._known.get(pid, _NOT_LOOKED_UP)
        return _NOT_LOOKED_UP if known.ticks is not None and not self.lives(pid) else known

    def lives(self, pid: int) -> bool:
        """Whether the process that `owner` last answered for is known to live: this one, by its start."""
        ticks = self._known.get(pid, _NOT_LOOKED_UP).ticks
        return ticks is not None and ticks == _start(pid)

    def uses(self, pids: Collection[int]) -> dict[int, HostUse]:
        """What processes take that have been looked up; nothing is known of one that was not, or is gone.

        CPU time is compared with the last call, and of processes that were not among `pids` then not known.
        """
        self._measured = {pid: kept for pid, kept in self._measured.items() if pid in pids}
        return {pid: self._use(pid) for pid in pids}

    def _use(self, pid: int) -> HostUse:
        if not self.lives(pid):
            return HostUse()
        psutil = process_library()

        ticks, before = self._known[pid].ticks, self._measured.get(pid)
        first = before is None or before[0] != ticks
        try:
            process = psutil.Process(pid) if before is None or first else before[1]
            cpu, memory = process.cpu_percent(None), process.memory_info().rss
        except psutil.Error:
            return HostUse()
        self._measured[pid] = ticks, process
        return HostUse(None if first else cpu, memory)

    def _look_up(self, pid: int) -> Owner:
        if not self._host_pids:
            return _FOREIGN
        # (Before all else: if the pid is given to another process meanwhile, this tells later.)
        ticks = _start(pid)
        # psutil takes 20 ms to import, and a box with nobody on it never needs it.
        psutil = process_library()

        try:
            return self._look(psutil.Process(pid), ticks)
        except psutil.NoSuchProcess:
            return Owner(note=OWNER_UNKNOWN if _exists(pid) else ENDED)

    def forget_all_but(self, pids: set[int]) -> None:
        """Drop what is known of processes that no device runs any more."""
        for pid in self._known.keys() - pids:
            del self._known[pid]
        # (Who is whose parent changes: it is remembered for one reading.)
        self._lines.clear()

    def _look(self, process: Any, ticks: int | None) -> Owner:
        psutil = process_library()

        facts: dict[str, Any] = {}
        with process.oneshot():
            for name, ask in (
                ("user", process.username),
                ("command", lambda: _command(process)),
                ("started", process.create_time),
            ):
                try:
                    # (A thousand workers have one user, and often one command: each text is kept once.)
                    facts[name] = sys.intern(found) if isinstance(found := ask(), str) else found
                except (psutil.AccessDenied, psutil.ZombieProcess):
                    facts[name] = None
            ancestors = self._ancestors(process, facts["user"])
        note = OWNER_UNKNOWN if facts["user"] is None else None
        container, own = _container(process.pid), facts["user"] == own_name()
        return Owner(**facts, note=note, container=container, ancestors=ancestors, ticks=ticks, own=own)

    def _ancestors(self, process: Any, user: str | None) -> tuple[Ancestor, ...]:
        psutil = process_library()

        try:
            parent = process.parent()
        except psutil.Error:
            return ()
        if (parent, user) not in self._lines:
            self._lines[parent, user] = _line(parent, user)
        return self._lines[parent, user]


def _start(pid: int) -> int | None:
    """When the process that has this pid was started, in clock ticks; None where none is to be seen."""
    stat = process_stat(pid)
    return None if stat is None else stat.ticks


def _line(process: Any, user: str | None) -> tuple[Ancestor, ...]:
    """A process and who started it, up to the first process of somebody else (sshd, init)."""
    psutil = process_library()

    found: list[Ancestor] = []
    with contextlib.suppress(psutil.Error):
        # (What is known up to an error is right; the rest has ended, or is not for us to see.)
        while process is not None and len(found) < _MOST_ANCESTORS:
            if user is None or process.username() != user or process.pid == 1:
                break
            found.append(Ancestor(process.pid, _command(process)))
            process = process.parent()
    return tuple(found)


def _command(process: Any) -> str:
    """The command line as one text, cut where it is long; of a process without one its name. Raises
    psutil.Error."""
    try:
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:  # noqa: PTH123
            data = file.read(MOST_COMMAND + 1)
    except OSError:
        # It has ended, or this is no Linux: psutil knows which.
        return " ".join(process.cmdline())[:MOST_COMMAND] or str(process.name())
    if not data:
        # A kernel thread, or a zombie. (Not psutil's name, which may read the command line again, and whole:
        # whose process it is can have made it gigabytes long meanwhile.)
        return name_of(process.pid) or ""
    cut = len(data) > MOST_COMMAND
    # (A character that the cut divides is left out.)
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(data[:MOST_COMMAND], final=not cut)
    # (Some programs write over their arguments, and end them with many zeros.)
    return text.rstrip("\0").replace("\0", " ") + (" …" if cut else "")


def _container(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return container(file.read(_MOST_CGROUP))
    except OSError:
        return None


def _exists(pid: int) -> bool:
    """Whether there is such a process though /proc hides it (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
