"""The sbatch form in a real Slurm of two simulated machines (packages slurmctld, slurmd, slurm-client)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.ranks import said_in
from e2e.slurm_cluster import Slurm, needs_slurm
from gputui.launching.compose import compose
from gputui.launching.exports import ExportOptions
from gputui.launching.exports.sbatch import to_sbatch
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu
from unit.test_quoting_in_shells import DUMP, HOSTILE

pytestmark = [pytest.mark.e2e, needs_slurm]

TWO = (gpu(5), gpu(4))


def _dump(*argv: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-E", str(DUMP), *argv)


def _argv(told: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(word) for word in told["argv"][1:]]


def _variable(told: dict[str, Any], name: str) -> str | None:
    value = told["environ"].get(name.encode().hex())
    return None if value is None else bytes.fromhex(value).decode()


def test_the_command_starts_with_its_words_on_devices_of_slurms_choice(slurm: Slurm, tmp_path: Path) -> None:
    place = tmp_path / "two words"
    place.mkdir()
    options = LaunchOptions(
        _dump(*HOSTILE), directory=str(place), additions=(("VALUE", "a'b\n$c"), ("OMP_NUM_THREADS", "3"))
    )
    told = json.loads(slurm.run(to_sbatch(compose(TWO, options, {})), tmp_path))
    assert _argv(told) == [os.fsencode(word) for word in HOSTILE]
    assert _variable(told, "CUDA_VISIBLE_DEVICES") == "0,1", "neither ours nor the submitter's"
    assert _variable(told, "VALUE") == "a'b\n$c"
    assert _variable(told, "SLURM_CPUS_PER_TASK") == "3"
    assert bytes.fromhex(told["directory"]) == os.fsencode(place)


def test_a_colon_is_a_word_and_not_another_job(slurm: Slurm, tmp_path: Path) -> None:
    told = json.loads(
        slurm.run(to_sbatch(compose((), LaunchOptions(_dump("a", ":", "b c", ":")), {})), tmp_path)
    )
    assert _argv(told) == [b"a", b":", b"b c", b":"]
    assert _variable(told, "CUDA_VISIBLE_DEVICES") == "", "CPU only"


def test_torchrun_is_started_once_a_machine_and_meets_on_the_first(slurm: Slurm, tmp_path: Path) -> None:
    # One file per rank: their lines could mix within the job's output.
    dump = shlex.join(_dump())
    (slurm.folder / "torchrun").write_text(f'#!/bin/sh\nexec {dump} "$@" > "machine$SLURM_NODEID.json"\n')
    (slurm.folder / "torchrun").chmod(0o755)
    options = LaunchOptions(("torchrun", "train.py", "--lr", "3e-4"), nodes=2, directory=str(tmp_path))
    assert slurm.run(to_sbatch(compose(TWO, options, {}), ExportOptions(nodes=2)), tmp_path) == ""
    told = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("machine*.json"))]
    assert [_variable(each, "SLURM_NODEID") for each in told] == ["0", "1"]
    job = _variable(told[0], "SLURM_JOB_ID")
    for each in told:
        assert [word.decode() for word in _argv(each)] == [
            *("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-id={job}", "--rdzv-endpoint=n1:29500"),
            *("--nproc-per-node=2", "train.py", "--lr", "3e-4"),
        ]
        assert _variable(each, "CUDA_VISIBLE_DEVICES") == "0,1"


needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")

RANK = """
import json, os
rank, size = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
told = [rank, size, os.environ.get("CUDA_VISIBLE_DEVICES")]
open(f"rank{rank}.json", "w").write(json.dumps(told))
"""
AS_ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))


@needs_mpi
@pytest.mark.parametrize("devices", [TWO, ()], ids=len)
def test_mpirun_starts_its_processes_on_the_devices_of_the_job(
    slurm: Slurm, tmp_path: Path, devices: tuple[Any, ...]
) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    options = LaunchOptions(
        ("mpirun", sys.executable, "-S", "rank.py"), directory=str(tmp_path), additions=AS_ROOT, processes=2
    )
    slurm.run(to_sbatch(compose(devices, options, {})), tmp_path)
    told = said_in(tmp_path)
    # Slurm may still hold the devices of the job before, and it chooses which two these are.
    assert [each[:2] for each in told] == [["0", "2"], ["1", "2"]] and told[0][2] == told[1][2]
    assert len(told[0][2].split(",")) == 2 if devices else told[0][2] == ""


@needs_mpi
def test_mpirun_needs_a_task_for_each_process(slurm: Slurm, tmp_path: Path) -> None:
    """The reason for the number of tasks. With one task, mpirun within srun does not start either."""
    (tmp_path / "rank.py").write_text(RANK)
    options = LaunchOptions(
        ("mpirun", sys.executable, "-S", "rank.py"), directory=str(tmp_path), additions=AS_ROOT
    )
    script = to_sbatch(compose(TWO, options, {}))
    refused = script.replace("ntasks-per-node=2", "ntasks-per-node=1").replace("\nmpirun", "\n! mpirun")
    assert "not enough slots" in slurm.run(refused, tmp_path) and not list(tmp_path.glob("rank*.json"))


def test_a_commands_own_srun_starts_its_tasks(slurm: Slurm, tmp_path: Path) -> None:
    code = (
        "import os; open('rank' + os.environ['SLURM_PROCID'], 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    options = LaunchOptions(("srun", "-n", "2", sys.executable, "-S", "-c", code), directory=str(tmp_path))
    slurm.run(to_sbatch(compose(TWO, options, {})), tmp_path)
    told = [file.read_text() for file in sorted(tmp_path.glob("rank*"))]
    assert len(told) == 2 and told[0] == told[1] and len(told[0].split(",")) == 2
