"""The line that gputui makes for torchrun, run by the real torchrun (the extra `torch`)."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

RANK = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MASTER_PORT")
with open(f"rank{os.environ['RANK']}.json", "w") as file:
    json.dump({"argv": sys.argv[1:]} | {name: os.environ.get(name) for name in names}, file)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A training script that writes down what each rank was given."""
    (tmp_path / "train.py").write_text(RANK)
    return tmp_path


def run(directory: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """gputui in that directory, with this interpreter's torchrun first on the PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "gputui", *words],
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def ranks(directory: Path) -> list[dict[str, object]]:
    """What the ranks wrote, in order."""
    return [json.loads(file.read_text()) for file in sorted(directory.glob("rank*.json"))]


def test_two_ranks_start_on_the_chosen_devices_in_the_chosen_order(script: Path) -> None:
    # Another run on the usual port must not matter.
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        except OSError:
            assert taken.getsockname()  # somebody has it already, which does as well
        done = run(
            script, "run", "--demo", "idle", "--gpus", "1,0", "--launcher", "torchrun", "--",
            "python", "train.py", "--lr", "3 e-4",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = ranks(script)
    assert [rank["LOCAL_RANK"] for rank in seen] == ["0", "1"]
    assert {rank["WORLD_SIZE"] for rank in seen} == {"2"}
    assert {rank["CUDA_VISIBLE_DEVICES"] for rank in seen} == {"1,0"}
    assert {rank["CUDA_DEVICE_ORDER"] for rank in seen} == {"PCI_BUS_ID"}
    assert all(rank["argv"] == ["--lr", "3 e-4"] for rank in seen)


def test_a_torchrun_command_is_completed_and_variables_that_override_it_are_named(script: Path) -> None:
    done = run(
        script, "run", "--demo", "idle", "-n", "2", "--", "torchrun", "train.py",
        PET_NPROC_PER_NODE="3",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(ranks(script)) == 2, "the number on the line beats PET_NPROC_PER_NODE"
    assert "PET_NPROC_PER_NODE=3" in done.stderr


def test_a_program_that_is_not_python_starts_once_a_device(script: Path) -> None:
    words = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES" > "rank$RANK.txt"')
    done = run(script, "run", "--demo", "idle", "-n", "2", "--launcher", "torchrun", "--", *words)
    assert done.returncode == 0, done.stderr
    assert [file.read_text() for file in sorted(script.glob("rank*.txt"))] == ["0,1\n", "0,1\n"]
