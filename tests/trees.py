"""Files of another machine below a folder: the common part of the writers of simulated boxes."""

from __future__ import annotations

from pathlib import Path

from gputui.inventory.process import Process

BOOTED = 1_600_000_000
_TICKS = 100


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def link(root: Path, path: str, to: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.is_symlink():
        file.symlink_to("../" * (len(Path(path).parts) - 1) + to)


def put_process(root: Path, process: Process) -> None:
    """Write the files of a process in /proc, and the boot time of the machine."""
    words = "0 " * 18 + str(round(((process.started or 0) - BOOTED) * _TICKS))
    put(root, f"proc/{process.pid}/stat", f"{process.pid} (a) b) S {words} 0 0\n")
    put(root, f"proc/{process.pid}/status", "Name:\tx\nUid:\t1042\t1042\t1042\t1042\n")
    put(root, f"proc/{process.pid}/cmdline", (process.command or "").replace(" ", "\0") + "\0")
    put(root, "proc/stat", f"cpu  1 0 1 8 0 0 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0 0 0\nbtime {BOOTED}\n")
