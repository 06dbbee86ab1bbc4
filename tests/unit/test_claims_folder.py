"""The folder of claims, for all users and containers of a box; and untrusted folders under its name."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gputui.allocating.claims import folder
from gputui.allocating.claims import lease as lease_module
from gputui.allocating.claims.lease import take
from gputui.allocating.claims.own_lease import NO_LEASE, OwnLease
from gputui.allocating.claims.read import claims
from gputui.allocating.errors import UnsafeError
from gputui.system.namespaces import pid_namespace
from unit.claims_support import (
    Box,
    Take,
    dangling_link,
    directory,
    holders,
    pipe,
    symbolic_link,
    unreadable_file,
    until,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a pid namespace")


# The folder


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o700, 0o1755])
def test_a_folder_with_another_mode_is_not_used(box: Box, lease: Take, mode: int) -> None:
    box.claims_folder.mkdir()
    (box.claims_folder / "something").touch()
    box.claims_folder.chmod(mode)
    with pytest.raises(UnsafeError, match="1777"):
        lease(box, 0)
    found, problems = claims(box.environ)
    assert found == () and len(problems) == 1
    assert stat.S_IMODE(box.claims_folder.stat().st_mode) == mode


@pytest.mark.parametrize("make", [symbolic_link, dangling_link, pipe, unreadable_file])
def test_a_folder_that_is_none_is_not_used(box: Box, lease: Take, make: Callable[[Path], None]) -> None:
    make(box.claims_folder)
    with pytest.raises(UnsafeError):
        lease(box, 0)
    assert claims(box.environ)[0] == () and list(box.folder.glob(".claims.*")) == []


def test_a_link_to_a_shared_folder_is_not_followed(box: Box, lease: Take) -> None:
    (box.folder / "real").mkdir()
    (box.folder / "real").chmod(0o1777)
    box.claims_folder.symlink_to(box.folder / "real")
    with pytest.raises(UnsafeError):
        lease(box, 0)
    assert list((box.folder / "real").iterdir()) == []


def test_in_a_folder_in_which_nothing_can_be_made_nothing_is_claimed(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test replaces os.open, because root can write everywhere except on a read-only file system."""
    box.make_folder()
    real = os.open

    def read_only(path: object, flags: int, *more: object, **others: object) -> int:
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return real(path, flags, *more, **others)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(UnsafeError, match="Read-only file system"):
        lease(box, 0)


def test_on_a_full_disk_nothing_is_claimed_and_nothing_is_left(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(box, 0).release()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(UnsafeError, match=os.strerror(errno.ENOSPC)):
        patch.setattr(os, "write", full)
        lease(box, 0)
    assert not [file for file in box.claims_folder.rglob("*") if file.is_file()]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """The possible places of the folder, in order; the first is the administrator's."""
    found = tuple(tmp_path / name for name in ("run", "tmp", "var"))
    for each in found[1:]:
        each.mkdir()
        each.chmod(0o1777)
    monkeypatch.setattr(folder, "ADMINISTRATED", str(found[0]))
    # The tests may run as root, whose own place there counts only if it is mounted.
    monkeypatch.setattr(os.path, "ismount", lambda place: Path(place).parent == found[0])
    monkeypatch.setattr(folder, "STICKY", tuple(map(str, found[1:])))
    monkeypatch.setattr(folder, "FALLBACKS", tuple(str(each / "gputui-claims") for each in found[1:]))
    return found


def test_the_folder_is_below_the_administrators_or_else_in_tmp(places: tuple[Path, ...]) -> None:
    assert folder.base({}) == (str(places[1]), False)
    mine = folder.own_place({})
    assert mine.parent == places[1] and folder.own_place({}) == mine
    assert (
        stat.S_IMODE(mine.stat().st_mode) == 0o755 and folder.older_folder({}) == places[1] / "gputui-claims"
    )
    places[0].mkdir()
    places[0].chmod(0o755)
    with pytest.raises(UnsafeError, match="--setup"):
        folder.own_place({})
    (places[0] / "me").mkdir(0o755)
    assert folder.own_place({}) == places[0] / "me"
    assert folder.base({}) == (str(places[0]), True) and folder.older_folder({}) is None


@pytest.mark.parametrize("make", [symbolic_link, dangling_link, pipe, directory, unreadable_file])
def test_an_untrusted_folder_of_format_1_is_passed_over_as_by_an_older_gputui(
    places: tuple[Path, ...], make: Callable[[Path], None]
) -> None:
    make(places[1] / "gputui-claims")
    assert folder.older_folder({}) == places[2] / "gputui-claims"


def test_a_launch_that_began_before_root_set_up_the_base_is_refused(
    places: tuple[Path, ...], box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record would be where nobody looks any more."""
    environ = {name: text for name, text in box.environ.items() if name != "GPUTUI_CLAIMS"}

    def set_up(_: object) -> OwnLease:
        (places[0] / "me").mkdir(parents=True)
        return NO_LEASE

    monkeypatch.setattr(lease_module, "own_lease", set_up)
    with pytest.raises(UnsafeError, match="another folder"):
        take([box.uuids[3]], environ, "x")
    monkeypatch.undo()
    assert not [file for place in places for file in place.rglob("*") if file.is_file()]


# Containers


def test_a_claim_of_another_container_has_no_pid_of_ours(box: Box) -> None:
    """The pid in its record means another process here, or even our own."""
    holder = box.hold(0)
    (claim,) = box.claims()
    assert claim.pid == holder.pid
    for record in box.claims_folder.rglob("*.claim"):
        about = json.loads(record.read_text())
        record.write_text(json.dumps({**about, "pids": "pid:[4026539999]", "pid": os.getpid()}))
    (claim,) = box.claims()
    assert claim.pid is None and claim.command == "python train.py"


@needs_root
def test_a_claim_is_seen_from_and_in_another_pid_namespace(box: Box) -> None:
    new_pid_namespace = 0x20000000  # CLONE_NEWPID of linux/sched.h

    def work() -> int:
        if ctypes.CDLL(None, use_errno=True).unshare(new_pid_namespace):
            return 77
        if os.fork() == 0:
            assert os.getpid() == 1 and [claim.pid for claim in claims(os.environ)[0]] == [None]
            take([box.uuids[5]], os.environ, "python inside.py")
            print(pid_namespace(), flush=True)
            signal.pause()
        os.wait()
        return 0

    outside = box.hold(2)
    inside = box.fork(work)
    until(lambda: inside.out or inside.over)
    if inside.over and inside.end() == 77:
        pytest.skip("this system lets nobody make a pid namespace")
    found = {claim.key: claim for claim in box.claims()}
    assert found[box.uuids[2]].pid == outside.pid
    assert (found[box.uuids[5]].pid, found[box.uuids[5]].command) == (None, "python inside.py")
    record = next(box.claims_folder.glob(f"{box.uuids[5]}@*.claim"))
    for pid in holders(record):
        os.kill(pid, signal.SIGKILL)
    until(lambda: box.claimed() == [2])
