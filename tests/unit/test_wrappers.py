"""What stands before a command is seen through, and what it does to the variables is said."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.wrappers import _UV, assigned, losing, unwrap
from unit.builders import gpu
from unit.host_environments import Told


def apart(text: str) -> tuple[str, str]:
    """What stands before a command, and the command."""
    before, command = unwrap(shlex.split(text))
    return shlex.join(before), shlex.join(command)


def warnings(text: str, **options: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """What is said of a command on GPU 1."""
    return compose([gpu(1)], LaunchOptions(tuple(shlex.split(text)), **options), {}, Told()).warnings


BEFORE = [
    "uv run",
    "uv run --no-project",
    "uv --directory d run --with torch --extra=gpu -p 3.12 --",
    "uv run --prerelease-package a=b --no-editable-package c",
    "poetry -C d run",
    "pdm run",
    "pipenv run",
    "rye run",
    "pixi run -e gpu",
    "conda run -n ml --no-capture-output",
    "mamba run -p /e",
    "micromamba run -n ml",
    "env",
    "env A=1 B=2",
    "env -i A=1",
    "env - A=1",
    "env -iu A",
    "env -u A -uB --unset C --unset=D -C /w E=1",
    "nice",
    "nice -n 5",
    "nice -5",
    "ionice -c2 -n 7",
    "chrt -f 10",
    "nohup",
    "setsid -w",
    "stdbuf -oL -e 0",
    "time -p",
    "timeout 60",
    "timeout -k 5 --signal=INT 60",
    "taskset -c 0-3",
    "taskset 0x3",
    "numactl -N 0 -m 0",
    "numactl --physcpubind=0-3 --localalloc",
    "unbuffer",
    "flock -w 5 /l",
    "sudo -E -u me A=1",
    "sudo -nEu me",
    "doas",
    "systemd-run --user --scope -p MemoryMax=9G",
    "/usr/bin/env nice -n 5 timeout 60 uv run",
]


@pytest.mark.parametrize("before", BEFORE)
def test_a_wrapper_is_seen_through(before: str) -> None:
    assert apart(f"{before} torchrun -n 5 x.py --") == (before, "torchrun -n 5 x.py --")


@pytest.mark.parametrize("before", BEFORE)
def test_what_is_behind_a_wrapper_is_completed_there(before: str) -> None:
    argv = compose(
        [gpu(0), gpu(1)], LaunchOptions((*shlex.split(before), "torchrun", "x.py")), {}, Told()
    ).argv
    assert shlex.join(argv) == f"{before} torchrun --standalone --nproc-per-node=2 x.py"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "uv pip install torch",
            "uv",
            "uv run",
            "uv run -m train",
            "uv run -qm train",
            "uv run --script x.py",
            "poetry install",
        ),
        *("env", "env A=1", "env -u A", "nice", "nice -n", "timeout 60", "conda activate", "python x.py", ""),
    ],
)
def test_what_starts_no_command_is_the_command_itself(command: str) -> None:
    assert apart(command) == ("", command)


def test_a_wrapper_behind_another_is_judged_by_its_own_words() -> None:
    """The -s of timeout is not uv's."""
    assert apart("timeout -s INT 5 uv run torchrun x.py")[1] == "torchrun x.py"


REPORT = "import json, sys; print(json.dumps(sys.argv[1:]))"

REAL = [
    "env A=1",
    "env -i A=1",
    "env - A=1",
    "env -iu A",
    "env -u A -uB --unset C --unset=D E=1",
    "nice",
    "nice -n 5",
    "nice -5",
    "nohup",
    "stdbuf -oL -e 0",
    "timeout 60",
    "timeout -k 5 --signal=INT 60",
    "timeout -s INT --foreground 9",
    "setsid -w",
    "taskset -c 0",
    "taskset 0x1",
    "ionice -c 3",
    "ionice -c2 -n 7",
    "flock -w 5 lock",
    "time -p",
    "env nice timeout 9",
    "numactl --localalloc",
    "chrt -o 0",
]


@pytest.mark.parametrize("before", REAL)
def test_the_real_program_starts_the_command_at_the_same_place(before: str, tmp_path: Path) -> None:
    words = shlex.split(before)
    if not all(shutil.which(name) for name in words if name in ("env", "nice", "timeout", words[0])):
        pytest.skip(f"{words[0]} is not installed")
    command = (sys.executable, "-c", REPORT, "a b", "-n", "5", "--")
    done = subprocess.run(
        [*words, *command], capture_output=True, text=True, cwd=tmp_path, timeout=30, check=False
    )
    if done.returncode != 0 and "not permitted" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(command[3:])
    assert unwrap((*words, *command)) == (tuple(words), command)


def test_the_options_of_uv_run_that_take_a_value_are_uvs_own() -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    told = subprocess.run(
        [uv, "run", "--help"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    found = re.findall(r"^ +(?:(-\w), )?(--[\w-]+)(\.\.\.)?( <)?", told, re.MULTILINE)
    takes = {
        name.lstrip("-"): bool(value) for short, long, _, value in found for name in (short, long) if name
    }
    assert sum(takes.values()) > 30
    listed = {name: _UV.aliases.get(name, name) in _UV.valued for name in takes}
    assert listed == takes


# What wrappers do to the variables.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("env A=1 B=", (("A", "1"), ("B", ""))),
        ("env -u A -uB E=1", (("A", None), ("B", None), ("E", "1"))),
        ("env --unset C --unset=D", (("C", None), ("D", None))),
        ("env -C X=1 A=1", (("A", "1"),)),
        ("sudo -u me A=1", (("A", "1"),)),
        ("uv run --with A=1", ()),
        ("env A=1 uv run --with B=2", (("A", "1"),)),
        ("env A=1 env A=2", (("A", "1"), ("A", "2"))),
        ("systemd-run -p A=1 --scope", ()),
        ("systemd-run -EA=1 --setenv=B=2 --setenv C=3", (("A", "1"), ("B", "2"), ("C", "3"))),
        ("", ()),
    ],
)
def test_variables_that_are_set_on_the_way_are_known(text: str, found: object) -> None:
    assert assigned(shlex.split(text)) == found


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("env -i", "env -i"),
        ("env - A=1", "env -i"),
        ("env --ignore-environment", "env -i"),
        ("env -vi A=1", "env -i"),
        ("sudo", "sudo"),
        ("sudo -u me", "sudo"),
        ("doas", "doas"),
        ("systemd-run --user", "systemd-run without --scope"),
        ("nice uv run sudo", "sudo"),
        ("env", None),
        ("env A=-i", None),
        ("env -uvirtual", None),
        ("sudo -E", None),
        ("sudo --preserve-env=CUDA_VISIBLE_DEVICES", None),
        ("sudo --preserve-env=HOME,CUDA_VISIBLE_DEVICES", None),
        ("sudo --preserve-env", None),
        ("sudo --preserve-env=HF_TOKEN", "sudo"),
        ("sudo -HE", None),
        ("sudo -u bob -nE", None),
        ("sudo -uE", "sudo"),
        ("systemd-run --user --scope", None),
        ("nohup nice -n 5", None),
        ("", None),
    ],
)
def test_a_wrapper_that_takes_the_variables_away_is_known(text: str, who: str | None) -> None:
    assert losing(shlex.split(text), "CUDA_VISIBLE_DEVICES") == who


@pytest.mark.parametrize("before", ["env -i", "env -", "sudo", "systemd-run --user"])
def test_a_command_that_would_see_all_devices_is_warned_of(before: str) -> None:
    said = warnings(f"{before} python x.py")
    assert len(said) == 1 and said[0].startswith(f"{before.split()[0]} ") and "variables" in said[0]


def test_a_real_env_takes_the_devices_away() -> None:
    launch = compose(
        [gpu(1)], LaunchOptions(("env", "-i", "/bin/sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]")), {}, Told()
    )
    done = subprocess.run(
        launch.argv, env=launch.environment({}), capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[]\n"
    assert launch.warnings


def test_devices_within_the_command_override_and_that_is_said() -> None:
    said = warnings("env CUDA_VISIBLE_DEVICES=7 python x.py")
    assert len(said) == 1 and said[0].startswith("CUDA_VISIBLE_DEVICES=7 within the command ")
    assert "CUDA_VISIBLE_DEVICES within" in warnings("env -u CUDA_VISIBLE_DEVICES python x.py")[0]
    assert warnings("env -i CUDA_VISIBLE_DEVICES=7 python x.py") == said


def test_a_line_of_ours_is_taken_back_without_a_word() -> None:
    """The line that was copied is a command too."""
    for command in ("python x.py", "torchrun x.py", "deepspeed x.py"):
        first = compose([gpu(1)], LaunchOptions(tuple(command.split())), {}, Told())
        words = shlex.split(first.line)
        place = next((i for i, word in enumerate(words) if "=" not in word), 0)
        pasted = LaunchOptions(
            tuple(words[place:]),
            additions=tuple((name, value) for name, _, value in (w.partition("=") for w in words[:place])),
        )
        again = compose([gpu(1)], pasted, {}, Told())
        assert again.warnings == ()
        assert shlex.split(again.line)[-1] == "x.py"


_words = st.text(st.sampled_from("abAB-=_ .3/"), max_size=8)


@given(st.sampled_from([*BEFORE, "", "uv pip", "timeout"]), st.lists(_words, max_size=6))
@settings(max_examples=200, deadline=None)
def test_no_word_is_lost_or_moved(before: str, words: list[str]) -> None:
    command = (*shlex.split(before), *words)
    found, rest = unwrap(command)
    assert (*found, *rest) == command
    assert rest or not command
    assigned(found)
    losing(found, "CUDA_VISIBLE_DEVICES")
