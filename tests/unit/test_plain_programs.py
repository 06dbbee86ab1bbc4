"""A command without a launcher: it stays as it is, and changes of its devices are reported."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from table_tests import each_row
from unit.builders import gpu
from unit.host_environments import Told


def made(command: str, count: int = 2, environ: Mapping[str, str] | None = None, **options: Any) -> Launch:
    """The launch of a command, whose words must stay."""
    launch = compose(
        [gpu(index) for index in range(count)],
        LaunchOptions(tuple(shlex.split(command)), **options),
        environ or {},
        Told(),
    )
    assert launch.launcher == "python"
    return launch


@each_row(
    ("command", "program", "where"),
    [
        ("srun python x.py", "srun", "Slurm"),
        ("/usr/bin/sbatch job.sh", "Slurm", "Slurm"),
        ("ssh box python x.py", "ssh", "machine"),
        ("docker compose up", "docker", "container"),
        ("podman exec c python x.py", "podman", "container"),
        ("tmux new-session -d 'python x.py'", "tmux", "of its own"),
        ("su - me -c 'python x.py'", "su", "of its own"),
        ("tox -e py", "tox", "pass_env"),
    ],
)
def test_a_program_that_hands_nothing_on_is_told_of(command: str, program: str, where: str) -> None:
    launch = made(command)
    (said,) = (*launch.warnings, *launch.remarks)
    assert said.startswith(program) and where in said


def test_a_container_that_is_given_the_variable_is_not() -> None:
    assert made("docker run -e CUDA_VISIBLE_DEVICES image").warnings == ()


def test_more_than_one_process_needs_a_launcher() -> None:
    (warning,) = made("python x.py", processes=2).warnings
    assert "2 processes" in warning and "launcher" in warning


@each_row(
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


def test_an_option_of_the_interpreter_is_not_one_of_env() -> None:
    assert made("env A=1 python -S x.py").argv == ("env", "A=1", "python", "-S", "x.py")
    assert made("env -u B python -S x.py").launcher == "python"
