"""The users who can change a file: owners and modes of the file, and of every folder and link on its path."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputui.system import trust
from gputui.system.trust import program, who_can_change

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file in two folders, with the modes that a umask of 022 leaves."""
    made = tmp_path / "above" / "folder" / "file"
    for folder in (made.parent.parent, made.parent):
        folder.mkdir()
        folder.chmod(0o755)
    made.touch()
    made.chmod(0o644)
    assert who_can_change(str(made)) is None
    return made


@pytest.fixture
def places(file: Path) -> dict[str, Path]:
    return {"file": file, "folder": file.parent, "above": file.parent.parent}


@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_whoever_can_write_to_a_file_or_a_folder_before_it_can_change_it(
    file: Path, places: dict[str, Path], place: str
) -> None:
    places[place].chmod(places[place].stat().st_mode | 0o002)
    assert repr(str(places[place])) in str(who_can_change(str(file)))
    assert repr(str(places[place])) in str(who_can_change(str(file.parent / "not" / "there"))) or (
        place == "file"
    )


def test_the_first_program_that_no_other_user_can_change_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("here", "open", "own", "later")]
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "tool").write_text("#!/bin/sh\n")
        (folder / "tool").chmod(0o755)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.chdir(tmp_path / "here")
    path = ":".join((".", "", "../here", *map(str, folders[1:])))
    assert program("tool", path) == str(tmp_path / "own" / "tool")
    (tmp_path / "own" / "tool").chmod(0o777)
    (tmp_path / "later" / "tool").chmod(0o644)
    assert program("tool", path) is None
    assert program(f"{tmp_path}/own/tool", path) == f"{tmp_path}/own/tool", "the user has named it"


@as_root
@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_whoever_owns_a_file_or_a_folder_before_it_can_change_it(
    file: Path, places: dict[str, Path], place: str
) -> None:
    os.chown(places[place], OTHER, -1)
    assert repr(str(places[place])) in str(who_can_change(str(file)))


def test_what_is_ours_in_a_folder_like_tmp_is_only_ours(file: Path) -> None:
    file.parent.parent.chmod(0o1777)
    assert who_can_change(str(file)) is None
    assert who_can_change(str(file.parent.parent)) is not None, "but the folder itself is everybody's"


def test_a_path_goes_through_links_and_dots_as_the_kernel_goes(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    (elsewhere / "link").symlink_to("../above/folder")
    for way in ("elsewhere/link/file", "elsewhere/link/../folder/./file", "elsewhere//link//file/"):
        assert who_can_change(f"{tmp_path}/{way}") is None
        file.parent.chmod(0o757)
        assert repr(str(file.parent)) in str(who_can_change(f"{tmp_path}/{way}"))
        file.parent.chmod(0o755)
    # The folder of the link: the link could be replaced, although its target cannot be changed.
    elsewhere.chmod(0o757)
    assert repr(str(elsewhere)) in str(who_can_change(f"{elsewhere}/link/file"))
    elsewhere.chmod(0o755)
    (elsewhere / "circle").symlink_to("circle")
    assert who_can_change(f"{elsewhere}/circle") is not None


def test_a_path_of_the_working_directory_is_judged_as_such(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent.parent)
    assert who_can_change("folder/file") is None
    file.parent.chmod(0o757)
    for relative in ("folder/file", "folder/../folder/file", "./folder"):
        assert who_can_change(relative) is not None


def test_what_cannot_be_judged_is_not_believed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = os.lstat

    def lstat(path: str) -> os.stat_result:
        if path == str(file.parent):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return seen(path)

    monkeypatch.setattr(os, "lstat", lstat)
    assert repr(str(file.parent)) in str(who_can_change(str(file)))


def test_an_access_list_that_cannot_be_read_is_not_believed(
    file: Path, group: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    group()
    os.chown(file, -1, os.getegid())
    file.chmod(0o664)

    def getxattr(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "getxattr", getxattr)
    assert who_can_change(str(file)) is not None


@as_root
def test_a_link_of_another_user_leads_where_he_likes(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    assert who_can_change(str(link)) is None
    os.lchown(link, OTHER, OTHER)
    assert repr(str(link)) in str(who_can_change(str(link)))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Set the facts about our own group: its name, its members, and the users whose first group it is."""
    own = pwd.getpwuid(os.geteuid())

    def known_as(
        name: str = own.pw_name, members: tuple[str, ...] = (), first_of: tuple[str, ...] = ()
    ) -> None:
        gid = os.getegid()
        users = tmp_path / "passwd"
        users.write_text("".join(f"{each}:x:1:{gid}::/:/bin/sh\n" for each in (own.pw_name, *first_of)))
        monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=list(members)))
        monkeypatch.setattr(pwd, "getpwuid", lambda _: own)
        monkeypatch.setattr(trust, "_USERS", str(users))
        monkeypatch.setattr(pwd, "getpwall", lambda: pytest.fail("a directory service may list for minutes"))

    return known_as


@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_a_group_may_write_only_where_nobody_else_is_in_it(
    file: Path, places: dict[str, Path], place: str, group: Callable[..., None]
) -> None:
    os.chown(places[place], -1, os.getegid())
    places[place].chmod(places[place].stat().st_mode | 0o020)
    group()
    assert who_can_change(str(file)) is None
    group(members=(pwd.getpwuid(os.geteuid()).pw_name,))
    assert who_can_change(str(file)) is None
    for shared in ({"name": "lab"}, {"members": ("bob",)}, {"first_of": ("bob",)}):
        group(**shared)
        assert repr(str(places[place])) in str(who_can_change(str(file)))


@as_root
def test_a_group_that_the_databases_do_not_know_is_not_ours_alone(file: Path) -> None:
    os.chown(file, -1, OTHER)
    file.chmod(0o664)
    assert who_can_change(str(file)) is not None


def test_an_access_list_names_others_where_the_group_is_ours_alone(
    file: Path, group: Callable[..., None]
) -> None:
    group()
    os.chown(file, -1, os.getegid())
    file.chmod(0o664)
    assert who_can_change(str(file)) is None
    # acl(5), and the kernel's posix_acl_xattr.h: tag, rights, number.
    entries = ((0x01, 6, -1), (0x02, 6, OTHER), (0x04, 6, -1), (0x10, 6, -1), (0x20, 4, -1))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", listed)
    except OSError as error:
        pytest.skip(f"no access lists on this file system: {error.strerror}")
    assert who_can_change(str(file)) is not None


def test_users_without_a_number_count_as_root_only_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    for sees_all in (False, True):
        monkeypatch.setattr(trust, "_sees_all_users", lambda sees_all=sees_all: sees_all)
        assert trust.is_trusted(65534) is not sees_all
        assert trust.is_trusted(0) and trust.is_trusted(os.geteuid()) and not trust.is_trusted(OTHER)


def test_its_text_needs_nothing_but_python() -> None:
    """Other boxes run it before they have gputui."""
    text = Path(trust.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-ISc", f"{text}\nprint(who_can_change('/'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"
