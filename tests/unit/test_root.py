"""A folder read as a machine's root: with bounds, and never outside it. A hostile folder only yields fewer
facts of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputui.system.root import MOST_BYTES, Root, whole
from table_tests import each_row


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "sys"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def root(sys: Path) -> Root:
    return Root(str(sys.parent))


def test_files_are_read_below_it(sys: Path, root: Root) -> None:
    (sys / "busy").write_bytes(b"12\n\0")
    (sys / "id").write_text("0x1002\n")
    assert (root.text("/sys/busy"), root.number("/sys/busy"), root.number("/sys/id", 16)) == (
        "12",
        12,
        0x1002,
    )
    assert sorted(root.names("/sys")) == ["busy", "id"]
    assert root.has("/sys/busy") and not root.has("/etc/passwd") and not root.here


@each_row("text", ["", "-", "1 2", "N/A", "1e3", "٣", "9" * 21, "0x10", "1_0"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert whole(text) is None


def test_a_negative_number_is_one() -> None:
    assert whole("-1") == -1


def test_a_long_file_is_cut(sys: Path, root: Root) -> None:
    (sys / "long").write_bytes(b"x" * (3 * MOST_BYTES))
    assert len(root.text("/sys/long") or "") == MOST_BYTES
    assert len(root.text("/sys/long", 2 * MOST_BYTES) or "") == 2 * MOST_BYTES


def test_a_pipe_is_not_waited_for(sys: Path, root: Root) -> None:
    os.mkfifo(sys / "pipe")
    assert root.text("/sys/pipe") is None


def test_links_inside_are_followed_and_links_out_are_not(sys: Path, root: Root) -> None:
    (sys / "real").mkdir()
    (sys / "real" / "name").write_text("inside")
    (sys / "in").symlink_to("real")
    (sys.parent.parent / "secret").write_text("outside")
    (sys / "out").symlink_to("../../secret")
    (sys / "etc").symlink_to("/etc")
    (sys / "loop").symlink_to("loop")
    assert root.text("/sys/in/name") == "inside" and root.real("/sys/in") == "/sys/real"
    assert root.text("/sys/out") is None and root.real("/sys/out") is None
    assert root.names("/sys/etc") == [] and not root.has("/sys/etc")
    assert root.text("/sys/loop") is None and root.names("/sys/loop") == [] and root.real("/sys/loop") is None


def test_programs_are_those_of_its_bin_only(sys: Path, root: Root) -> None:
    assert root.program("sh") is None
    folder = sys.parent / "bin"
    folder.mkdir()
    (folder / "hl-smi").write_text("#!/bin/sh\n")
    assert root.program("hl-smi") is None
    (folder / "hl-smi").chmod(0o755)
    assert root.program("hl-smi") == str(folder / "hl-smi")
    assert Root().program("sh") is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_no_program_runs_that_another_user_could_have_put_into_the_folder(tmp_path: Path) -> None:
    """Another user's folder of a machine's files is read, and nothing in it is run."""
    tool = tmp_path / "bin" / "hl-smi"
    tool.parent.mkdir()
    tool.touch(0o755)
    assert Root(str(tmp_path)).program("hl-smi") == str(tool)
    for theirs in (tool, tool.parent):
        os.chown(theirs, 54321, 54321)
        assert Root(str(tmp_path)).program("hl-smi") is None
        os.chown(theirs, 0, 0)


def test_it_tells_what_was_read(sys: Path, root: Root) -> None:
    (sys / "a").write_text("1")
    read: list[tuple[str, bytes | None]] = []
    watched = root.watched_by(lambda path, data: read.append((path, data)))
    watched.text("/sys/a")
    watched.text("/sys/b")
    watched.names("/sys")
    assert read == [("/sys/a", b"1"), ("/sys", None)]
