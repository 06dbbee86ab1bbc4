"""The real torchrun, in the cases that no other launcher has."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.ranks import Workplace, need, workplace

pytestmark = pytest.mark.e2e


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A directory with a script, and torchrun."""
    need("torch")
    return workplace(tmp_path)


def test_the_machines_of_a_variable_are_not_waited_for(place: Workplace) -> None:
    """PET_NNODES left over in a shell makes `torchrun --standalone` wait for ever."""
    done = place.run("--demo", "idle", "-n", "2", "--", "torchrun", "train.py", PET_NNODES="2")
    assert len(done.ranks) == 2
    assert "PET_NNODES=2" in done.err and "--nnodes=1" in done.line


def test_a_program_that_is_not_python_starts_once_a_device(place: Workplace) -> None:
    words = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $1" > "rank$RANK.txt"', "train", "3 e-4")
    started = place.begin("--demo", "idle", "-n", "2", "--launcher", "torchrun", "--", *words)
    done = place.ended(started)
    assert done.status == 0, done.err
    written = [file.read_text() for file in sorted(place.folder.glob("rank*.txt"))]
    assert written == ["0,1 3 e-4\n", "0,1 3 e-4\n"]
