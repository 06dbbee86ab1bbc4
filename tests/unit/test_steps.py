"""Launches inside the user's own lease are steps of it: they divide its devices without waiting in line."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from gputui.allocating import waiting_loop
from gputui.allocating.claims import own_lease as own_leases
from gputui.allocating.claims import read
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.own_lease import NO_LEASE, OwnLease, own_lease
from gputui.allocating.queue import Ticket, waiters
from gputui.jobs.store import all_jobs
from gputui.sources.simulated.spec import Task
from gputui.system.record_locks import END, lock
from messages import lines_of, numbers
from unit.claims_support import EIGHT, Box, Forked, lines, until
from unit.jobs_support import ended

by_descriptors_or_ancestors = pytest.mark.parametrize("keep", [True, False], ids=["inherited", "closed"])
"""Whether the launch has inherited the lease's descriptors, or a program in between has closed them."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make looks follow each other faster, also in the children."""
    monkeypatch.setattr(waiting_loop, "_LOOK_AHEAD", 0.04)
    monkeypatch.setattr(waiting_loop, "_SHORTEST", 0.06)
    monkeypatch.setattr(waiting_loop, "_SHARE", 1.0)


def begun(box: Box, *words: str, keep: bool = True) -> Forked:
    """A launch whose command runs and has printed its devices."""
    call = box.start(
        "run", "-q", *words, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 99", keep=keep
    )
    until(lambda: call.over or call.out)
    assert not call.over, call.err
    return call


def _steps(own: OwnLease) -> set[tuple[str, int]]:
    return {(claim.key, claim.step) for claim in own.claims}


# dividing


@by_descriptors_or_ancestors
def test_steps_divide_the_lease_and_the_end_of_one_gives_its_device_back_to_it(box: Box, keep: bool) -> None:
    def body() -> None:
        first, second = begun(box, "-n", "1", keep=keep), begun(box, "-n", "1", keep=keep)
        assert (first.out, second.out) == ("2\n", "5\n") and first.err == second.err == ""
        status, out, err = box.call("run", "-n", "1", "--", "true", keep=keep)
        assert (status, out) == (4, "") and {1, 2} <= set(numbers(err)), "1 asked for, none of 2"
        first.kill()
        assert begun(box, "-n", "1", keep=keep).out == "2\n"
        second.kill()
        # Other users get neither device.
        assert sorted({box.uuids.index(claim.key) for claim in box.claims()}) == [2, 5]

    box.inside([2, 5], body)
    assert box.claimed() == []


def test_a_device_of_the_lease_cannot_be_had_from_outside_while_or_between_steps(box: Box) -> None:
    script = "trap 'kill $!' TERM; echo begun; sleep 99 & wait"
    job = box.start("run", "-q", "--gpus", "2", "--", "sh", "-c", script)
    until(lambda: job.out)
    status, _, err = box.call("run", "--gpus", "2", "--", "true")
    assert status == 4 and "GPU 2 is claimed" in err


@by_descriptors_or_ancestors
def test_pick_is_from_the_lease_although_others_are_free(box: Box, keep: bool) -> None:
    def body() -> None:
        assert box.call("pick", "-n", "2", keep=keep) == (0, "2,5\n", "")
        status, out, err = box.call("pick", "-n", "3", keep=keep)
        assert (status, out) == (4, "") and {3, 2} <= set(numbers(err))
        assert box.call("export", "-n", "1", "--as", "json", "--", "true", keep=keep)[0] == 0
        begun(box, "-n", "1", keep=keep)
        assert box.call("pick", "-n", "1", keep=keep) == (0, "5\n", "")

    box.inside([2, 5], body)


def test_inside_the_lease_its_devices_are_free_in_every_list(box: Box) -> None:
    """Also where the processes of all claims are looked up."""

    def body() -> None:
        status, out, _ = box.call("ls", "--json", keep=True)
        states = [device["verdict"]["state"] for device in json.loads(out)["devices"]]
        assert (status, [place for place, state in enumerate(states) if state == "claimed"]) == (0, [0])

    box.hold(0)
    box.inside([2, 5], body)


def test_what_is_used_inside_the_lease_is_not_picked(box: Box) -> None:
    """The command itself may use it, for example: a device of the lease need not be free."""
    task = Task(devices=("2",), user="mira", command="python own.py", pid=os.getpid(), memory=9000, load=0)
    box.driver.show_box(replace(EIGHT, tasks=(task,)))
    box.inside([2, 5], lambda: _equal(box.call("pick", "-n", "1", keep=True), (0, "5\n", "")))


def _equal(one: object, other: object) -> None:
    assert one == other


@by_descriptors_or_ancestors
def test_to_name_a_device_of_the_lease_is_no_conflict_unless_a_step_has_it(box: Box, keep: bool) -> None:
    def body() -> None:
        assert box.call("run", "-q", "--gpus", "5", "--", "true", keep=keep) == (0, "", "")
        begun(box, "--gpus", "5", keep=keep)
        status, out, err = box.call("run", "--gpus", "5", "--", "echo", "started", keep=keep)
        assert (status, out) == (4, "") and "GPU 5 is claimed" in err
        status, out, err = box.call("run", "-q", "--force", "--gpus", "5", "--", "echo", "started", keep=keep)
        assert (status, out) == (0, "started\n") and len(lines_of(err)) == 1

    box.inside([2, 5], body)


def test_to_name_a_device_outside_the_lease_follows_the_usual_rules(box: Box) -> None:
    box.hold(0)

    def body() -> None:
        status, _, err = box.call("run", "--gpus", "0", "--", "true", keep=True)
        assert status == 4 and "GPU 0 is claimed" in err
        mixed = begun(box, "--gpus", "5,7")
        assert mixed.out == "5,7\n" and mixed.err == ""
        found = {(box.uuids.index(claim.key), claim.step) for claim in box.claims()}
        assert found == {(0, 0), (2, 0), (5, 0), (5, 1), (7, 0)}
        limited = {"CUDA_VISIBLE_DEVICES": "2,5", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert box.call("run", "--gpus", "1", "--", "true", keep=True, **limited)[0] == 2
        # A list that the user has set to another device means that device.
        limited["CUDA_VISIBLE_DEVICES"] = "1"
        assert box.call("pick", "-n", "1", keep=True, **limited) == (0, "1\n", "")

    box.inside([2, 5], body)


def test_steps_divide_further(box: Box) -> None:
    """A step in a step, at any depth."""

    def deeper(places: list[int], level: int) -> Callable[[], int]:
        def work() -> int:
            own = own_lease(os.environ)
            steps = {claim.key: own.next_step(claim.key) - 1 for claim in own.claims}
            assert steps == {box.uuids[place]: level for place in places}
            box._started = []
            step = take([box.uuids[place] for place in places[:-1]], os.environ, f"step {level + 1}")
            step.inherit()
            for descriptor in own.descriptors:
                # exec would close these.
                if not os.get_inheritable(descriptor):
                    os.close(descriptor)
            try:
                if len(places) > 2:
                    inner = box.fork(deeper(places[:-1], level + 1), keep=True)
                    assert inner.end() == 0, inner.err
                else:
                    found = [(box.uuids.index(c.key), c.step) for c in box.claims()]
                    assert sorted(found) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]
                    assert box.call("pick", "-n", "1", keep=True) == (0, "0\n", "")
                    assert box.call("pick", "-n", "2", keep=True)[0] == 4
            finally:
                box.end()
            return 0

        return work

    def body() -> None:
        outer = box.fork(deeper([0, 1, 2], 0), keep=True)
        assert outer.end() == 0, outer.err

    box.inside([0, 1, 2], body)


@by_descriptors_or_ancestors
def test_a_step_that_outlives_the_command_keeps_its_own_device_only(box: Box, keep: bool) -> None:
    left = box.folder / "left"

    def body() -> None:
        left.write_text(str(begun(box, "-n", "1", keep=keep).pid))
        box._started = []

    box.inside([2, 5], body)
    try:
        assert set(box.claimed()) == {2}
        assert box.call("run", "--gpus", "2", "--", "true")[0] == 4
        assert begun(box, "--gpus", "5").out == "5\n"
    finally:
        os.kill(int(left.read_text()), signal.SIGKILL)
    until(lambda: box.claimed() == [5])


@pytest.mark.usefixtures("quick")
@by_descriptors_or_ancestors
def test_many_steps_at_once_are_never_two_on_a_device(box: Box, keep: bool) -> None:
    log = box.folder / "log"
    used = f"echo + $CUDA_VISIBLE_DEVICES >> {log}; echo - $CUDA_VISIBLE_DEVICES >> {log}"

    def body() -> None:
        calls = [
            box.start("run", "-q", "--wait", "-n", "1", "--", "sh", "-c", used, keep=keep) for _ in range(5)
        ]
        assert [call.end() for call in calls] == [0] * 5, [call.err for call in calls]

    box.inside([1, 2, 3], body)
    held: set[str] = set()
    for sign, device in lines(log):
        assert (device in held) == (sign == "-"), lines(log)
        held ^= {device}
    assert {device for _, device in lines(log)} <= {"1", "2", "3"} and len(lines(log)) == 10


# the proof


def test_no_variable_and_no_open_file_makes_a_lease_one_s_own(box: Box) -> None:
    box.hold(2, 5)
    variables = {"CUDA_VISIBLE_DEVICES": "2,5", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def body() -> int:
        # Records of the same user can even be opened for writing.
        opened = [os.open(path, os.O_RDWR) for path in box.claims_folder.glob("*.claim")]
        for descriptor in opened:
            os.set_inheritable(descriptor, True)
            with pytest.raises(BlockingIOError):
                lock(descriptor, 0, END)
        assert own_lease(os.environ) == NO_LEASE
        for keep in (True, False):
            status, out, _ = box.call("run", "--gpus", "2", "--", "echo", "started", keep=keep, **variables)
            assert (status, out) == (4, "")
        return 0

    forger = box.fork(body)
    assert forger.end() == 0, forger.err


def test_an_open_lock_that_nobody_holds_stays_nobody_s(box: Box) -> None:
    box.hold(2).kill()
    (record,) = box.claims_folder.glob("*.claim")

    def body() -> int:
        descriptor = os.open(record, os.O_RDWR)
        os.set_inheritable(descriptor, True)
        assert own_lease(os.environ) == NO_LEASE
        assert begun(box, "--gpus", "2").out == "2\n"
        assert own_lease(os.environ) == NO_LEASE, "of our own child, which has taken it itself"
        return 0

    passing = box.fork(body)
    assert passing.end() == 0, passing.err


def test_a_lease_that_is_not_passed_on_is_not_its_children_s(box: Box) -> None:
    """The screen holds devices while it asks; a program that it starts meanwhile is not in that lease."""

    def body() -> int:
        lease = take([box.uuids[2]], os.environ, "x")
        assert own_lease(os.environ) == NO_LEASE
        for keep in (True, False):
            assert box.call("run", "--gpus", "2", "--", "true", keep=keep)[0] == 4
        lease.release()
        return 0

    screen = box.fork(body)
    assert screen.end() == 0, screen.err


def test_without_proc_inherited_descriptors_are_enough(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        real = os.listdir

        def no_proc(path: str = ".") -> list[str]:
            if str(path).startswith(("/proc", "/dev/fd")):
                raise FileNotFoundError(path)
            return real(path)

        monkeypatch.setattr(read.os, "listdir", no_proc)
        monkeypatch.setattr(own_leases, "ancestors", lambda: iter(()))
        assert begun(box, "-n", "1").out == "2\n"
        assert _steps(own_lease(os.environ)) == {(box.uuids[2], 0), (box.uuids[5], 0)}
        assert box.call("run", "--gpus", "2", "--", "true", keep=False)[0] == 4, "closed: it is outside"

    box.inside([2, 5], body)


def test_a_step_has_no_descriptor_of_another_device_of_the_lease(box: Box) -> None:
    script = 'for file in /proc/self/fd/*; do readlink "$file"; done; echo over'

    def body() -> None:
        status, out, err = box.call("run", "-q", "-n", "1", "--", "sh", "-c", script, keep=True)
        assert status == 0, err
        held = {path.rpartition("/")[2] for path in out.split() if str(box.claims_folder) in path}
        (place,) = box.claims_folder.glob("gputui-claims.*")
        assert {name.partition("@")[0] for name in held} == {box.claims_folder.name, place.name, box.uuids[2]}
        assert sorted(".step1." in name for name in held) == [False, False, False, True]

    box.inside([2, 5], body)


def test_another_folder_of_claims_is_another_world(box: Box) -> None:
    def body() -> None:
        elsewhere = {"GPUTUI_CLAIMS": str(box.folder / "others")}
        assert box.call("pick", "-n", "8", keep=True, **elsewhere)[0] == 0

    box.inside([2, 5], body)


def test_a_step_in_this_very_process_is_taken_once(box: Box) -> None:
    """The screen holds a step while it asks."""

    def body() -> None:
        mine = take([box.uuids[2]], os.environ, "x")
        with pytest.raises(TakenError):
            take([box.uuids[2]], os.environ, "y")
        assert box.call("run", "--gpus", "2", "--", "true", keep=True)[0] == 4
        mine.release()
        assert box.call("run", "-q", "--gpus", "2", "--", "true", keep=True)[0] == 0
        assert _steps(own_lease(os.environ)) == {(box.uuids[2], 0), (box.uuids[5], 0)}, (
            "the lease itself stays"
        )

    box.inside([2, 5], body)


# waiting


@by_descriptors_or_ancestors
def test_who_waits_outside_does_not_stand_in_the_way_of_a_step_nor_a_step_in_his(
    box: Box, keep: bool
) -> None:
    box.make_folder()
    outside = box.start("run", "-q", "--wait", "-n", "8", "--", "true")
    until(lambda: outside.over or len(waiters(box.environ)) == 1)

    def body() -> None:
        assert begun(box, "-n", "1", keep=keep).out == "2\n"
        assert begun(box, "--gpus", "5", keep=keep).err == ""
        waits = box.start("run", "-q", "--wait", "-n", "1", "--", "true", keep=keep)
        until(lambda: waits.over or len(waiters(box.environ)) == 2)
        assert {waiter.step for waiter in waiters(box.environ)} == {0, 1}
        ticket = Ticket.draw(box.environ, 1, None, "x")
        assert ticket is not None and [w.step for w in ticket.ahead(box.environ)] == [0]
        ticket.leave()

    box.inside([2, 5], body)
    assert not outside.over
    outside.kill()
    free = box.call("run", "-q", "-n", "1", "--", "true")
    assert free[0] == 0, free


@pytest.mark.usefixtures("quick")
@by_descriptors_or_ancestors
def test_a_step_waits_for_another_step_and_not_for_its_own_lease(box: Box, keep: bool) -> None:
    """It begins at once when the other has ended: no other process could return to the device."""

    def body() -> None:
        first = begun(box, "--gpus", "2", keep=keep)
        words = ("run", "--wait", "--window", "60", "--gpus", "2", "--", "echo", "started")
        waits = box.start(*words, keep=keep)
        until(lambda: waits.over or waiters(box.environ))
        first.kill()
        assert waits.ends_within(50), "it waited for the window"
        assert (waits.end(), waits.out) == (0, "started\n"), waits.err
        status, out, err = box.call("run", "--wait", "-n", "3", "--", "true", keep=keep)
        assert (status, out) == (4, "") and {3, 2} <= set(numbers(err)), "there will never be so many"

    box.inside([2, 5], body)


# jobs


@by_descriptors_or_ancestors
def test_a_job_is_a_step_too(box: Box, keep: bool) -> None:
    def body() -> None:
        words = (
            "run",
            "-q",
            "--detach",
            "-n",
            "1",
            "--",
            "sh",
            "-c",
            "echo $CUDA_VISIBLE_DEVICES; exec sleep 99",
        )
        assert box.call(*words, keep=keep)[0] == 0
        (job,) = all_jobs(box.environ)
        assert job.command is not None
        found = [(claim.step, claim.pid, claim.job) for claim in box.claims() if claim.key == box.uuids[2]]
        assert found[1] == (1, job.command.pid, job.id) and begun(box, "-n", "1", keep=keep).out == "5\n"

    box.inside([2, 5], body)
    (job,) = all_jobs(box.environ)
    assert job.command is not None and set(box.claimed()) == {2}, "the job goes on, and has its own device"
    os.kill(job.command.pid, signal.SIGKILL)
    ended(job)
    assert box.claimed() == []


def test_a_job_that_waits_inside_a_lease_waits_for_a_step_of_it(box: Box) -> None:
    def body() -> None:
        first = begun(box, "--gpus", "2")
        words = ("run", "-q", "--detach", "--wait", "--gpus", "2", "--", "true")
        assert box.call(*words, keep=True)[0] == 0
        until(lambda: waiters(box.environ))
        assert [waiter.step for waiter in waiters(box.environ)] == [1]
        first.kill()
        assert ended(all_jobs(box.environ)[0]).status == 0

    box.inside([2], body)


def test_a_job_that_could_not_keep_its_lease_does_not_wait_for_it_for_ever(box: Box) -> None:
    def body() -> None:
        words = ("run", "-q", "--detach", "--wait", "--gpus", "2", "--", "true")
        status, out, err = box.call(*words, keep=False)
        assert status == 126 and out == "" and "close_fds=False" in err
        assert all_jobs(box.environ) == []

    box.inside([2], body)


# the shown text


def test_claims_shows_the_steps_of_a_lease_below_it(box: Box) -> None:
    def body() -> None:
        begun(box, "-n", "1")
        rows = box.call("claims", keep=True)[1].splitlines()
        assert [row.split("  ")[0] or row.strip().split("  ")[0] for row in rows[1:]] == [
            "GPU 2",
            "GPU 2, step",
            "GPU 5",
        ]
        assert rows[2].startswith("  ") and not rows[1].startswith(" ")
        found = json.loads(box.call("claims", "--json")[1])["claims"]
        assert [(row["index"], row["step"], row["kept_by"]) for row in found] == [
            (2, 0, None),
            (2, 1, None),
            (5, 0, None),
        ]
        shown = json.loads(box.call("ls", "--json", keep=True)[1])["devices"]
        states = [device["verdict"]["state"] for device in shown]
        assert (states[2], states[5]) == ("claimed", "free"), "for a step"

    box.inside([2, 5], body)
