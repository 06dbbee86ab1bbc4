"""`python -m bench.crowd` (in tests/): the load that others put on a box, and its cost for the screen.

It measures the time from key to paint, the CPU time of each key (with the readings that come meanwhile) and
resident memory, and those of an empty box, in alternating runs: the speed of a shared machine varies from
moment to moment, and then only CPU time shows the cost of a key. The processes are alive, and the simulated
driver lists them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.report import tool
from bench.screen import SIZE, let_run
from e2e.terminal import Terminal
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Task
from simnvml import SimulatedNvml

KEYS, ROUNDS, SETTLES = 60, 2, 12.0
"""Key presses of a run, pairs of runs, and seconds before the presses begin: by then everything that is read
rarely has been read."""
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
def claim_files(claims: Path, users: int, each: int, own: bool) -> Iterator[list[int]]:
    """`each` records of each of these users, in folders of their own, or all in the folder of format 1."""
    first = 200_000
    for uid in range(first, first + users):
        place = claims / f"gputui-claims.2.{uid:016x}" if own else claims
        place.mkdir(0o755, exist_ok=True)
        for _ in range(each):
            token = secrets.token_hex(16)
            path = place / f"GPU-{token[:8]}-aaaa-bbbb-cccc-{token[:12]}@{uid}.{token}.claim"
            path.touch(0o644)
            # gputui would remove dead records of the calling user.
            with contextlib.suppress(PermissionError):
                os.chown(path, uid, uid)
        if own:
            with contextlib.suppress(PermissionError):
                os.chown(place, uid, uid)
    yield []


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


def situations() -> Iterator[tuple[str, Prepare, bool]]:
    """The load of each situation, the function that makes it, and whether the log of a job is open."""
    yield "5,000 processes", lambda claims, environ: sleeping(5000), False
    yield "4 processes with 1.8 MB of arguments", lambda claims, environ: with_arguments(4), False
    yield "30 processes with 1.8 MB of arguments", lambda claims, environ: with_arguments(30), False
    yield "20,000 claim files", lambda claims, environ: claim_files(claims, 1, 20_000, own=False), False
    yield "117 users' claim files", lambda claims, environ: claim_files(claims, 117, 512, own=True), False
    yield "lines of 1 MiB in a log", lambda claims, environ: job_that_writes(environ, 2**20), True


class Measured(NamedTuple):
    """Seconds from each key to its paint, seconds of CPU for each key, and resident MiB at the end."""

    taken: list[float]
    cpu: float
    memory: float


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
            let_run(terminal, SETTLES if not log else 3.0)
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
    return Measured(taken, cpu, memory)


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
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The load is removed then.
        signal.signal(number, _end)
    for what, put, log in situations():
        if wanted and not any(word in what for word in wanted):
            continue
        plain: Prepare = (
            (lambda claims, environ: job_that_writes(environ, 60))
            if log
            else (lambda claims, environ: sleeping(0))
        )
        runs: dict[bool, list[Measured]] = {True: [], False: []}
        for turn in range(ROUNDS):
            for crowded in (False, True) if turn % 2 else (True, False):
                with tempfile.TemporaryDirectory() as folder:
                    runs[crowded].append(measured(Path(folder), put if crowded else plain, log))
        cells = {crowded: _in_words(each) for crowded, each in runs.items()}
        grown = statistics.median(run.memory for run in runs[True]) - statistics.median(
            run.memory for run in runs[False]
        )
        print(
            f"{what}: key to paint (median, 99 %) and CPU {cells[True]}; empty box {cells[False]};"
            f" memory {grown:+.1f} MiB",
            flush=True,
        )


def _in_words(runs: list[Measured]) -> str:
    found = sorted(each for run in runs for each in run.taken)
    worst = found[int(len(found) * 0.99) - 1]
    cpu = statistics.median(run.cpu for run in runs)
    return f"{statistics.median(found) * 1000:.0f}, {worst * 1000:.0f} ms, {cpu * 1000:.0f} ms"


if __name__ == "__main__":
    main()
