"""Stopping a job: every process of it, however it was started, and no other."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.inventory.job import Job, JobError
from gputui.inventory.process import Identity
from gputui.jobs.process_tree import alive, identity, writers
from gputui.jobs.stop import GRACE, stop
from gputui.jobs.wait import refreshed
from unit.jobs_support import Desk, command, desk_at, ended, gone, kill_supervisor, says, until

WITH_SUPERVISOR = pytest.mark.parametrize("supervised", [True, False], ids=["supervised", "alone"])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def prepared(job: Job, ready: str, supervised: bool) -> Job:
    """Wait until the job has printed that it is ready; then end its supervisor where that is wanted."""
    says(job, ready)
    if not supervised:
        kill_supervisor(job)
    return job


def members(job: Job) -> list[Identity]:
    """The processes that the job has printed as "pid 123"."""
    lines = [line.split() for line in job.log.read_text().splitlines()]
    return [identity(int(words[1])) for words in lines if words[:1] == ["pid"]]


@WITH_SUPERVISOR
def test_the_signal_reaches_the_whole_process_group(desk: Desk, supervised: bool) -> None:
    script = "sleep 100 & echo pid $!; sleep 100 & echo pid $!; echo pid $$; echo ready; wait"
    job = prepared(desk.sh(script), "ready", supervised)
    processes = members(job)
    stopped = stop(job)
    assert stopped.job.state == "stopped" and not any(map(alive, processes))
    assert stopped.job.killed == 0
    assert stopped.message.startswith(f"job {job.id}: SIGTERM; it ended after ")
    if supervised:
        assert stopped.job.signal == signal.SIGTERM


def test_the_commands_own_status_after_a_signal_counts(desk: Desk) -> None:
    job = desk.sh("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done")
    says(job, "ready")
    done = stop(job).job
    assert (done.state, done.status, done.signal, done.stop) == ("stopped", 9, None, signal.SIGTERM)


@WITH_SUPERVISOR
def test_a_command_that_ignores_the_signal_is_killed_after_the_grace(desk: Desk, supervised: bool) -> None:
    script = "trap '' TERM; sleep 100 & echo pid $!; echo pid $$; echo ready; while :; do sleep 1; done"
    job = prepared(desk.sh(script), "ready", supervised)
    processes = members(job)
    stopped = stop(job, grace=0.2)
    assert stopped.job.state == "stopped" and not any(map(alive, processes))
    assert stopped.job.killed >= 2 and "and SIGKILL for" in stopped.message


@WITH_SUPERVISOR
def test_processes_in_sessions_of_their_own_are_reached(desk: Desk, supervised: bool) -> None:
    # In the way in which torchrun starts its workers; one of them has lost its parent, one ignores the
    # signal.
    script = (
        "setsid sh -c 'echo pid $$; exec sleep 100' & setsid sh -c 'setsid sleep 100 & echo pid $!; exit' &"
        " setsid sh -c \"trap '' TERM; echo pid \\$\\$; sleep 100; sleep 100\" & wait %2; echo ready; wait"
    )
    job = prepared(desk.sh(script), "ready", supervised)
    until(lambda: len(members(job)) == 3)
    processes = members(job)
    stopped = stop(job, grace=0.3)
    assert stopped.job.over and not any(map(alive, processes))


def test_another_signal_can_be_sent(desk: Desk) -> None:
    job = desk.start(
        sys.executable,
        "-c",
        "import sys, time\ntry:\n print('ready'); time.sleep(100)\n"
        "except KeyboardInterrupt:\n print('saved'); sys.exit(8)",
    )
    says(job, "ready")
    stopped = stop(job, signal.SIGINT)
    assert (stopped.job.status, stopped.job.stop) == (8, signal.SIGINT)
    assert "saved" in job.log.read_text() and "SIGINT; it ended" in stopped.message


def test_a_suspended_command_can_act_on_the_signal(desk: Desk) -> None:
    job = desk.sh("trap 'echo saved; exit 6' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done")
    says(job, "ready")
    until(lambda: "T" in Path(f"/proc/{command(job).pid}/stat").read_text().rpartition(")")[2].split()[0])
    assert stop(job).job.status == 6


def test_a_suspended_supervisor_stops_its_job(desk: Desk) -> None:
    """The caller waited twenty seconds for it."""
    job = desk.sh("trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done")
    says(job, "ready")
    assert job.supervisor
    os.kill(job.supervisor.pid, signal.SIGSTOP)
    done = stop(job).job
    assert (done.state, done.status) == ("stopped", 6)


def test_less_patience_the_second_time_is_less_patience(desk: Desk) -> None:
    job = desk.sh("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done")
    says(job, "ready")
    patient = threading.Thread(target=stop, args=(job, signal.SIGTERM, 1000.0))
    patient.start()
    says(job, "asked")
    assert stop(job, signal.SIGTERM, 0).job.signal == signal.SIGKILL
    patient.join(30)
    assert not patient.is_alive()


def test_a_plain_kill_of_the_supervisor_stops_the_job(desk: Desk) -> None:
    job = desk.sh("echo ready; sleep 100")
    says(job, "ready")
    assert job.supervisor
    os.kill(job.supervisor.pid, signal.SIGTERM)
    assert (ended(job).state, ended(job).signal) == ("stopped", signal.SIGTERM)


def test_a_stop_goes_on_when_who_asked_for_it_is_killed(desk: Desk) -> None:
    job = desk.sh("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done")
    says(job, "ready")
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "jobs", "stop", "--grace", "1", job.id], env=desk.environ
    ) as asker:
        says(job, "asked")
        asker.kill()
    assert ended(job).signal == signal.SIGKILL


def test_to_stop_a_job_that_has_ended_is_no_error(desk: Desk) -> None:
    job = ended(desk.sh("exit 4"))
    stopped = stop(job)
    assert (stopped.job.state, stopped.job.status) == ("failed", 4)
    assert "has ended already" in stopped.message


@WITH_SUPERVISOR
def test_what_a_job_left_behind_is_stopped(desk: Desk, supervised: bool) -> None:
    gate = desk.gate()
    job = desk.sh(f"setsid sleep 100 & echo pid $!; sleep 100 & echo pid $!; echo ready; {gate.wait}; exit 5")
    prepared(job, "ready", supervised)
    gate.open()
    before = ended(job)
    processes = members(job)
    assert all(map(alive, processes))
    stopped = stop(job, grace=5)
    assert not any(map(alive, processes))
    assert stopped.job.status == before.status == (5 if supervised else None)


def test_a_process_with_another_file_of_the_logs_name_is_not_one_of_the_job(desk: Desk) -> None:
    """A container of root has its own /root, and a neighbour may mount anything anywhere for himself."""
    job = ended(desk.sh("exit 0"))
    holds = f"mkdir -p {job.folder} && exec sh -c 'echo ready; exec sleep 600' 3> {job.log}"
    script = f"mount -t tmpfs none {job.folder.parent} && {holds}"
    other = subprocess.Popen(["unshare", "-Urm", "sh", "-c", script], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        if not other.stdout.readline():
            pytest.skip("nothing can be mounted in a namespace here")
        assert Path(f"/proc/{other.pid}/fd/3").readlink() == job.log
        assert other.pid not in writers(job.log)
    finally:
        other.kill()
        other.communicate()


def test_nothing_else_is_touched_when_the_pids_belong_to_others(desk: Desk) -> None:
    job = desk.sh("echo ready; sleep 100")
    says(job, "ready")
    with subprocess.Popen(["/bin/sleep", "100"], start_new_session=True) as bystander:
        stranger = identity(bystander.pid)
        record = job.folder / "started.json"
        true = record.read_text()
        wrong = f'{{"pid": {stranger.pid}, "ticks": {(stranger.ticks or 0) - 1}}}'
        record.write_text(f'{{"supervisor": {wrong}, "command": {wrong}, "started": 1.0}}')
        assert refreshed(job).state == "ended"
        stop(job, signal.SIGKILL, 0)
        assert alive(stranger)
        bystander.kill()
        record.write_text(true)
    gone(command(job))


def test_a_job_of_another_machine_cannot_be_stopped_from_here(desk: Desk) -> None:
    job = desk.sh("echo ready; sleep 100")
    record = job.folder / "job.json"
    true = record.read_text()
    record.write_text(true.replace(f'"boot": "{job.scope.boot}"', '"boot": "x", "host": "elsewhere"', 1))
    record.write_text(record.read_text().replace(f'"host": "{job.scope.host}", ', "", 1))
    with pytest.raises(JobError, match="belongs to 'elsewhere'"):
        stop(job)
    record.write_text(true)
    assert refreshed(replace(job, state="starting")).state == "running"


@pytest.mark.parametrize(("number", "grace"), [(signal.SIGTERM, GRACE), (signal.SIGINT, 5.0)])
def test_a_job_is_stopped_as_asked_though_nothing_can_be_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, grace: float
) -> None:
    traps = "trap 'echo got INT; exit 3' INT; trap 'echo got TERM; exit 4' TERM"
    script = f"{traps}; echo ready; while :; do sleep 0.01; done"
    job = prepared(desk.sh(script), "ready", supervised=True)
    # An earlier request must not count.
    (job.folder / "stop").write_text("1 0.0\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gputui.jobs.stop.write_private", full)
    stopped = stop(job, number, grace)
    assert stopped.job.over and f"got {number.name.removeprefix('SIG')}" in job.log.read_text()
    assert stopped.job.killed == 0


def test_the_end_is_recorded_in_the_room_that_was_taken_for_it(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(f"{gate.wait}; exit 7")
    room = job.folder / ".end"
    inode = room.stat().st_ino
    assert room.stat().st_size == 512
    gate.open()
    assert ended(job).status == 7
    record = job.folder / "ended.json"
    assert (record.stat().st_ino, record.stat().st_size) == (inode, 512) and not room.exists()
