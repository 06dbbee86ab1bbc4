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
    process = _process(pid)
    if process is None or os.fork():
        # Our starter has waited for us: the pid is still that of the command.
        os._exit(0)
    command = {pid: process[1]}
    if _end_within(seconds, command):
        return
    # The command itself comes first: it must not take the end of a child for the end of its work.
    command |= _family({pid})
    # A process that is suspended cannot act on a signal.
    _send(command, signal.SIGTERM, signal.SIGCONT)
    if not _end_within(GRACE, command, 0.1):
        _send(_family(_running(command)), signal.SIGKILL)


def _end_within(seconds: float, processes: dict[int, str], pause: float = 1.0) -> bool:
    """Wait until all of the processes have ended; False where one runs longer. The end of a single one wakes
    us (Linux 5.3); else we look after each pause."""
    limit, watched = time.monotonic() + seconds, list[int]()
    if len(processes) == 1:
        with contextlib.suppress(AttributeError, OSError):
            watched, pause = [os.pidfd_open(*processes)], 3600.0
    while _running(processes) and (left := limit - time.monotonic()) > 0:
        select.select(watched, [], [], min(left, pause))
    return not _running(processes)


def _running(processes: dict[int, str]) -> set[int]:
    """Those that still run; another process may have the pid of one by now."""
    return {pid for pid, began in processes.items() if (now := _process(pid)) and now[1] == began}


def _process(pid: int) -> tuple[int, str] | None:
    """The parent and the start of a process that runs (proc(5)); None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would be a megabyte
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in b"ZX" else (int(fields[1]), fields[19].decode())


def _family(pids: set[int]) -> dict[int, str]:
    """Those of the processes that run, and their descendants, with their starts."""
    names = filter(str.isdigit, os.listdir("/proc"))  # noqa: PTH208
    running = {int(name): process for name in names if (process := _process(int(name)))}
    found = pids & running.keys()
    while more := {pid for pid, (parent, _) in running.items() if parent in found} - found:
        found |= more
    return {pid: running[pid][1] for pid in found}


def _send(processes: dict[int, str], *numbers: int) -> None:
    for pid in processes:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


if __name__ == "__main__":
    main()
