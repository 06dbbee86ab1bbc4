"""A call that fails on one GPU for half a minute: the state of the GPU stays, and so do its processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gputui.choosing.verdict import Cause, State, verdicts
from gputui.inventory.device import Fault
from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import _PACES
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Task
from gputui.sources.source import Want
from gputui.system.processes import ProcessTable
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from unit.fault_matrix import DECIDING, FIRST, PLAIN, Matrix, Ticks

FRAMES = 30
LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
Child = subprocess.Popen[bytes]


class Screen:
    """A source that is read as the sampler reads it, one reading a second, with a clock of its own."""

    def __init__(self) -> None:
        self.ticks = Ticks()
        self.source = NvmlSource(ProcessTable(host_pids=True), ticks=self.ticks)
        self._frame = 0

    def read(self) -> Snapshot:
        self.ticks.now += 1
        want = PLAIN | Want.DETAILS
        for part, every in _PACES:
            want |= part if self._frame % every == 1 % every else Want(0)
        if self._frame < 2:
            want = FIRST if not self._frame else want | Want.LINKS | Want.TOPOLOGY
        self._frame += 1
        return self.source.read(want)


@pytest.fixture
def children() -> Iterator[list[Child]]:
    """Living processes."""
    started = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)]
    yield started
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def screen(nvml_here: SimulatedNvml, children: list[Child]) -> Iterator[Screen]:
    """A screen after a few readings of a box with three running children, two on GPU 0 and one on GPU 1."""
    tasks = tuple(
        Task(devices=(device,), user="ines", command="python train.py", pid=child.pid, memory=4000, load=50)
        for device, child in zip("001", children, strict=True)
    )
    nvml_here.show_box(replace(BOXES["idle"], tasks=tasks))
    made = Screen()
    for _ in range(4):
        made.read()
    yield made
    nvml_here.heal()
    made.source.close()


def what(snapshot: Snapshot, place: int) -> tuple[State, type[Cause], str]:
    """The state of a device on the screen, and the kind of its cause."""
    verdict = verdicts(snapshot)[snapshot.devices[place].key]
    return verdict.state, type(verdict.cause), verdict.cause.kind if isinstance(verdict.cause, Fault) else ""


def known(snapshot: Snapshot, place: int) -> list[tuple[object, ...]]:
    """The processes of a device with their owners."""
    processes = snapshot.devices[place].processes or ()
    return sorted((p.pid, p.started, p.user, p.command) for p in processes)


@pytest.fixture
def functions(nvml_here: SimulatedNvml) -> list[str]:
    """The names of all functions that are called."""
    matrix = Matrix(nvml_here)
    matrix.close()
    return sorted(matrix.functions)


@pytest.mark.parametrize(
    ("code", "which"), [pytest.param(999, ("nvml", "*"), marks=pytest.mark.thorough), (3, DECIDING)]
)
def test_a_call_that_fails_changes_the_state_once_and_takes_no_living_process_away(
    functions: list[str], nvml_here: SimulatedNvml, screen: Screen, code: int, which: tuple[str, ...]
) -> None:
    before = screen.read()
    others = [what(before, place) for place in range(1, len(before.devices))]
    assert len(known(before, 0)) == 2 and all(user for _, _, user, _ in known(before, 0))
    assert len(functions) > 50
    wrong = []
    for function in (each for each in functions if each.startswith(which)):
        nvml_here.error(function, code, 0)
        last, changes = what(before, 0), 0
        for _ in range(FRAMES):
            now = screen.read()
            changes, last = changes + (what(now, 0) != last), what(now, 0)
            if known(now, 0) != known(before, 0):
                wrong.append(f"{function}: processes {known(now, 0)}")
            if [what(now, place) for place in range(1, len(now.devices))] != others:
                wrong.append(f"{function}: another GPU")
        wrong += [f"{function}: {changes} changes"] * (changes > 1)
        nvml_here.heal()
        for _ in range(3):
            healed = screen.read()
        wrong += [f"{function}: not healed"] * (what(healed, 0) != what(before, 0))
    assert list(dict.fromkeys(wrong)) == []


@pytest.mark.parametrize("function", LISTS)
def test_a_process_that_ends_while_no_list_can_be_read_goes_away(
    nvml_here: SimulatedNvml, screen: Screen, children: list[Child], function: str
) -> None:
    nvml_here.error(function, 999, 0)
    for _ in range(12):
        screen.read()
    children[0].kill()
    children[0].communicate()
    now = screen.read()
    assert what(now, 0) == ("unknown", Fault, "processes")
    assert [pid for pid, *_ in known(now, 0)] == [children[1].pid]
    children[1].kill()
    children[1].communicate()
    assert screen.read().devices[0].processes is None, "nobody is not what is known"
