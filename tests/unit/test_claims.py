"""Leases: the kernel holds each as long as a process of the job lives, and for one job only."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputui.allocating.claims import lease as leases
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.read import ANNOUNCED, claims
from unit.claims_support import Box, Take, opened_by, record_name, until, write_record

# How long a claim lives


def test_a_claim_is_there_while_its_holder_lives_and_gone_when_it_is_killed(box: Box) -> None:
    holder = box.hold(1, 2)
    found = box.claims()
    assert [claim.key for claim in found] == sorted((box.uuids[1], box.uuids[2]))
    assert {(claim.pid, claim.command) for claim in found} == {(holder.pid, "python train.py")}
    assert all(claim.since is not None for claim in found)
    holder.kill()
    assert box.claims() == ()


def test_a_claim_lives_as_long_as_the_last_process_of_the_job(box: Box) -> None:
    words = ("run", "-q", "--gpus", "3", "--", "sh", "-c", "sleep 1000 & echo $!; exec sleep 1000")
    job = box.start(*words)
    until(lambda: job.out.endswith("\n"))
    child = int(job.out)
    job.kill()
    assert box.claimed() == [3], "its child lives"
    os.kill(child, signal.SIGKILL)
    until(lambda: box.claimed() == [])


def test_files_without_locks_mean_nothing_as_after_a_reboot(box: Box, lease: Take) -> None:
    box.hold(0, 1).kill()
    assert len(list(box.claims_folder.glob("*.claim"))) == 2
    assert box.claims() == () and list(box.claims_folder.glob("*.claim")) == []
    assert lease(box, 0, 1).keys == tuple(sorted(box.uuids[:2]))


def test_a_device_is_held_by_one_lease_and_who_holds_it_is_told(box: Box, lease: Take) -> None:
    holder = box.hold(4, command="python one.py")
    with pytest.raises(TakenError) as error:
        lease(box, 4)
    assert error.value.key == box.uuids[4]
    assert error.value.claim is not None and error.value.claim.pid == holder.pid
    assert error.value.claim.command == "python one.py"


def test_a_lease_is_of_all_devices_or_of_none(box: Box, lease: Take) -> None:
    box.hold(5)
    before = opened_by(os.getpid())
    with pytest.raises(TakenError):
        lease(box, 3, 4, 5, 6)
    assert opened_by(os.getpid()) == before, "nothing is left open"
    assert lease(box, 3, 4, 6).warnings == []


def test_who_looks_while_another_has_the_device_meanwhile_withdraws(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process announced itself after our first look, and looked before we announced ourselves."""
    real, others = leases._announce, list[int]()

    def overtaken(folders: Mapping[Path, bool], key: str, *more: object) -> None:
        record = next(iter(folders)) / record_name(key)
        others.append(write_record(record, b'{"command": "python other.py"}'))
        real(folders, key, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(leases, "_announce", overtaken)
    box.make_folder()
    with pytest.raises(TakenError) as error:
        lease(box, 0)
    assert error.value.claim is not None and error.value.claim.command == "python other.py"
    assert [claim.command for claim in box.claims()] == ["python other.py"], "ours is given back"
    os.close(others[0])


@pytest.mark.parametrize("token", ["0" * 32, "f" * 32])
def test_of_two_who_look_the_one_with_the_lower_token_goes_on(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """The other one yields for a moment, and has the device if the first cannot have all its devices."""
    record = box.make_folder() / record_name(box.uuids[0], token=token)
    other = write_record(record, size=ANNOUNCED, passed_on=False)
    seen = list[int]()

    def rest(_: float) -> None:
        seen.append(len(list(box.claims_folder.glob("*.claim"))))
        if len(seen) == 3:
            os.close(other)

    # The other process comes after our first look.
    real = leases._others
    monkeypatch.setattr(leases, "_others", lambda *facts: real(*facts) if facts[1]._records or seen else [])
    monkeypatch.setattr(leases.time, "sleep", rest)
    mine = lease(box, 0)
    assert mine.keys == (box.uuids[0],)
    assert seen == ([1, 1, 1] if token[0] == "0" else [2, 2, 2])


@pytest.mark.usefixtures("hasty")
def test_who_only_looks_is_not_waited_for_for_ever(box: Box, lease: Take) -> None:
    box.forge(box.make_folder() / record_name(box.uuids[0]), ANNOUNCED)
    with pytest.raises(TakenError) as error:
        lease(box, 0)
    assert error.value.claim == box.claims()[0]


def test_what_this_process_has_taken_itself_is_not_told_until_it_is_passed_on(box: Box, lease: Take) -> None:
    mine = lease(box, 2)
    assert box.claims() == ()
    mine.inherit()
    assert box.claimed() == [2]


def test_a_claim_is_passed_on_to_a_job_by_name(box: Box, lease: Take) -> None:
    mine = lease(box, 0)
    mine.belongs_to(4242, "k3f9")
    mine.inherit()
    (claim,) = box.claims()
    assert (claim.pid, claim.job, claim.command) == (4242, "k3f9", "python train.py")


@pytest.mark.parametrize("sign", ["a", "😀", "\udcff", "\x1b", "ß"])
def test_the_longest_command_of_any_signs_can_be_read_back(box: Box, lease: Take, sign: str) -> None:
    mine = lease(box, 0, command=sign * 100_000)
    mine.belongs_to(4242, "k3f9")
    mine.inherit()
    found, problems = claims(box.environ)
    assert problems == () and found[0].pid == 4242
    assert found[0].command and set(found[0].command) == {sign}


def test_a_device_without_a_uuid_is_not_claimed_and_that_is_said(box: Box) -> None:
    lease = take(["index 0"], box.environ, "x")
    assert lease.keys == () and len(lease.warnings) == 1 and "UUID" in lease.warnings[0]


def test_an_instance_of_the_old_form_has_a_file_name_too(box: Box) -> None:
    key = "MIG-GPU-652035d5-4369-6bc7-afe7-7aa370d3d342/7/0"
    mine = take([key], box.environ, "x")
    mine.inherit()
    assert mine.keys == (key,) and [claim.key for claim in box.claims()] == [key]
    mine.release()
