"""One line of the table."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def row(what: str, ours: str, peer: str = "", budget: str = "") -> str:
    """A measurement: ours, a peer's, and what was promised."""
    return f"{what:<52}{ours:>12}{peer:>22}   {budget}"


def cpu_seconds(pid: int) -> float:
    """The processor's time that the threads of a process have had. (cpu_times counts in steps of 10 ms; a
    thread that has ended is not counted.)"""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def tool(name: str) -> str | None:
    """A program that is installed beside this interpreter or on the PATH, None when it is not."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
