"""`gputui compare` on a simulated driver, with real processes: one claim, a job per variant, stored rows."""

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
from gputui.jobs.experiments.store import kept
from gputui.jobs.process_tree import alive
from gputui.jobs.store import all_jobs
from gputui.launching.history_file import remember
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.spec import Task
from messages import lines_of
from unit.builders import GIB
from unit.claims_support import EIGHT, Box, Forked, until
from unit.jobs_support import Gate, command, ended, gone, says

GUIDE = """case $KIND in
ddp) echo "{'train_runtime': 101.9003, 'train_samples_per_second': 1.963, 'epoch': 0.41}";;
dp) echo "{'train_runtime': 110.5948, 'train_samples_per_second': 1.808, 'epoch': 0.41}";;
*) echo "{'train_runtime': 131.4367, 'train_samples_per_second': 1.522, 'epoch': 0.41}";;
esac"""
"""The output of the transformers example in Hugging Face's guide, by the kind of its start."""


def compare(box: Box, *words: str, status: int = 0) -> Any:
    """The JSON of a comparison."""
    found, out, err = box.call("compare", "--json", "-q", *words)
    assert found == status, err
    return json.loads(out)


def sh(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def output(box: Box, run: Any) -> str:
    (job,) = (job for job in all_jobs(box.environ) if job.id == run["job"])
    return job.log.read_text()


def running(box: Box, gate: Gate, *words: str) -> tuple[Forked, Job]:
    """A comparison of three variants; the second one runs and waits at the gate."""
    script = f'echo begins; test "$X" = 0 || {{ {gate.wait}; }}'
    client = box.start("compare", "-n", "2", "--vary", "env:X=0,1,2", *words, *sh(script))
    until(lambda: client.over or len(all_jobs(box.environ)) == 2)
    assert not client.over, client.err
    job = all_jobs(box.environ)[1]
    says(job, "begins")
    return client, job


def let_the_last_one_go(box: Box, gate: Gate) -> None:
    """Open the gate for the second variant, and for the third."""
    gate.open()
    until(lambda: len(all_jobs(box.environ)) == 3)
    gate.open()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def test_the_guides_three_outputs(box: Box) -> None:
    found = compare(box, "-n", "2", "--vary", "env:KIND=dp,ddp,nop2p", *sh(GUIDE))
    rows = {row["values"][0]: row for row in found["variants"]}
    assert found["basis"] == "runtime"
    assert {kind: round(row["difference"], 1) for kind, row in rows.items()} == {
        "ddp": 0,
        "dp": 8.5,
        "nop2p": 29.0,
    }
    assert {kind: row["summary"]["steps_per_second"]["median"] for kind, row in rows.items()} == {
        "ddp": 1.963,
        "dp": 1.808,
        "nop2p": 1.522,
    }
    status, out, _ = box.call("compare", "--show", found["id"])
    assert status == 0
    for time, difference in (("101.9 s", "best"), ("110.6 s", "+8.5%"), ("131.4 s", "+29.0%")):
        assert any(time in line and difference in line for line in out.splitlines())
    assert "train_runtime" in out


def test_every_variant_is_a_job_on_the_same_devices_under_one_claim(box: Box) -> None:
    claims = f"ls {box.claims_folder}/*.claim | sort; echo $CUDA_VISIBLE_DEVICES $X $Y"
    found = compare(box, "-n", "2", "--vary", "env:X=0,1", "--vary", "env:Y=a,b", *sh(claims))
    said = [output(box, row["runs"][0]).splitlines() for row in found["variants"]]
    assert [each[-1] for each in said] == ["0,1 0 a", "0,1 0 b", "0,1 1 a", "0,1 1 b"]
    assert all(len(each) == 3 and each[:-1] == said[0][:-1] for each in said)
    assert found["devices"] == ["0", "1"] and found["state"] == "done"
    assert box.claimed() == []


def test_the_devices_are_claimed_for_the_job_that_runs(box: Box, gate: Gate) -> None:
    client, job = running(box, gate)
    until(lambda: {claim.job for claim in box.claims()} == {job.id})
    assert box.claimed() == [0, 1]
    assert box.call("run", "-q", "--gpus", "0", "--", "true")[0] == 4
    let_the_last_one_go(box, gate)
    assert client.end() == 0
    assert box.claimed() == []


def test_a_variant_that_a_signal_ends_says_which(box: Box) -> None:
    found = compare(box, "-n", "1", "--vary", "env:S=TERM,0", "--", "sh", "-c", "kill -$S $$")
    runs = [row["runs"][0] for row in found["variants"]]
    assert [(run["state"], run["status"], run["signal"]) for run in runs] == [
        ("failed", 143, signal.SIGTERM),
        ("done", 0, None),
    ]
    assert "SIGTERM" in box.call("compare", "--show", found["id"])[1]


def test_a_variant_that_fails_or_cannot_start_is_a_row(box: Box) -> None:
    found = compare(box, "-n", "1", "--vary", "word:program=false,no-such-program,true", "--", "{program}")
    runs = [row["runs"][0] for row in found["variants"]]
    assert [(run["state"], run["status"]) for run in runs] == [("failed", 1), ("failed", 127), ("done", 0)]
    assert "no-such-program" in runs[1]["reason"]
    assert [row["difference"] for row in found["variants"]] == [None, None, 0]
    assert compare(box, "-n", "1", "--vary", "env:X=0,1", "--", "false", status=1)["state"] == "done"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_variant_that_runs_and_the_rows_stay(
    box: Box, gate: Gate, number: int, status: int
) -> None:
    client, job = running(box, gate)
    os.kill(client.pid, number)
    assert client.end() == status
    assert ended(job).state == "stopped" and not alive(command(job))
    (found,) = kept(box.environ).records
    assert found.state == "stopped" and box.claimed() == []
    assert [run.state for row in found.rows for run in row.runs] == ["done", "stopped"]
    assert found.id in client.out and signal.Signals(number).name in client.err


def test_a_client_that_is_killed_leaves_no_orphan(box: Box, gate: Gate) -> None:
    client, job = running(box, gate)
    process = command(job)
    client.kill()
    gone(process)
    assert ended(job).state == "stopped"
    until(lambda: box.claimed() == [])
    (found,) = kept(box.environ).records
    assert found.state == "stopped" and found.runs_over == 1
    assert len(all_jobs(box.environ)) == 2


def test_a_run_that_takes_too_long_is_stopped_and_the_next_one_runs(box: Box) -> None:
    found = compare(
        box, "-n", "1", "--timeout", "3", "--vary", "env:T=1000,0", *sh("exec sleep $T"), status=0
    )
    assert [row["runs"][0]["state"] for row in found["variants"]] == ["timeout", "done"]


def test_repeats_go_round_and_have_a_median(box: Box) -> None:
    found = compare(
        box,
        *("-n", "1", "--repeat", "3", "--metric", "loss ([0-9]+)", "--less", "--vary", "env:X=1,2"),
        *sh(f'cd "{box.folder}"; echo x >> "n$X"; echo loss $(( $X * $(wc -l < "n$X") ))'),
    )
    assert [[run["metric"] for run in row["runs"]] for row in found["variants"]] == [[1, 2, 3], [2, 4, 6]]
    assert [row["summary"]["metric"]["median"] for row in found["variants"]] == [2, 4]
    assert [row["difference"] for row in found["variants"]] == [0, 100]
    order = [job.name.split()[-1] for job in all_jobs(box.environ) if job.name]
    assert order == ["X=1", "X=2"] * 3


@pytest.mark.thorough
def test_a_warm_up_runs_first_and_is_no_row(box: Box) -> None:
    count = sh(f'cd "{box.folder}"; echo x >> n; echo loss $(wc -l < n)')
    found = compare(box, "-n", "1", "--warm-up", "--metric", "loss (.*)", "--vary", "env:X=1,2", *count)
    assert [[run["metric"] for run in row["runs"]] for row in found["variants"]] == [[2], [3]]
    assert [job.name.split()[-1] for job in all_jobs(box.environ) if job.name] == ["X=1", "X=1", "X=2"]
    said = box.call("compare", "-n", "1", "--warm-up", "--vary", "env:X=1", "--", "true")[2]
    assert "warm-up X=1: on GPU 0" in said and "1/1 X=1: on GPU 0" in said


def test_memory_and_utilization_are_measured(box: Box) -> None:
    task = Task(devices=("1",), user="ana", command="python t.py", pid=4711, memory=3000, load=70)
    box.driver.show_box(replace(EIGHT, tasks=(task,)))
    found = compare(box, "--gpus", "0,1", "--force", "--vary", "env:X=0", *sh("sleep 0.4"))
    (run,) = found["variants"][0]["runs"]
    assert run["peak_memory"] > 2 * GIB and 0 < run["utilization"] < 70
    cpu = compare(box, "--gpus", "none", "--vary", "env:X=0", *sh("sleep 0.2"))
    (run,) = cpu["variants"][0]["runs"]
    assert (run["peak_memory"], run["utilization"], cpu["devices"]) == (None, None, [])


@pytest.mark.thorough
def test_a_driver_that_goes_away_ends_no_comparison(box: Box, gate: Gate) -> None:
    client, _ = running(box, gate)
    box.driver.fail_init(9)
    let_the_last_one_go(box, gate)
    assert client.end() == 0


@pytest.mark.thorough
def test_the_number_of_devices_and_which_ones_can_be_varied(box: Box) -> None:
    show = sh("echo $CUDA_VISIBLE_DEVICES")
    found = compare(box, "--vary", "n=1,2,4", *show)
    assert [output(box, row["runs"][0]).strip() for row in found["variants"]] == ["0", "0,1", "0,1,2,3"]
    assert len(found["devices"]) == 4
    found = compare(box, "--vary", "gpus=5+4,1", *show)
    assert [output(box, row["runs"][0]).strip() for row in found["variants"]] == ["5,4", "1"]
    assert [row["devices"] for row in found["variants"]] == [["5", "4"], ["1"]]


def test_dry_run_prints_every_launch_line_and_starts_nothing(box: Box) -> None:
    words = ("--vary", "launcher=python,torchrun", "--vary", "arg:--lr=1,2", "--vary", "ids=index,uuid")
    status, out, err = box.call(
        "compare", "--dry-run", "-n", "2", *words, "--", "python", "t.py", "--lr", "3"
    )
    lines = out.splitlines()
    assert status == 0 and len(lines) == 8, err
    assert [" torchrun " in line for line in lines] == [False] * 4 + [True] * 4
    assert [line.endswith("--lr 1") for line in lines] == [True, True, False, False] * 2
    assert ["VISIBLE_DEVICES=GPU-" in line for line in lines] == [False, True] * 4
    assert all_jobs(box.environ) == [] and kept(box.environ).records == ()
    assert not box.claims_folder.exists() or box.claimed() == []


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--vary", "launcher=no-such"),
        ("--vary", "numa-binding=1,2"),
        ("--vary", "processes=0,1"),
        ("--vary", "nodes=1,2"),
        ("--vary", "env:X=1", "--vary", "env:X=2"),
        ("--vary", "word:x=1"),
        ("--vary", "n=1,x"),
        ("--vary", "gpus=0,99"),
        ("-n", "2", "--vary", "n=1,2"),
        ("--vary", "env:X=1", "--metric", "no group"),
        ("--vary", "env:X=1", "--less"),
        ("--vary", "env:X=1", "--repeat", "0"),
        ("--vary", "env:X=1", "--timeout", "soon"),
        ("--vary", "env:X=1", "--show", "k3f9"),
    ],
)
def test_a_wrong_call_is_one_line_and_starts_nothing(box: Box, words: tuple[str, ...]) -> None:
    status, out, err = box.call("compare", *words, "--", "true")
    assert (status, out) == (2, "") and len(lines_of(err)) == 1, err
    assert all_jobs(box.environ) == [] and kept(box.environ).records == ()


def test_variants_whose_commands_ask_for_different_devices_are_refused(box: Box) -> None:
    words = ("--", "torchrun", "--nproc-per-node=4", "t.py")
    status, _, err = box.call("compare", "--vary", "arg:--nproc-per-node=1,2", *words)
    assert status == 2, err


def test_comparisons_are_kept_listed_exported_and_forgotten(box: Box) -> None:
    found = compare(box, "-n", "1", "--vary", "env:X=0,1", "--", "true")
    name = found["id"]
    assert json.loads(box.call("compare", "--show", name, "--json")[1]) == found
    assert json.loads(box.call("compare", "--list", "--json")[1])["comparisons"] == [found]
    rows = list(csv.DictReader(io.StringIO(box.call("compare", "--show", name[:3], "--csv")[1])))
    assert [(row["env:X"], row["state"]) for row in rows] == [("0", "done"), ("1", "done")]
    listed = box.call("compare", "--list")[1].splitlines()
    assert len(listed) == 2 and listed[1].split()[:3] == [name, "done", "2/2"]
    assert box.call("compare", "--forget", name)[0] == 0
    assert box.call("compare", "--show", name)[0] == 2 and box.call("compare", "--list")[1] == ""
    assert len(all_jobs(box.environ)) == 2


@pytest.mark.thorough
def test_a_comparison_that_runs_is_not_forgotten(box: Box, gate: Gate) -> None:
    client, job = running(box, gate)
    (found,) = kept(box.environ).records
    assert found.state == "running" and box.call("compare", "--forget", found.id)[0] == 2
    client.kill()
    ended(job)


def test_secrets_are_neither_shown_nor_kept(box: Box) -> None:
    words = ("--vary", "env:HF_TOKEN=hf_first,hf_second", "--vary", "arg:--api-key=third")
    status, out, err = box.call("compare", "-n", "1", *words, *sh("echo $HF_TOKEN $1"), "x")
    assert status == 0, err
    (folder,) = (box.folder / "state/gputui/comparisons").iterdir()
    record = "".join(file.read_text() for file in folder.iterdir())
    for secret in ("hf_first", "hf_second", "third"):
        assert secret not in out + err + record
    assert len({row.values for row in kept(box.environ).records[0].rows}) == 2


def test_an_empty_value_leaves_a_variable_as_it_is(box: Box) -> None:
    found = compare(box, "--gpus", "none", "--vary", "env:SOME=,1", *sh("echo ${SOME-unset}"))
    assert [output(box, row["runs"][0]).strip() for row in found["variants"]] == ["unset", "1"]


@pytest.mark.thorough
def test_a_variant_can_be_rerun_as_a_job(box: Box) -> None:
    found = compare(box, "-n", "1", "--vary", "env:SOME=1,2", *sh("echo $SOME"))
    job = found["variants"][1]["runs"][0]["job"]
    status, out, err = box.call("jobs", "rerun", job)
    assert status == 0, err
    (again,) = (each for each in all_jobs(box.environ) if each.id == out.strip())
    assert ended(again).log.read_text() == "2\n"


def test_a_comparison_can_be_a_job_and_started_once_more(box: Box) -> None:
    words = ("-n", "1", "--vary", "env:X=0,1", *sh("echo $X ${GPUTUI_JOB-no}"))
    status, out, err = box.call("compare", "--detach", *words)
    assert status == 0, err
    (client,) = (job for job in all_jobs(box.environ) if job.id == out.strip())
    assert ended(client).status == 0, client.log.read_text()
    (found,) = kept(box.environ).records
    assert found.state == "done" and found.id in client.log.read_text()
    assert [output(box, {"job": row.runs[0].job}) for row in found.rows] == ["0 no\n", "1 no\n"]
    again = box.call("jobs", "rerun", client.id)
    assert again[0] == 0, again[2]
    (second,) = (job for job in all_jobs(box.environ) if job.id == again[1].strip())
    assert ended(second).status == 0 and len(kept(box.environ).records) == 2
    shown = box.call("jobs", "show", client.id, "--command")[1]
    assert shown.startswith("gputui compare -n 1 --vary") and "--detach" not in shown


def test_a_comparison_that_is_a_job_ends_with_its_variant_when_it_is_stopped(box: Box, gate: Gate) -> None:
    script = f"echo begins; {gate.wait}"
    out = box.call("compare", "--detach", "-n", "1", "--vary", "env:X=0,1", *sh(script))[1]
    until(lambda: len(all_jobs(box.environ)) == 2)
    variant = all_jobs(box.environ)[1]
    says(variant, "begins")
    assert box.call("jobs", "stop", out.strip())[0] == 0
    assert ended(variant).state == "stopped" and box.claimed() == []
    assert kept(box.environ).records[0].state == "stopped"


def test_a_wrong_call_starts_no_job(box: Box) -> None:
    assert box.call("compare", "--detach", "--vary", "nothing=1", "--", "true")[0] == 2
    assert all_jobs(box.environ) == []


def test_inside_a_lease_the_variants_are_a_step_of_it(box: Box) -> None:
    def body() -> None:
        status, out, err = box.call(
            "compare", "--json", "-q", "-n", "1", "--vary", "env:X=0,1", "--", "true", keep=True
        )
        assert status == 0, err
        assert json.loads(out)["devices"] == ["5"]

    box.inside([5], body)
    assert box.claimed() == []


def test_devices_that_are_taken_are_not_compared_on(box: Box) -> None:
    box.hold(0)
    status, out, err = box.call("compare", "--gpus", "0", "--vary", "env:X=0,1", "--", "true")
    assert (status, out) == (4, "") and kept(box.environ).records == (), err


def test_of_a_saved_launch_everything_can_be_varied(box: Box) -> None:
    options = LaunchOptions(("python", "t.py", "--lr", "1"), launcher="torchrun", ids="uuid")
    assert remember(box.environ, options, 2, 1e9) is None
    words = ("--vary", "ids=index,uuid", "--vary", "launcher=auto,torchrun", "--vary", "arg:--lr=2")
    status, out, err = box.call("compare", "--dry-run", "--saved", "1", *words)
    lines = out.splitlines()
    assert status == 0, err
    assert ["DEVICES=GPU-" in line for line in lines] == [False, False, True, True]
    assert [" torchrun " in line for line in lines] == [False, True] * 2
    assert all(line.endswith("--lr 2") for line in lines)
