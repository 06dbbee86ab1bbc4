"""The running screen next to nvitop: first picture, CPU, memory, NVML calls, bytes, slow drivers."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psutil

from bench.report import cpu_seconds, row, tool
from e2e.terminal import Terminal
from gputui.sources.sampler import UNFOCUSED_EVERY
from simnvml import SimulatedNvml
from working_box import at_work

SIZE = (160, 50)
WORKING_SIZE = (130, 40)
KEYS = 60
SLOW = 200_000
"""Microseconds that each call takes while keys are measured."""


def rows(driver: SimulatedNvml, watch: float) -> Iterator[str]:
    """All measurements of screens; each is watched for `watch` seconds."""
    ours = tool("gputui") or ""
    peer = tool("nvitop")
    mine_first = first_picture(driver, [ours], lambda t: "○ free" in t.text)
    theirs_first = first_picture(driver, [peer], lambda t: "79.65GiB" in t.text) if peer else None
    yield row(
        "screen: exec to device table",
        f"{mine_first * 1000:.0f} ms",
        f"nvitop {theirs_first * 1000:.0f} ms" if theirs_first else "nvitop not installed",
        "at most 250 ms",
    )
    mine = watched(driver, [ours], "○ free", watch)
    theirs = watched(driver, [peer], "79.65GiB", watch) if peer else None
    for place, (what, unit, budget) in enumerate(
        (
            ("screen at 1 Hz: CPU", " %", "at most 0.5 × nvitop's"),
            ("screen at 1 Hz: resident", " MiB", "at most 45 MiB"),
            ("screen at 1 Hz: NVML calls a GPU and second", "", "at most 5"),
        )
    ):
        other = f"nvitop {theirs[place]:.2f}{unit}" if theirs else ""
        yield row(what, f"{mine[place]:.2f}{unit}", other, budget)
    mine_sent, mine_used = working(driver, [ours], watch)
    theirs_sent, theirs_used = working(driver, [peer], watch) if peer else (None, None)
    yield row(
        "screen, eight devices at work: bytes a second",
        f"{mine_sent:.0f}",
        f"nvitop {theirs_sent:.0f}" if peer else "",
        "at most 1500",
    )
    yield row(
        "screen, eight devices at work: CPU",
        f"{mine_used:.2f} %",
        f"nvitop {theirs_used:.2f} %" if peer else "",
        "at most 0.5 × nvitop's",
    )
    unfocused = watched(driver, [ours], "○ free", 2 * UNFOCUSED_EVERY, prepare=_look_away)
    yield row("screen, unfocused: CPU", f"{unfocused[0]:.2f} %", "", "at most 0.2 %")
    for delay in (0, SLOW):
        taken = sorted(key_to_paint(driver, [ours], delay))
        what = "key to paint" + (", every NVML call takes 200 ms" if delay else "")
        worst = taken[int(len(taken) * 0.99) - 1] * 1000
        yield row(
            f"{what}: median, 99 %",
            f"{statistics.median(taken) * 1000:.0f}, {worst:.0f} ms",
            "",
            "at most 50 ms",
        )


def _look_away(terminal: Terminal) -> None:
    """Take the focus away, and wait for the end of the one-time work after the start."""
    terminal.send("\x1b[O")
    let_run(terminal, UNFOCUSED_EVERY)


def first_picture(
    driver: SimulatedNvml,
    argv: Sequence[str],
    seen: Callable[[Terminal], object],
    times: int = 5,
    environ: Mapping[str, str] | None = None,
) -> float:
    """The median time from exec to the first useful frame."""
    taken = []
    for _ in range(times):
        with running(driver, argv, environ) as (terminal, began):
            terminal.until(seen)
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def counted(
    driver: SimulatedNvml, terminal: Terminal, devices: int, seconds: float
) -> tuple[float, float, float]:
    """CPU in percent of a core, resident MiB, and NVML calls per GPU and second, from now on."""
    driver.reset_counts()
    before, began = cpu_seconds(terminal.pid), time.perf_counter()
    let_run(terminal, seconds)
    after, took = cpu_seconds(terminal.pid), time.perf_counter() - began
    calls = sum(n for name, n in driver.counts().items() if name.startswith("nvml") and "Error" not in name)
    resident = psutil.Process(terminal.pid).memory_info().rss / 2**20
    return (after - before) / took * 100, resident, calls / devices / took


def watched(
    driver: SimulatedNvml,
    argv: Sequence[str],
    seen: str,
    seconds: float,
    prepare: Callable[[Terminal], object] = lambda terminal: None,
) -> tuple[float, float, float]:
    """CPU in percent of a core, resident MiB, NVML calls per GPU and second, once the program runs evenly."""
    with running(driver, argv) as (terminal, _):
        terminal.until(seen)
        prepare(terminal)
        let_run(terminal, 3.0)
        return counted(driver, terminal, 8, seconds)


def working(driver: SimulatedNvml, argv: Sequence[str], seconds: float) -> tuple[float, float]:
    """Bytes a second to the terminal, and CPU in percent of a core, where all devices change."""
    before = driver.box.read_text()
    with at_work(driver), running(driver, argv, size=WORKING_SIZE) as (terminal, _):
        terminal.until("79.6")
        let_run(terminal, 3.0)
        sent, began = len(terminal.raw), time.perf_counter()
        used, _, _ = counted(driver, terminal, 8, seconds)
        found = (len(terminal.raw) - sent) / (time.perf_counter() - began), used
    driver.rewrite(before)
    return found


def key_to_paint(driver: SimulatedNvml, argv: Sequence[str], delay: int) -> list[float]:
    """Seconds from a key press until its choice is on the screen, of many presses."""
    taken = []
    with running(driver, argv) as (terminal, _):
        terminal.until("○ free")
        if delay:
            driver.delay("*", delay)
        for place in range(KEYS):
            chosen = place % 2 == 0
            began = time.perf_counter()
            terminal.send("4")
            terminal.until(lambda t, chosen=chosen: ("cuda:0 = GPU 4" in t.text) == chosen)
            taken.append(time.perf_counter() - began)
        driver.heal()
    return taken


def let_run(terminal: Terminal, seconds: float) -> None:
    """Read the output of the terminal for some seconds, as a terminal does."""
    until = time.monotonic() + seconds
    terminal.until(lambda t: time.monotonic() >= until, patience=seconds + 5)


@contextlib.contextmanager
def running(
    driver: SimulatedNvml,
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    size: tuple[int, int] = SIZE,
) -> Iterator[tuple[Terminal, float]]:
    environment = driver.environment(environ) | {"TERM": "xterm-256color"}
    began = time.perf_counter()
    terminal = Terminal(argv, environment, size)
    try:
        yield terminal, began
    finally:
        terminal.close()
