"""Calls of `gputui check`: what it refuses, and what it prints."""

from __future__ import annotations

import ast
import errno
import json
import os
import sys
from pathlib import Path

import pytest

from gputui.checking import SCRIPTS
from gputui.vendors import vendor
from gputui.vendors.nvidia.vendor import VENDOR
from messages import warnings_of
from table_tests import each_row
from unit.calling import Call

NO_TORCH = ("--", sys.executable, "-S", "-E", "train.py")
"""A command whose interpreter has no torch, so that it answers quickly."""

VENDORS = Path(vendor.__file__).parent


def test_cpu_only_is_proved_where_nothing_is_seen(call: Call) -> None:
    ended = call("check", "--demo", "idle", "--gpus", "none", *NO_TORCH)
    assert ended.status == 0
    conclusion = ended.out.splitlines()[-1]
    assert conclusion.startswith("equal: ") and "(CPU only)" in conclusion
    assert "no torch" in ended.out and VENDOR.driver in conclusion


def test_devices_that_are_not_seen_are_status_5(call: Call) -> None:
    ended = call("check", "--demo", "idle", "--gpus", "1,0", *NO_TORCH)
    assert ended.status == 5
    assert [line.split()[:3] for line in ended.out.splitlines()[1:3]] == [
        ["cuda:0", "GPU", "1"],
        ["cuda:1", "GPU", "0"],
    ]
    assert any("--demo" in said for said in warnings_of(ended.err))


def test_json_is_one_line_with_the_same_verdict(call: Call) -> None:
    ended = call("check", "--demo", "idle", "--gpus", "none", "--json", *NO_TORCH)
    told = json.loads(ended.out)
    assert (ended.status, told["equal"], told["torch"], told["measured"]) == (0, True, None, None)
    assert told["environment"] == [{"name": "CUDA_VISIBLE_DEVICES", "launch": "", "seen": "", "equal": True}]


def test_an_interpreter_that_is_not_there_is_status_5_and_named(call: Call) -> None:
    ended = call("check", "--demo", "idle", "--python", "/no/such/python")
    assert ended.status == 5 and len(ended.out.splitlines()) == 1
    assert ended.out.startswith("not proved: ") and "'/no/such/python'" in ended.out
    assert os.strerror(errno.ENOENT) in ended.out


def test_a_program_that_is_not_there_is_status_5_and_named(call: Call) -> None:
    ended = call("check", "--demo", "idle", "--", "no-such-launcher", "train.py")
    assert ended.status == 5 and len(ended.out.splitlines()) == 1
    assert ended.out.startswith("not proved: ") and "'no-such-launcher'" in ended.out


def test_a_doubt_about_the_interpreter_is_one_line_on_stderr(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    ended = call("check", "--demo", "idle", "--gpus", "none", "--", "/bin/true")
    assert ended.status == 0
    doubt = [warning for warning in warnings_of(ended.err) if "true (a program)" in warning]
    assert len(doubt) == 1 and "PATH" in doubt[0] and "--python" in doubt[0]


@each_row(
    ("words", "reason"),
    [
        (("--timeout", "0"), "'0' is not a time"),
        (("--timeout", "nan"), "'nan' is not a time"),
        (("--max-memory", "lots"), "'lots' is not a size"),
        (("-n", "1", "--gpus", "0"), "not allowed with"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(call: Call, words: tuple[str, ...], reason: str) -> None:
    assert reason in call("check", "--demo", "idle", *words).refused(2)


def test_a_shortage_is_status_4_and_nothing_is_started(call: Call) -> None:
    assert "9 GPUs asked for" in call("check", "--demo", "idle", "-n", "9").refused(4)


@each_row(
    "script",
    [*sorted(SCRIPTS.glob("*.py")), VENDORS / "asked_driver.py", *sorted(VENDORS.glob("*/driver_probe.py"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_scripts_for_other_interpreters_are_of_an_older_python_and_import_its_library_only(
    script: Path,
) -> None:
    tree = ast.parse(script.read_text(), feature_version=(3, 8))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert {str(name).partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_the_interpreter_that_is_proved_is_the_one_that_runs(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--python env/python --directory there`: both commands resolve the path from the caller's directory."""
    for folder in (tmp_path, tmp_path / "there"):
        (folder / "env").mkdir(parents=True)
        (folder / "env" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    asked = ("--demo", "idle", "--gpus", "none", "--python", "env/python", "--directory", "there")
    here = str(tmp_path / "env" / "python")
    assert f" {here} train.py" in call("run", "--dry-run", *asked, "--", "python", "train.py").line
    assert f", {here}, " in call("check", *asked, "--", "python", "train.py").out
