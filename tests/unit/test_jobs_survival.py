"""The events that a job survives, and its state afterwards: the true one, or unknown."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gputui.inventory.job import Job
from gputui.inventory.process import Identity
from gputui.jobs.process_tree import alive, identity, own_scope
from gputui.jobs.record import read_job
from gputui.jobs.store import all_jobs
from gputui.jobs.wait import refreshed
from unit.jobs_support import Desk, command, desk_at, ended, gone, kill_supervisor, says, until

STARTER = """
import os, sys
from gputui.jobs.start import start_job
from gputui.launching.launch import Launch
print(start_job(Launch(tuple(sys.argv[1:])), os.environ).id, flush=True)
sys.stdin.read()
"""
"""Starts a job and keeps running, like the screen."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def test_a_tied_job_goes_on_while_its_pipe_is_open_and_is_stopped_when_it_is_closed(desk: Desk) -> None:
    reading, writing = os.pipe()
    job = desk.start("/bin/sh", "-c", "echo begins; sleep 1000 & wait", tie=reading)
    os.close(reading)
    says(job, "begins")
    assert refreshed(job).state == "running"
    os.close(writing)
    job = ended(job)
    assert (job.state, job.stop) == ("stopped", signal.SIGTERM)
    assert job.command is not None
    gone(job.command)


def test_a_job_whose_pipe_is_closed_before_it_begins_is_stopped_at_once(desk: Desk) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    job = desk.start("/bin/sleep", "1000", tie=reading)
    os.close(reading)
    assert ended(job).state == "stopped"


def test_a_tied_job_that_ends_by_itself_is_done_and_its_command_has_no_pipe(desk: Desk) -> None:
    reading, writing = os.pipe()
    job = ended(desk.start("/bin/ls", "-l", "/proc/self/fd", tie=reading))
    os.close(reading)
    os.close(writing)
    assert job.state == "done" and "pipe:" not in job.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_a_job_outlives_the_death_of_who_started_it(desk: Desk, number: int) -> None:
    gate = desk.gate()
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, "/bin/sh", "-c", f"{gate.wait}; echo went on; exit 7"],
        env=desk.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout is not None and starter.stdout.readline()
        os.killpg(starter.pid, number)
    (job,) = all_jobs(desk.environ)
    assert job.state == "running"
    gate.open()
    job = ended(job)
    assert (job.status, job.log.read_text()) == (7, "went on\n")


def test_a_starter_that_goes_on_keeps_no_process_of_a_job_that_has_ended(desk: Desk) -> None:
    # An earlier test may have left a process.
    before = set(psutil.Process().children())
    job = ended(desk.sh("exit 0"))
    assert job.supervisor
    gone(job.supervisor)
    assert set(psutil.Process().children()) <= before, "a zombie counts too"


def test_a_job_and_its_log_outlive_their_supervisor(desk: Desk) -> None:
    first, second = desk.gate(), desk.gate()
    job = desk.sh(f"echo before; {first.wait}; echo after; {second.wait}; exit 7")
    says(job, "before")
    kill_supervisor(job)
    assert refreshed(job).state == "running"
    first.open()
    says(job, "after")
    assert refreshed(job).state == "running"
    second.open()
    job = ended(job)
    assert (job.state, job.status, job.signal, job.exit_status) == ("ended", None, None, None)
    assert job.log.read_text() == "before\nafter\n"


def test_a_supervisor_shrugs_off_what_a_terminal_sends(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(f"{gate.wait}; exit 3")
    assert job.supervisor
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1):
        os.kill(job.supervisor.pid, number)
    gate.open()
    assert ended(job).status == 3


def test_a_supervisor_that_was_told_half_a_command_starts_nothing(desk: Desk) -> None:
    from gputui.jobs import start

    started = desk.folder / "started"
    folder = desk.folder / "job"
    folder.mkdir()
    answer, reply = os.pipe()
    supervise = Path(start.__file__).with_name("supervise.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(supervise), str(folder), str(reply)],
        input=b"\0".join(
            [b"0", b"0", b"3", b"0", b"", b"0", b"", b"30", b"/bin/touch", os.fsencode(started)]
        ),
        pass_fds=(reply,),
        stderr=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    os.close(reply)
    with open(answer) as answers:  # noqa: PTH123
        assert answers.read() == ""
    assert done.stderr.startswith(b"gputui: ") and done.stderr.count(b"\n") == 1
    assert not started.exists() and list(folder.iterdir()) == []


# Records of processes that no longer exist.


def changed(job: Job, file: str, **facts: object) -> Job:
    """The job as it is read once its record has changed."""
    path = job.folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))
    return refreshed(job)


@pytest.fixture
def lost(desk: Desk) -> Job:
    """A job whose supervisor was killed, and whose command has ended since."""
    gate = desk.gate()
    job = desk.sh(gate.wait)
    kill_supervisor(job)
    gate.open()
    return ended(job)


def test_a_job_whose_pids_were_given_to_others_does_not_run(lost: Job) -> None:
    ours = identity(os.getpid())
    assert ours.ticks is not None and alive(ours)
    other = {"pid": ours.pid, "ticks": ours.ticks - 1}
    assert changed(lost, "started.json", supervisor=other, command=other).state == "ended"
    same = {"pid": ours.pid, "ticks": ours.ticks}
    assert changed(lost, "started.json", command=same).state == "running"


def test_a_process_that_has_ended_and_was_not_collected_does_not_run() -> None:
    with subprocess.Popen(["/bin/true"]) as child:
        zombie = identity(child.pid)
        until(lambda: not alive(zombie))
        assert Path(f"/proc/{child.pid}").exists()


def test_after_a_reboot_no_job_runs(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(gate.wait)
    place = own_scope()
    assert read_job(job.folder, place).state == "running"
    assert read_job(job.folder, replace(place, boot="another")).state == "ended"
    gate.open()
    assert read_job(ended(job).folder, replace(place, boot="another")).state == "done"


def test_a_job_of_another_machine_or_container_is_not_judged(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(gate.wait)
    place = own_scope()
    assert read_job(job.folder, replace(place, host="other", boot="another")).state == "elsewhere"
    assert read_job(job.folder, replace(place, pids="pid:[1]")).state == "elsewhere"
    gate.open()
    assert read_job(ended(job).folder, replace(place, host="other", boot="another")).state == "done"


def test_a_job_is_starting_for_as_long_as_its_starter_lives(lost: Job) -> None:
    (lost.folder / "started.json").unlink()
    assert changed(lost, "job.json", starter={"pid": os.getpid(), "ticks": None}).state == "starting"
    assert changed(lost, "job.json", starter={"pid": os.getpid(), "ticks": 1}).state == "ended"


def test_what_a_command_leaves_behind_is_counted(desk: Desk) -> None:
    job = ended(desk.sh("sleep 100 & setsid sleep 100 & exit 5"))
    assert (job.status, job.left) == (5, 2)


def test_a_program_may_be_called_like_the_fields_of_proc(desk: Desk) -> None:
    program = desk.folder / ") Z 1 1 ("
    shutil.copy("/bin/sleep", program)
    job = desk.start(str(program), "100")
    assert alive(command(job)) and refreshed(job).state == "running"
    assert not alive(Identity(command(job).pid, 1))
