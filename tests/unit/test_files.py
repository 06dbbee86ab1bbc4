"""Files that gputui writes for itself: complete or absent, private, and where nobody else can change them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gputui.system import files
from gputui.system.files import (
    NotPrivateError,
    UnsafeHomeError,
    append_private,
    create_private,
    make_folder,
    open_lock,
    open_own,
    open_result,
    private_folder,
    state_folder,
    take_lock,
    write_private,
    write_result,
)
from table_tests import each_row
from unit.claims_support import opened_by

APP = Path(files.__file__).parent.parent
OTHER_UID = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@each_row("umask", [0, 0o022, 0o077, 0o377])
def test_private_files_and_folders_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        private_folder(tmp_path / "state" / "gputui")
        write_private(tmp_path / "state" / "gputui" / "file", "text")
        os.close(create_private(tmp_path / "state" / "gputui" / "log", os.O_WRONLY))
        append_private(tmp_path / "state" / "gputui" / "changes", "line")
    finally:
        os.umask(before)
    assert mode(tmp_path / "state") == mode(tmp_path / "state" / "gputui") == 0o700
    assert mode(tmp_path / "state" / "gputui" / "file") == 0o600
    assert mode(tmp_path / "state" / "gputui" / "log") == 0o600
    assert mode(tmp_path / "state" / "gputui" / "changes") == 0o600


def test_a_folder_of_our_own_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "gputui"
    folder.mkdir()
    folder.chmod(0o755)
    private_folder(folder)
    assert mode(folder) == 0o700


@pytest.mark.parametrize("place", ["state", "state/gputui"])
def test_nothing_is_kept_where_others_could_have_put_something(tmp_path: Path, place: str) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    folder = state_folder(environ)
    private_folder(folder)
    (tmp_path / place).chmod(0o777)
    with pytest.raises(UnsafeHomeError, match=repr(str(tmp_path / place))):
        state_folder(environ)
    with pytest.raises(NotPrivateError, match=repr(str(tmp_path / place))):
        private_folder(folder)
    with pytest.raises(NotPrivateError, match=repr(str(tmp_path / place))):
        write_private(folder / "file", "text")
    assert names(folder) == []


def test_nothing_private_is_written_where_everybody_writes(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NotPrivateError):
        write_private(folder / "file", "text")
    assert names(folder) == []


@as_root
@pytest.mark.parametrize("write", [private_folder, lambda folder: write_private(folder / "file", "text")])
def test_nothing_private_is_written_into_the_folder_of_another_user(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(0o700)
    os.chown(folder, OTHER_UID, OTHER_UID)
    with pytest.raises(NotPrivateError, match="another user"):
        write(folder)
    assert names(folder) == [] and folder.stat().st_uid == OTHER_UID


@as_root
def test_a_link_that_another_user_has_put_there_is_not_followed_to_a_folder_of_ours(tmp_path: Path) -> None:
    """If XDG_STATE_HOME is another user's folder, our own folder would be made private, and written to."""
    ours, link = tmp_path / "project", tmp_path / "gputui"
    ours.mkdir(0o755)
    link.symlink_to(ours)
    os.lchown(link, OTHER_UID, OTHER_UID)
    with pytest.raises(NotPrivateError, match="another user"):
        private_folder(link)
    assert mode(ours) == 0o755 and names(ours) == []
    os.lchown(link, os.geteuid(), -1)
    private_folder(link)
    assert mode(ours) == 0o700, "a link of our own may lead to a larger disk"


@pytest.mark.parametrize(
    "write",
    [private_folder, lambda folder: write_private(folder / "new" / "file", "text", folders=True)],
    ids=["folder", "file"],
)
@pytest.mark.parametrize("plant", ["link", "folder"])
@as_root
def test_what_another_user_puts_there_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str, write: Callable[[Path], None]
) -> None:
    """XDG_STATE_HOME=/tmp/mine: anybody can make it first."""
    ours, planted, make = tmp_path / "project", tmp_path / "mine", os.mkdir
    ours.mkdir(0o755)

    def later(path: str | Path, *how: Any, **known: Any) -> None:
        if Path(path).name == planted.name and not os.path.lexists(planted):
            planted.symlink_to(ours) if plant == "link" else make(planted)
            os.lchown(planted, OTHER_UID, -1)
        make(path, *how, **known)

    monkeypatch.setattr(os, "mkdir", later)
    with pytest.raises(NotPrivateError, match="another user"):
        write(planted)
    assert mode(ours) == 0o755 and names(ours) == []
    assert plant == "link" or (mode(planted) == 0o755 and names(planted) == [])


@as_root
def test_a_folder_that_is_exchanged_before_it_gets_its_rights_gives_them_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of his, another user put a link in the place of the folder that was just made."""
    ours, new, make = tmp_path / "project", tmp_path / "mine", os.mkdir
    ours.mkdir(0o755)

    def exchanged(path: str | Path, *how: Any, **known: Any) -> None:
        make(path, *how, **known)
        if Path(path).name == new.name:
            new.rename(tmp_path / "aside")
            new.symlink_to(ours)
            os.lchown(new, OTHER_UID, -1)

    monkeypatch.setattr(os, "mkdir", exchanged)
    for act in (private_folder, make_folder):
        with pytest.raises(OSError):
            act(new)
        assert mode(ours) == 0o755
        new.unlink()
        (tmp_path / "aside").rmdir()


@as_root
def test_no_folder_is_made_behind_a_link_of_another_user(tmp_path: Path) -> None:
    ours, link = tmp_path / "project", tmp_path / "link"
    ours.mkdir(0o755)
    link.symlink_to(ours)
    os.lchown(link, OTHER_UID, -1)
    for act in (private_folder, lambda folder: write_private(folder / "file", "text", folders=True)):
        with pytest.raises(NotPrivateError, match="another user"):
            act(link / "gputui")
    assert names(ours) == []


def test_a_link_in_the_way_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "file").symlink_to(target)
    write_private(tmp_path / "file", "text")
    assert target.read_text() == "mine" and (tmp_path / "file").read_text() == "text"


def test_links_pipes_and_files_of_others_are_neither_created_over_nor_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        for opened in (open_own, open_lock, lambda file: create_private(file, os.O_WRONLY)):
            with pytest.raises(OSError):
                opened(tmp_path / name)
    assert names(tmp_path) == ["link", "pipe"]
    if os.geteuid() == 0:
        (tmp_path / "theirs").touch()
        os.chown(tmp_path / "theirs", OTHER_UID, OTHER_UID)
        for opened in (open_own, open_lock):
            with pytest.raises(OSError):
                opened(tmp_path / "theirs")


def opened_below(folder: Path) -> list[str]:
    """Our open files in this folder. (Threads of earlier tests may open and close others.)"""
    return [path for path in opened_by(os.getpid()).values() if path.startswith(str(folder))]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for write in (write_private, write_result):
        write(tmp_path / "file", b"x")
        with pytest.raises(OSError):
            write(tmp_path / "no" / "file", b"x")
        with pytest.raises(OSError):
            write(tmp_path / "folder", b"x")
    assert opened_below(tmp_path) == []
    assert names(tmp_path) == ["file", "folder"]


def test_a_lock_is_held_by_one_and_where_files_cannot_be_locked_that_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = take_lock(tmp_path / "lock")
    assert held is not None and take_lock(tmp_path / "lock") is None
    os.close(held)

    def refuses(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuses)
    with pytest.raises(OSError, match="no locks"):
        take_lock(tmp_path / "lock")
    assert opened_below(tmp_path) == []


@pytest.mark.parametrize("write", [write_private, write_result])
def test_what_was_there_stays_where_there_is_no_room(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))  # Python ignores SIGXFSZ.
    try:
        with pytest.raises(OSError) as failed:
            write(file, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert failed.value.errno == errno.EFBIG
    assert file.read_text() == "before" and names(tmp_path) == ["file"]


def test_a_name_as_long_as_a_name_can_be_is_written(tmp_path: Path) -> None:
    for write in (write_private, write_result):
        write(tmp_path / ("n" * 255), b"x")
    assert names(tmp_path) == ["n" * 255]


def test_a_result_goes_through_a_link_and_leaves_the_rights_that_a_file_has(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    write_result(link, b"after")
    assert link.is_symlink() and target.read_bytes() == b"after" and mode(target) == 0o640


@pytest.mark.parametrize("place", ["shared", "shared/own"])
@pytest.mark.parametrize("linked", [False, True])
def test_no_file_that_others_could_have_moved_there_gives_a_result_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, linked: bool
) -> None:
    """Who can change a folder can move any file of ours to the name of the result, or what leads to it."""
    (tmp_path / "shared" / "own").mkdir(parents=True)
    target, link = tmp_path / place / "file", tmp_path / "link"
    link.symlink_to(target)
    monkeypatch.chdir(target.parent)
    for private, shared_mode in product((True, False), (0o777, 0o1777)):
        (tmp_path / "shared").chmod(shared_mode)
        if place == "shared/own" and shared_mode == 0o1777:
            # Nobody else can exchange a folder of ours in one of this mode.
            continue
        target.touch()
        target.chmod(0o666)
        write_result(link if linked else Path("file"), b"exported", private)
        assert mode(target) == (0o600 if private else 0o666 & ~_umask())
        # As that of mktemp(1): nobody has chosen more.
        target.chmod(0o400)
        write_result(link if linked else Path("file"), b"exported", private)
        assert mode(target) == 0o400


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@each_row("write", [write_result, lambda file, data: open_result(file).close()])
@each_row("before", [Path.touch, os.mkfifo])
def test_a_link_that_comes_after_the_look_is_not_followed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, bytes], None],
    before: Callable[[Path], None],
) -> None:
    """In /tmp, another user can put it in the place of a file of theirs: one of 500 tries came in time."""
    mine, named = tmp_path / "mine", tmp_path / "named"
    mine.write_text("mine")
    before(named)
    opens = os.open

    def look(name: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        found = opens(name, flags, *rest, dir_fd=dir_fd)
        if name == named.name and flags & os.O_PATH:
            named.unlink()
            named.symlink_to(mine)
        return found

    monkeypatch.setattr(os, "open", look)
    with contextlib.suppress(OSError):
        write(named, b"exported")
    assert mine.read_text() == "mine"


def test_a_file_in_the_place_of_a_folder_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        private_folder(tmp_path / "file" / "gputui")


def test_readers_see_the_whole_of_one_text_or_of_the_other(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_private(file, "a" * 100_000)
    writer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from gputui.system.files import write_private\n"
            "for n in range(200): write_private(Path(sys.argv[1]), 'ab'[n % 2] * 100_000)",
            str(file),
        ]
    )
    while writer.poll() is None:
        text = file.read_text()
        assert len(text) == 100_000 and len(set(text)) == 1
    assert writer.returncode == 0 and names(tmp_path) == ["file"]


_WRITES = re.compile(
    r"O_CREAT|\.write_(?:text|bytes)\(|open\([^()]*(?:\([^()]*\))?[^()]*\"[rwax]?b?[wax+]b?\""
)
_ALLOWED = {
    "system/files.py": "the helper",
    "allocating/claims/files.py": "files for all to read, in a folder for all to write",
    "allocating/claims/folder.py": "says why not",
    "jobs/supervise.py": "runs alone, and imports nothing of gputui",
    "cli/dispatch.py": "/dev/null",
    "launching/clipboard.py": "the terminal",
    "vendors/driver_process.py": "a child's answer, in a folder that was made for it",
}


def test_everything_is_written_by_one_helper() -> None:
    found = {
        str(file.relative_to(APP))
        for file in APP.rglob("*.py")
        if "scripts" not in file.parts and _WRITES.search(file.read_text())
    }
    assert found <= _ALLOWED.keys(), found - _ALLOWED.keys()
    assert "O_EXCL | os.O_NOFOLLOW" in (APP / "jobs/supervise.py").read_text()
