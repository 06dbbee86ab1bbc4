"""End a command at its time limit, where no supervisor watches it: gputui has become the command.

    python -I -S time_limit.py PID SECONDS

The program ends with the command. It is not a child of the command, which would have to reap it, and it
imports nothing of gputui, because it lives as long as the command.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from types import ModuleType

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL, as `supervise.py` has them."""


def start(pid: int, seconds: float) -> None:
    """Have the process and its descendants ended after so many seconds."""
    import subprocess

    words = [sys.executable, "-I", "-S", __file__, str(pid), str(seconds)]
    # It keeps neither our terminal nor the lease on the devices.
    null = subprocess.DEVNULL
    subprocess.run(words, stdin=null, stdout=null, stderr=null, start_new_session=True, check=False)


def main() -> None:
    pid, seconds = int(sys.argv[1]), float(sys.argv[2])
    read = _loaded(f"{os.path.dirname(__file__)}/process_stat.py")  # noqa: PTH120 - pathlib would be a megabyte
    process = read.process_stat(pid)
    if process is None or not process.runs or os.fork():
        # Our starter has waited for us: the pid is still that of the command.
        os._exit(0)
    command = {pid: process.ticks}
    if _end_within(seconds, command, read):
        return
    # The command itself comes first: it must not take the end of a child for the end of its work.
    command |= {each: stat.ticks for each, stat in read.family({pid}).items()}
    # A process that is suspended cannot act on a signal.
    _send(command, signal.SIGTERM, signal.SIGCONT)
    if not _end_within(GRACE, command, read, 0.1):
        _send(read.family(_running(command, read)), signal.SIGKILL)


def _loaded(file: str) -> ModuleType:
    """The module in a file that imports nothing of gputui."""
    with open(file, "rb") as opened:  # noqa: PTH123
        code = compile(opened.read(), file, "exec")
    module = ModuleType("loaded")
    exec(code, module.__dict__)
    return module


def _end_within(seconds: float, processes: dict[int, int], read: ModuleType, pause: float = 1.0) -> bool:
    """Wait until all of the processes have ended; False where one runs longer. The end of a single one wakes
    us (Linux 5.3); else we look after each pause."""
    limit, watched = time.monotonic() + seconds, list[int]()
    if len(processes) == 1:
        with contextlib.suppress(AttributeError, OSError):
            watched, pause = [os.pidfd_open(*processes)], 3600.0
    while _running(processes, read) and (left := limit - time.monotonic()) > 0:
        select.select(watched, [], [], min(left, pause))
    return not _running(processes, read)


def _running(processes: dict[int, int], read: ModuleType) -> set[int]:
    """Those that still run; another process may have the pid of one by now."""
    now = ((pid, began, read.process_stat(pid)) for pid, began in processes.items())
    return {pid for pid, began, stat in now if stat and stat.runs and stat.ticks == began}


def _send(processes: Iterable[int], *numbers: int) -> None:
    for pid in processes:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


if __name__ == "__main__":
    main()
