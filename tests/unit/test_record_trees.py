"""`record --trees`: exactly the files that the readers read, in a folder that reads as the same machine."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import simtrees
from gputui.sources.simulated.boxes import BOXES
from gputui.system.root import Root
from gputui.vendors.amd.source import AmdSource
from table_tests import each_row
from unit.calling import Call
from unit.recorded import program


def _unpacked(file: Path, to: Path) -> Path:
    with tarfile.open(file) as archive:
        archive.extractall(to)
    return to


def _read(root: Path) -> object:
    return AmdSource(Root(str(root)), clock=lambda: 0.0).read()


@each_row(("name", "suffix"), [("amd", "tar"), ("amd-cpx", "tar.xz"), ("amd", "tar.gz")])
def test_what_is_packed_reads_as_the_same_machine(call: Call, tmp_path: Path, name: str, suffix: str) -> None:
    machine = tmp_path / "machine"
    simtrees.write(machine, BOXES[name])
    (machine / "etc").mkdir()
    (machine / "etc" / "passwd").write_text("root")
    file = tmp_path / f"machine.{suffix}"
    assert call("record", "--trees", str(file), "--root", str(machine)).status == 0
    there = _unpacked(file, tmp_path / "again")
    assert _read(there) == _read(machine)
    assert not (there / "etc").exists()


def test_anonymous_leaves_out_whose_they_are(call: Call, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    simtrees.write(machine, BOXES["amd"])
    fdinfo = machine / "proc" / "77" / "fdinfo"
    fdinfo.mkdir(parents=True)
    text = "drm-pdev:\t0000:05:00.0\ndrm-client-name:\tsecret\ndrm-client-id:\t1\ndrm-memory-vram:\t8 KiB\n"
    (fdinfo / "3").write_text(text)
    file = tmp_path / "machine.tar"
    assert call("record", "--trees", str(file), "--root", str(machine), "--anonymous").status == 0
    there = _unpacked(file, tmp_path / "again")
    assert not list(there.rglob("cmdline")) and not list(there.rglob("status"))
    assert not (there / "proc/sys/kernel/hostname").exists()
    data = file.read_bytes()
    assert b"mira" not in data and b"pretrain" not in data and b"secret" not in data
    assert b"mi300x-1" not in data


def test_a_box_that_is_no_machine_is_a_wrong_call(call: Call, tmp_path: Path) -> None:
    assert call("record", "--trees", str(tmp_path / "x"), "--demo", "amd").status == 2


def test_where_this_machine_has_no_devices_in_files_another_form_is_offered(
    call: Call, tmp_path: Path
) -> None:
    ended = call("record", "--trees", str(tmp_path / "a.tar"))
    if ended.status == 0:
        pytest.skip("this machine's files tell of devices")
    assert "record FILE" in ended.refused(3)


def test_a_folder_without_devices_is_no_source(call: Call, tmp_path: Path) -> None:
    assert call("record", "--trees", str(tmp_path / "x"), "--root", str(tmp_path)).status == 3
    assert call("ls", "--root", str(tmp_path / "nowhere")).status == 3


@pytest.mark.parametrize("folder", ["", "/nonexistent"])
def test_a_folder_that_is_none_is_said_to_be_none(call: Call, tmp_path: Path, folder: str) -> None:
    said = call("record", "--trees", str(tmp_path / "a.tar"), "--root", folder).refused(3)
    assert repr(folder) in said


def test_where_only_a_program_tells_of_devices_another_form_is_offered(call: Call, tmp_path: Path) -> None:
    program(tmp_path, "hl-smi", "echo '0, 01P4-HL0, HL-225, 98304 MiB, 768 MiB, 0 %'")
    assert call("ls", "--json", "--root", str(tmp_path)).json["devices"]
    said = call("record", "--trees", str(tmp_path / "a.tar"), "--root", str(tmp_path)).refused(3)
    assert "record FILE" in said
