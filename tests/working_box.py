"""A simulated box whose eight devices work: utilization, temperature and power change with every second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box, Task
from simnvml import SimulatedNvml


def working_box(user: str = "mira") -> Box:
    """A job of this user on each device."""
    tasks = tuple(
        Task(
            devices=(str(place),),
            user=user,
            command=f"python train{place}.py",
            pid=20_000 + place,
            load=70,
            swing=25,
            memory=40_000,
        )
        for place in range(8)
    )
    return replace(BOXES["dgx-h100"], tasks=tasks)


@contextmanager
def at_work(driver: SimulatedNvml, every: float = 1.0) -> Iterator[None]:
    """The driver shows that box, which moves meanwhile."""
    box, opened, stop = working_box(), time.time(), threading.Event()

    def move() -> None:
        while not stop.wait(every):
            driver.show_box(box, time.time() - opened, opened)

    driver.show_box(box, 0.0, opened)
    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
