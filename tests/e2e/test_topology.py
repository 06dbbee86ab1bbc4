"""The best devices from the matrix to the started command, on recorded boxes behind the simulated driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.choosing.best import best
from gputui.choosing.grouping import parse
from gputui.inventory.matrix_text import read
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import Box
from simnvml import SimulatedNvml

pytestmark = pytest.mark.e2e

FILES = sorted((Path(__file__).parents[1] / "data" / "topologies").glob("*.txt"))
PROGRAM = "import os; print('ran on', os.environ['CUDA_VISIBLE_DEVICES'])"


def box(file: Path) -> Box:
    return box_of(read(file.read_text()), file.stem)


def named(part: str) -> Box:
    return box(next(file for file in FILES if part in file.stem))


def call(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GPUTUI, *words], env=environment, capture_output=True, text=True, check=True)


def indices(text: str) -> list[int]:
    return [int(index) for index in text.strip().split(",")]


@pytest.mark.thorough
@pytest.mark.parametrize("file", FILES[::3], ids=lambda file: file.stem)
@pytest.mark.parametrize("group", ["all", "tp=2"])
def test_what_pick_takes_by_nvml_is_what_the_matrix_says_is_best(
    simulated_nvml: SimulatedNvml, base_environment: dict[str, str], file: Path, group: str
) -> None:
    simulated_nvml.show_box(box(file))
    snapshot, job = at(box(file), 0.0, 0.0), parse(group)
    count = 4 if len(snapshot.devices) > 4 else 2
    told = call(simulated_nvml.environment(base_environment), "pick", "-n", str(count), "--group", group)
    way = best(snapshot, snapshot.devices, count, job)[0]
    assert indices(told.stdout) == [device.index for device in way.devices]


@pytest.mark.parametrize(
    ("words", "visible"),
    [
        (["-n", "8"], "0,2,3,1,6,4,5,7"),
        (["-n", "4", "--group", "tp=2"], "0,2,1,3"),
        (["-n", "8", "--order", "given"], "0,1,2,3,4,5,6,7"),
        (["--gpus", "7,5,6,4", "--order", "best", "--group", "tp=2"], "4,6,5,7"),
        (["--gpus", "7,5,6,4"], "7,5,6,4"),
    ],
)
def test_run_starts_the_command_on_the_best_in_their_order(
    simulated_nvml: SimulatedNvml, base_environment: dict[str, str], words: Sequence[str], visible: str
) -> None:
    simulated_nvml.show_box(named("dgx1"))
    environment = simulated_nvml.environment(base_environment)
    ended = call(environment, "run", *words, "--", "python", "-c", PROGRAM)
    assert ended.stdout == f"ran on {visible}\n"


def test_the_best_are_chosen_from_the_topology_and_started(
    simulated_nvml: SimulatedNvml, base_environment: dict[str, str], start: Start
) -> None:
    simulated_nvml.show_box(named("nv12_pairs"))
    environment = simulated_nvml.environment(base_environment)
    screen = start("--", "python", "-c", PROGRAM, environment=environment)
    screen.until("○ free")
    screen.send("t")
    screen.until("▇NV12")
    screen.send("bbB")
    screen.until(lambda t: "cuda:0 = GPU 2" in t.text and "weakest link NV12" in t.text)
    screen.send("\t")
    screen.until("NUMA node 1")
    screen.send("\x1b")
    screen.until("CUDA_VISIBLE_DEVICES=2,3")
    screen.send("\r")
    screen.until("ran on 2,3")


def test_a_permuted_order_behind_nvswitches_is_said_before_it_starts(
    simulated_nvml: SimulatedNvml, base_environment: dict[str, str]
) -> None:
    from gputui.sources.simulated.boxes import BOXES

    simulated_nvml.show_box(BOXES["dgx-h100"])
    environment = simulated_nvml.environment(base_environment)
    said = call(environment, "run", "--gpus", "3,1", "--dry-run", "--", "torchrun", "x").stderr
    assert "1906" in said and ": 1,3 " in said
    # One process has no results of others to mix up.
    assert "1906" not in call(environment, "run", "--gpus", "3,1", "--dry-run", "--", "x").stderr
    assert "1906" not in call(environment, "run", "--gpus", "1,3", "--dry-run", "--", "torchrun", "x").stderr
    assert "1906" not in call(environment, "run", "-n", "4", "--dry-run", "--", "torchrun", "x").stderr


def test_nothing_calls_nvidia_smi(
    simulated_nvml: SimulatedNvml, base_environment: dict[str, str], tmp_path: Path
) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    trap = bin_folder / "nvidia-smi"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    trap.chmod(0o755)
    simulated_nvml.show_box(named("nv12_pairs"))
    environment = simulated_nvml.environment(base_environment)
    environment["PATH"] = f"{bin_folder}{os.pathsep}{environment['PATH']}"
    assert "NV12" in call(environment, "topo").stdout
    assert not (tmp_path / "called").exists()
