"""`python -m bench.crowd [WORD…]` (in tests/): the load that others put on a box, and its cost.

It measures `pick` (CPU and wall time, the least of some calls), the time from key to paint on the screen, the
CPU time of each key (with the readings that come meanwhile) and resident memory; first and last those of an
empty box. The processes are alive, and the simulated driver lists them. WORD chooses situations; "users" are
those of the claims of 117 users with 512 files each, which take two minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.report import tool
from bench.screen import SIZE, let_run
from e2e.terminal import Terminal
from gputui.allocating.claims.folder import RECORD, TICKET
from gputui.allocating.claims.read import HELD, range_of
from gputui.allocating.queue import BEAT
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Task
from gputui.system.namespaces import pid_namespace
from gputui.system.record_locks import END, lock, unlock
from simnvml import SimulatedNvml
from unit.claims_support import record_name

KEYS, PICKS, SETTLES = 40, 7, 4.0
"""Key presses of a run, calls of `pick`, and seconds before the presses begin."""
USERS, FILES = 117, 512
"""The size of a crowd: users, and the files of each."""
SHM = "/dev/shm"
FIRST, AT_ONCE = 70_000, 30
"""The number of the first user of a crowd (containers of others have none below 100,000, subuid(5)), and the
users whose files one process holds."""
EMPTY = replace(BOXES["dgx-h100"], tasks=())
MOST = 1200
"""Seconds after which the load ends by itself, in case this program is killed."""
LONG = 1_800_000
"""Bytes of arguments: a little less than Linux accepts."""

Prepare = Callable[[Path, dict[str, str]], contextlib.AbstractContextManager[list[int]]]
"""Puts a load on the box with this folder of claims and environment; yields the pids on its first GPUs."""


@contextlib.contextmanager
def sleeping(count: int) -> Iterator[list[int]]:
    """This number of processes that do nothing."""
    begun = []
    try:
        for _ in range(count):
            begun.append(os.posix_spawn("/bin/sleep", ["sleep", str(MOST)], {}))
        yield begun
    finally:
        for pid in begun:
            os.kill(pid, signal.SIGKILL)
        for pid in begun:
            os.waitpid(pid, 0)


@contextlib.contextmanager
def with_arguments(count: int) -> Iterator[list[int]]:
    """This number of processes with long command lines."""
    begun = []
    try:
        for _ in range(count):
            words = ["sh", "-c", "read x", "sh", *["x" * 100_000] * (LONG // 100_000)]
            begun.append(subprocess.Popen(words, stdin=subprocess.PIPE))
        yield [process.pid for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def claim_files(claims: Path, count: int) -> Iterator[list[int]]:
    """This number of records of one user in the folder of format 1, which nobody holds."""
    for number in range(count):
        path = claims / record_name(f"GPU-{number}-x", FIRST)
        path.touch(0o644)
        os.chown(path, FIRST, FIRST)
    yield []


@contextlib.contextmanager
def crowd(
    claims: Path, endings: Sequence[str], alive: bool, text: bytes, devices: Callable[[int], str]
) -> Iterator[list[int]]:
    """Many users' folders, each with records or tickets or both, of this content.

    The device of a record follows from its number."""
    reading, writing = os.pipe()
    makers = []
    try:
        for first in range(FIRST, FIRST + USERS, AT_ONCE):
            makers.append(os.fork())
            if makers[-1] == 0:
                try:
                    # (Other users cannot walk to the temporary folder.)
                    os.chdir(claims)
                    users = range(first, min(first + AT_ONCE, FIRST + USERS))
                    _keep(users, endings, alive, text, writing, devices)
                finally:
                    os._exit(1)
        for _ in makers:
            os.read(reading, 1)
        yield []
    finally:
        for pid in makers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _keep(
    users: range,
    endings: Sequence[str],
    alive: bool,
    text: bytes,
    writing: int,
    devices: Callable[[int], str],
) -> None:
    """Make the files, report that on the pipe, and hold the living ones until we are killed."""
    records, tickets, now = list[int](), list[int](), int(time.monotonic())
    os.umask(0o022)
    for uid in users:
        os.seteuid(uid)
        place = f"gputui-claims.2.{uid:016x}"
        Path(place).mkdir(0o755)
        for number in range(FILES):
            key, token = devices(uid * FILES + number), f"{number:032x}"
            is_record = endings[number % len(endings)] == RECORD
            name = record_name(key, uid, 0, token) if is_record else f"wait.{uid}.{token}{TICKET}"
            file = os.open(f"{place}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
            # (Of the others nothing is read: a listing has the last ones first, or the first ones.)
            is_read = min(number, FILES - number) < 10 * FILES // USERS
            os.write(file, text if is_read else b"{}")
            if not alive:
                os.close(file)
            elif is_record:
                lock(file, range_of(key), HELD)
                records.append(file)
            else:
                lock(file, now, END - now)
                tickets.append(file)
        os.seteuid(0)
    os.write(writing, b".")
    while time.monotonic() < now + MOST:
        time.sleep(BEAT)
        for file in tickets:
            unlock(file, 0, int(time.monotonic()))


@contextlib.contextmanager
def job_that_writes(environ: dict[str, str], length: int) -> Iterator[list[int]]:
    """A job that writes lines of this many bytes to its log, four a second."""
    script = f"import time\nfor _ in range({4 * MOST}): print('x' * {length}, flush=True); time.sleep(0.25)"
    words = [tool("gputui") or "", "run", "-q", "--detach", "-n", "1", "--", sys.executable, "-c", script]
    subprocess.run(words, env=environ, check=True, stdout=subprocess.DEVNULL)
    try:
        yield []
    finally:
        subprocess.run(
            [words[0], "jobs", "stop", "--grace", "1", _only_job(environ)],
            env=environ,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _only_job(environ: dict[str, str]) -> str:
    return next(Path(environ["XDG_STATE_HOME"], "gputui", "jobs").iterdir()).name


HONEST = json.dumps({"since": 1.0, "command": "python train.py", "count": 2, "roots": [[1, 1]] * 8}).encode()
HOSTILE = b"[" + b'{"a":[1e9]},' * 1300 + b"0]"
"""Slow to read for its size, which is the most that is read."""
_ROOTS = f'"roots": {[[1, number] for number in range(64)]}, "pids": "{pid_namespace()}"'
_NAMES = json.dumps([f"{number:08}" for number in range(1024)])
LARGE = ('{"command": "' + "\U0001f600" * 3500 + f'", {_ROOTS}}}').encode()
LARGE_TICKET = ('{"command": "' + "\U0001f600" * 500 + f'", "devices": {_NAMES}}}').encode()
"""As much as is read of a record and a ticket."""


def _real(number: int) -> str:
    return EMPTY.uuid(str(number % 4))


def _made_up(number: int) -> str:
    return f"GPU-{number:080}"


def situations() -> Iterator[tuple[str, Prepare]]:
    """The load of each situation, and the function that makes it."""
    crowds = (
        ("dead records", (RECORD,), False, HONEST, _real),
        ("living records", (RECORD,), True, HONEST, _real),
        ("records that say much", (RECORD,), True, LARGE, _real),
        ("made-up devices", (RECORD,), True, HONEST, _made_up),
        ("living tickets", (TICKET,), True, HONEST, _real),
        ("tickets that say much", (TICKET,), True, LARGE_TICKET, _real),
        ("both, slow to read", (RECORD, TICKET), True, HOSTILE, _real),
    )
    for what, endings, alive, text, devices in crowds:
        made = partial(crowd, endings=endings, alive=alive, text=text, devices=devices)
        yield f"{USERS} users, {what}", lambda claims, _, made=made: made(claims)  # type: ignore[misc]
    yield "5,000 processes", lambda claims, environ: sleeping(5000)
    yield "4 processes with 1.8 MB of arguments", lambda claims, environ: with_arguments(4)
    yield "30 processes with 1.8 MB of arguments", lambda claims, environ: with_arguments(30)
    yield "20,000 claim files", lambda claims, environ: claim_files(claims, 20_000)
    yield "log with lines of 60 bytes", lambda claims, environ: job_that_writes(environ, 60)
    yield "log with lines of 1 MiB", lambda claims, environ: job_that_writes(environ, 2**20)


class Measured(NamedTuple):
    """Seconds from each key to its paint, seconds of CPU for each key, resident MiB at the end, and the
    seconds of CPU and wall time of `pick`."""

    taken: list[float]
    cpu: float
    memory: float
    pick_cpu: float
    pick: float


def measured(folder: Path, put: Prepare, log: bool) -> Measured:
    """The measurements of one run."""
    driver = SimulatedNvml(folder)
    driver.show_box(EMPTY)
    claims = folder / "claims"
    claims.mkdir(0o1777)
    claims.chmod(0o1777)
    environ = driver.environment() | {
        "TERM": "xterm-256color",
        "GPUTUI_CLAIMS": str(claims),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    with put(claims, environ) as pids:
        tasks = tuple(
            Task(devices=(str(n % 4),), pid=pid, user="", command="", memory=8, load=50)
            for n, pid in enumerate(pids)
        )
        driver.show_box(replace(EMPTY, tasks=tasks))
        terminal = Terminal([tool("gputui") or ""], environ, SIZE)
        try:
            terminal.until("○ free")
            let_run(terminal, SETTLES)
            process = psutil.Process(terminal.pid)
            if log:
                _open_log(terminal)
            before = process.cpu_times()
            taken = list(_of_log(terminal) if log else _of_selection(terminal))
            after = process.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / KEYS
            memory = process.memory_info().rss / 2**20
        finally:
            terminal.close()
        picks = [_picked(environ) for _ in range(PICKS)]
    return Measured(taken, cpu, memory, *(min(each) for each in zip(*picks, strict=True)))


def _picked(environ: dict[str, str]) -> tuple[float, float]:
    """Seconds of CPU and wall time of `pick`."""
    began = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, 1, 2)]
    pid = os.posix_spawn(tool("gputui") or "", ["gputui", "pick", "-n", "2"], environ, file_actions=quiet)
    used = os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def _of_selection(terminal: Terminal) -> Iterator[float]:
    for place in range(KEYS):
        chosen = place % 2 == 0
        began = time.perf_counter()
        terminal.send("4")
        terminal.until(lambda t, chosen=chosen: ("cuda:0 = GPU 4" in t.text) == chosen)
        yield time.perf_counter() - began
        # The keys come at different moments of a reading.
        let_run(terminal, 0.05 + 0.017 * (place % 7))


def _open_log(terminal: Terminal) -> None:
    terminal.send("D")
    let_run(terminal, 1.0)
    terminal.send("\r")
    let_run(terminal, 4.0)


def _of_log(terminal: Terminal) -> Iterator[float]:
    for _ in range(KEYS):
        for key, opens in (("?", True), ("\x1b", False)):
            before = terminal.text
            began = time.perf_counter()
            terminal.send(key)
            terminal.until(lambda t, before=before: t.text != before)
            if opens:
                yield time.perf_counter() - began
            let_run(terminal, 0.15)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    wanted = sys.argv[1:]
    with contextlib.suppress(PermissionError):
        # (As root: other work on the machine does not count.)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The load is removed then.
        signal.signal(number, _end)
    empty: tuple[str, Prepare] = "an empty box", lambda claims, environ: sleeping(0)
    chosen = (each for each in situations() if not wanted or any(word in each[0] for word in wanted))
    print(f"{'':<40} key to paint: median, 95 %, worst   CPU   MiB   pick: CPU, wall")
    for what, put in (empty, *chosen, empty):
        # (Root's base is a tmpfs, and so many files are made quickly there.)
        with tempfile.TemporaryDirectory(dir=SHM if Path(SHM).exists() else None) as folder:
            found = measured(Path(folder), put, "log" in what)
        keys = sorted(each * 1000 for each in found.taken)
        middle, most, worst = statistics.median(keys), keys[int(len(keys) * 0.95) - 1], keys[-1]
        cpu, pick_cpu, pick = (each * 1000 for each in (found.cpu, found.pick_cpu, found.pick))
        print(
            f"{what:<40} {middle:21.0f}, {most:4.0f}, {worst:4.0f} ms {cpu:2.0f} ms {found.memory:5.1f}"
            f"   {pick_cpu:4.0f}, {pick:4.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
