from __future__ import annotations

import shutil
import sys
from pathlib import Path


def row(what: str, ours: str, peer: str = "", budget: str = "") -> str:
    """A measurement of gputui, that of a peer, and the budget."""
    return f"{what:<52}{ours:>12}{peer:>22}   {budget}"


def cpu_seconds(pid: int) -> float:
    """The CPU seconds that the living threads of a process have used. cpu_times counts in steps of 10 ms."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def tool(name: str) -> str | None:
    """A program that is installed next to this interpreter or on the PATH, else None."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
