"""`run`, `pick`, `ls` and `claims` with claims: real processes on the simulated libnvidia-ml."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from gputui.allocating.claims import lease as leases
from gputui.allocating.claims.keepers import keepers
from gputui.allocating.claims.lease import Lease, take
from gputui.allocating.claims.processes import ClaimProcesses
from gputui.allocating.queue import Ticket
from gputui.cli.main import main
from gputui.inventory.claim import Claim
from gputui.jobs.store import all_jobs
from gputui.sources.simulated.spec import Task
from gputui.system import lock_holders
from messages import lines_of, numbers, only_warning, warnings_of
from unit.claims_support import EIGHT, Box, Elsewhere, Forked, holders, opened_by, record_name, until
from unit.jobs_support import ended, kill_supervisor

WAIT = "exec sleep 1000"


def _running(box: Box, *words: str) -> Forked:
    """A launch whose command has begun: the command prints its pid and its devices and then sleeps."""
    job = box.start("run", "-q", *words, "--", "sh", "-c", f"echo $$ $CUDA_VISIBLE_DEVICES; {WAIT}")
    until(lambda: job.over or job.out.endswith("\n"))
    assert not job.over, job.err
    return job


def test_users_are_set_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may consist of digits."""
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setattr(pwd, "getpwnam", {"7": pwd.getpwuid(0)}.__getitem__)
    assert main(("claims", "--setup", "7")) == 0
    for none in ("0", "x"):
        assert main(("claims", "--setup", none)) == 2


# Becoming the command


def test_the_command_has_our_pid_the_lease_and_nothing_else_open(box: Box) -> None:
    job = _running(box, "-n", "2")
    assert job.out == f"{job.pid} 0,1\n"
    ours = {str(path) for path in (box.claims_folder, *box.claims_folder.rglob("*"))}
    assert len(ours) == 6
    # While the command starts, it opens its libraries.
    until(lambda: {path for number, path in opened_by(job.pid).items() if number > 2} == ours)
    assert {(claim.pid, claim.command) for claim in box.claims()} == {(job.pid, "sh")}
    job.kill()
    assert box.claimed() == []


def test_a_command_that_closes_every_descriptor_gives_its_devices_back(box: Box) -> None:
    """A limit: only NVML still sees such a daemon."""
    script = "import os, signal; os.closerange(3, 1024); print('closed', flush=True); signal.pause()"
    job = box.start("run", "-q", "-n", "1", "--", sys.executable, "-c", script)
    until(lambda: job.out == "closed\n")
    assert box.claimed() == [] and not job.over


@pytest.mark.parametrize(("words", "status"), [(("no-such-program",), 127), (("/",), 126), (("false",), 1)])
def test_a_launch_that_ends_leaves_no_claim(box: Box, words: tuple[str, ...], status: int) -> None:
    assert box.call("run", "-q", "-n", "1", "--", *words)[0] == status
    assert box.claimed() == []


@pytest.mark.parametrize(
    "words", [("--dry-run", "-n", "1"), ("--gpus", "none"), ("--demo", "dgx-1", "-n", "1")]
)
def test_what_uses_no_device_of_this_machine_claims_none(box: Box, words: tuple[str, ...]) -> None:
    script = f"ls {box.claims_folder}; true"
    assert box.call("run", "-q", *words, "--", "sh", "-c", script)[0] == 0
    assert not box.claims_folder.exists()


def test_the_claims_of_another_box_are_in_no_folder_of_ours(box: Box) -> None:
    _running(box, "-n", "1").kill()
    assert json.loads(box.call("claims", "--json")[1])["folder"] == str(box.claims_folder)
    assert json.loads(box.call("claims", "--json", "--demo")[1])["folder"] is None


@pytest.mark.parametrize("words", [("claims",), ("queue",)])
def test_a_named_folder_that_cannot_have_claims_is_named(box: Box, words: tuple[str, ...]) -> None:
    assert str(box.claims_folder) not in box.call(*words)[2]
    box.claims_folder.write_text("no folder")
    status, out, err = box.call(*words)
    assert (status, out) == (0, "") and str(box.claims_folder) in err


# Jobs


def test_a_jobs_lease_is_its_commands_and_not_its_supervisors(box: Box) -> None:
    status, out, err = box.call("run", "-q", "-n", "2", "--detach", "--", "sh", "-c", "sleep 1000 & wait")
    assert status == 0, err
    (job,) = all_jobs(box.environ)
    assert job.command is not None and job.supervisor is not None
    assert {(claim.pid, claim.job) for claim in box.claims()} == {(job.command.pid, out.strip())}
    (lock,) = box.claims_folder.glob(f"{box.uuids[0]}@*.claim")
    until(lambda: len(holders(lock)) == 2)
    assert job.command.pid in holders(lock) and job.supervisor.pid not in holders(lock)
    kill_supervisor(job)
    assert box.claimed() == [0, 1], "the command lives"
    os.kill(job.command.pid, signal.SIGKILL)
    until(lambda: len(holders(lock)) == 1)
    assert box.claimed() == [0, 1], "its child lives"
    os.kill(holders(lock).pop(), signal.SIGKILL)
    until(lambda: box.claimed() == [])


def test_a_job_that_has_ended_holds_nothing(box: Box) -> None:
    assert box.call("run", "-q", "-n", "1", "--detach", "--", "sh", "-c", "exit 3")[0] == 0
    assert ended(all_jobs(box.environ)[0]).status == 3
    assert box.claimed() == []


# Taken devices


def test_a_named_device_that_is_claimed_is_refused_with_who_has_it(box: Box) -> None:
    box.hold(1, command="python other.py")
    status, out, err = box.call("run", "--gpus", "0,1", "--", "true")
    assert (status, out) == (4, "")
    (refusal,) = lines_of(err)
    assert refusal.startswith("GPU 1 is claimed") and "--force" in refusal
    assert "claimed by you" in refusal and "python other.py" in refusal
    assert box.claimed() == [1]


def test_force_takes_a_claimed_device_and_holds_the_others(box: Box) -> None:
    box.hold(1)
    job = _running(box, "--force", "--gpus", "0,1,2")
    assert job.out == f"{job.pid} 0,1,2\n"
    warning = only_warning(job.err)
    assert warning.startswith("GPU 1 is claimed") and "--force" in warning
    assert sorted((claim.key, claim.pid == job.pid) for claim in box.claims()) == sorted(
        (box.uuids[n], n != 1) for n in (0, 1, 2)
    )


def test_what_is_picked_is_not_claimed(box: Box) -> None:
    box.hold(0, 2)
    assert box.call("pick", "-n", "6")[:2] == (0, "1,3,4,5,6,7\n")
    assert (
        box.call("run", "-q", "-n", "6", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")[1] == "1,3,4,5,6,7\n"
    )
    assert box.claimed() == [0, 2], "pick claims nothing"


def test_a_shortage_says_by_whom_devices_are_claimed(box: Box) -> None:
    box.hold(0, command="python other.py")
    for words in (("pick", "-n", "8"), ("run", "-n", "8", "--", "true")):
        status, out, err = box.call(*words)
        (refusal,) = lines_of(err)
        assert (status, out) == (4, "") and "7 of 8" in refusal
        assert "GPU 0 claimed" in refusal and "python other.py" in refusal


def test_a_named_device_that_is_claimed_can_be_picked_by_force(box: Box) -> None:
    box.hold(3)
    assert box.call("pick", "--gpus", "3")[:2] == (4, "")
    status, out, err = box.call("pick", "--gpus", "3", "--force")
    assert (status, out) == (0, "3\n") and "warning: GPU 3 is claimed: by " in err


def test_ls_says_what_is_claimed_and_by_whom(box: Box) -> None:
    box.hold(3, command="python other.py")
    rows = box.call("ls")[1].splitlines()
    assert "◆ claimed" in rows[5] and rows[5].endswith(": python other.py")
    assert [n for n, row in enumerate(rows) if "claimed" in row] == [5]
    found = json.loads(box.call("ls", "--json")[1])
    assert [device["verdict"]["state"] for device in found["devices"]].index("claimed") == 3
    assert found["devices"][3]["claim"]["command"] == "python other.py"


# Between choosing and launching


def _meanwhile(box: Box, change: Callable[[], object], *words: str) -> tuple[int, str, str]:
    """Run a launch, and apply a change just before its first lease is taken."""

    def work() -> int:
        real = leases.take

        def late(*arguments: object) -> Lease:
            leases.take = real  # type: ignore[attr-defined]
            change()
            return real(*arguments)  # type: ignore[arg-type]

        leases.take = late  # type: ignore[attr-defined,assignment]
        return main(["run", "-q", *words, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])

    child = box.fork(work)
    return child.end(), child.out, child.err


def _busy(box: Box, *devices: str) -> Callable[[], object]:
    task = Task(devices=devices, user="mira", command="python late.py", pid=os.getpid(), memory=9000, load=0)
    return lambda: box.driver.show_box(replace(EIGHT, tasks=(task,)))


def test_a_device_on_which_somebody_begins_meanwhile_is_not_used(box: Box) -> None:
    status, out, err = _meanwhile(box, _busy(box, "0"), "-n", "2")
    assert (status, out) == (0, "1,2\n")
    (note,) = lines_of(err)
    assert note.startswith("GPU 0 ") and f"now busy: pid {os.getpid()}" in note


def test_a_launch_for_which_too_few_are_left_meanwhile_is_refused(box: Box) -> None:
    status, out, err = _meanwhile(box, _busy(box, "3"), "-n", "8")
    assert (status, out) == (4, "")
    note, refusal = lines_of(err)
    assert note.startswith("GPU 3 ") and f"now busy: pid {os.getpid()}" in note and "7 of 8" in refusal
    assert box.claimed() == []


def test_a_named_device_on_which_we_begin_something_meanwhile_is_used_with_a_warning(box: Box) -> None:
    status, out, err = _meanwhile(box, _busy(box, "0"), "--gpus", "0,1")
    assert (status, out) == (0, "0,1\n")
    warning = only_warning(err)
    assert warning.startswith("GPU 0 ") and "now busy: " in warning and f"pid {os.getpid()}" in warning


def test_a_device_that_is_claimed_meanwhile_is_not_used(box: Box) -> None:
    def other() -> None:
        Elsewhere([box.uuids[0]], box.environ, "python other.py")

    status, out, err = _meanwhile(box, other, "-n", "1")
    assert (status, out, err) == (0, "1\n", "")


# `gputui claims`


def test_claims_are_listed_with_device_user_job_and_command(box: Box) -> None:
    status, out, err = box.call("claims")
    assert (status, out, len(lines_of(err))) == (0, "", 1)
    holder = box.hold(5, command="python train.py --lr 3e-4")
    head, row = box.call("claims")[1].splitlines()
    assert head.split() == ["DEVICE", "USER", "FOR", "JOB", "COMMAND"]
    assert re.fullmatch(r"GPU 5 +\w+ +\d+s +– +python train.py --lr 3e-4", row)
    (found,) = json.loads(box.call("claims", "--json")[1])["claims"]
    assert (found["index"], found["uuid"], found["pid"]) == (5, box.uuids[5], holder.pid)


def test_claims_can_be_told_without_a_driver(box: Box) -> None:
    box.hold(5)
    box.driver.fail_init(9)
    status, out, err = box.call("claims")
    (note,) = lines_of(err)
    assert status == 0 and box.uuids[5] in out and "driver" in note


@pytest.mark.parametrize(
    ("words", "looks"),
    [
        (("claims",), True),
        (("people",), True),
        (("ls",), True),
        (("pick", "-n", "2"), False),
        (("pick", "-n", "9"), False),
        (("run", "-q", "-n", "2", "--", "true"), False),
        (("export", "-n", "2", "--as", "sh", "--", "true"), False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_chooses_does_not_look_up_whose_processes_are_where(
    box: Box, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], looks: bool
) -> None:
    def looked_up(*_: object) -> NoReturn:
        os._exit(77)

    monkeypatch.setattr(ClaimProcesses, "of", looked_up)
    box.hold(3)
    assert (box.call(*words)[0] == 77) == looks


@pytest.fixture
def kept(box: Box) -> Iterator[int]:
    """A process that keeps the claim of a command that has ended: its pid."""
    call = box.start("run", "-q", "-n", "1", "--", "sh", "-c", "sleep 1000 & echo $!")
    assert call.end() == 0
    yield int(call.out)
    os.kill(int(call.out), signal.SIGKILL)
    until(lambda: box.claimed() == [])


def _kept_by(box: Box) -> object:
    (claim,) = json.loads(box.call("claims", "--json")[1])["claims"]
    return claim["kept_by"]


@pytest.mark.parametrize(("limit", "least"), [("_MOST_IN_ALL", 0), ("_MOST_SECONDS", -1.0)])
def test_where_a_look_at_processes_is_cut_off_a_claim_stays_one_and_its_keeper_is_not_known(
    box: Box, kept: int, monkeypatch: pytest.MonkeyPatch, limit: str, least: float
) -> None:
    assert _kept_by(box) == [{"pid": kept, "name": "sleep"}]
    monkeypatch.setattr(lock_holders, limit, least)
    assert _kept_by(box) is None
    (row,) = box.call("claims")[1].splitlines()[1:]
    assert "kept by" not in row
    states = [each["verdict"]["state"] for each in json.loads(box.call("ls", "--json")[1])["devices"]]
    assert states.count("claimed") == 1 and box.call("pick", "-n", "8")[0] == 4


def test_the_keepers_of_a_claim_are_not_searched_among_the_processes_of_other_users(
    box: Box, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,600 processes of a neighbour with 512 open files each made root's `claims` take 27 seconds."""
    (claim,) = box.claims()
    looked = []
    monkeypatch.setattr(lock_holders, "opened", lambda pid: looked.append(pid) or ())
    monkeypatch.setattr(lock_holders, "owner_of", lambda pid: os.geteuid() + (pid != kept))
    assert keepers([claim]) == {claim: ()} and looked == [claim.pid, kept]


@pytest.mark.parametrize(
    "words", [("claims",), ("ls",), ("pick", "-n", "8"), ("run", "--gpus", "0", "--", "true")]
)
def test_a_hostile_command_reaches_no_terminal_as_it_is(box: Box, words: tuple[str, ...]) -> None:
    box.hold(0, command="\x1b]0;owned\x07\x1b[2J\r\nGPU 1 \u202eevil\udc9b x" + "y" * 5000)
    status, out, err = box.call(*words)
    assert status in (0, 4)
    assert all(line.isprintable() for line in (*out.splitlines(), *err.splitlines()))
    assert len(out) + len(err) < 4000


@pytest.mark.parametrize("words", [("claims",), ("people",), ("queue",)])
def test_a_hostile_name_of_an_agent_reaches_no_terminal_as_it_is(box: Box, words: tuple[str, ...]) -> None:
    name = "\x1b[2J\r\u202eevil"

    def work() -> int:
        lease = take(box.uuids[:1], os.environ, "python t.py", client=name)
        Ticket.draw(os.environ, 1, None, "python t.py", client=name)
        print(lease.keys, flush=True)
        signal.pause()
        return 0

    box.begun(work)
    status, out, _ = box.call(*words)
    assert status == 0 and "evil" not in out and all(line.isprintable() for line in out.splitlines())


def test_an_untrusted_file_is_a_warning_and_nothing_else(box: Box) -> None:
    box.hold(0)
    for number in range(9):
        (box.claims_folder / record_name(box.uuids[1], number + 100)).symlink_to("/etc/passwd")
    status, out, err = box.call("claims")
    assert status == 0 and len(out.splitlines()) == 2
    *each, rest = warnings_of(err)
    assert len(each) == 3 and all(box.uuids[1] in warning for warning in each) and numbers(rest) == [6]
    assert box.call("pick", "-n", "7") == (0, "1,2,3,4,5,6,7\n", "")
    assert box.call("run", "-q", "-n", "1", "--", "true") == (0, "", "")


@pytest.mark.parametrize("which", [("-n", "1"), ("--gpus", "3")])
def test_where_no_lease_can_be_made_nothing_starts_but_by_force(box: Box, which: tuple[str, ...]) -> None:
    words = ("run", "-q", *which, "--", "echo", "ran")
    status, out, err = box.call(*words, GPUTUI_CLAIMS="/dev/null")
    assert (status, out) == (4, "") and "GPUTUI_CLAIMS names /dev/null" in err
    status, out, err = box.call("run", "--force", *words[1:], GPUTUI_CLAIMS="/dev/null")
    assert (status, out) == (0, "ran\n") and "GPUTUI_CLAIMS names /dev/null" in only_warning(err)


@pytest.mark.parametrize("how", [(), ("--detach",), ("--attach",)])
def test_a_line_in_one_word_is_told_how_to_write_it(box: Box, how: tuple[str, ...]) -> None:
    status, out, said = box.call("run", "-q", *how, "-n", "1", "--", "rm -r out; python x.py")
    assert (status, out) == (2, "") and "bash -c 'rm -r out; python x.py'" in said
    # The second one is longer than the name of a file can be.
    for line in ("python x.py", f"python x.py --name {'n' * 300}"):
        said = box.call("run", "-q", *how, "-n", "1", "--", line)[2]
        assert "several words" in said and "Traceback" not in said and box.claimed() == []


def test_a_command_that_we_may_not_see_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid, /proc has no processes of other users: all their claims seemed to be kept by others."""

    def hidden(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", hidden)
    monkeypatch.setattr(os, "access", lambda *_: False)
    (tmp_path / "record").touch()
    claim = Claim("GPU-1", "ana", pid=os.getppid(), record=str(tmp_path / "record"))
    assert keepers([claim]) == {}
