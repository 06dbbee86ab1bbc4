"""What others have put in the folder of claims changes nothing but a warning."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputui.allocating.claims import files
from gputui.allocating.claims import lease as leases
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.read import claims
from gputui.system.namespaces import pid_namespace
from messages import numbers
from simnvml import SimulatedNvml
from unit.claims_support import (
    UNTRUSTED,
    Box,
    Take,
    box_at,
    directory,
    for_all_users,
    symbolic_link,
    unreadable_file,
)

ANOTHER = 54321
"""A user id that nobody has."""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


# files that others may have made


@pytest.mark.parametrize("make", UNTRUSTED)
@pytest.mark.usefixtures("hasty")
def test_an_untrusted_file_at_the_name_of_a_lock_changes_nothing_but_a_warning(
    box: Box, lease: Take, make: Callable[[Path], None]
) -> None:
    place = box.make_folder() / f"{box.uuids[0]}.0.lock"
    make(place)
    before = (os.lstat(place).st_ino, os.lstat(place).st_mode, Path("/etc/passwd").read_bytes())
    mine = lease(box, 0)
    assert mine.keys == (box.uuids[0],)
    assert len(mine.warnings) == 1 and mine.warnings[0].startswith(f"ignored: {place.name} is ")
    assert (os.lstat(place).st_ino, os.lstat(place).st_mode, Path("/etc/passwd").read_bytes()) == before
    mine.inherit()
    assert box.claimed() == [0]
    mine.release()
    box.hold(0)
    with pytest.raises(TakenError):
        lease(box, 0)


@pytest.mark.parametrize("make", UNTRUSTED)
def test_an_untrusted_file_at_the_name_of_a_record_is_passed_over_or_replaced_and_never_opened(
    box: Box, lease: Take, make: Callable[[Path], None]
) -> None:
    place = box.make_folder() / f"{box.uuids[0]}@{os.geteuid()}.0.claim"
    make(place)
    before = Path("/etc/passwd").read_bytes()
    mine = lease(box, 0)
    mine.inherit()
    assert mine.warnings == [] and box.claimed() == [0]
    assert Path("/etc/passwd").read_bytes() == before and not place.with_suffix(".nowhere").exists()


@pytest.mark.parametrize("make", UNTRUSTED)
def test_an_untrusted_claim_of_another_device_is_no_claim_but_a_problem(
    box: Box, make: Callable[[Path], None]
) -> None:
    make(box.make_folder() / f"{box.uuids[7]}@{os.geteuid()}.0.claim")
    box.hold(1)
    found, problems = claims(box.environ)
    assert [claim.key for claim in found] == [box.uuids[1]]
    (problem,) = problems
    assert box.uuids[7] in problem and problem.isprintable()


@pytest.mark.usefixtures("hasty")
def test_where_every_name_of_a_lock_is_untrusted_the_launch_goes_on_with_a_warning(
    box: Box, lease: Take
) -> None:
    for number in range(8):
        symbolic_link(box.make_folder() / f"{box.uuids[0]}.{number}.lock")
    mine = lease(box, 0, 1)
    assert mine.keys == (box.uuids[1],)
    assert mine.warnings[-1].startswith(f"{box.uuids[0]} is not claimed")


@pytest.mark.usefixtures("hasty")
def test_where_every_name_of_a_record_is_untrusted_the_device_is_held_all_the_same(
    box: Box, lease: Take
) -> None:
    for number in range(8):
        directory(box.make_folder() / f"{box.uuids[0]}@{os.geteuid()}.{number}.claim")
    mine = lease(box, 0)
    assert mine.keys == (box.uuids[0],) and box.uuids[0] in mine.warnings[0]
    with pytest.raises(TakenError) as error:
        lease(box, 0)
    assert error.value.claim is None


@pytest.mark.usefixtures("hasty")
def test_who_comes_to_another_name_of_the_lock_is_refused_by_the_record(box: Box, lease: Take) -> None:
    """The owner of a lock's file has made it unreadable while another job had it locked."""
    box.hold(0)
    (box.claims_folder / f"{box.uuids[0]}.0.lock").chmod(0o600)
    with pytest.raises(TakenError) as error:
        lease(box, 0)
    assert error.value.claim is not None


def test_a_lock_that_is_just_being_created_is_not_untrusted(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made under a umask of 077, it has its mode a moment later."""
    place = box.make_folder() / f"{box.uuids[0]}.0.lock"
    unreadable_file(place)
    monkeypatch.setattr(leases.time, "sleep", lambda seconds: place.chmod(0o444))
    mine = lease(box, 0)
    assert mine.warnings == [] and files.is_same_file(place, mine.descriptors[1])


def test_files_are_for_all_to_read_whatever_the_umask(box: Box, lease: Take) -> None:
    before = os.umask(0o077)
    try:
        lease(box, 0)
    finally:
        os.umask(before)
    modes = {file.suffix: stat.S_IMODE(file.stat().st_mode) for file in box.claims_folder.iterdir()}
    assert modes == {".lock": 0o444, ".claim": 0o644}
    assert stat.S_IMODE(box.claims_folder.stat().st_mode) == 0o1777


def test_no_file_is_ever_opened_to_be_made_that_may_be_there_already(box: Box) -> None:
    """Under fs.protected_regular that fails for another user's file in a sticky folder, for root too."""
    made = box.hold(0)

    def work() -> int:
        seen: list[int] = []
        sys.addaudithook(lambda event, facts: seen.append(facts[2]) if event == "open" else None)
        take([box.uuids[1]], os.environ, "x").release()
        take([box.uuids[1]], os.environ, "x").release()
        claims(os.environ)
        flags = [flag for flag in seen if isinstance(flag, int)]
        assert any(flag & os.O_CREAT for flag in flags)
        assert all(flag & os.O_EXCL for flag in flags if flag & os.O_CREAT), flags
        return 0

    child = box.fork(work)
    assert child.end() == 0, child.err
    made.kill()


PIDS = (pid_namespace() or "").encode()

HELD: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"\xff\xfe\x00 {",
    "a list": b"[1, 2]",
    "deep": b"[" * 8000,
    "a number of many digits": b'{"since": ' + b"9" * 9000 + b"}",
    "other types": b'{"since": "yesterday", "pid": [1], "command": 5, "job": {}, "pids": 3}',
    "other roots": b'{"roots": [[1], ["a", 3], [-4, 5], [6, "b"]], "pids": "%s"}' % PIDS,
    "no list of roots": b'{"roots": {"1": 2}, "pids": "%s"}' % PIDS,
    "not numbers": b'{"since": NaN, "pid": 1e99}',
}


@pytest.mark.parametrize("text", HELD.values(), ids=HELD)
def test_a_record_that_says_nonsense_is_a_claim_of_its_owner_as_long_as_it_is_held(
    box: Box, text: bytes
) -> None:
    path = box.make_folder() / f"{box.uuids[6]}@{os.geteuid()}.0.claim"
    path.write_bytes(text)
    path.chmod(0o644)
    assert claims(box.environ) == ((), ())
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    found, problems = claims(box.environ)
    assert problems == () and [(claim.key, claim.command, claim.pid, claim.roots) for claim in found] == [
        (box.uuids[6], None, None, ())
    ]
    os.close(descriptor)


def test_a_record_that_is_too_long_is_passed_over(box: Box) -> None:
    path = box.make_folder() / f"{box.uuids[6]}@{os.geteuid()}.0.claim"
    path.write_bytes(b'{"command": "' + b"x" * 100_000 + b'"}')
    path.chmod(0o644)
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    found, problems = claims(box.environ)
    assert found == () and "longer than" in problems[0]
    os.close(descriptor)


@needs_root
def test_a_record_that_another_has_made_in_somebodys_name_is_passed_over(box: Box) -> None:
    path = box.make_folder() / f"{box.uuids[0]}@{os.geteuid()}.0.claim"
    path.write_text("{}")
    path.chmod(0o644)
    os.chown(path, ANOTHER, ANOTHER)
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    found, problems = claims(box.environ)
    (problem,) = problems
    assert found == () and path.name in problem and numbers(problem)[-1] == ANOTHER
    os.close(descriptor)


@needs_root
def test_a_user_whom_this_system_does_not_know_is_told_by_number(simulated_nvml: SimulatedNvml) -> None:
    with for_all_users() as place, box_at(place, simulated_nvml) as box:
        box.hold(0, uid=ANOTHER)
        (claim,) = box.claims()
        assert claim.user == str(ANOTHER)


def test_thousands_of_files_hide_no_claim_and_are_told_in_a_few_lines(box: Box) -> None:
    shared = box.make_folder()
    for number in range(4000):
        (shared / f"rubbish {number}").touch()
    for number in range(1000):
        (shared / f"GPU-{number:08x}-0000@{number}.0.claim").symlink_to("/etc/passwd")
        (shared / f"wait.{number}.abc.ticket").touch()
    box.hold(0)
    box.hold(7)
    found, problems = claims(box.environ)
    assert {claim.key for claim in found} == {box.uuids[0], box.uuids[7]}
    assert len(problems) == 4 and numbers(problems[-1]) == [997]


def test_more_files_than_can_be_looked_at_are_told(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = box.make_folder()
    for number in range(30):
        (shared / f"rubbish {number}").touch()
    monkeypatch.setattr(files, "MAX_FILES", 20)
    (problem,) = claims(box.environ)[1]
    assert f"{shared} has more than" in problem
