"""Processes from /proc: the part of psutil's interface that gputui uses to look at others' processes.

psutil takes 20 ms and 1 MiB to import, and a box to which gputui was sent over ssh may not have it.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Any, NamedTuple

from gputui.system.process_stat import ProcessStat, process_stat
from gputui.system.root import pairs
from gputui.system.users import user_name

_MOST_BYTES = 1 << 16
"""The most bytes of a file that are read; so much memory is reserved for each read."""


class Error(Exception):
    """A process cannot be read."""


class NoSuchProcess(Error):
    """The process has ended."""


class AccessDenied(Error):
    """The process is not visible to our user."""


class ZombieProcess(NoSuchProcess):
    """The process has ended, and its parent has not waited for it."""


class _Memory(NamedTuple):
    rss: int


@lru_cache(maxsize=1)
def process_library() -> Any:
    """Return this module where the machine has /proc, else psutil."""
    if os.path.exists("/proc/self/stat"):  # noqa: PTH110 - pathlib alone takes milliseconds
        import gputui.system.plain_processes as plain

        return plain
    import psutil

    return psutil


class Process:
    """One process, distinguished from a later one of the same pid by its start. Raises Error,
    as psutil's does."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ticks = self._stat().ticks
        self._cpu: tuple[float, float] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and (self.pid, self._ticks) == (other.pid, other._ticks)

    def __hash__(self) -> int:
        return hash((self.pid, self._ticks))

    def username(self) -> str:
        """Return its owner, by its real uid."""
        status = pairs(self._read("status").decode(errors="replace"))
        return user_name(int(status["Uid"].split()[0]))

    def create_time(self) -> float:
        """Return its start in seconds since the epoch."""
        return _booted() + self._ticks / os.sysconf("SC_CLK_TCK")

    def parent(self) -> Process | None:
        """Return the process that started it, or has adopted it."""
        parent = self._stat().parent
        return Process(parent) if parent > 0 else None

    def cmdline(self) -> list[str]:
        """Return its words."""
        return os.fsdecode(self._read("cmdline")).split("\0")

    def name(self) -> str:
        """Return the kernel's name for it, at most 15 characters."""
        return os.fsdecode(self._read("comm")).rstrip("\n")

    def cpu_percent(self, _: None) -> float:
        """Return percent of one CPU since the previous call; 0 at the first call."""
        fields = self._read("stat").rpartition(b")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        now, before = time.monotonic(), self._cpu
        self._cpu = now, used
        if before is None or now <= before[0]:
            return 0.0
        return round(100 * (used - before[1]) / (now - before[0]), 1)

    def memory_info(self) -> _Memory:
        """Return its bytes of RAM."""
        return _Memory(int(self._read("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    def _stat(self) -> ProcessStat:
        stat = process_stat(self.pid)
        if stat is None:
            raise NoSuchProcess(self.pid)
        return stat

    def _read(self, name: str) -> bytes:
        try:
            with open(f"/proc/{self.pid}/{name}", "rb") as file:  # noqa: PTH123
                return file.read(_MOST_BYTES)
        except PermissionError as error:
            raise AccessDenied(self.pid) from error
        except OSError as error:
            raise NoSuchProcess(self.pid) from error


@lru_cache(maxsize=1)
def _booted() -> float:
    """Return when the system was started, in seconds since the epoch."""
    with open("/proc/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return float(pairs(file.read(), " ")["btime"])
