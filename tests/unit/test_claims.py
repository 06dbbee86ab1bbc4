"""Leases: held by the kernel as long as a process of the job lives, and by one job only."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from gputui.allocating.claims import files
from gputui.allocating.claims import lease as leases
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.read import claims
from unit.claims_support import Box, Take, opened_by, until

# how long a claim lives


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
    assert box.claims() == () and lease(box, 0, 1).keys == tuple(sorted(box.uuids[:2]))


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


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
def test_devices_are_locked_in_one_order_whatever_the_order_they_are_asked_for(
    box: Box, lease: Take, places: tuple[int, ...]
) -> None:
    """Otherwise of two who want the same devices each could lock one that the other waits for."""
    mine = lease(box, *places)
    opened = [Path(f"/proc/self/fd/{descriptor}").readlink().name for descriptor in mine.descriptors]
    assert [name for name in opened if name.endswith(".lock")] == [
        f"{uuid}.0.lock" for uuid in sorted(box.uuids[:3])
    ]


@pytest.mark.usefixtures("hasty")
def test_a_holder_who_comes_between_our_first_look_and_our_record_is_seen(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He has locked under another name, as somebody has made the first one unreadable meanwhile."""
    record, real = box.make_folder() / f"{box.uuids[0]}@{os.geteuid()}.7.claim", leases._write_record
    record.touch(0o644)
    with record.open("rb") as other:
        # (What is inherited is another job's.)
        os.set_inheritable(other.fileno(), True)

        def overtaken(*arguments: object) -> None:
            fcntl.flock(other, fcntl.LOCK_EX)
            record.write_text('{"command": "python other.py"}')
            real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(leases, "_write_record", overtaken)
        with pytest.raises(TakenError) as error:
            lease(box, 0)
        assert error.value.claim is not None and error.value.claim.command == "python other.py"
        assert [claim.command for claim in box.claims()] == ["python other.py"], "ours is given back"


def test_what_this_process_has_taken_itself_is_not_told_until_it_is_passed_on(box: Box, lease: Take) -> None:
    mine = lease(box, 2)
    assert box.claims() == ()
    mine.inherit()
    assert box.claimed() == [2]


def test_a_lock_that_is_just_being_taken_is_waited_for(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes 0 and 1 and cannot have 1: for that moment 0 is locked, and then it is not."""
    lease(box, 0).release()
    other = os.open(box.claims_folder / f"{box.uuids[0]}.0.lock", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(leases.time, "sleep", lambda seconds: os.close(other))
    assert lease(box, 0).keys == (box.uuids[0],)


@pytest.mark.usefixtures("hasty")
def test_a_lock_without_a_record_is_not_waited_for_for_ever(box: Box, lease: Take) -> None:
    lease(box, 0).release()
    other = os.open(box.claims_folder / f"{box.uuids[0]}.0.lock", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(TakenError) as error:
        lease(box, 0)
    assert error.value.claim is None
    os.close(other)


def test_a_job_that_is_ending_may_have_given_back_its_lock_before_its_record(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel closes descriptors one after the other."""
    ending = lease(box, 0)
    ending.inherit()
    os.close(ending.descriptors.pop(1))
    monkeypatch.setattr(leases.time, "sleep", lambda seconds: ending.release())
    assert lease(box, 0).keys == (box.uuids[0],)


def test_a_lock_that_is_removed_while_it_is_taken_is_no_lock(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = box.claims_folder / f"{box.uuids[0]}.0.lock"
    real = leases._wait_for_lock

    def removed_before(*arguments: object) -> None:
        monkeypatch.setattr(leases, "_wait_for_lock", real)
        path.unlink()
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(leases, "_wait_for_lock", removed_before)
    mine = lease(box, 0)
    assert files.is_same_file(path, mine.descriptors[1])


def test_a_lock_that_comes_and_goes_without_end_is_passed_over(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "is_same_file", lambda path, descriptor: path.name.endswith(".3.lock"))
    mine = lease(box, 0)
    assert mine.keys == (box.uuids[0],) and len(mine.warnings) == 3
    assert len(mine.descriptors) == 3, "the folder, the lock, the record"


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
