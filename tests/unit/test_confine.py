"""The reasons against confining a launch, row by row (`launching/confine.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.allocating.settings import Settings
from gputui.inventory.device import Device
from gputui.launching import confine
from gputui.launching.confine import AGAINST, Case, explained
from gputui.launching.intent import Intent
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.requesting.prepared_launch import how_confined, prepare, read_command
from gputui.sources.source import Want
from gputui.system.root import Root
from gputui.vendors.visibility import Confine
from table_tests import each_row
from unit.builders import box, gpu

MOUNTED = "25 1 0:23 / /proc rw,nosuid shared:1 - proc proc rw\n"


def found(root: Path, *argv: str) -> list[str]:
    """The reasons on a machine with these files."""
    device = Device(index=0, uuid="GPU-1", vendor="nvidia")
    launch = Launch(argv or ("true",), devices=(device,))
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev" / "nvidia-uvm").touch()
    case = Case(launch, launch, Intent(), ("/dev/nvidia1",), {}, Root(str(root)))
    # The kernel of the tests may or may not have Landlock, so that reason is ignored.
    rows = [reason(case) for _, reason in AGAINST]
    return [why for why in rows if why is not None and "andlock" not in why]


@each_row(
    ("place", "options", "against"),
    [
        ("/net", "autofs /etc/auto.net rw,fd=6,pgrp=1,timeout=300,minproto=5,maxproto=5,direct", True),
        # A map that is mounted below its folder is allowed with it; so is a folder that is not directly below
        # the root.
        ("/home", "autofs /etc/auto.home rw,fd=6,pgrp=1,timeout=300,minproto=5,maxproto=5,indirect", False),
        ("/srv/data", "autofs /etc/auto.data rw,fd=6,pgrp=1,minproto=5,maxproto=5,direct", False),
        ("/net", "nfs4 server:/net rw,direct", False),
    ],
)
def test_a_folder_that_is_mounted_on_demand(tmp_path: Path, place: str, options: str, against: bool) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    line = f"40 25 0:36 / {place} rw,relatime shared:20 - {options}\n"
    (tmp_path / "proc" / "self" / "mountinfo").write_text(MOUNTED + line)
    reasons = found(tmp_path)
    assert bool(reasons) == against and all(place in why for why in reasons)


@each_row("text", ["", "\0\n", "1 2 3\n", "40 25 0:36 / - autofs ,direct\n", "\xff" * 9])
def test_a_table_of_mounts_that_nobody_understands(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "mountinfo").write_bytes(text.encode("latin-1"))
    assert found(tmp_path) == []


@each_row(
    "argv",
    [
        ("sudo", "x"),
        ("nice", "sudo", "x"),
        ("bash", "-c", "cd x && sudo -E y"),
        ("sh", "-c", "x; exec A=1 sudo y"),
        ("docker", "run", "image"),
        ("env", "X=1", "srun", "x"),
    ],
    ids=" ".join,
)
def test_programs_that_do_not_work_inside(tmp_path: Path, argv: tuple[str, ...]) -> None:
    assert len(found(tmp_path, *argv)) == 1


@each_row("argv", [("python", "sudo.py"), ("echo", "sudo"), ("bash", "-c", "echo mount")], ids=" ".join)
def test_a_word_that_only_looks_like_one(tmp_path: Path, argv: tuple[str, ...]) -> None:
    assert found(tmp_path, *argv) == []


def test_a_program_that_takes_another_user_s_rights(tmp_path: Path) -> None:
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\n")
    helper.chmod(0o755)
    assert found(tmp_path, str(helper)) == []
    helper.chmod(0o4755)
    assert len(found(tmp_path, str(helper))) == 1
    assert len(found(tmp_path, "bash", "-c", f"cd /; exec {helper} x")) == 1


@each_row(
    "line",
    [
        'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.',
        "PermissionError: [Errno 13] Permission denied: '/dev/nvidia3'",
        "x.sh: 1: cannot open /dev/dri/renderD129: Permission denied",
        "open(/dev/accel/accel2) = -1 EACCES",
        "fusermount3: mount failed: Operation not permitted",
        "bwrap: Failed to make / slave: Operation not permitted",
    ],
)
def test_a_failure_that_confinement_explains(line: str) -> None:
    for lines in ((line,), ("epoch 1", line, "Exiting")):
        said = explained(lines)
        assert said is not None and "--no-confine" in said and "\n" not in said


@each_row(
    "line",
    [
        "RuntimeError: CUDA error: invalid device ordinal",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.py'",
        "PermissionError: [Errno 13] Permission denied: '/data/train.csv'",
        "could not open /dev/nvidia3: No such file or directory",
        "found /dev/nvidia0, /dev/nvidia1",
        "kill: (1) - Operation not permitted",
        "git: mount point is read-only",
        "",
    ],
)
def test_an_ordinary_failure_is_nothing_of_confinement(line: str) -> None:
    assert explained((line,)) is None and explained(("epoch 1", line)) is None


@each_row("own", [None, "always", "auto", "never"])
@each_row("usual", ["always", "auto", "never"])
def test_the_call_itself_counts_before_the_settings(own: Confine | None, usual: Confine) -> None:
    options = LaunchOptions(("true",), confine=own)
    assert how_confined(options, Settings(confine=usual)) == (own or usual)
    assert how_confined(options, Settings(confine=usual), here=False) == "never"


@each_row("confine", ["always", "auto", "never"])
def test_the_device_files_are_read_for_a_confined_launch_only(confine: Confine) -> None:
    """Without them no launch could be confined; reading them for every `pick` would take time."""
    asked = LaunchRequest(LaunchOptions(("true",)))
    request = prepare(read_command(asked, {}, confine), Settings()).request
    assert (Want.NODES in request.facts) == (confine != "never")


def test_a_confined_launch_is_made_again_for_its_own_numbers_and_what_no_longer_holds_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confine, "left_out", lambda *_: ("/dev/nvidia0",))
    monkeypatch.setattr(confine, "proved", lambda *_: None)
    monkeypatch.setattr(confine, "AGAINST", ())
    devices, made = (gpu(3), gpu(1)), list[tuple[list[int], Intent]]()

    def make(numbered: tuple[Device, ...], said: Intent) -> Launch:
        made.append(([device.index for device in numbered], said))
        return Launch(("x",), devices=numbered, refused=said.leaves)

    intent = Intent(doubt="may set a list", leaves="sees every device")
    launch = confine.confined(devices, make, intent, box(gpu(0), *devices), {}, "auto")
    assert [numbers for numbers, _ in made] == [[3, 1], [1, 0]]
    assert [said for _, said in made] == [intent, Intent()]
    assert launch.inside is not None and launch.refused is None and launch.devices == devices
    made.clear()
    assert confine.confined(devices, make, intent, box(*devices), {}, "never").refused == intent.leaves
    assert len(made) == 1
