"""`gputui each` on a simulated driver, with real processes: a claim per task, one place in line, a table."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.allocating import waiting_loop
from gputui.allocating.queue import waiters
from gputui.inventory.job import Job
from gputui.inventory.waiter import Waiter
from gputui.jobs.experiments import runner
from gputui.jobs.experiments.store import kept
from gputui.jobs.process_tree import alive
from gputui.jobs.stop import stop
from gputui.jobs.store import all_jobs
from gputui.sources.simulated.spec import Task
from messages import lines_of
from unit.calling import Call
from unit.claims_support import EIGHT, Box, Forked, until
from unit.jobs_support import Gate, command, ended, gone, kill_supervisor


def each(box: Box, *words: str, status: int = 0) -> Any:
    """The JSON of a sweep."""
    found, out, err = box.call("each", "--json", "-q", *words)
    assert found == status, err
    return json.loads(out)


def show(box: Box) -> Any:
    """The only stored sweep, in its current state."""
    (found,) = json.loads(box.call("each", "--list", "--json")[1])["sweeps"]
    return found


def sh(script: str, *words: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script, "sh", *words)


def states(found: Any) -> list[str]:
    return [task["state"] for task in found["tasks"]]


def job_of(box: Box, task: Any) -> Job:
    (job,) = (job for job in all_jobs(box.environ) if job.id == task["job"])
    return job


def outputs(found: Any) -> list[str]:
    return [Path(task["log"]).read_text().strip() for task in found["tasks"]]


def running(box: Box) -> list[Job]:
    return [job for job in all_jobs(box.environ) if job.state == "running"]


class Gates:
    """A gate for each task: `wait` is a shell command that waits at the gate of "$1"."""

    def __init__(self, folder: Path) -> None:
        self._gates = {number: Gate(folder / f"gate{number}") for number in range(1, 6)}
        self.wait = f'read -r gate < {folder}/gate"$1"'

    def open(self, *numbers: int) -> None:
        """Let these tasks continue, once they wait."""
        for number in numbers:
            self._gates[number].open()


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path)


@pytest.fixture(autouse=True)
def no_jobs_are_left(box: Box) -> Any:
    yield
    for job in all_jobs(box.environ):
        stop(job, signal.SIGKILL, 0)


def started(box: Box, count: int, *words: str) -> Forked:
    """A sweep in a process of its own, once this many of its jobs run.

    The sweep reports a task a moment after the task's job has begun.
    """
    client = box.start("each", *words)
    until(lambda: client.over or len(running(box)) == count)
    assert not client.over, client.err
    return client


# Tasks


def test_every_combination_is_a_task_with_devices_of_its_own(box: Box) -> None:
    found = each(box, "-n", "2", *sh("echo $CUDA_VISIBLE_DEVICES $*", "--seed", "{1..2}", "--lr={0.1,0.01}"))
    assert states(found) == ["done"] * 4 and found["state"] == "done"
    assert [text.split(maxsplit=1)[1] for text in outputs(found)] == [
        "--seed 1 --lr=0.1",
        "--seed 1 --lr=0.01",
        "--seed 2 --lr=0.1",
        "--seed 2 --lr=0.01",
    ]
    assert [task["label"] for task in found["tasks"]][:2] == ["--seed 1 --lr=0.1", "--seed 1 --lr=0.01"]
    for task, text in zip(found["tasks"], outputs(found), strict=True):
        assert ",".join(task["devices"]) == text.split()[0] and len(task["devices"]) == 2
        assert task["status"] == 0 and task["attempts"] == 1 and task["seconds"] >= 0
    assert box.claimed() == []


@pytest.mark.thorough
def test_tasks_of_a_file_and_of_stdin(box: Box, tmp_path: Path) -> None:
    file = tmp_path / "tasks.txt"
    file.write_text("# seeds\nSOME=1 sh -c 'echo $SOME \"$1\"' sh 'a b'\n\n  echo {1..2}\n")
    found = each(box, "-n", "1", "--from-file", str(file))
    assert outputs(found) == ["1 a b", "{1..2}"]

    def from_stdin() -> int:
        from gputui.cli.main import main

        sys.stdin = file.open()
        return main(["each", "-q", "--json", "--from-file", "-"])

    client = box.fork(from_stdin)
    assert client.end() == 0
    assert outputs(json.loads(client.out)) == ["1 a b", "{1..2}"]


def test_tasks_run_at_once_on_different_devices_as_far_as_jobs_says(box: Box, gates: Gates) -> None:
    client = started(box, 3, "-n", "2", "--jobs", "3", *sh(gates.wait, "{1..5}"))
    until(lambda: states(show(box)) == ["running"] * 3 + ["waiting"] * 2)
    assert len(box.claimed()) == 6
    assert {claim.job for claim in box.claims()} == {job.id for job in running(box)}
    gates.open(1, 2, 3, 4, 5)
    assert client.end() == 0
    assert states(show(box)) == ["done"] * 5 and box.claimed() == []


def test_only_the_devices_that_are_named_are_used(box: Box) -> None:
    found = each(box, "--gpus", "6,3", "-n", "1", *sh("true", "{1..6}"))
    assert {device for task in found["tasks"] for device in task["devices"]} <= {"3", "6"}


def test_tasks_without_devices_run_one_by_one(box: Box) -> None:
    found = each(box, "--gpus", "none", *sh('echo "$CUDA_VISIBLE_DEVICES"', "{1..3}"))
    assert outputs(found) == ["", "", ""] and [task["devices"] for task in found["tasks"]] == [[]] * 3
    times = [(task["started"], task["ended"]) for task in found["tasks"]]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def test_inside_a_lease_the_tasks_are_steps_of_it(box: Box) -> None:
    status, out, err = box.call(
        "run", "-q", "--gpus", "4,5", "--", *_gputui("each", "-q", "--json", "-n", "1", *sh("true", "{1..4}"))
    )
    assert status == 0, err
    assert {device for task in json.loads(out)["tasks"] for device in task["devices"]} <= {"4", "5"}


def _gputui(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from gputui.cli.main import entry; entry()", *words)


# In line with others


def test_whoever_is_in_line_is_before_the_next_task(box: Box, gates: Gates) -> None:
    box.hold(2, 3, 4, 5, 6, 7)
    client = started(box, 2, "-n", "1", "--jobs", "2", *sh(gates.wait, "{1..4}"))
    other = box.start("run", "-q", "--wait", "--window", "0", "-n", "1", *sh(gates.wait, "5"))
    until(lambda: len(_line(box)) == 1)
    gates.open(1, 5)
    assert other.end() == 0
    until(lambda: states(show(box)) == ["done", "running", "waiting", "waiting"])
    client.kill()


def test_a_sweep_has_one_place_in_line(box: Box, gates: Gates) -> None:
    box.hold(2, 3, 4, 5, 6, 7)
    client = started(box, 2, "-n", "1", *sh(gates.wait, "{1..5}"))
    until(lambda: len(_line(box)) == 1)
    assert box.call("run", "-q", "--wait=0.1", "-n", "1", "--", "true")[0] == 124
    assert len(_line(box)) == 1
    gates.open(1)
    until(lambda: len(running(box)) == 2 and states(show(box))[2] == "running")
    until(lambda: len(_line(box)) == 1)
    client.kill()
    assert _line(box) == ()


def test_a_task_takes_the_devices_of_the_one_before_without_a_wait(box: Box) -> None:
    box.hold(1, 2, 3, 4, 5, 6, 7)
    began = time.monotonic()
    found = each(box, "--window", "30", "-n", "1", *sh("true", "{1..4}"))
    assert [task["devices"] for task in found["tasks"]] == [["0"]] * 4
    # Three waits in line would last three windows.
    assert time.monotonic() - began < 80


@pytest.mark.thorough
def test_devices_of_a_task_that_has_just_ended_are_tried_again_before_the_line(
    box: Box, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_SETTLING", 600.0)
    monkeypatch.setattr(runner, "_PAUSE", 0.01)
    client = started(
        box, 1, "--gpus", "0", "-n", "1", "--jobs", "1", "--window", "1h", *sh(gates.wait, "{1..2}")
    )
    # The driver still reports the process of the ended task.
    stale = Task(devices=("0",), user="ana", command="python t.py", pid=4711, memory=3000, load=97)
    box.driver.show_box(replace(EIGHT, tasks=(stale,)))
    gates.open(1)
    until(lambda: states(show(box)) == ["done", "waiting"])
    box.driver.show_box(EIGHT)
    gates.open(2)
    assert client.end() == 0


def test_a_task_in_line_takes_the_devices_of_one_that_took_too_long(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_SETTLING", 0.0)
    # Whoever waits in line looks again after an hour only.
    monkeypatch.setattr(waiting_loop, "_SHORTEST", 3600.0)
    monkeypatch.setattr(waiting_loop, "_LONGEST", 3600.0)
    box.hold(1, 2, 3, 4, 5, 6, 7)
    words = ("--gpus", "0", "-n", "1", "--timeout", "0.5", "--window", "0")
    client = box.start("each", "-q", "--json", *words, "--", "sleep", "100{0..1}")
    assert client.end() == 1, client.err
    assert states(json.loads(client.out)) == ["timeout", "timeout"]


def _line(box: Box) -> tuple[Waiter, ...]:
    return waiters(box.environ)


def test_more_devices_than_there_are_is_status_4(box: Box) -> None:
    status, _, err = box.call("each", "-q", "-n", "9", *sh("true", "{1..2}"))
    assert status == 4, err
    assert show(box)["state"] == "stopped" and all_jobs(box.environ) == []


# How tasks end


@pytest.mark.parametrize("going", [(), ("--keep-going",)])
def test_a_task_that_fails_is_a_row_and_the_others_run(box: Box, going: tuple[str, ...]) -> None:
    found = each(box, "-n", "1", "--jobs", "1", *going, *sh("exit $1", "{0,3,0}"), status=1)
    assert states(found) == ["done", "failed", "done"] and found["state"] == "done"
    assert [task["status"] for task in found["tasks"]] == [0, 3, 0]
    found = each(box, "-n", "1", "--", "{true,no-such-program}", status=1)
    assert [task["status"] for task in found["tasks"]] == [0, 127]
    assert "no-such-program" in found["tasks"][1]["reason"] and box.claimed() == []


def test_a_task_that_a_signal_ends_says_which(box: Box) -> None:
    found = each(box, "-n", "1", *sh("kill -$1 $$", "{KILL,0}"), status=1)
    assert [(task["status"], task["signal"]) for task in found["tasks"]] == [(137, signal.SIGKILL), (0, None)]
    assert "SIGKILL" in box.call("each", "--show", found["id"])[1]


def test_stop_on_failure_starts_no_further_task(box: Box) -> None:
    words = ("-n", "1", "--jobs", "1", "--stop-on-failure")
    found = each(box, *words, *sh("exit $1", "{0,3,0}"), status=1)
    assert states(found) == ["done", "failed", "waiting"] and found["state"] == "stopped"


@pytest.mark.thorough
def test_a_failed_task_is_started_again_as_often_as_is_said(box: Box, tmp_path: Path) -> None:
    script = f'echo x >> {tmp_path}/n$1; test $(wc -l < {tmp_path}/n$1) = "$1"'
    found = each(box, "-n", "1", "--retry", "1", *sh(script, "{1..3}"), status=1)
    assert [(task["state"], task["attempts"]) for task in found["tasks"]] == [
        ("done", 1),
        ("done", 2),
        ("failed", 2),
    ]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_tasks_that_run_and_the_table_stays(
    box: Box, gates: Gates, number: int, status: int
) -> None:
    client = started(box, 2, "-n", "1", "--jobs", "2", *sh(gates.wait, "{1..3}"))
    jobs = running(box)
    os.kill(client.pid, number)
    assert client.end() == status
    assert [ended(job).state for job in jobs] == ["stopped"] * 2 and not any(map(alive, map(command, jobs)))
    found = show(box)
    assert (states(found), found["state"]) == (["stopped", "stopped", "waiting"], "stopped")
    assert box.claimed() == [] and found["id"] in client.out


@pytest.mark.thorough
def test_a_closed_terminal_leaves_the_tasks_that_run(box: Box, gates: Gates) -> None:
    client = started(box, 2, "-n", "1", "--jobs", "2", *sh(gates.wait, "{1..3}"))
    until(lambda: states(show(box)) == ["running", "running", "waiting"])
    os.kill(client.pid, signal.SIGHUP)
    assert client.end() == 129
    assert len(running(box)) == 2 and states(show(box)) == ["running", "running", "waiting"]


# Resumed


def test_after_kill_9_what_runs_is_adopted_and_what_ended_well_is_not_run_again(
    box: Box, gates: Gates, tmp_path: Path
) -> None:
    count = f"echo $1 >> {tmp_path}/began; test $1 = 1 || {{ {gates.wait}; }}"
    client = started(box, 2, "-n", "1", "--jobs", "2", *sh(count, "{1..4}"))
    until(lambda: states(show(box)) == ["done", "running", "running", "waiting"])
    client.kill()
    second, third = running(box)
    # One process goes on; the other dies after its supervisor, so nothing records its end.
    process = command(third)
    kill_supervisor(third)
    os.kill(process.pid, signal.SIGKILL)
    gone(process)
    found = show(box)
    assert (states(found), found["state"]) == (["done", "running", "failed", "waiting"], "stopped")
    again = box.start("each", "--resume", found["id"], "-q", "--json")
    until(lambda: again.over or len(running(box)) == 2)
    assert not again.over, again.err
    gates.open(2, 3, 4)
    assert again.end() == 0, again.err
    found = json.loads(again.out)
    assert states(found) == ["done"] * 4 and found["state"] == "done"
    assert found["tasks"][1]["job"] == second.id and found["tasks"][2]["job"] != third.id
    assert sorted((tmp_path / "began").read_text().split()) == ["1", "2", "3", "3", "4"]
    assert box.claimed() == []


def test_a_job_whose_id_was_not_written_any_more_is_found_by_its_name(box: Box, gates: Gates) -> None:
    client = started(box, 1, "-n", "1", "--jobs", "1", *sh(gates.wait, "{1..2}"))
    client.kill()
    (job,) = running(box)
    (known,) = kept(box.environ).records
    (box.folder / "state/gputui/sweeps" / known.id / "changes.jsonl").unlink(missing_ok=True)
    again = box.start("each", "--resume", known.id, "-q", "--json")
    gates.open(1, 2)
    assert again.end() == 0, again.err
    assert json.loads(again.out)["tasks"][0]["job"] == job.id and len(all_jobs(box.environ)) == 2


@pytest.mark.thorough
def test_a_sweep_with_a_task_in_another_container_is_resumed_there_only(box: Box, gates: Gates) -> None:
    client = started(box, 2, "-n", "1", "--jobs", "2", *sh(gates.wait, "{1..3}"))
    client.kill()
    first, second = running(box)
    file = second.folder / "job.json"
    record = file.read_text()
    file.write_text(json.dumps({**json.loads(record), "pids": "pid:[1]"}))
    assert box.call("each", "--resume", show(box)["id"])[0] == 2
    file.write_text(record)
    assert len(running(box)) == 2 and alive(command(first))


def test_what_failed_or_was_stopped_runs_again_with_other_limits(box: Box, tmp_path: Path) -> None:
    found = each(
        box,
        *("-n", "1", "--jobs", "1", "--stop-on-failure"),
        *sh(f"test $1 = 1 -o -e {tmp_path}/fixed", "{1..3}"),
        status=1,
    )
    assert states(found) == ["done", "failed", "waiting"]
    (tmp_path / "fixed").touch()
    again = each(box, "--resume", found["id"][:3], "--jobs", "2")
    assert states(again) == ["done"] * 3 and again["tasks"][0] == found["tasks"][0]


def test_a_sweep_is_resumed_where_it_was_called(box: Box, tmp_path: Path) -> None:
    words = ["each", "-q", "--json", "-n", "1", "--stop-on-failure", "--jobs", "1"]
    words += sh("pwd; test -e fixed", "{1..2}")

    def there() -> int:
        from gputui.cli.main import main

        os.chdir(tmp_path)
        return main(words)

    client = box.fork(there)
    assert client.end() == 1
    (tmp_path / "fixed").touch()
    again = each(box, "--resume", json.loads(client.out)["id"])
    assert outputs(again) == [str(tmp_path)] * 2


def test_lines_of_a_file_with_varied_options_are_resumed(box: Box, tmp_path: Path) -> None:
    file = tmp_path / "tasks"
    file.write_text(f"sh -c 'test -e {tmp_path}/fixed && echo $X one'\nsh -c 'echo $X two'\n")
    found = each(box, "-n", "1", "--vary", "env:X=a,b", "--from-file", str(file), status=1)
    assert states(found) == ["failed", "done"] * 2
    file.unlink()
    (tmp_path / "fixed").touch()
    again = each(box, "--resume", found["id"])
    assert outputs(again) == ["a one", "a two", "b one", "b two"]


def test_a_detached_sweep_is_rerun_where_it_was_started(box: Box, tmp_path: Path) -> None:
    words = ["each", "--detach", "-n", "1", *sh("pwd", "{1..2}")]

    def there() -> int:
        from gputui.cli.main import main

        os.chdir(tmp_path)
        return main(words)

    client = box.fork(there)
    assert client.end() == 0, client.err
    (job,) = (job for job in all_jobs(box.environ) if job.id == client.out.strip())
    assert ended(job).exit_status == 0
    again = box.call("jobs", "rerun", job.id)[1].strip()
    (second,) = (job for job in all_jobs(box.environ) if job.id == again)
    assert ended(second).exit_status == 0
    sweeps = json.loads(box.call("each", "--list", "--json")[1])["sweeps"]
    assert [outputs(found) for found in sweeps] == [[str(tmp_path)] * 2] * 2


@pytest.mark.thorough
def test_only_one_runs_a_sweep(box: Box, gates: Gates) -> None:
    client = started(box, 1, "-n", "1", "--jobs", "1", *sh(gates.wait, "{1..2}"))
    name = show(box)["id"]
    assert box.call("each", "--resume", name)[0] == 2
    assert box.call("each", "--forget", name)[0] == 2
    gates.open(1, 2)
    assert client.end() == 0
    assert box.call("each", "--forget", name)[0] == 0 and kept(box.environ).records == ()


@pytest.mark.thorough
def test_detached_it_goes_on_as_a_job(box: Box) -> None:
    status, out, err = box.call("each", "--detach", "-n", "1", *sh("true", "{1..3}"))
    assert status == 0, err
    (client,) = (job for job in all_jobs(box.environ) if job.id == out.strip())
    assert ended(client).exit_status == 0, client.log.read_text()
    assert states(show(box)) == ["done"] * 3
    status, out, err = box.call("jobs", "rerun", client.id)
    assert status == 0, err
    (again,) = (job for job in all_jobs(box.environ) if job.id == out.strip())
    assert ended(again).exit_status == 0
    first, second = json.loads(box.call("each", "--list", "--json")[1])["sweeps"]
    assert states(second) == states(first) and outputs(second) == outputs(first)


def test_a_detached_sweep_that_is_stopped_stops_its_tasks(box: Box, gates: Gates) -> None:
    status, out, err = box.call("each", "--detach", "-n", "1", "--jobs", "2", *sh(gates.wait, "{1..3}"))
    assert status == 0, err
    until(lambda: states(show(box)) == ["running", "running", "waiting"])
    assert box.call("jobs", "stop", out.strip())[0] == 0
    assert states(show(box)) == ["stopped", "stopped", "waiting"] and running(box) == []


def test_a_detached_sweep_is_told_secrets_that_are_not_kept(box: Box, tmp_path: Path) -> None:
    words = ("each", "--detach", "-n", "1", *sh("echo $*", "--api-key=geheim", "{1..2}"))
    status, out, err = box.call(*words)
    assert status == 0, err
    (client,) = (job for job in all_jobs(box.environ) if job.id == out.strip())
    assert ended(client).exit_status == 0, client.log.read_text()
    assert outputs(show(box)) == ["--api-key=geheim 1", "--api-key=geheim 2"]
    assert "geheim" not in client.line
    assert box.call("jobs", "rerun", client.id)[0] == 2
    file = tmp_path / "tasks"
    file.write_text("echo --api-key=geheim 3\n")
    status, out, err = box.call("each", "--detach", "-n", "1", "--from-file", str(file))
    assert status == 0, err
    (client,) = (job for job in all_jobs(box.environ) if job.id == out.strip())
    assert ended(client).exit_status == 0, client.log.read_text()
    (found,) = (each for each in json.loads(box.call("each", "--list", "--json")[1])["sweeps"][1:])
    assert outputs(found) == ["--api-key=geheim 3"]
    assert box.call("jobs", "rerun", client.id)[0] == 2


# Devices shared by tasks


def test_tasks_share_a_device_as_far_as_their_memory_goes(box: Box, gates: Gates) -> None:
    box.hold(1, 2, 3, 4, 5, 6, 7)
    client = started(box, 3, "-n", "1", "--memory", "24G", "--window", "0", *sh(gates.wait, "{1..5}"))
    until(lambda: _line(box))
    until(lambda: states(show(box)) == ["running"] * 3 + ["waiting"] * 2)
    assert [task["devices"] for task in show(box)["tasks"]] == [["0"]] * 3 + [[], []]
    assert len([claim for claim in box.claims() if claim.key == box.uuids[0]]) == 1
    gates.open(1, 2, 3, 4, 5)
    assert client.end() == 0, client.err
    assert box.claimed() == [1, 2, 3, 4, 5, 6, 7]


def test_a_task_joins_only_tasks_with_as_many_devices(box: Box, gates: Gates) -> None:
    box.hold(2, 3, 4, 5, 6, 7)
    left_out = ("--except", "n=2 {1,2}=2", "--except", "n=1 {1,2}=1")
    words = ("--vary", "n=2,1", *left_out, "--memory", "24G", "--window", "0")
    client = started(box, 1, *words, *sh(gates.wait, "{1,2}"))
    until(lambda: _line(box))
    gates.open(1, 2)
    assert client.end() == 0, client.err
    assert [len(task["devices"]) for task in show(box)["tasks"]] == [2, 1]


@pytest.mark.thorough
def test_a_shared_device_stays_claimed_for_the_tasks_if_the_sweep_is_killed(box: Box, gates: Gates) -> None:
    box.hold(1, 2, 3, 4, 5, 6, 7)
    client = started(
        box, 2, "-n", "1", "--jobs", "2", "--memory", "24G", "--window", "0", *sh(gates.wait, "{1..3}")
    )
    client.kill()
    assert 0 in box.claimed()
    gates.open(1)
    until(lambda: len(running(box)) == 1)
    assert 0 in box.claimed()
    gates.open(2)
    until(lambda: 0 not in box.claimed())


def test_a_task_that_joins_later_holds_the_shared_device_too(box: Box, gates: Gates) -> None:
    box.hold(1, 2, 3, 4, 5, 6, 7)
    sharing = ("-n", "1", "--jobs", "2", "--memory", "24G", "--window", "0")
    client = started(box, 2, *sharing, *sh(gates.wait, "{1..3}"))
    gates.open(1)
    until(lambda: states(show(box)) == ["done", "running", "running"])
    client.kill()
    gates.open(2)
    until(lambda: len(running(box)) == 1)
    assert 0 in box.claimed()
    gates.open(3)
    until(lambda: 0 not in box.claimed())


def test_nobody_is_added_to_a_shared_device_while_others_are_in_line(box: Box, gates: Gates) -> None:
    box.hold(1, 2, 3, 4, 5, 6, 7)
    client = started(box, 2, "-n", "1", "--jobs", "2", "--memory", "24G", *sh(gates.wait, "{1..3}"))
    other = box.start("run", "-q", "--wait", "-n", "1", "--", "true")
    until(lambda: len(_line(box)) == 1)
    gates.open(1)
    # The third task would fit, and still goes to the end of the line.
    until(lambda: len(_line(box)) == 2)
    until(lambda: states(show(box)) == ["done", "running", "waiting"])
    client.kill()
    other.kill()


# Calls


def test_dry_run_prints_every_launch_line_and_starts_nothing(box: Box) -> None:
    status, out, err = box.call("each", "--dry-run", "-n", "2", "--", "torchrun", "t.py", "--seed", "{1..3}")
    assert status == 0, err
    assert [line.rpartition(" ")[2] for line in out.splitlines()] == ["1", "2", "3"]
    assert all("CUDA_VISIBLE_DEVICES=" in line for line in out.splitlines())
    assert all_jobs(box.environ) == [] and kept(box.environ).records == ()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--", "true"),
        ("--", "true", "1", "2", "3"),
        ("--", "true", "{1..100000}"),
        ("--jobs", "0", "--", "true", "{1,2}"),
        ("--memory", "much", "--", "true", "{1,2}"),
        ("--memory", "1G", "--gpus", "none", "--", "true", "{1,2}"),
        ("--retry", "-1", "--", "true", "{1,2}"),
        ("--gpus", "none", "-n", "1", "--", "true", "{1,2}"),
        ("--gpus", "0,,1", "--", "true", "{1,2}"),
        ("--from-file", "/nowhere"),
        ("--from-file", "/dev/null"),
        ("--from-file", "/dev/null", "--", "true"),
        ("--show", "k3f9"),
        ("--resume", "k3f9"),
        ("--list", "--", "true", "{1,2}"),
        ("--saved", "1", "--", "true", "{1,2}"),
        ("--demo", "--", "true", "{1,2}"),
        ("--stop-on-failure", "--keep-going", "--", "true", "{1,2}"),
        ("-n", "1", "--", "torchrun", "--nproc-per-node={2,4}", "t.py"),
    ],
)
def test_a_wrong_call_is_one_line_and_starts_nothing(box: Box, words: tuple[str, ...]) -> None:
    status, out, err = box.call("each", *words)
    assert (status, out) == (2, "") and len(lines_of(err)) == 1, err
    assert all_jobs(box.environ) == [] and kept(box.environ).records == ()


def test_secrets_are_not_kept_and_a_resumed_sweep_is_told_them_again(box: Box, tmp_path: Path) -> None:
    words = ("-n", "1", *sh(f"test -e {tmp_path}/fixed", "--api-key=geheim", "{1..2}"))
    found = each(box, *words, status=1)
    (folder,) = (box.folder / "state/gputui/sweeps").iterdir()
    assert not any("geheim" in file.read_text() for file in folder.iterdir())
    assert box.call("each", "--resume", found["id"])[0] == 2
    (tmp_path / "fixed").touch()
    assert box.call("each", "--resume", found["id"], "-n", "1", *sh("true", "{1..2}"))[0] == 2
    assert states(each(box, "--resume", found["id"], *words)) == ["done"] * 2


@pytest.mark.thorough
def test_the_table_is_shown_again_with_its_logs(box: Box) -> None:
    found = each(box, "-n", "1", *sh("exit $1", "{0,3}"), status=1)
    status, out, _ = box.call("each", "--show", found["id"])
    head, _, _, first, second = out.splitlines()
    assert status == 0 and "1/2" in head
    assert first.split()[-1].endswith(f"{found['tasks'][0]['job']}/log") and "status 3" in second
    assert found["id"] in box.call("each", "--list")[1]
    assert box.call("jobs", "log", f"{found['id']}.2")[0] == 0


def test_a_line_of_a_file_that_needs_a_shell_is_refused(box: Box) -> None:
    file = box.folder / "tasks"
    for line in ("rm -r out; python x.py", "python x.py > log", "python x.py # why"):
        file.write_text(f"echo 1\n{line}\n")
        status, out, said = box.call("each", "-n", "1", "--from-file", str(file))
        assert (status, out) == (2, "") and "line 2" in said
    file.write_text("bash -c 'echo 1; echo 2'\necho 'a;b'\n")
    assert box.call("each", "-n", "1", "-q", "--from-file", str(file))[0] == 0


def test_a_pipe_to_which_nobody_writes_has_no_task(tmp_path: Path, call: Call) -> None:
    pipe = tmp_path / "tasks"
    os.mkfifo(pipe)
    call("each", "--demo", "-n", "1", "--from-file", str(pipe)).refused(2)
