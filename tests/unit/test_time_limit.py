"""`--time`: a command ends at its limit, whoever runs it, and others see when its devices become free."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import gputui
from gputui.choosing.queue_outlook import outlook
from gputui.choosing.queue_text import occupied_columns
from gputui.choosing.verdict import verdicts
from gputui.inventory.claim import Claim
from gputui.inventory.formatting import in_time
from gputui.inventory.job import Job
from gputui.jobs.start import start_job
from gputui.jobs.stop import stop
from gputui.jobs.wait import refreshed
from gputui.launching.compose import compose
from gputui.launching.exports.kubernetes import to_kubernetes
from gputui.launching.exports.sbatch import to_sbatch
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.slurm_launch import SlurmRequest, through_slurm
from gputui.launching.start import run_child
from gputui.system import time_limit
from table_tests import each_row
from unit.builders import NOW, busy, gpu
from unit.builders import box as box_of
from unit.calling import Call
from unit.claims_support import Box
from unit.jobs_support import Desk, desk_at, ended, kill_supervisor, says, until


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def limited(desk: Desk, seconds: float, script: str) -> Job:
    return start_job(Launch(("/bin/sh", "-c", script), time_limit=seconds), desk.environ)


def watchers(pid: int) -> list[str]:
    """The processes that watch the time of this one."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(time_limit.__file__) in words and str(pid).encode() in words:
            found.append(place.name)
    return found


# a job


def test_a_job_is_stopped_at_its_limit_and_says_so(desk: Desk) -> None:
    job = ended(limited(desk, 0.2, "sleep 600 & wait"))
    assert (job.state, job.signal, job.left) == ("stopped", signal.SIGTERM, 0)
    assert job.why == "its time limit was over"


def test_a_job_that_ends_before_its_limit_has_ended_by_itself(desk: Desk) -> None:
    job = ended(limited(desk, 60, "exit 3"))
    assert (job.state, job.status, job.until) == ("failed", 3, None)


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_job_that_ignores_the_signal_at_its_limit_is_killed_after_the_grace(desk: Desk) -> None:
    job = ended(limited(desk, 0.2, "trap '' TERM; while :; do sleep 1; done"))
    assert (job.state, job.signal) == ("stopped", signal.SIGKILL) and job.killed


IGNORES = """sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' & wait"""


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_child_that_ignores_the_signal_is_killed_after_the_grace(desk: Desk) -> None:
    job = ended(limited(desk, 0.2, IGNORES))
    assert (job.state, job.signal, job.left) == ("stopped", signal.SIGTERM, 0) and job.killed
    assert not Path(f"/proc/{job.log.read_text().strip()}").exists()


def test_a_job_that_is_suspended_ends_at_its_limit(desk: Desk) -> None:
    job = ended(limited(desk, 0.3, "kill -STOP $$; sleep 600"))
    assert (job.state, job.signal, job.killed) == ("stopped", signal.SIGTERM, 0)


def test_a_limit_that_passes_while_the_supervisor_is_suspended_counts_when_it_goes_on(desk: Desk) -> None:
    job = limited(desk, 2.0, "sleep 600")
    assert job.supervisor is not None and job.until is not None
    os.kill(job.supervisor.pid, signal.SIGSTOP)
    until(lambda: time.time() > (job.until or 0) + 0.1)
    assert refreshed(job).state == "running"
    os.kill(job.supervisor.pid, signal.SIGCONT)
    assert ended(job).why == "its time limit was over"


def test_without_its_supervisor_nobody_keeps_the_limit_and_a_time_that_is_over_is_not_told(
    desk: Desk,
) -> None:
    job = limited(desk, 2.0, "sleep 600")
    kill_supervisor(job)
    until(lambda: time.time() > (job.until or 0) + 0.1)
    job = refreshed(job)
    assert (job.state, in_time(job.until, time.time() + 60)) == ("running", "")
    assert in_time(NOW + 60, NOW) == "in 1m" and stop(job, signal.SIGKILL, 0).job.over


def test_a_request_to_stop_counts_before_the_limit(desk: Desk) -> None:
    job = limited(desk, 600, "echo ready; sleep 600")
    says(job, "ready")
    done = stop(job).job
    assert (done.state, done.why) == ("stopped", None)


def test_a_job_tells_how_long_it_may_run(desk: Desk, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", desk.environ["XDG_STATE_HOME"])
    job = refreshed(limited(desk, 7200, "sleep 600"))
    assert job.until == pytest.approx((job.began or 0) + 7200)
    (told,) = call("jobs", "--json").json["jobs"]
    assert told["time_limit"] == 7200 and told["until"]
    assert " of 2h" in call("jobs").text
    assert "time limit   2h" in call("jobs", "show", job.id).text


@pytest.mark.thorough
def test_the_time_of_a_job_in_line_begins_when_it_has_its_devices(box: Box) -> None:
    holder = box.hold(*range(8))
    words = ("run", "-q", "--detach", "--json", "--wait", "--window", "0", "-n", "1", "--time", "1")
    status, out, err = box.call(*words, "--", "sleep", "600")
    assert status == 0, err
    id = json.loads(out)["job"]["id"]

    def told() -> dict[str, object]:
        found: dict[str, object] = json.loads(box.call("jobs", "show", id, "--json")[1])["job"]
        return found

    began = time.monotonic()
    until(lambda: time.monotonic() > began + 1.2)
    assert (told()["state"], told()["until"]) == ("waiting", None), "its limit does not count in line"
    holder.kill()
    until(lambda: told()["state"] == "stopped")
    assert (told()["reason"], told()["signal"]) == ("its time limit was over", signal.SIGTERM)


# a command in this terminal


def test_an_attached_command_ends_at_its_limit_with_its_children() -> None:
    words = [sys.executable, "-m", "gputui", "run", "-q", "--gpus", "none", "--time", "3", "--"]
    script = "sleep 600 & echo $!; wait"
    with subprocess.Popen([*words, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.wait(30) == -signal.SIGTERM
    until(lambda: not Path(f"/proc/{child}").exists() and not watchers(process.pid))


def test_who_watches_a_command_ends_with_it_and_is_not_its_child() -> None:
    words = [sys.executable, "-m", "gputui", "run", "-q", "--gpus", "none", "--time", "1h", "--"]
    script = "ps -o pid= --ppid $$ | wc -l; read -r line"
    with subprocess.Popen(
        [*words, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert int(process.stdout.readline()) <= 2, "ps and wc"
        until(lambda: watchers(process.pid))
        process.stdin.close()
        process.wait(30)
    until(lambda: not watchers(process.pid))


def test_a_command_with_a_limit_keeps_its_process_and_its_status() -> None:
    words = [sys.executable, "-m", "gputui", "run", "-q", "--gpus", "none", "--time", "1h", "--"]
    with subprocess.Popen([*words, "sh", "-c", "echo $$; exit 7"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and int(process.stdout.read()) == process.pid
        assert process.wait(30) == 7


def test_a_child_of_a_command_that_ignores_the_signal_is_killed_too() -> None:
    with subprocess.Popen(["sh", "-c", IGNORES], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = process.stdout.readline().strip()
        quick = (
            f"import sys; sys.path.insert(0, {str(Path(time_limit.__file__).parent)!r});"
            " import time_limit; time_limit.GRACE = 1.5; time_limit.main()"
        )
        subprocess.run([sys.executable, "-I", "-S", "-c", quick, str(process.pid), "0.1"], check=True)
        assert process.wait(30) == -signal.SIGTERM, "the command itself is not killed"
    until(lambda: not Path(f"/proc/{child}").exists())


def test_a_suspended_command_ends_at_its_limit() -> None:
    launch = Launch(("sh", "-c", "kill -STOP $$; sleep 600"), time_limit=0.2)
    assert run_child(launch, os.environ) == -signal.SIGTERM


def test_a_command_that_is_waited_for_ends_at_its_limit() -> None:
    launch = Launch(("sleep", "600"), time_limit=0.1)
    assert run_child(launch, os.environ) == -signal.SIGTERM


def test_the_library_limits_a_command_too() -> None:
    assert gputui.launch(["sleep", "600"], devices="none", time=1) == -signal.SIGTERM
    with pytest.raises(gputui.RequestError):
        gputui.launch(["true"], devices="none", time="soon")


@pytest.mark.thorough
def test_a_command_that_ignores_the_signal_is_killed_with_what_it_has_started() -> None:
    script = "trap '' TERM; while :; do sleep 0.2; done"
    assert run_child(Launch(("sh", "-c", script), time_limit=0.1), os.environ) == -signal.SIGKILL


@each_row("text", ["", "0", "0.5", "-1", "nan", "inf", "4x", "1e400", "400d"])
def test_a_limit_that_is_no_time_is_a_wrong_call(call: Call, text: str) -> None:
    assert "time" in call("run", "--gpus", "none", f"--time={text}", "--", "true").refused(2)


# exports


def test_a_scheduler_gets_the_limit() -> None:
    launch = compose([gpu(0)], LaunchOptions(("python", "t.py"), time="90m"), {})
    assert "activeDeadlineSeconds: 5400" in to_kubernetes(launch)
    assert "#SBATCH --time=1:30:00" in to_sbatch(launch).splitlines()
    through = through_slurm(launch, SlurmRequest())
    assert "--time=1:30:00" in through.argv and through.time_limit is None, "Slurm keeps it"
    assert "--time" not in to_sbatch(compose([gpu(0)], LaunchOptions(("python", "t.py")), {}))


def test_a_launch_in_json_has_the_limit(call: Call) -> None:
    words = ("run", "--demo=idle", "-n", "1", "--dry-run", "--json", "--time", "4h", "--", "true")
    ended = call(*words)
    assert ended.json["time_limit"] == 4 * 3600 and "ended after 4h by gputui" in ended.err


# others


def test_everybody_sees_when_a_device_becomes_free_at_the_latest(box: Box) -> None:
    words = ("run", "-q", "--detach", "-n", "1", "--time", "2h", "--", "sleep", "600")
    job = box.call(*words)[1].strip()
    try:
        (claim,) = json.loads(box.call("claims", "--json")[1])["claims"]
        (held,) = json.loads(box.call("queue", "--json")[1])["held"]
        assert held["until"] == claim["until"] and held["uuid"] == claim["uuid"]
        assert "in 1h59m" in box.call("claims")[1]
    finally:
        box.call("jobs", "stop", job)


def test_what_has_a_limit_comes_before_what_has_none() -> None:
    three = [gpu(place) for place in range(3)]
    claims = [Claim(each.key, "ana", NOW - 60) for each in three[:2]]
    claims[1] = replace(claims[1], until=NOW + 7800)
    snapshot = replace(box_of(*map(busy, three)), claims=tuple(claims))
    found = outlook(snapshot, verdicts(snapshot)).occupied
    assert [each.device.index for each in found] == [1, 0, 2]
    again = next(column for column in occupied_columns(snapshot) if column.name == "EXPECTED FREE")
    assert [again.text(each) for each in found] == [
        "in 2h10m at the latest, claimed by ana",
        "unknown, claimed by ana",
        "unknown",
    ]
