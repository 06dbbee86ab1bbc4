"""How busy this machine is: its CPUs, its load average and its memory, from /proc (proc(5))."""

from __future__ import annotations

import os

from gputui.inventory.snapshot import HostLoad
from gputui.system.root import HERE, Root

_IDLE = (3, 4)
"""Fields of the line "cpu" of /proc/stat that are no work: idle, and waiting for a disk."""


class HostLoadReader:
    """Reads the load; CPU percent is since the reading before, None at the first."""

    def __init__(self, root: Root = HERE) -> None:
        self._root = root
        self._before: tuple[int, int] | None = None

    def read(self) -> HostLoad:
        total, available = self._memory()
        return HostLoad(
            cpu=self._cpu(),
            load=self._load_average(),
            cpus=os.cpu_count() if self._root.here else self._cpus(),
            memory_used=None if total is None or available is None else max(0, total - available),
            memory_total=total,
        )

    def _cpu(self) -> float | None:
        try:
            # (guest time, which follows, is counted in the user's already.)
            times = [int(word) for word in self._text("stat").split("\n", 1)[0].split()[1:9]]
            now = sum(times), sum(times[place] for place in _IDLE)
        except (OSError, ValueError, IndexError):
            return None
        before, self._before = self._before, now
        if before is None or now[0] <= before[0]:
            return None
        idle = (now[1] - before[1]) / (now[0] - before[0])
        return round(min(100.0, max(0.0, 100 * (1 - idle))), 1)

    def _memory(self) -> tuple[int | None, int | None]:
        """Bytes in all, and those that programs can still get: caches are given back to them."""
        found: dict[str, int] = {}
        try:
            for line in self._text("meminfo").splitlines():
                name, _, value = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(value.split()[0]) * 1024
        except (OSError, ValueError, IndexError):
            return None, None
        return found.get("MemTotal"), found.get("MemAvailable")

    def _text(self, name: str) -> str:
        # (/proc/stat has a line for each interrupt.)
        text = self._root.text(f"/proc/{name}", 1 << 20)
        if text is None:
            raise FileNotFoundError(name)
        return text

    def _load_average(self) -> float | None:
        try:
            if self._root.here:
                return os.getloadavg()[0]
            return float(self._text("loadavg").split()[0])
        except (OSError, ValueError, IndexError, AttributeError):
            return None

    def _cpus(self) -> int | None:
        """How many CPUs a recorded machine has."""
        try:
            lines = self._text("stat").splitlines()
        except OSError:
            return None
        return sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines) or None
