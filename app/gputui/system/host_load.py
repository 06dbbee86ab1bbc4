"""The load of this machine: its CPUs, its load average and its memory, from /proc (proc(5))."""

from __future__ import annotations

import os

from gputui.inventory.snapshot import HostLoad
from gputui.system.root import HERE, Root, pairs, whole

_IDLE = (3, 4)
"""Fields of the line "cpu" of /proc/stat that are not work: idle, and waiting for a disk."""


class HostLoadReader:
    """Reads the load; CPU percent is since the previous reading, None at the first."""

    def __init__(self, root: Root = HERE) -> None:
        self._root = root
        self._before: tuple[int, int] | None = None

    def read(self) -> HostLoad:
        memory = pairs(self._root.text("/proc/meminfo"))
        # The second includes caches that programs can reclaim.
        total, available = (_bytes(memory.get(name, "")) for name in ("MemTotal", "MemAvailable"))
        stat = self._lines("stat")
        return HostLoad(
            cpu=self._cpu(stat),
            load=self._load_average(),
            cpus=os.cpu_count() if self._root.here else sum(map(_is_cpu, stat)) or None,
            memory_used=None if total is None or available is None else max(0, total - available),
            memory_total=total,
        )

    def _cpu(self, stat: list[str]) -> float | None:
        # The guest time, which follows, is already included in the user time.
        times = [whole(word) or 0 for word in " ".join(stat[:1]).split()[1:9]]
        if len(times) <= max(_IDLE):
            return None
        now = sum(times), sum(times[place] for place in _IDLE)
        before, self._before = self._before, now
        if before is None or now[0] <= before[0]:
            return None
        idle = (now[1] - before[1]) / (now[0] - before[0])
        return round(min(100.0, max(0.0, 100 * (1 - idle))), 1)

    def _lines(self, name: str) -> list[str]:
        # /proc/stat has a line for each interrupt.
        return (self._root.text(f"/proc/{name}", 1 << 20) or "").splitlines()

    def _load_average(self) -> float | None:
        try:
            return os.getloadavg()[0] if self._root.here else float(self._lines("loadavg")[0].split()[0])
        except (OSError, ValueError, IndexError):
            return None


def _bytes(text: str) -> int | None:
    """Return the bytes of "16 kB"."""
    amount = whole(text.partition(" ")[0])
    return None if amount is None else amount * 1024


def _is_cpu(line: str) -> bool:
    return line.startswith("cpu") and line[3:4].isdigit()
