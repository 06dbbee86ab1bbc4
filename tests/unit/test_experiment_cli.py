"""The common parts of `gputui compare` and `gputui each`, on a simulated driver with real processes.

These are varied and excluded values, the folder of a run, the command before it, the figures of its devices,
and resuming.
"""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.inventory.job import Job
from gputui.jobs.store import all_jobs
from gputui.sources.simulated.spec import Task
from messages import lines_of
from unit.claims_support import EIGHT, Box, until
from unit.jobs_support import Gate, says

BOTH = pytest.mark.parametrize(
    "subcommand", [pytest.param("compare", marks=pytest.mark.thorough), pytest.param("each")]
)
"""They are one runner: a test of one of them says nearly all of the other."""


def run(box: Box, subcommand: str, *words: str, status: int = 0) -> Any:
    """The JSON of an experiment."""
    found, out, err = box.call(subcommand, "--json", "-q", *words)
    assert found == status, err
    return json.loads(out)


def rows(found: Any) -> Any:
    return found.get("variants") or found["tasks"]


def outputs(found: Any) -> list[str]:
    return [Path(row["log"]).read_text().strip() for row in rows(found)]


def sh(script: str, *words: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script, "sh", *words)


def there(box: Box, folder: Path, *words: str) -> Any:
    """The JSON of an experiment that is called in this folder."""

    def body() -> int:
        from gputui.cli.main import main

        os.chdir(folder)
        return main([words[0], "--json", "-q", *words[1:]])

    client = box.fork(body)
    assert client.end() == 0, client.err
    return json.loads(client.out)


@BOTH
def test_variables_options_and_braces_are_varied_together(box: Box, subcommand: str) -> None:
    words = ("-n", "1", "--vary", "env:X=a,b", "--vary", "arg:--lr=1,2")
    found = run(box, subcommand, *words, *sh("echo $X $*", "--lr", "0", "--seed={7,8}"))
    assert sorted(outputs(found)) == sorted(
        f"{x} --lr {lr} --seed={seed}" for x in "ab" for lr in "12" for seed in "78"
    )
    assert [axis["name"] for axis in found["axes"]] == ["env:X", "arg:--lr", "--seed"]
    assert [row["values"] for row in rows(found)][:3] == [["a", "1", "7"], ["a", "1", "8"], ["a", "2", "7"]]


def test_each_task_can_have_its_own_number_of_devices(box: Box) -> None:
    found = run(box, "each", "--vary", "n=1,3", *sh("echo $CUDA_VISIBLE_DEVICES"))
    assert [len(row["devices"]) for row in rows(found)] == [1, 3]


@BOTH
def test_combinations_are_left_out(box: Box, subcommand: str) -> None:
    words = ("-n", "1", "--vary", "env:X=a,b", "--except", "X=a --seed=8", "--except", "env:X=b --seed=7")
    found = run(box, subcommand, *words, *sh("true", "--seed={7,8,9}"))
    assert [row["values"] for row in rows(found)] == [["a", "7"], ["a", "9"], ["b", "8"], ["b", "9"]]


@BOTH
@pytest.mark.parametrize("left_out", ["X=c", "Y=a", "X", "", "X=a X=b"])
def test_leaving_out_what_is_not_there_is_a_wrong_call(box: Box, subcommand: str, left_out: str) -> None:
    words = ("-n", "1", "--vary", "env:X=a,b", "--except", left_out, "--", "true")
    status, out, err = box.call(subcommand, *words)
    assert (status, out, len(lines_of(err))) == (2, "", 1), err
    everything = ("--except", "X=a", "--except", "X=b")
    assert box.call(subcommand, "--vary", "env:X=a,b", *everything, "--", "true")[0] == 2


@BOTH
def test_every_run_has_a_folder_of_its_own(box: Box, subcommand: str, tmp_path: Path) -> None:
    script = 'cd "$1"; pwd > where; echo $OUT'
    words = ("-n", "1", "--repeat", "2", "--vary", "env:X=1,2", "--env", "OUT={run}/out")
    found = there(box, tmp_path, subcommand, *words, *sh(script, "{run}"))
    where = sorted(file.read_text().strip() for file in tmp_path.rglob("where"))
    assert where == sorted(f"{tmp_path}/{found['id']}/{name}" for name in ("1", "1.2", "2", "2.2"))
    assert outputs(found) == [f"{tmp_path}/{found['id']}/{name}/out" for name in ("1.2", "2.2")]
    assert all("{run}" not in job.line for job in all_jobs(box.environ))


def test_the_logs_of_its_ranks_can_be_in_the_folder_of_a_run(box: Box) -> None:
    words = ("-n", "1", "--launcher", "torchrun", "--logs", "{run}/ranks", "--", "t.py", "{1,2}")
    found = run(box, "each", *words, status=1)
    for number, row in enumerate(rows(found), 1):
        assert f"{found['id']}/{number}/ranks" in row["launch"] and "{run}" not in row["launch"]


def test_a_run_without_a_folder_in_its_command_makes_none(box: Box, tmp_path: Path) -> None:
    found = there(box, tmp_path, "each", "-n", "1", *sh("true", "{1,2}"))
    assert not (tmp_path / found["id"]).exists()


@BOTH
def test_a_command_before_each_run_meets_its_folder_and_its_devices(
    box: Box, subcommand: str, tmp_path: Path
) -> None:
    before = "echo $CUDA_VISIBLE_DEVICES $X > {run}/before; echo said; false"
    words = ("--gpus", "3", "-n", "1") if subcommand == "each" else ("--gpus", "3")
    words = (*words, "--before", before, "--vary", "env:X=1,2")
    found = there(box, tmp_path, subcommand, *words, *sh("cat $1/before", "{run}"))
    assert outputs(found) == ["3 1", "3 2"], "and that it failed ends nothing"


def test_the_output_of_a_run_before_can_be_removed(box: Box, tmp_path: Path) -> None:
    words = ("--before", "rm -r out", "--vary", "env:X=1,2", "--gpus", "none")
    there(box, tmp_path, "compare", *words, *sh("mkdir out && echo $X > out/x"))
    assert (tmp_path / "out/x").read_text() == "2\n"


@BOTH
def test_the_utilization_of_each_device_is_measured(box: Box, subcommand: str) -> None:
    task = Task(devices=("1",), user="ana", command="python t.py", pid=4711, memory=3000, load=70)
    box.driver.show_box(replace(EIGHT, tasks=(task,)))
    number = ("-n", "2") if subcommand == "each" else ()
    found = run(box, subcommand, "--gpus", "0,1", "--force", *number, "--vary", "env:X=0", *sh("sleep 0.4"))
    (only,) = rows(found)[0]["runs"]
    idle, busy = only["utilizations"]
    assert idle == 0 and 0 < busy <= 100 and only["utilization"] == pytest.approx((idle + busy) / 2)
    told = box.call(subcommand, "--show", found["id"], "--csv")[1]
    (line,) = csv.DictReader(io.StringIO(told))
    assert [float(each) for each in line["utilizations"].split()] == [idle, busy]


@BOTH
def test_a_metric_says_which_is_best(box: Box, subcommand: str) -> None:
    words = ("-n", "1", "--metric", "loss ([0-9.]+)", "--less")
    found = run(box, subcommand, *words, *sh("echo loss $1", "{4,2,3}"))
    assert [row["difference"] for row in rows(found)] == [100, 0, 50]


@BOTH
def test_a_run_that_takes_too_long_is_stopped(box: Box, subcommand: str) -> None:
    status = 0 if subcommand == "compare" else 1
    words = ("-n", "1", "--timeout", "3", "--", "sleep", "{1000,0}")
    found = run(box, subcommand, *words, status=status)
    assert [row["state"] for row in rows(found)] == ["timeout", "done"]


@BOTH
def test_a_failed_run_is_started_again(box: Box, subcommand: str, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/n$1; test $(wc -l < {tmp_path}/n$1) = $1"
    status = 0 if subcommand == "compare" else 1
    found = run(box, subcommand, "-n", "1", "--retry", "1", *sh(script, "{1..3}"), status=status)
    assert [(row["state"], row["attempts"]) for row in rows(found)] == [
        ("done", 1),
        ("done", 2),
        ("failed", 2),
    ]


def test_variants_share_held_devices_as_far_as_their_memory_goes(box: Box, tmp_path: Path) -> None:
    gates = [Gate(tmp_path / f"gate{number}") for number in range(4)]
    wait = f'read -r gate < {tmp_path}/gate"$1"'
    client = box.start("compare", "-n", "1", "--memory", "24G", *sh(wait, "{0..3}"))
    until(lambda: client.over or [each.state for each in all_jobs(box.environ)].count("running") == 3)
    assert not client.over, client.err
    until(lambda: box.claimed() == [0])
    for gate in gates:
        gate.open()
    assert client.end() == 0, client.err
    assert box.claimed() == []


def test_a_comparison_that_was_stopped_goes_on_with_the_same_devices(box: Box, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    script = f'echo begins; test "$X" = 0 || {{ {gate.wait}; }}'
    client = box.start("compare", "-q", "-n", "2", "--vary", "env:X=0,1,2", *sh(script))
    until(lambda: client.over or len(all_jobs(box.environ)) == 2)
    job: Job = all_jobs(box.environ)[1]
    says(job, "begins")
    os.kill(client.pid, signal.SIGINT)
    assert client.end() == 130
    (found,) = json.loads(box.call("compare", "--list", "--json")[1])["comparisons"]
    assert [row["state"] for row in rows(found)] == ["done", "stopped", "waiting"]
    box.hold(7)
    again = box.start("compare", "-q", "--json", "--resume", found["id"])
    for place in (2, 3):
        until(lambda number=place + 1: again.over or len(all_jobs(box.environ)) == number)  # type: ignore[misc]
        assert not again.over, again.err
        says(all_jobs(box.environ)[place], "begins")
        gate.open()
    assert again.end() == 0, again.err
    after = json.loads(again.out)
    assert [row["state"] for row in rows(after)] == ["done"] * 3
    assert rows(after)[0]["job"] == rows(found)[0]["job"] and after["devices"] == found["devices"]


@BOTH
def test_lines_of_a_file_are_varied_too(box: Box, subcommand: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks"
    file.write_text("sh -c 'echo $X one'\nsh -c 'echo $X two'\n")
    words = ("-n", "1", "--vary", "env:X=a,b", "--from-file", str(file))
    assert sorted(outputs(run(box, subcommand, *words))) == ["a one", "a two", "b one", "b two"]
