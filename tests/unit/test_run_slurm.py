"""`run --slurm`: the meaning of a place, with Slurm programs that describe a cluster and start nothing."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from table_tests import each_row
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
    """The scontrol of a Slurm, and no other program."""
    for name, text in (("nodes", NODES), ("partitions", PARTITIONS)):
        (tmp_path / name).write_text(text)
    shown = f'case "$*" in *partition) f=partitions;; *) f=nodes;; esac; exec /bin/cat "{tmp_path}/$f"'
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{shown}\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@each_row(
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


@each_row(
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


def test_a_demo_has_a_cluster_that_can_be_looked_at(call: Call) -> None:
    found = call("ls", "--slurm", "--demo", "--json").json
    assert len(found["boxes"]) > 3 and found["slurm"]["jobs"]
    assert "a1" not in {box["host"] for box in found["boxes"]}
    assert call("ls", "--slurm", "--root", "/").status == 2


def test_why_slurm_cannot_be_asked_is_said_in_its_own_words(call: Call, tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text(
        "#!/bin/sh\necho 'scontrol: fatal: no \033[2Jconfiguration' >&2\nexit 1\n"
    )
    ended = call("ls", "--slurm")
    assert ended.status == 3 and "configuration" in ended.err and "\x1b" not in ended.err


# Batch jobs


def submits(folder: Path, does: str) -> None:
    """An sbatch that runs this script only."""
    (folder / "sbatch").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "sbatch").chmod(0o755)


@pytest.mark.parametrize(
    ("told", "which"), [("77", "-j 77"), ("77;east", "-M east -j 77")], ids=["one cluster", "of several"]
)
def test_a_batch_job_prints_its_id_and_says_how_to_follow_it(
    call: Call, tmp_path: Path, told: str, which: str
) -> None:
    submits(tmp_path, f"echo '{told}'")
    words = ("run", "--slurm", "--detach", "--name", "nightly", "--directory", str(tmp_path))
    ended = call(*words, "--", "python", "train.py")
    assert (ended.status, ended.out) == (0, f"{told}\n")
    assert f"squeue {which}" in ended.err and f"{tmp_path}/nightly-77.out" in ended.err
    assert "squeue" not in call(*words, "-q", "--", "python", "train.py").err


@pytest.mark.parametrize(("does", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("printf 'a\\033b'", 0)])
def test_an_sbatch_that_gives_no_id_has_its_own_status(
    call: Call, tmp_path: Path, does: str, status: int
) -> None:
    submits(tmp_path, does)
    ended = call("run", "--slurm", "--detach", "--", "python", "train.py")
    assert ended.status == status and "squeue" not in ended.err
    assert ended.out.strip().isprintable()


@pytest.mark.parametrize("typed", [True, False])
def test_what_a_person_hands_to_slurm_is_among_the_launches(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: bool
) -> None:
    submits(tmp_path, "echo 77")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: typed)
    call("run", "--slurm=h1", "-n", "2", "--detach", "--processes", "2", "--", "python", "train.py")
    kept = call("launches", "--json").json["launches"]
    assert [(each["command"], each["count"], each["processes"]) for each in kept] == (
        [(["python", "train.py"], 2, 2)] if typed else []
    )
    if typed:
        again = call("run", "--saved", "1", "--slurm=big", "--dry-run")
        assert "--ntasks=2" in again.out and "--partition=big" in again.out, again.err
