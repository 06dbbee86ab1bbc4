"""The processes that hold the lock of a file (record_locks.py), according to /proc; and ancestors of a
process.

A lock belongs to the open file, which all processes share that have inherited a descriptor of it. The kernel
lists it with each of these descriptors (`lock:` in /proc/PID/fdinfo/N, since Linux 4.1), and with no other
descriptor of the same file: a process that has merely opened the file shows no lock. Without /proc, or
without permission to see a process, no lock is known.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import islice, takewhile

from gputui.system.namespaces import in_initial_namespace
from gputui.system.process_stat import owner_of, pids, process_stat

File = tuple[int, int]
"""A file by device and inode."""


def file_of(facts: os.stat_result) -> File:
    """Return the file to which these facts belong."""
    return facts.st_dev, facts.st_ino


_MOST_ANCESTORS = 256
_MOST_FILES = 512
"""The most open files of a process that are looked at, the first by number: those of leases are little above
100 (descriptors.py), and a process of another user may have a million."""
_MOST_IN_ALL, _MOST_SECONDS = 20_000, 0.1
"""The most open files of all processes that one look reads, and the most seconds of CPU that it takes:
another user may have thousands of processes with hundreds of open files each."""


class Look:
    """The limit of one look at many processes: `spent` once it is reached, and then no more files are read.

    Whatever was not found by then is not known. `of_one` is `opened`; a test gives another.
    """

    def __init__(self, of_one: Callable[[int], Iterable[tuple[str, str]]] | None = None) -> None:
        self._of_one = of_one or opened
        self._left, self._until = _MOST_IN_ALL, time.thread_time() + _MOST_SECONDS

    @property
    def spent(self) -> bool:
        return self._left <= 0 or time.thread_time() > self._until

    def opened(self, pid: int) -> Iterator[tuple[str, str]]:
        """Yield what `opened` does, as far as the limit."""
        for each in self._of_one(pid):
            if self.spent:
                return
            self._left -= 1
            yield each


def locked_by(
    pid: int, files: Mapping[File, str], passed_on: bool = False, look: Look | None = None
) -> frozenset[File]:
    """Return those of the files (with their paths) on which a process has an exclusive lock.

    `passed_on`: only those whose descriptors are inherited by the programs that it starts.
    """
    names = {path.rpartition("/")[2] for path in files.values()}
    found: set[File] = set()
    for number, path in look.opened(pid) if look else opened(pid):
        if path.rpartition("/")[2] in names:
            with contextlib.suppress(OSError):
                file = file_of(os.stat(f"/proc/{pid}/fd/{number}"))  # noqa: PTH116
                if file in files and _has_lock(f"/proc/{pid}/fdinfo/{number}", passed_on):
                    found.add(file)
    return frozenset(found)


def opened(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the numbers and paths of the files that a process of our own user has open (root: of any user).

    Only the path is read: opening a file on a dead file server would hang.
    """
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in islice(entries, _MOST_FILES):
            with contextlib.suppress(OSError):
                yield entry.name, os.readlink(entry.path)  # noqa: PTH115 - hundreds of them


def _has_lock(path: str, passed_on: bool) -> bool:
    with open(path, "rb") as stream:  # noqa: PTH123
        lines = stream.read().splitlines()
    flags = next((int(line.split()[1], 8) for line in lines if line.startswith(b"flags:")), 0)
    if passed_on and flags & os.O_CLOEXEC:
        return False
    return any(line.startswith(b"lock:") and b"OFDLCK" in line and b"WRITE" in line for line in lines)


def holders(files: Mapping[File, str], uids: Container[int], look: Look) -> dict[int, frozenset[File]]:
    """Return the visible processes of these users that have locked some of the files, until `look` is spent.

    Those of other users are not looked at, however many they have.
    """
    ours = (pid for pid in takewhile(lambda _: not look.spent, pids()) if owner_of(pid) in uids)
    return {pid: found for pid in ours if (found := locked_by(pid, files, look=look))}


def ancestors() -> Iterator[int]:
    """Yield the parent of this process, its parent, and so on, up to the machine's first process, init.

    init is not included. In a container the first process is, because it may be the user's.
    """
    pid, last = os.getppid(), 1 if in_initial_namespace() else 0
    for _ in range(_MOST_ANCESTORS):
        if pid in (0, last):
            return
        yield pid
        stat = process_stat(pid)
        pid = stat.parent if stat else 0


def name_of(pid: int) -> str | None:
    """Return a process's own name ("tmux: server"), None where it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as stream:  # noqa: PTH123
        return stream.read().decode(errors="replace").rstrip("\n")
    return None
