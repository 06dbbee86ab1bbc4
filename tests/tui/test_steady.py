"""The facts about a living process stay on the screen, whatever a reading lacks."""

from __future__ import annotations

import getpass
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from gputui.choosing.rules import Rules
from gputui.inventory.process import Process
from gputui.sources import sampler
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import Want
from gputui.system.processes import ProcessTable
from gputui.tui.screens.process_list import ProcessListPage
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from tui.support import Session, session
from unit.builders import GIB, box, busy, gpu, job

FRAMES = 30
LISTS_EVERY = 0.5
"""Seconds between two readings of the process lists, instead of 10: a frame takes less than 1 s here."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    owners, sensors = Want.PROCESSES | Want.OWNERS, Want.SENSORS
    monkeypatch.setattr(sampler, "_PACES", ((owners, LISTS_EVERY), (sensors, LISTS_EVERY)))


@pytest.fixture
def living(nvml_here: SimulatedNvml) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with one process of ours on GPU 0 that lives as long as the test."""
    with subprocess.Popen(["sleep", "1000"]) as child:
        idle = at(BOXES["idle"], 0, time.time())
        first = replace(
            idle.devices[0], memory_used=2**34, processes=(Process(child.pid, "compute", memory=2**34),)
        )
        nvml_here.show(replace(idle, devices=(first, *idle.devices[1:])))
        yield child
        child.kill()


async def frames(s: Session) -> AsyncIterator[int]:
    """Number painted readings: at least thirty, over at least two intervals of the process lists."""
    began, number = time.monotonic(), 0
    while number < FRAMES or time.monotonic() - began < 2 * LISTS_EVERY:
        before = s.main.app_state.snapshot
        await s.until(lambda before=before: s.main.app_state.snapshot is not before)
        number += 1
        yield number


@pytest.mark.thorough
@pytest.mark.usefixtures("living")
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_the_owner_of_a_living_process_stays_for_thirty_frames(size: tuple[int, int]) -> None:
    async with session(source=NvmlSource(ProcessTable(host_pids=True)), size=size, interval=0.02) as s:
        await s.until(lambda: "● you sleep" in s.texts("#table")[1])
        async for number in frames(s):
            assert "● you sleep" in s.texts("#table")[1], f"frame {number}"
            panels = s.texts("#lists") + s.texts("#history")
            (row,) = [text for text in panels if "sleep 1000" in text]
            assert " you " in row and "16.0G" in row, f"frame {number}"


@pytest.mark.parametrize(
    "page", ["p", *(pytest.param(page, marks=pytest.mark.thorough) for page in ("@people", "right"))]
)
async def test_a_page_with_processes_keeps_what_it_knows(living: subprocess.Popen[bytes], page: str) -> None:
    async with session(source=NvmlSource(ProcessTable(host_pids=True)), interval=0.02) as s:
        await s.until(lambda: "● you sleep" in s.texts("#table")[1])
        await s.press(page)
        screen = s.app.screen
        assert isinstance(screen, ProcessListPage)
        async for number in frames(s):
            screen.draw()
            # The head of the device page has the pid, too.
            (row,) = [text for text in screen.body.texts if str(living.pid) in text and "(pid" not in text]
            assert "sleep" in row and "16.0G" in row and "?" not in row, f"frame {number}"
            assert any(" you " in text for text in screen.body.texts), f"frame {number}"


@pytest.mark.thorough
@pytest.mark.usefixtures("living")
async def test_users_who_do_not_count_never_count_for_a_moment() -> None:
    rules = Rules(ignore=frozenset((getpass.getuser(),)))
    source = NvmlSource(ProcessTable(host_pids=True))
    async with session(source=source, interval=0.02, rules=rules) as s:
        async for number in frames(s):
            key = s.main.app_state.snapshot.devices[0].key  # type: ignore[union-attr]
            assert s.main.app_state.verdicts[key].state == "free", f"frame {number}"


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(130, 40), (160, 50), (200, 60)])
async def test_no_panel_moves_when_something_starts_on_a_free_device(size: tuple[int, int]) -> None:
    devices = [gpu(number) for number in range(8)]
    async with session(box(*devices), size=size, interval=0.02) as s:
        places = rules(s)
        assert {"processes", "timelines"} <= places.keys()
        for number, device in enumerate(devices):
            # One device is in use by a process that nobody sees.
            process = job(100 + number, user="mira", command=f"python train{number}.py")
            devices[number] = replace(device, memory_used=GIB) if number == 5 else busy(device, process)
            s.source.snapshot = after = box(*devices)
            await s.until(lambda after=after: s.main.app_state.snapshot is after)
            await s.settle()
            assert (number == 5 or f"train{number}.py" in shown(s)) and rules(s) == places


async def test_many_free_devices_leave_room_for_the_panel_of_one() -> None:
    async with session(box(*(gpu(number) for number in range(72))), size=(160, 40)) as s:
        assert {"processes", "GPU"} <= rules(s).keys()


def shown(s: Session) -> str:
    """The text of all panels."""
    return "\n".join(text for name in ("lists", "history") for text in s.texts(f"#{name}"))


def rules(s: Session) -> dict[str, tuple[str, int]]:
    """The panel column and the line of each panel's rule."""
    found = {}
    for name in ("lists", "history"):
        for line, text in enumerate(s.texts(f"#{name}")):
            if text.startswith(" ─ "):
                found[text.split()[1]] = (name, line)
    return found
