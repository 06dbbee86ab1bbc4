"""`--wait` on the command line: first come, first served, nearly free; notifications; jobs that wait."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.bounds import assert_costs
from gputui.allocating import waiting_loop
from gputui.allocating.allocation import Allocation
from gputui.allocating.queue import waiters
from gputui.allocating.request import Request
from gputui.cli.allocation_listener import AllocationListener
from gputui.inventory.job import Job
from gputui.jobs.process_tree import alive
from gputui.jobs.stop import stop
from gputui.jobs.store import all_jobs
from gputui.jobs.wait import refreshed
from gputui.sources.simulated.spec import Task
from messages import lines_of, numbers, warnings_of
from unit import builders
from unit.claims_support import EIGHT, Box, Forked, lines, until
from unit.jobs_support import ended


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make looks follow each other faster, also in the children."""
    monkeypatch.setattr(waiting_loop, "_LOOK_AHEAD", 0.04)
    monkeypatch.setattr(waiting_loop, "_SHORTEST", 0.06)
    monkeypatch.setattr(waiting_loop, "_SHARE", 1.0)


# the command line


def _waits(box: Box, place: int, *words: str, command: str = "true") -> Forked:
    """A launch that waits at this place in line."""
    call = box.start("run", "-q", "--wait", "--window", "0", *words, "--", "sh", "-c", command)
    until(lambda: call.over or len(waiters(box.environ)) == place)
    assert not call.over, call.err
    return call


def test_a_launch_waits_until_its_devices_are_given_back(box: Box) -> None:
    other = box.hold(*range(8))
    call = _waits(box, 1, "-n", "2", command="echo $CUDA_VISIBLE_DEVICES")
    until(lambda: "first in line for 2 GPUs" in call.err)
    other.kill()
    # The claims of a killed process end one after another: any two devices may be free first.
    assert call.end() == 0 and re.fullmatch(r"\d,\d\n", call.out)
    assert re.match(r"GPU \d, GPU \d .*\b\d+(s|m)\b", lines_of(call.err)[-1])
    assert waiters(box.environ) == ()


@pytest.mark.usefixtures("quick")
def test_ten_launches_are_served_in_the_order_in_which_they_came(box: Box) -> None:
    """Some are killed while they wait: that delays no other."""
    other, log = box.hold(0), box.folder / "served"
    calls = [_waits(box, n + 1, "-n", "8", command=f"echo {n} >> {log}") for n in range(10)]
    for number in (0, 4, 5, 9):
        calls[number].kill()
    other.kill()
    left = [n for n in range(10) if n not in (0, 4, 5, 9)]
    until(lambda: len(lines(log)) == len(left))
    assert [int(words[0]) for words in lines(log)] == left
    assert {calls[number].end() for number in left} == {0} and waiters(box.environ) == ()


@pytest.mark.thorough
@pytest.mark.usefixtures("quick")
def test_a_large_request_is_not_starved_by_small_ones(box: Box) -> None:
    other, log = box.hold(0, 1, 2), box.folder / "served"
    large = _waits(box, 1, "-n", "8", command=f"echo large >> {log}")
    small = [_waits(box, n, "-n", "1", command=f"echo small >> {log}") for n in (2, 3)]
    until(lambda: all("in line for 1 GPU, behind" in call.err for call in small))
    status, out, err = box.call("run", "-q", "-n", "1", "--", "echo", "overtakes")
    assert (status, out) == (4, "")
    (refusal,) = lines_of(err)
    assert "your own runs wait ahead (8 GPUs; 1 GPU" in refusal
    assert numbers(refusal)[0] == 5 and "--wait" in refusal and "--force" in refusal
    assert box.call("run", "-q", "-n", "1", "--force", "--", "echo", "overtakes")[1] == "overtakes\n"
    assert not log.exists(), "five devices are free, and the line stands"
    other.kill()
    assert [call.end() for call in (large, *small)] == [0, 0, 0]
    assert lines(log) == [["large"], ["small"], ["small"]]


def test_naming_devices_goes_ahead_of_the_line_with_a_warning(box: Box) -> None:
    box.hold(0)
    _waits(box, 1, "-n", "8")
    status, out, err = box.call("run", "-q", "--gpus", "3", "--", "echo", "here")
    assert (status, out) == (0, "here\n")
    (warning,) = warnings_of(err)
    assert "your own run waits ahead (8 GPUs)" in warning and "named" in warning and "--wait" in warning


def test_requests_for_other_devices_do_not_hold_each_other_up(box: Box) -> None:
    box.hold(0)
    _waits(box, 1, "--gpus", "0,1")
    words = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert box.call("run", "-q", "-n", "2", *words) == (0, "2,3\n", ""), "1 is free, and waited for"
    call = box.start("run", "-q", "--wait", "--window", "0", "--gpus", "5,4", *words)
    assert (call.end(), call.out) == (0, "5,4\n")
    status, _, err = box.call("run", "-q", "-n", "7", *words)
    assert status == 4 and "GPU 1  your own run waits ahead" in err


@pytest.mark.usefixtures("quick")
def test_a_named_device_is_waited_for(box: Box) -> None:
    other = box.hold(3)
    call = _waits(box, 1, "--gpus", "3,2", command="echo $CUDA_VISIBLE_DEVICES")
    other.kill()
    assert (call.end(), call.out) == (0, "3,2\n")


@pytest.mark.usefixtures("quick")
def test_waiting_too_long_is_124_and_out_of_line(box: Box) -> None:
    box.hold(*range(8))
    for words in (("run", "-n", "1"), ("pick", "-n", "2"), ("pick", "--gpus", "3")):
        command = ("--", "true") if words[0] == "run" else ()
        status, out, err = box.call(*words, "--wait", "0.3", "--window", "0", *command)
        assert (status, out) == (124, "") and re.search(r"\b\d+s\b", lines_of(err)[-1])
        assert waiters(box.environ) == ()


@pytest.mark.usefixtures("quick")
def test_a_wait_that_is_shorter_than_the_window_gets_what_is_free(box: Box) -> None:
    words = ("run", "-q", "-n", "1", "--wait", "0.2", "--window", "10", "--", "echo", "ran")
    assert box.call(*words)[:2] == (0, "ran\n")


def test_a_dry_run_does_not_wait(box: Box) -> None:
    words = ("run", "--dry-run", "-n", "1", "--wait", "--window", "1000")
    status, out, _ = box.call(*words, "--", "true")
    assert status == 0 and out.startswith("CUDA_DEVICE_ORDER=")
    status, out, _ = box.call("compare", *words[1:], "--vary", "env:A=1,2", "--", "true")
    assert status == 0 and out
    box.hold(*range(8))
    assert box.call(*words, "--", "true")[:2] == (4, "") and waiters(box.environ) == ()


@pytest.mark.usefixtures("quick")
def test_pick_waits_too(box: Box) -> None:
    other = box.hold(*range(8))
    call = box.start("pick", "-n", "2", "--wait", "--window", "0")
    until(lambda: waiters(box.environ))
    assert waiters(box.environ)[0].devices is None
    other.kill()
    # The devices are released one by one: the first two free ones need not be 0 and 1.
    assert call.end() == 0 and len(set(call.out.split(","))) == 2 and box.claimed() == []


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
)
def test_who_gives_up_is_out_of_line(box: Box, number: int, status: int) -> None:
    box.hold(0)
    call = _waits(box, 1, "-n", "8")
    until(lambda: "first in line" in call.err)
    call.signal(number)
    assert call.end() == status and waiters(box.environ) == () and "Traceback" not in call.err


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (("run", "-n", "9", "--wait", "--", "true"), [9, 8]),
        (("pick", "-n", "1", "--wait", "--min-free", "500G"), [1]),
        (("pick", "-n", "8", "--wait", "--never", "3"), [8, 7]),
    ],
)
def test_what_will_never_be_is_not_waited_for(box: Box, words: tuple[str, ...], counts: list[int]) -> None:
    """Such a launch would hold up all others for ever. `counts`: the number that is requested, and the most
    that can ever be free."""
    status, out, err = box.call(*words)
    (refusal,) = lines_of(err)
    assert (status, out, numbers(refusal)) == (4, "", counts)
    assert waiters(box.environ) == ()


def test_a_device_in_use_that_is_too_small_is_not_waited_for(box: Box) -> None:
    task = Task(devices=("0", "3"), user="mira", command="python a.py", pid=os.getpid(), memory=9000, load=90)
    box.driver.show_box(replace(EIGHT, tasks=(task,)))
    status, out, err = box.call("run", "--wait", "1s", "--min-free", "500G", "-n", "1", "--", "true")
    assert (status, out, numbers(lines_of(err)[0])) == (4, "", [1])


def test_a_simulated_box_is_not_waited_for(box: Box) -> None:
    for call in (("pick",), ("run", "--", "true"), ("run", "--detach", "--", "true")):
        words = (call[0], "--demo", "dgx-1", "--wait", *call[1:])
        status, out, err = box.call(*words)
        (line,) = lines_of(err)
        assert (status, out) == (2, "") and "--wait" in line


def test_without_a_place_for_a_line_nobody_waits_but_by_force(box: Box) -> None:
    words = ("-q", "--wait", "--window", "0", "-n", "1", "--", "echo", "ran")
    assert box.call("run", *words, GPUTUI_CLAIMS="/dev/null")[:2] == (4, "")
    status, out, err = box.call("run", "--force", *words, GPUTUI_CLAIMS="/dev/null")
    assert (status, out) == (0, "ran\n")
    assert any("queue" in warning for warning in warnings_of(err))


# notifications


def _notify(box: Box, *words: str) -> None:
    (box.folder / "config/gputui").mkdir(parents=True)
    listed = ", ".join(f'"{word}"' for word in words)
    (box.folder / "config/gputui/config.toml").write_text(f"[wait]\nnotify = [{listed}]\n")


def test_the_command_of_the_settings_is_told_and_is_nobodys_child(box: Box) -> None:
    told, gate = box.folder / "told", box.folder / "gate"
    os.mkfifo(gate)
    script = box.folder / "notify"
    script.write_text(f'#!/bin/sh\necho "$1" > {told}.new; mv {told}.new {told}; read -r line < {gate}\n')
    script.chmod(0o755)
    _notify(box, str(script), "{message}!")
    words = ("run", "-q", "--wait", "--window", "0", "-n", "1", "--")
    call = box.start(
        *words, "sh", "-c", "echo children: $(cat /proc/$$/task/$$/children); ls -l /proc/$$/fd | wc -l"
    )
    assert call.end() == 0
    assert call.out.splitlines()[0] in ("children:", f"children: {call.out.split()[1]}")
    until(told.exists)
    assert re.fullmatch(r"gputui: GPU 0 .*\d+s!\n", told.read_text())
    gate.write_text("go\n")


def test_a_command_of_the_settings_that_is_not_there_is_a_warning(box: Box) -> None:
    _notify(box, "no-such-notifier", "{message}")
    status, out, err = box.call("run", "-q", "--wait", "--window", "0", "-n", "1", "--", "echo", "ran")
    assert (status, out) == (0, "ran\n")
    (warning,) = warnings_of(err)
    assert "wait.notify" in warning and "no-such-notifier" in warning


@pytest.mark.parametrize("job", [None, "m6u5"])
def test_a_terminal_is_told_by_its_bell_and_by_notifications(
    monkeypatch: pytest.MonkeyPatch, job: str | None
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    device = builders.gpu(0)
    snapshot = builders.box(device)
    AllocationListener().waited(Allocation(Request(1, job=job), (device,), snapshot), 3.0)
    text = terminal.getvalue()
    assert "\a" in text
    for begin in ("\x1b]9;gputui: ", "\x1b]777;notify;gputui;"):
        message = text.partition(begin)[2].partition("\x1b\\")[0]
        assert "GPU 0" in message and "3s" in message and (job or "GPU") in message


# jobs that wait


def _in_line_are(box: Box, count: int) -> None:
    until(lambda: len(waiters(box.environ)) == count)


def _printed(job: Job) -> str | None:
    """The two devices that the job's command has printed."""
    found = re.search(r"^\d,\d$", job.log.read_text(), re.MULTILINE)
    return found and found[0]


def test_a_job_waits_in_line_by_itself_and_then_runs_on_what_it_got(box: Box) -> None:
    box.environ.pop("PYTHONUNBUFFERED", None)
    other = box.hold(*range(8))
    words = ("run", "--detach", "--wait", "--window", "0", "-n", "2", "--name", "later", "--")
    command = "echo $CUDA_VISIBLE_DEVICES; echo $PYTHONUNBUFFERED; exec sleep 1000"
    starter = box.start(*words, "sh", "-c", command)
    assert starter.end() == 0, starter.err
    (job,) = all_jobs(box.environ)
    assert (job.state, job.waits, job.devices, job.name) == ("waiting", 2, (), "later")
    assert job.argv[0] == "sh" and starter.out == f"{job.id}\n"
    until(lambda: waiters(box.environ))
    other.kill()
    until(lambda: refreshed(job).state == "running")
    # The claims of a killed process end one after another: any two devices may be free first.
    until(lambda: _printed(job))
    job = refreshed(job)
    got = ",".join(str(device.index) for device in job.devices)
    assert _printed(job) == got and f"CUDA_VISIBLE_DEVICES={got}" in job.line
    # What the program sees is in the line of the job, and in the line that its log begins with.
    until(lambda: "1" in job.log.read_text().split())
    assert "PYTHONUNBUFFERED=1" in job.line and job.line in job.log.read_text()
    assert job.command is not None
    assert {(claim.pid, claim.job) for claim in box.claims()} == {(job.command.pid, job.id)}
    stop(job, signal.SIGKILL, 0)
    until(lambda: box.claimed() == [])


def test_a_job_that_waits_can_be_stopped_and_is_out_of_line(box: Box) -> None:
    box.hold(*range(8))
    assert box.call("run", "-q", "--detach", "--wait", "-n", "1", "--", "true")[0] == 0
    (job,) = all_jobs(box.environ)
    until(lambda: len(waiters(box.environ)) == 1)
    stopped = stop(job)
    assert stopped.job.state == "stopped" and waiters(box.environ) == ()
    assert job.command is not None and not alive(job.command)


def test_a_job_that_waits_for_devices_by_name_says_which_in_its_log_and_in_the_list(box: Box) -> None:
    box.hold(*range(8))
    assert box.call("run", "-q", "--detach", "--wait", "--gpus", "7,4", "--", "true")[0] == 0
    (job,) = all_jobs(box.environ)
    until(lambda: "first in line for GPU 4,7" in job.log.read_text())
    assert "for GPU 4,7" in box.call("jobs")[1]
    assert "for GPU 4,7" in box.call("jobs", "show", job.id)[1]
    stop(job)
    assert "for GPU" not in box.call("jobs")[1]


@pytest.mark.thorough
def test_several_jobs_of_one_user_wait_for_each_other(box: Box) -> None:
    log = box.folder / "served"
    other = box.hold(0)
    for number in range(3):
        words = ("run", "-q", "--detach", "--wait", "--window", "0", "-n", "8", "--")
        assert box.call(*words, "sh", "-c", f"echo {number} >> {log}")[0] == 0
        _in_line_are(box, number + 1)
    other.kill()
    assert [ended(job).status for job in all_jobs(box.environ)] == [0, 0, 0]
    assert [int(words[0]) for words in lines(log)] == [0, 1, 2]


# the costs


def test_waiting_costs_next_to_nothing(box: Box) -> None:
    """At most 0.1 % of a CPU, measured over a minute (`bench`); a short test cannot measure so precisely."""
    box.hold(*range(8))
    call = box.start("run", "-q", "--wait", "-n", "1", "--", "true")
    until(lambda: "first in line" in call.err)

    def cost() -> float:
        before = _cpu(call.pid)
        assert not call.ends_within(3.0)
        return _cpu(call.pid) - before

    assert_costs(0.03, cost)


def _cpu(pid: int) -> float:
    """Seconds of CPU time of a process, to a hundredth."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("how", [(), ("--detach",), ("--attach",)])
def test_a_wait_in_vain_is_refused_before_a_job_is_started(box: Box, how: tuple[str, ...]) -> None:
    for words, status in (
        (("-n", "9", "--", "true"), 4),
        (("-n", "1", "--min-free", "500G", "--", "true"), 4),
        (("-n", "1", "--", "no-such-program-anywhere"), 127),
        (("-n", "2", "--", "/"), 126),
    ):
        found, out, err = box.call("run", "-q", "--wait", "--window", "0", *how, *words)
        assert (found, out) == (status, "") and len(lines_of(err)) == 1, words
    assert all_jobs(box.environ) == []


def test_a_program_that_a_job_may_make_before_is_only_a_warning(box: Box) -> None:
    box.hold(0)
    status, out, _ = box.call("run", "-q", "--detach", "-n", "1", "--", "sleep", "600")
    status, _, err = box.call(
        "run", "-q", "--detach", "-n", "1", "--after", out.strip(), "--", "./made-later"
    )
    assert status == 0 and "made-later" in err
    for job in all_jobs(box.environ):
        stop(job)
        ended(job)
