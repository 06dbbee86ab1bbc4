"""`run --after`, `--after-ok`: a launch starts when other jobs have ended, and holds nothing until then."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

import gputui
from gputui.allocating.queue import waiters
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.after import AwaitedJobError, settled, wait_for_jobs
from gputui.jobs.stop import stop
from gputui.jobs.store import all_jobs, forget
from gputui.jobs.wait import refreshed
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from unit.calling import Call
from unit.claims_support import Box
from unit.jobs_support import Desk, Gate, command, desk_at, ended, gone, kill_supervisor, says, until


@pytest.fixture
def desk(box: Box) -> Iterator[Desk]:
    """The jobs of the box."""
    with desk_at(box.folder) as made:
        made.environ = {**box.environ}
        yield made


@pytest.fixture
def gate(desk: Desk) -> Gate:
    return desk.gate()


def detached(box: Box, *words: str) -> Job:
    status, out, err = box.call("run", "-q", "--detach", "--window", "0", *words)
    assert status == 0, err
    return next(job for job in all_jobs(box.environ) if job.id == out.strip())


SEES = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


def test_a_job_starts_when_another_has_ended_and_holds_nothing_until_then(
    box: Box, desk: Desk, gate: Gate
) -> None:
    first = desk.sh(f"{gate.wait}; exit 3")
    second = detached(box, "-n", "2", "--after", first.id, *SEES)
    says(second, f"waits for the end of {first.id}")
    assert (refreshed(second).state, second.after, second.after_ok) == ("waiting", (first.id,), ())
    assert box.claims() == () and waiters(box.environ) == ()
    assert f"(after {first.id})" in box.call("jobs")[1]
    told = json.loads(box.call("jobs", "show", "--json", second.id)[1])["job"]
    assert (told["after"], told["after_ok"]) == ([first.id], [])
    gate.open()
    done = ended(second)
    assert (done.state, len(done.devices)) == ("done", 2)
    assert ended(first).ended is not None and (done.taken or 0) >= (refreshed(first).ended or 0)


def test_it_waits_in_the_queue_when_the_other_job_has_ended(box: Box, desk: Desk) -> None:
    first, other = ended(desk.sh("true")), box.hold(*range(8))
    second = detached(box, "-n", "1", "--after", first.id, *SEES)
    until(lambda: [each.job for each in waiters(box.environ)] == [second.id])
    other.kill()
    assert ended(second).state == "done"


def test_all_jobs_must_have_ended(box: Box, desk: Desk, gate: Gate) -> None:
    other = desk.gate()
    first, second = desk.sh(gate.wait), desk.start("/bin/sh", "-c", other.wait, name="nightly")
    third = detached(box, "--gpus", "none", "--after", f"{first.id},nightly", "--", "true")
    assert third.after == (first.id, second.id)
    says(third, f"{first.id}, {second.id}")
    gate.open()
    says(third, f"waits for the end of {second.id}")
    assert refreshed(third).state == "waiting"
    other.open()
    assert ended(third).state == "done" and ended(third).devices == ()


@pytest.mark.thorough
def test_a_job_that_must_have_ended_well_lets_the_next_one_start(box: Box, desk: Desk, gate: Gate) -> None:
    first = desk.sh(gate.wait)
    second = detached(box, "-n", "1", "--after-ok", first.id, *SEES)
    third = detached(box, "-n", "1", "--after-ok", second.id, *SEES)
    gate.open()
    assert [ended(job).state for job in (second, third)] == ["done", "done"]


def test_what_waits_for_a_good_end_is_cancelled_with_the_reason(box: Box, desk: Desk, gate: Gate) -> None:
    still, first = desk.sh("sleep 600"), desk.sh(f"{gate.wait}; exit 3")
    second = detached(box, "-n", "1", "--after-ok", f"{first.id},{still.id}", *SEES)
    third = detached(box, "-n", "1", "--after-ok", second.id, *SEES)
    gate.open()
    done = ended(second)
    assert (done.state, done.status, done.devices) == ("failed", 5, ())
    assert done.why == f"job {first.id} ended with status 3: nothing is started (--after-ok)"
    told = json.loads(box.call("jobs", "wait", "--json", third.id)[1])["job"]
    assert (told["status"], told["state"]) == (5, "failed") and second.id in told["reason"]
    assert done.why in box.call("jobs")[1] and not refreshed(still).over


@pytest.mark.parametrize("how", [(), ("--detach",), pytest.param(("--attach",), marks=pytest.mark.thorough)])
def test_a_job_that_has_failed_already_is_status_5(box: Box, desk: Desk, how: tuple[str, ...]) -> None:
    first = ended(desk.sh("exit 3"))
    status, out, err = box.call("run", *how, "-n", "1", "--after-ok", first.id, "--", "echo", "ran")
    assert (status, out) == (5, "") and "ended with status 3" in err
    assert box.call("run", "-q", "--gpus", "none", "--after", first.id, "--", "echo", "ran")[:2] == (
        0,
        "ran\n",
    )


def test_a_stopped_job_and_one_whose_end_is_not_known_have_not_ended_well(box: Box, desk: Desk) -> None:
    first, second = stop(desk.sh("sleep 600"), signal.SIGKILL, 0).job, desk.sh("sleep 600")
    kill_supervisor(second)
    os.kill(command(second).pid, signal.SIGKILL)
    gone(command(second))
    for job, how in ((first, "was stopped"), (second, "status unknown")):
        words = ("run", "--json", "--detach", "-n", "1", "--after-ok", job.id, "--", "true")
        status, out, _ = box.call(*words)
        error = json.loads(out)["error"]
        assert (status, error["code"]) == (5, "awaited_job_failed") and how in error["message"]


def test_a_job_that_is_forgotten_meanwhile_has_ended(desk: Desk, gate: Gate) -> None:
    first = desk.sh(gate.wait)
    asked = settled(LaunchRequest(LaunchOptions(("true",)), after=first.id), desk.environ, True)
    good = replace(asked, after=None, after_ok=asked.after)

    def forgotten(_: str) -> None:
        if first.folder.exists():
            gate.open()
            forget(ended(first))

    with pytest.raises(AwaitedJobError, match="status unknown"):
        wait_for_jobs(good, desk.environ, forgotten)


def test_a_command_in_this_terminal_waits_too_and_keeps_its_process(box: Box, desk: Desk, gate: Gate) -> None:
    first = desk.sh(gate.wait)
    call = box.start(
        "run", "-q", "-n", "1", "--window", "0", "--after", first.id, "--", "sh", "-c", "echo $$"
    )
    until(lambda: "waits for" in call.err)
    assert box.claims() == () and waiters(box.environ) == ()
    gate.open()
    assert call.end() == 0 and int(call.out) == call.pid


@pytest.mark.thorough
def test_the_output_of_a_job_that_waits_is_followed(box: Box, desk: Desk) -> None:
    first = ended(desk.sh("true"))
    words = ("run", "-q", "--attach", "-n", "1", "--window", "0", "--after-ok", first.id, "--", "sh", "-c")
    status, out, _ = box.call(*words, "echo ran; exit 7")
    assert status == 7 and out.endswith("ran\n")


@pytest.mark.thorough
def test_the_wait_for_devices_begins_when_the_jobs_have_ended(box: Box, desk: Desk) -> None:
    first = ended(desk.sh("true"))
    box.hold(*range(8))
    words = ("--after", first.id, "--wait", "0.2", "--window", "0", "-n", "1", "--", "true")
    assert box.call("run", *words)[0] == 124
    job = ended(detached(box, *words))
    assert (job.state, job.status) == ("failed", 124) and "gave up" in (job.why or "")


@pytest.mark.parametrize("words", ["k1l1", "", "k3,,m6", "other:k3f9", "../x"])
def test_what_is_no_job_of_ours_is_a_wrong_call(box: Box, words: str) -> None:
    for option in ("--after", "--after-ok"):
        for how in ((), ("--detach",)):
            status, out, err = box.call("run", *how, "-n", "1", option, words, "--", "true")
            assert (status, out, len(err.splitlines())) == (2, "", 1), err
    assert all_jobs(box.environ) == []


def test_an_unreadable_job_and_one_of_another_machine_are_refused(box: Box, desk: Desk) -> None:
    first = ended(desk.sh("true"))
    given = first.folder / "job.json"
    text = given.read_text()
    given.write_text("{}")
    assert first.id in box.call("run", "-n", "1", "--after", first.id, "--", "true")[2]
    given.write_text(json.dumps({**json.loads(text), "host": "elsewhere", "boot": "other"}))
    end = (first.folder / "ended.json").rename(first.folder / "aside")
    status, _, err = box.call("run", "-n", "1", "--after", first.id, "--", "true")
    assert status == 2 and "'elsewhere'" in err
    end.rename(first.folder / "ended.json")


def test_a_call_inside_a_job_cannot_wait_for_that_job(box: Box, desk: Desk, gate: Gate) -> None:
    """Neither directly, nor through a job that waits for it; a job of its own can."""
    run, script = f"{sys.executable} -m gputui run -q --gpus none", box.folder / "script"
    first = desk.sh(f"{gate.wait}; . {script}")
    second = detached(box, "--gpus", "none", "--after", first.id, "--", "true")
    calls = [f"{run} --after {job.id} -- true; echo status $?" for job in (first, second)]
    script.write_text("\n".join([*calls, f"{run} --detach --after {first.id} --name next -- true"]))
    gate.open()
    log = ended(first).log.read_text()
    assert log.count("status 2") == 2 and log.count(f"part of job {first.id}") == 2, log
    assert {ended(job).state for job in all_jobs(box.environ)} == {"done"}


def test_who_starts_a_job_that_waits_is_told_for_what(box: Box, desk: Desk) -> None:
    first = desk.sh("sleep 600")
    status, out, err = box.call("run", "--detach", "--gpus", "none", "--after", first.id, "--", "true")
    assert status == 0 and f"waits for {first.id}: " in err and f"jobs log -f {out.strip()}" in err


def test_a_dry_run_and_an_export_say_what_they_do_not_wait_for(box: Box, desk: Desk) -> None:
    first = desk.sh("sleep 600")
    words = ("-n", "1", "--after", first.id, "--", "true")
    status, out, err = box.call("run", "--dry-run", *words)
    assert status == 0 and "CUDA_VISIBLE_DEVICES=0" in out and f"the end of {first.id}" in err
    status, out, err = box.call("export", "--as", "sbatch", "--time", "4h", *words)
    assert "#SBATCH --time=4:00:00" in out and "--dependency" in err


@pytest.mark.thorough
def test_a_rerun_waits_for_nothing_unless_it_is_told_to(box: Box, desk: Desk) -> None:
    first = ended(desk.sh("true"))
    second = ended(detached(box, "--gpus", "none", "--after", first.id, "--", "true"))
    third = box.call("jobs", "rerun", second.id, "--json")
    assert json.loads(third[1])["job"]["after"] == []
    again = box.call("jobs", "rerun", second.id, "--json", "--after-ok", second.id)
    assert json.loads(again[1])["job"]["after_ok"] == [second.id]


def test_the_library_waits_for_jobs(
    box: Box, desk: Desk, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    for name, value in box.environ.items():
        monkeypatch.setenv(name, value)
    first = desk.sh(gate.wait)
    second = gputui.launch(["true"], devices="none", after_ok=first, detach=True)
    assert second.after_ok == (first.id,) and second.state in ("starting", "waiting")
    gate.open()
    assert gputui.launch(["true"], devices="none", after=second.id) == 0
    assert ended(second).state == "done"
    failed = ended(desk.sh("exit 1"))
    with pytest.raises(JobError, match="ended with status 1"):
        gputui.launch(["true"], devices="none", after_ok=failed)


def test_ids_of_jobs_are_completed(call: Call) -> None:
    script = call("completion", "bash").out
    for name in ("after", "after_ok"):
        assert f"_run___{name}_COMPGEN=_gputui_jobs" in script


def test_options_that_contradict_it(box: Box, desk: Desk) -> None:
    first = ended(desk.sh("true"))
    after = ("--after", first.id, "--", "true")
    for words in (("--gpus", "0", "--if-free"), ("-n", "1", "--slurm"), ("-n", "1", "--on", "a,b")):
        assert box.call("run", *words, *after)[0] == 2
