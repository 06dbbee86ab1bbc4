"""A command without a launcher: it stays as it is, and what would take its devices away is said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu
from unit.host_environments import Told


def made(command: str, count: int = 2, environ: Mapping[str, str] | None = None, **options: Any) -> Launch:
    """The launch of a command, which stays."""
    launch = compose(
        [gpu(index) for index in range(count)],
        LaunchOptions(tuple(shlex.split(command)), **options),
        environ or {},
        Told(),
    )
    assert launch.launcher == "python"
    return launch


@pytest.mark.parametrize(
    ("command", "program", "where"),
    [
        ("srun python x.py", "srun", "Slurm"),
        ("/usr/bin/sbatch job.sh", "sbatch", "Slurm"),
        ("ssh box python x.py", "ssh", "machine"),
        ("docker compose up", "docker", "container"),
        ("podman exec c python x.py", "podman", "container"),
        ("tmux new-session -d 'python x.py'", "tmux", "of its own"),
        ("su - me -c 'python x.py'", "su", "of its own"),
    ],
)
def test_a_program_that_hands_nothing_on_is_warned_of(command: str, program: str, where: str) -> None:
    (said,) = made(command).warnings
    assert said.startswith(f"what {program} starts ") and where in said


def test_a_command_that_hands_the_variable_on_itself_is_not() -> None:
    assert made("docker run -e CUDA_VISIBLE_DEVICES image").warnings == ()
    assert made("ssh box env CUDA_VISIBLE_DEVICES=0 python x.py").warnings == ()


@pytest.mark.parametrize("command", ["rocprof --stats torchrun x.py", "gdb --args /v/bin/deepspeed x.py"])
def test_a_launcher_behind_an_unknown_program_is_named(command: str) -> None:
    launch = made(command)
    assert shlex.join(launch.argv) == command
    program, *_ = shlex.split(command)
    assert re.search(rf"(torchrun|deepspeed) inside {program}", launch.remarks[0])
    assert made(command, 1).remarks == ()


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("rocprof -o r accelerate launch x.py", "accelerate"),
        ("catchsegv python -m accelerate.commands.launch x.py", "accelerate"),
        ("gdb --args deepspeed x.py", "deepspeed"),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_launcher_that_chooses_devices_itself_is_warned_of_behind_any_program(
    command: str, launcher: str, count: int
) -> None:
    """The user's own configuration of accelerate overrides the variable, and nothing on the line says so."""
    (said,) = made(command, count).warnings
    assert f"{launcher} inside {command.split()[0]}" in said


def test_a_launcher_that_is_an_argument_of_a_module_is_not_named() -> None:
    assert made("uv run -m train torchrun", 1).warnings == ()


def test_a_folder_of_that_name_is_no_launcher() -> None:
    assert made("./train.sh --repo /data/accelerate").warnings == ()


def test_a_python_script_of_that_name_is_no_launcher() -> None:
    assert not any("torchrun inside" in remark for remark in made("python run.py torchrun").remarks)


def test_more_than_one_process_needs_a_launcher() -> None:
    (warning,) = made("python x.py", processes=2).warnings
    assert "2 processes" in warning and "launcher" in warning


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python x.py", "/v/python x.py"),
        ("python -X dev x.py", "/v/python -X dev x.py"),
        ("x.py", "/v/python x.py"),
        ("./x.sh", "./x.sh"),
    ],
)
def test_another_interpreter_is_for_what_is_python(command: str, expected: str) -> None:
    assert shlex.join(made(command, python="/v/python").argv) == expected


def test_an_mps_daemon_may_number_the_devices_otherwise() -> None:
    mps = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}
    assert any("MPS" in warning for warning in made("python x.py", environ=mps).warnings)
    assert made("python x.py", environ=mps, ids="uuid").warnings == ()
    assert made("python x.py", 0, environ=mps).warnings == ()


def test_what_only_a_launcher_does_is_said() -> None:
    (remark,) = made("python x.py", 1, logs="d", numa=True).remarks
    assert remark.startswith("--logs and --numa-binding: ")


def test_the_command_within_one_word_of_env_stays_where_env_would_expand_something() -> None:
    assert made("env -S 'torchrun ${A}'").argv == ("env", "-S", "torchrun ${A}")


@pytest.mark.parametrize("command", ["xargs -n 1 python", "parallel python ::: a.py b.py"])
def test_what_starts_several_commands_is_warned_of(command: str) -> None:
    (said,) = made(command).warnings
    assert said.startswith(f"{command.split()[0]} ") and "several commands" in said


def test_what_carries_the_devices_itself_needs_no_variables() -> None:
    assert made("sudo docker run --gpus all image python x.py").warnings == ()
    assert made("sudo docker run --gpus all image python x.py").argv[:2] == ("sudo", "docker")


def test_a_session_that_may_be_there_already_is_warned_of() -> None:
    assert [said for said in made("screen python x.py").warnings if "session" in said]
    assert made("screen -dmS name python x.py").warnings == ()
    assert made("flock lock -c 'torchrun x.py'").remarks[0].count("torchrun inside flock")


def test_an_option_of_the_interpreter_is_not_one_of_env() -> None:
    assert made("env A=1 python -S x.py").argv == ("env", "A=1", "python", "-S", "x.py")
    assert made("env -u B python -S x.py").launcher == "python"
