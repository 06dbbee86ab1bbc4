"""The script that a command starts, and its arguments."""

from __future__ import annotations

import os
from pathlib import Path

from gputui.launching.host_environment import ThisHost
from gputui.launching.shell_words import split
from gputui.launching.started_script import StartedScript, launcher_words, started_script
from table_tests import each_row
from unit.host_environments import Told

FILES = {
    "train.sh": "#!/bin/sh\ntorchrun",
    "./train.sh": "#!/usr/bin/env -S bash -e\ntorchrun",
    "./plain": "torchrun",
    "./train.py": "#!/usr/bin/env python3\nimport os",
    "train.py": "import os",
    "pkg/train.py": "import sys",
    "pkg/__main__.py": "import json",
    "sub/train.sh": "deepspeed",
}


def found(line: str, directory: str | None = None) -> StartedScript | None:
    """The script of a typed line."""
    return started_script(split(line), Told(files=FILES), directory)


@each_row(
    ("line", "name", "arguments"),
    [
        ("bash train.sh", "train.sh", ()),
        ("sh train.sh 2 --lr 3", "train.sh", ("2", "--lr", "3")),
        ("/bin/bash -x train.sh a", "train.sh", ("a",)),
        ("nohup nice -n 5 bash train.sh", "train.sh", ()),
        ("env A=1 bash train.sh", "train.sh", ()),
        ("./train.sh 4", "./train.sh", ("4",)),
        ("bash -c 'torchrun x.py'", "bash -c", ()),
        ("sh -c 'torchrun $1' name 2", "sh -c", ("2",)),
        ("zsh train.sh", "train.sh", ()),
        ("bash --posix train.sh", "train.sh", ()),
        ("bash -o posix train.sh", "train.sh", ()),
        ("mpirun -np 2 bash train.sh", "train.sh", ()),
        ("torchrun --no-python bash train.sh", "train.sh", ()),
    ],
)
def test_a_shell_script_is_found(line: str, name: str, arguments: tuple[str, ...]) -> None:
    script = found(line)
    assert script is not None and script.kind == "shell"
    assert (script.name, script.arguments) == (name, arguments)


@each_row(
    ("line", "name"),
    [
        ("python train.py --lr 3", "train.py"),
        ("python -u -X dev train.py", "train.py"),
        ("./train.py", "./train.py"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("accelerate launch --num_processes 2 train.py", "train.py"),
        ("deepspeed --num_gpus 2 train.py", "train.py"),
        ("python -m torch.distributed.run train.py", "train.py"),
        ("mpirun -np 2 python train.py", "train.py"),
        ("uv run train.py", "train.py"),
        ("python -m pkg.train", "pkg/train.py"),
        ("python -m pkg", "pkg/__main__.py"),
        ("torchrun -m pkg.train", "pkg/train.py"),
        ("python -c 'import os'", "python -c"),
    ],
)
def test_a_python_script_is_found(line: str, name: str) -> None:
    script = found(line)
    assert script is not None and (script.kind, script.name) == ("python", name)


@each_row(
    "line",
    [
        "bash",
        "bash -s a",
        "bash missing.sh",
        "bash -",
        "fish train.sh",
        "python",
        "python -",
        "python missing.py",
        "python -m torch.utils.bottleneck",
        "python -m ../pkg",
        "./plain",
        "./missing",
        "train.sh",
        "ls",
        "nice",
    ],
)
def test_other_commands_start_no_script_that_is_read(line: str) -> None:
    assert found(line) is None


def test_a_script_is_looked_for_where_the_command_is_started() -> None:
    script = found("bash train.sh", "sub")
    assert script is not None and script.text == "deepspeed"


@each_row(
    ("line", "words"),
    [
        ("torchrun --nproc-per-node 2 t.py --x", 3),
        ("nice torchrun t.py", 2),
        ("python -m torch.distributed.run --nproc-per-node 2 t.py", 5),
        ("accelerate launch t.py", 2),
        ("python t.py", 0),
        ("ls", 0),
        ("", 0),
    ],
)
def test_how_many_words_are_a_launchers(line: str, words: int) -> None:
    assert launcher_words(split(line)) == words


# The file itself.


def test_the_first_part_of_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_bytes(b"# \xff\ntorchrun")
    assert ThisHost().beginning(str(file), 100) == ("# \udcff\ntorchrun", True)
    assert ThisHost().beginning(str(file), 3) == ("# \udcff", False)


def test_what_is_no_file_has_no_first_part(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe", Path("/dev/zero"), "a\0b", "x" * 5000):
        assert ThisHost().beginning(str(path), 10) is None
