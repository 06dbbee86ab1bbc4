"""The owner, command and start of the processes whose pids a driver reports.

Most drivers report the host's pids. Inside a container those match no process or a wrong one, so only a
process that has a GPU open is looked up there. A process that we may not inspect still has an owner: it is
reported as unknown, never as none.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Collection
from itertools import islice
from typing import Any

from gputui.inventory.light_dataclasses import field, frozen
from gputui.inventory.process import ANOTHER_NAMESPACE, ENDED, OWNER_UNKNOWN, Ancestor, Process
from gputui.system.containers import container
from gputui.system.lock_holders import name_of
from gputui.system.namespaces import in_initial_namespace
from gputui.system.plain_processes import process_library
from gputui.system.process_stat import exists, process_stat
from gputui.system.timed_reader import TimedReader
from gputui.system.users import own_name

_MOST_ANCESTORS = 8
_MOST_CGROUP = 64 * 1024
_MOST_FILES = 4096
"""The most open files of a process that are inspected."""
_GPU_FILES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/accel")
MOST_COMMAND, _MOST_OF_ANCESTOR = 4096, 256
"""The most bytes of a command line that are read, of a process and of an ancestor: it may have megabytes of
arguments, which nobody reads here. The ancestors are repeated in JSON for each of a thousand workers."""


@frozen
class Owner:
    """The system's facts about one pid; `note` explains their absence; `started` is in epoch seconds.

    `ticks` is the start of the process in clock ticks since the boot, None where none was visible. With
    `ticks` here, nothing more is kept of a process: other users may start thousands, and psutil's object
    alone takes 1 KiB.
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
        """Return the process as the driver lists it, with this owner. Faster than `replace`."""
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


@frozen
class HostUse:
    """A process's use of the machine: percent of one CPU since the last look, bytes of RAM."""

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
        """The processes whose use was read last: their start, and psutil's object, which
        keeps the CPU time for comparison."""
        self._lines: dict[tuple[Any, str | None], tuple[tuple[Ancestor, ...], bool]] = {}
        """A process (psutil's object) and its ancestors, cached because a thousand workers
        have one parent; and whether all command lines among them were read in time."""
        self._timed = TimedReader()
        self._unread: set[int] = set()
        """The processes whose command line, or an ancestor's, was not read in time."""

    def owner(self, pid: int) -> Owner:
        """Return the owner of `pid` now; a pid that now belongs to another process is looked up again."""
        if pid in self._unread or not self.lives(pid):
            self._unread.discard(pid)
            self._known[pid] = self._look_up(pid)
        return self.last(pid)

    def last(self, pid: int) -> Owner:
        """Return the last answer of `owner`, without a look at the system; a new pid has no facts."""
        return self._known.get(pid, _NOT_LOOKED_UP)

    def still(self, pid: int) -> Owner:
        """Return the same, as long as the pid has not been given to another process since."""
        known = self._known.get(pid, _NOT_LOOKED_UP)
        return _NOT_LOOKED_UP if known.ticks is not None and not self.lives(pid) else known

    def lives(self, pid: int) -> bool:
        """Return whether the process of the last answer of `owner` is known to be alive, by its start."""
        ticks = self._known.get(pid, _NOT_LOOKED_UP).ticks
        return ticks is not None and ticks == _start(pid)

    def uses(self, pids: Collection[int]) -> dict[int, HostUse]:
        """Return the use of processes that have been looked up; a process that was not, or is gone, has no
        facts.

        CPU time is the difference to the last call, so it is unknown for a process that was not among `pids`
        then.
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
        try:
            if not (self._host_pids or _opens_gpu(pid)):
                return _FOREIGN
        except OSError:
            return Owner(note=OWNER_UNKNOWN) if exists(pid) else _FOREIGN
        # Read the start before all else: it reveals later whether the pid was given to
        # another process meanwhile.
        ticks = _start(pid)
        # psutil takes 20 ms to import, and an idle box never needs it.
        psutil = process_library()

        try:
            return self._look(psutil.Process(pid), ticks)
        except psutil.NoSuchProcess:
            return Owner(note=OWNER_UNKNOWN if exists(pid) else ENDED)

    def forget_all_but(self, pids: set[int]) -> None:
        """End a reading: drop the facts about processes that no device runs any more."""
        for pid in self._known.keys() - pids:
            del self._known[pid]
        self._unread &= pids
        self._timed.end_reading()
        # Parents change, so they are cached for one reading only.
        self._lines.clear()

    def _look(self, process: Any, ticks: int | None) -> Owner:
        psutil = process_library()

        facts: dict[str, Any] = {}
        for name, ask in (
            ("user", process.username),
            ("command", lambda: self._command(process, facts["user"])),
            ("started", process.create_time),
        ):
            try:
                # A thousand workers have one user, and often one command: each text is kept once.
                facts[name] = sys.intern(found) if isinstance(found := ask(), str) else found
            except TimeoutError:
                facts[name] = name_of(process.pid)
                self._unread.add(process.pid)
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
            self._lines[parent, user] = self._line(parent, user)
        line, complete = self._lines[parent, user]
        if not complete:
            self._unread.add(process.pid)
        return line

    def _line(self, process: Any, user: str | None) -> tuple[tuple[Ancestor, ...], bool]:
        """Return a process and its ancestors, up to the first process of another user (sshd, init); and
        whether all their command lines were read in time."""
        psutil = process_library()

        found: list[Ancestor] = []
        complete = True
        with contextlib.suppress(psutil.Error):
            # The ancestors up to an error are right; the rest has ended, or is not visible.
            while process is not None and len(found) < _MOST_ANCESTORS:
                if user is None or process.username() != user or process.pid == 1:
                    break
                try:
                    command = self._command(process, user, _MOST_OF_ANCESTOR)
                except TimeoutError:
                    command, complete = name_of(process.pid) or "", False
                found.append(Ancestor(process.pid, command))
                process = process.parent()
        return tuple(found), complete

    def _command(self, process: Any, user: str | None, most: int = MOST_COMMAND) -> str:
        """Return the command line of a user's process as one text, truncated if long; without one, its name.

        Raise psutil.Error, and TimeoutError where another user's is not read in time.
        """
        pid = process.pid
        try:
            if user == own_name():
                data = _command(pid, most)
            else:
                data = self._timed.read((pid, _start(pid), most), lambda: _command(pid, most))
        except TimeoutError:
            raise
        except OSError:
            # The process has ended, or this is not Linux: psutil knows which.
            return " ".join(process.cmdline())[:most] or str(process.name())
        if not data:
            # A kernel thread, or a zombie. psutil's name is not used, because it may read the whole command
            # line again, and the owner of the process can have made that gigabytes long meanwhile.
            return name_of(pid) or ""
        cut = len(data) > most
        # A character that is cut in two is left out.
        text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(data[:most], final=not cut)
        # Some programs overwrite their arguments, and end them with many zeros.
        return text.rstrip("\0").replace("\0", " ") + (" …" if cut else "")


def _start(pid: int) -> int | None:
    """Return the start of the process that has this pid, in clock ticks; None where none is visible."""
    stat = process_stat(pid)
    return None if stat is None else stat.ticks


def _command(pid: int, most: int) -> bytes:
    """Return a little more than the first `most` bytes of a command line. Raise OSError."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read(most + 1)


def _container(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return container(file.read(_MOST_CGROUP))
    except OSError:
        return None


def _opens_gpu(pid: int) -> bool:
    """Return whether a process of this pid namespace has a GPU open. Raise OSError.

    NVIDIA's driver knows pid namespaces since 535.113 (os_find_ns_pid): it lists the pids of ours, and none
    outside it. Of an older driver, a pid of the host can be that of any process here, but hardly that of a
    process that uses a GPU as well.
    """
    with os.scandir(f"/proc/{pid}/fd") as entries:
        files = (os.readlink(each) for each in islice(entries, _MOST_FILES))  # noqa: PTH115
        return any(file.startswith(_GPU_FILES) for file in files)
