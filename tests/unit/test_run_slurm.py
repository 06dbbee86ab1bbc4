"""`run --slurm`: the place that is meant, with programs of Slurm that tell of a cluster and start nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.calling import Call

NODES = """\
NodeName=a1 Gres=gpu:a100:4 GresUsed=gpu:a100:4(IDX:0-3) State=ALLOCATED Partitions=small
NodeName=h1 Gres=gpu:h100:8 GresUsed=gpu:h100:0(IDX:N/A) State=IDLE Partitions=big,night
NodeName=m1 Gres=gpu:a100:2,gpu:h100:2 GresUsed=gpu:0 State=IDLE+DRAIN Partitions=small Reason=fan [root@x]
NodeName=c1 Gres=(null) State=IDLE Partitions=small
"""
PARTITIONS = """\
PartitionName=small Default=YES State=UP MaxTime=UNLIMITED
PartitionName=night Default=NO State=DOWN MaxTime=UNLIMITED
PartitionName=big Default=NO State=UP MaxTime=UNLIMITED
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sinfo and scontrol of Slurm 20.11, and nothing else."""
    for name, text in (("nodes", NODES), ("partitions", PARTITIONS)):
        (tmp_path / name).write_text(text)
    shown = f'case "$*" in *partition) f=partitions;; *) f=nodes;; esac; exec /bin/cat "{tmp_path}/$f"'
    for name, does in (("sinfo", "echo slurm 20.11.9"), ("scontrol", shown)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.mark.parametrize(
    ("place", "count", "words"),
    [
        ("", 4, ["--gpus-per-node=4"]),
        ("h1", 2, ["--partition=big", "--nodelist=h1", "--gpus-per-node=h100:2"]),
        ("big", 2, ["--partition=big", "--gpus-per-node=h100:2"]),
        ("night:h100", 2, ["--partition=night", "--gpus-per-node=h100:2"]),
        (":h100", 1, ["--gpus-per-node=h100:1"]),
        ("m1", 2, ["--nodelist=m1", "--gpus-per-node=2"]),
        ("m1:a100", 2, ["--nodelist=m1", "--gpus-per-node=a100:2"]),
        ("a1", 4, ["--nodelist=a1", "--gpus-per-node=a100:4"]),
    ],
)
def test_a_place_is_a_node_or_a_partition_and_a_type(
    call: Call, place: str, count: int, words: list[str]
) -> None:
    ended = call("run", f"--slurm={place}", "-n", str(count), "--dry-run", "--", "python", "train.py")
    assert ended.status == 0, ended.err
    given = ended.out.split()
    assert given[0] == "srun" and given[-2:] == ["python", "train.py"]
    assert [word for word in given[1:-2] if word not in ("--nodes=1", "--ntasks=1")] == words


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--slurm", "-n", "5"), 4),
        (("--slurm=m1:h100", "-n", "3"), 4),
        (("--slurm=c1", "-n", "1"), 4),
        (("--slurm=small:b200", "-n", "1"), 2),
        (("--slurm=c2",), 2),
        (("--slurm", "--gpus", "0,2"), 2),
        (("--slurm", "--prefer", "0"), 2),
        (("--slurm", "--demo"), 2),
        (("--slurm", "-n", "auto"), 2),
        (("--slurm", "-n", "2", "--nodes", "2", "--launcher", "torchrun", "--rendezvous", "h"), 2),
        (("--slurm", "--detach", "--name", "a b"), 2),
    ],
)
def test_what_cannot_be_asked_of_slurm_ends_before(call: Call, words: tuple[str, ...], status: int) -> None:
    assert call("run", *words, "--dry-run", "--", "python", "train.py").status == status


@pytest.mark.parametrize(("place", "waits"), [("h1", False), ("night", True), ("a1", True), ("m1", True)])
def test_a_job_that_will_wait_is_told_of(call: Call, place: str, waits: bool) -> None:
    ended = call("run", f"--slurm={place}", "-n", "1", "--dry-run", "--", "python", "train.py")
    assert ended.status == 0 and ("queue" in ended.err) is waits


def test_the_table_tells_of_drained_nodes_and_partitions_that_are_down(call: Call) -> None:
    ended = call("ls", "--slurm")
    assert ended.status == 0
    assert "drained" in ended.out and "fan" in ended.out and "night" in ended.out.splitlines()[-2]


def test_the_command_says_how_many(call: Call) -> None:
    ended = call("run", "--slurm=h1", "--dry-run", "--", "torchrun", "--nproc-per-node", "8", "t.py")
    assert "--gpus-per-node=h100:8" in ended.out


@pytest.mark.parametrize("words", [("ls", "--slurm"), ("run", "--slurm", "--", "true")])
def test_without_slurm_there_is_no_source(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert call(*words).status == 3


def test_the_nodes_of_slurm_are_not_a_demo_box(call: Call) -> None:
    assert call("ls", "--slurm", "--demo").status == 2
