"""What is known of a living process stays on the screen, whatever a reading brought of it."""

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
from gputui.tui.screens.processes import ProcessesScreen
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from tui.support import Session, session

FRAMES = 30
LISTS_EVERY = 0.5
"""Seconds between two readings of the process lists, in place of two, as a frame here takes no second."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    owners, sensors = Want.PROCESSES | Want.OWNERS, Want.SENSORS
    monkeypatch.setattr(sampler, "_PACES", ((owners, LISTS_EVERY), (sensors, LISTS_EVERY)))


@pytest.fixture
def living(nvml_here: SimulatedNvml) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with one process of ours on GPU 0 that lives as long as the test."""
    with subprocess.Popen(["sleep", "1000"]) as child:
        box = at(BOXES["idle"], 0, time.time())
        gpu = replace(
            box.devices[0], memory_used=2**34, processes=(Process(child.pid, "compute", memory=2**34),)
        )
        nvml_here.show(replace(box, devices=(gpu, *box.devices[1:])))
        yield child
        child.kill()


async def frames(s: Session) -> AsyncIterator[int]:
    """Thirty painted readings at least, and as many as lie between three readings of the process lists."""
    began, number = time.monotonic(), 0
    while number < FRAMES or time.monotonic() - began < 2 * LISTS_EVERY:
        before = s.main.app_state.snapshot
        await s.until(lambda before=before: s.main.app_state.snapshot is not before)
        number += 1
        yield number


@pytest.mark.usefixtures("living")
@pytest.mark.parametrize("size", [(80, 24), (130, 40), (200, 60)])
async def test_the_owner_of_a_living_process_stays_for_thirty_frames(size: tuple[int, int]) -> None:
    async with session(source=NvmlSource(ProcessTable(host_pids=True)), size=size, interval=0.02) as s:
        await s.until(lambda: "● you sleep" in s.texts("#table")[1])
        async for number in frames(s):
            assert "● you sleep" in s.texts("#table")[1], f"frame {number}"
            (row,) = [text for text in s.texts("#lists") if "sleep 1000" in text]
            assert " you " in row and "16.0G" in row, f"frame {number}"


async def test_the_list_of_processes_keeps_what_it_knows(living: subprocess.Popen[bytes]) -> None:
    async with session(source=NvmlSource(ProcessTable(host_pids=True)), interval=0.02) as s:
        await s.until(lambda: "● you sleep" in s.texts("#table")[1])
        await s.press("p")
        screen = s.app.screen
        assert isinstance(screen, ProcessesScreen)
        async for number in frames(s):
            screen.draw()
            (row,) = [text for text in screen.body.texts if str(living.pid) in text]
            assert " you " in row and "?" not in row, f"frame {number}"


@pytest.mark.usefixtures("living")
async def test_users_who_do_not_count_never_count_for_a_moment() -> None:
    rules = Rules(ignore=frozenset((getpass.getuser(),)))
    source = NvmlSource(ProcessTable(host_pids=True))
    async with session(source=source, interval=0.02, rules=rules) as s:
        async for number in frames(s):
            key = s.main.app_state.snapshot.devices[0].key  # type: ignore[union-attr]
            assert s.main.app_state.verdicts[key].state == "free", f"frame {number}"
