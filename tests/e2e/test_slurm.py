"""`ls --slurm` and `run --slurm` with a real Slurm of two simulated machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.slurm_cluster import PATIENCE, Slurm, needs_slurm, until
from e2e.terminal import Terminal
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml
from unit.test_json_schema import BOXES_CHECK
from unit.test_quoting_in_shells import DUMP, HOSTILE

pytestmark = [pytest.mark.e2e, needs_slurm]

TOLD = "import os; print(os.environ.get('SLURM_PROCID'), os.environ['CUDA_VISIBLE_DEVICES'])"


@pytest.fixture
def environ(slurm: Slurm, tmp_path: Path) -> dict[str, str]:
    """The environment of a user who calls gputui on the cluster."""
    folder = {"HOME": str(tmp_path), "GPUTUI_CLAIMS": str(tmp_path / "claims")}
    return {**slurm.environ, **folder, "PATH": f"{Path(sys.executable).parent}:{slurm.environ['PATH']}"}


def _gputui(environ: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputui", *words],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def _ran(environ: dict[str, str], cwd: Path, *words: str) -> list[str]:
    """The sorted output lines of `gputui run` with these words, which must succeed."""
    done = _gputui(environ, cwd, "run", *words)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def _boxes(environ: dict[str, str], cwd: Path) -> dict[str, Any]:
    done = _gputui(environ, cwd, "ls", "--slurm", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    BOXES_CHECK.validate(document)
    return {"slurm": document["slurm"], **{box["host"]: box for box in document["boxes"]}}


def _states(box: dict[str, Any]) -> list[str]:
    return [device["verdict"]["state"] for device in box["devices"]]


def _running(slurm: Slurm, cwd: Path, *options: str) -> str:
    """The id of a job that holds devices."""
    job = slurm.call("sbatch", "--parsable", "--job-name=a b=c|d", *options, "--wrap=sleep 600", cwd=cwd)
    until(lambda: "RUNNING" in slurm.call("squeue", "-h", "-j", job.strip(), "-o", "%T"), lambda: job)
    return job.strip()


def test_each_node_is_a_box_with_the_devices_that_jobs_have(
    slurm: Slurm, environ: dict[str, str], tmp_path: Path
) -> None:
    job = _running(slurm, tmp_path, "-w", "n1", "--gpus-per-node=h100:3")
    boxes = _boxes(environ, tmp_path)
    assert _states(boxes["n1"]) == ["busy", "busy", "busy", "free"]
    assert [device["name"] for device in boxes["n2"]["devices"]] == ["a100", "a100", "h100", "h100"]
    assert boxes["n1"]["slurm"]["jobs"] == [job] and boxes["n1"]["slurm"]["partitions"] == ["all", "big"]
    assert [each["name"] for each in boxes["slurm"]["partitions"]] == ["all", "big"]
    mine = boxes["slurm"]["jobs"][0]
    assert (mine["id"], mine["name"], mine["state"]) == (job, "a b=c|d", "RUNNING")
    assert mine["devices"] == {"n1": [0, 1, 2]}
    table = _gputui(environ, tmp_path, "ls", "--slurm").stdout
    assert "n2" in table and job in table


def test_a_drained_node_says_why_and_offers_nothing(
    slurm: Slurm, environ: dict[str, str], tmp_path: Path
) -> None:
    slurm.call("scontrol", "update", "nodename=n2", "state=drain", "reason=dead fan Gres=none")
    try:
        box = _boxes(environ, tmp_path)["n2"]
    finally:
        slurm.call("scontrol", "update", "nodename=n2", "state=resume")
    assert set(_states(box)) == {"unknown"}
    assert (box["slurm"]["state"], box["slurm"]["usable"]) == ("drained", False)
    assert box["slurm"]["reason"] == "dead fan Gres=none"


def test_a_job_of_two_nodes_has_devices_on_each(
    slurm: Slurm, environ: dict[str, str], tmp_path: Path
) -> None:
    job = _running(slurm, tmp_path, "--nodes=2", "--gpus-per-node=h100:1")
    found = _boxes(environ, tmp_path)
    (mine,) = found["slurm"]["jobs"]
    assert (mine["id"], mine["nodes"]) == (job, ["n1", "n2"])
    assert {node: len(indices) for node, indices in mine["devices"].items()} == {"n1": 1, "n2": 1}
    assert found["n2"]["slurm"]["jobs"] == [job] and _states(found["n2"]).count("busy") == 1


def test_a_command_runs_on_as_many_devices_of_a_node(environ: dict[str, str], tmp_path: Path) -> None:
    words = (sys.executable, "-S", "-E", str(DUMP), *HOSTILE, ":")
    lines = _ran(environ, tmp_path, "--slurm", "n1", "-n", "2", "--", *words)
    told = json.loads(lines[0])
    assert [bytes.fromhex(word) for word in told["argv"][1:]] == [
        os.fsencode(word) for word in (*HOSTILE, ":")
    ]
    variables = {bytes.fromhex(k): bytes.fromhex(v) for k, v in told["environ"].items()}
    assert variables[b"CUDA_VISIBLE_DEVICES"] == b"0,1" and variables[b"SLURMD_NODENAME"] == b"n1"


@pytest.mark.parametrize(
    ("place", "order", "expected"),
    [
        ("n1", "1,0", ["1,0"]),
        ("n2:h100", "1,0", ["3,2"]),
    ],
)
def test_the_order_inside_is_ours(
    environ: dict[str, str], tmp_path: Path, place: str, order: str, expected: list[str]
) -> None:
    code = TOLD.replace("os.environ.get('SLURM_PROCID'), ", "")
    assert _ran(
        environ, tmp_path, "--slurm", place, "--gpus", order, "--", sys.executable, "-S", "-c", code
    ) == (expected)


@pytest.mark.parametrize(
    ("place", "order", "expected"),
    [
        ("n1", "3,1,2,0", ["0 3", "1 1", "2 2", "3 0"]),
        ("n2:h100", "1,0", ["0 3", "1 2"]),
        ("n2:h100", "0,1", ["0 2", "1 3"]),
    ],
    ids=["map_gpu on the whole node", "a part of a node", "in Slurm's own order"],
)
def test_a_task_a_device_in_the_order_asked(
    environ: dict[str, str], tmp_path: Path, place: str, order: str, expected: list[str]
) -> None:
    count = str(len(order.split(",")))
    words = ("--slurm", place, "--gpus", order, "--processes", count)
    assert _ran(environ, tmp_path, *words, "--", sys.executable, "-S", "-c", TOLD) == expected


def test_in_the_background_it_is_a_batch_job(slurm: Slurm, environ: dict[str, str], tmp_path: Path) -> None:
    words = ("--slurm", "big", "-n", "2", "--detach", "--name", "nightly")
    (job,) = _ran(environ, tmp_path, *words, "--", sys.executable, "-S", "-c", TOLD, "it's $HOME")
    file = tmp_path / f"nightly-{job}.out"
    until(lambda: file.exists() and file.read_text(), lambda: slurm.call("scontrol", "show", "job", job))
    assert file.read_text() == "0 0,1\n"


def test_a_full_node_has_slurms_queue(slurm: Slurm, environ: dict[str, str], tmp_path: Path) -> None:
    _running(slurm, tmp_path, "-w", "n1", "--gpus-per-node=4")
    (job,) = _ran(environ, tmp_path, "--slurm", "n1", "-n", "1", "--detach", "--", "true")
    waiting = {each["id"]: each for each in _boxes(environ, tmp_path)["slurm"]["jobs"]}[job]
    assert (waiting["state"], waiting["count"], waiting["nodes"]) == ("PENDING", 1, [])


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--slurm", "n1", "-n", "5"), 4),
        (("--slurm", "n1:a100", "-n", "1"), 2),
        (("--slurm", "nowhere", "-n", "1"), 2),
        (("--slurm", "n1", "--gpus", "2,3"), 2),
        (("--slurm", "n1", "--gpus", "none"), 2),
        (("--slurm", "n1", "-n", "1", "--wait"), 2),
    ],
)
def test_what_slurm_cannot_do_starts_nothing(
    slurm: Slurm, environ: dict[str, str], tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    done = _gputui(environ, tmp_path, "run", *words, "--", "touch", "started")
    assert done.returncode == status, done.stderr
    assert not (tmp_path / "started").exists() and slurm.call("squeue", "-h") == ""


def test_the_dry_run_is_the_line_that_runs(environ: dict[str, str], tmp_path: Path) -> None:
    words = ("--slurm", "n1", "--gpus", "1,0", "--", sys.executable, "-S", "-c", TOLD)
    (line,) = _ran(environ, tmp_path, "--dry-run", *words)
    pasted = subprocess.run(
        ["bash", "-c", line], env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert pasted.stdout == "0 1,0\n"


def test_inside_a_job_gputui_selects_among_its_devices(
    environ: dict[str, str], tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(replace(BOXES["dgx-h100"], tasks=()))
    job = ("srun", "-w", "n2", "--gpus-per-node=h100:2", sys.executable, "-m", "gputui")
    inside = simulated_nvml.environment(environ)
    for words, status, out in (
        (("pick", "-n", "2", "--order", "given"), 0, "2,3\n"),
        (("pick", "-n", "3"), 4, ""),
        (("run", "-q", "--gpus", "3", "--", "printenv", "CUDA_VISIBLE_DEVICES"), 0, "3\n"),
    ):
        done = subprocess.run(
            [*job, *words],
            env=inside,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout) == (status, out), done.stderr


def test_the_screen_starts_the_command_on_the_node_at_the_cursor(
    slurm: Slurm, environ: dict[str, str], tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    place = simulated_nvml.environment({**environ, "TERM": "xterm-256color"})
    command = [sys.executable, "-c", f"import time; {TOLD}; time.sleep(0.2)"]
    argv = [sys.executable, "-m", "gputui", "--", *command]
    terminal = Terminal(argv, place, (120, 40), tmp_path)
    try:
        terminal.until("free")
        terminal.send(":nodes\r")
        terminal.until("n2:h100")
        terminal.send("jjjj2")
        terminal.until("--gpus-per-node=h100:2")
        assert "--nodelist=n2" in terminal.text
        terminal.send("r")
        terminal.until("press Enter to return")
        assert "0 2,3" in terminal.text
        terminal.send("\r")
        terminal.until("n2:h100")
        terminal.send("d")
        terminal.until("is in Slurm's queue")
        job = slurm.call("squeue", "-h", "--states=all", "--format=%A", "--sort=-i").split()[0]
        told = ("squeue", "-h", "--states=all", "-j", job, "-o", "%T")
        until(lambda: slurm.call(*told).strip() == "COMPLETED", lambda: slurm.call(*told))
        assert [file.read_text() for file in tmp_path.glob(f"*-{job}.out")] == ["0 2,3\n"]
        terminal.send("qq")
        assert terminal.end() == 0
    finally:
        terminal.close()
