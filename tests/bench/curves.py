"""The screen's cost for more devices and processes, next to nvitop's: `python -m bench --curves`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

from bench.report import tool
from bench.screen import counted, let_run, running
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box, Gpu, Task, uniform
from simnvml import SimulatedNvml

DEVICES = (1, 8, 16, 72)
PROCESSES = (10, 200, 2000)
_WARM_UP = 4.0
"""Seconds before CPU is counted: the first readings import what they need."""


def rows(driver: SimulatedNvml, seconds: float) -> Iterator[str]:
    """A line for each number of devices and processes; each screen is watched for this number of seconds."""
    columns = ("first picture", "CPU", "resident", "calls a GPU and second")
    yield f"{'devices':>8}{'processes':>10}  " + "".join(f"{name:>24}" for name in columns)
    programs = [path for path in map(tool, ("gputui", "nvitop")) if path]
    for processes in PROCESSES:
        with _sleepers(processes) as pids:
            for devices in DEVICES:
                driver.show_box(_box(devices, pids))
                found = [_cost(driver, program, devices, seconds) for program in programs]
                cells = zip(*found, strict=True)
                yield f"{devices:>8}{processes:>10}  " + "".join(f"{' / '.join(c):>24}" for c in cells)


def _box(devices: int, pids: list[int]) -> Box:
    """This number of H100, with the processes on all but the last; a single device has all processes."""
    model = BOXES["dgx-h100"].gpus[0]
    gpus = tuple(_gpu(model, place) for place in range(devices))
    busy = max(1, devices - 1)
    tasks = tuple(
        Task(
            devices=(str(place % busy),),
            user="ana",
            command="python train.py",
            pid=pid,
            memory=60_000 * busy // len(pids),
            load=min(60, 60 * busy // len(pids) + 1),
        )
        for place, pid in enumerate(pids)
    )
    return replace(
        BOXES["dgx-h100"],
        name=f"{devices}",
        gpus=gpus,
        links=uniform(devices, "NV18"),
        pcie=None,
        tasks=tasks,
        nics=(),
        nic_links=(),
    )


def _gpu(model: Gpu, place: int) -> Gpu:
    return replace(model, bus=f"{place + 1:02X}:00.0", numa=place * 2 // 73)


@contextlib.contextmanager
def _sleepers(number: int) -> Iterator[list[int]]:
    """Living processes, so that there is an owner and a command to look up."""
    pids = []
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        pids.append(pid)
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def _cost(driver: SimulatedNvml, program: str, devices: int, seconds: float) -> tuple[str, ...]:
    """Milliseconds to the first useful frame, CPU in percent of a core, MiB, calls per GPU and second."""
    with running(driver, [program]) as (terminal, began):
        terminal.until("79.6", patience=60)
        first = time.perf_counter() - began
        let_run(terminal, _WARM_UP)
        cpu, resident, calls = counted(driver, terminal, devices, seconds)
        return (
            f"{first * 1000:.0f} ms",
            f"{cpu:.1f} %",
            f"{resident:.0f} MiB",
            f"{calls:.1f}",
        )
