"""How busy this machine is: its CPUs, its load average and its memory, from /proc (proc(5))."""

from __future__ import annotations

import os

from gputui.inventory.snapshot import HostLoad

_IDLE = (3, 4)
"""Fields of the line "cpu" of /proc/stat that are no work: idle, and waiting for a disk."""


class HostLoadReader:
    """Reads the load; CPU percent is since the reading before, None at the first."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._before: tuple[int, int] | None = None

    def read(self) -> HostLoad:
        total, available = self._memory()
        return HostLoad(
            cpu=self._cpu(),
            load=_load_average(),
            cpus=os.cpu_count(),
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
        with open(f"{self._proc}/{name}", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            return file.read()


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
