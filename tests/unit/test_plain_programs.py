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
        ("docker run --gpus all image", "docker", "container"),
        ("podman exec c python x.py", "podman", "container"),
        ("tmux new-session -d 'python x.py'", "tmux", "server"),
        ("su - me -c 'python x.py'", "su", "login"),
    ],
)
def test_a_program_that_hands_nothing_on_is_warned_of(command: str, program: str, where: str) -> None:
    (said,) = made(command).warnings
    assert said.startswith(f"what {program} starts ") and where in said


def test_a_command_that_hands_the_variable_on_itself_is_not() -> None:
    assert made("docker run -e CUDA_VISIBLE_DEVICES image").warnings == ()
    assert made("ssh box env CUDA_VISIBLE_DEVICES=0 python x.py").warnings == ()


@pytest.mark.parametrize("command", ["nsys profile torchrun x.py", "strace -f /v/bin/deepspeed x.py"])
def test_a_launcher_behind_an_unknown_program_is_named(command: str) -> None:
    launch = made(command)
    assert shlex.join(launch.argv) == command
    program, *_ = shlex.split(command)
    assert re.match(rf"(torchrun|deepspeed) behind {program} ", launch.remarks[0])
    assert made(command, 1).remarks == ()


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("nsys profile -o r accelerate launch x.py", "accelerate"),
        ("bash -c 'cd x && accelerate launch x.py'", "accelerate"),
        ("uv run -m accelerate.commands.launch x.py", "accelerate"),
        ("ncu --set full deepspeed x.py", "deepspeed"),
        ("bash -lc 'python -m deepspeed.launcher.runner x.py'", "deepspeed"),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_launcher_that_chooses_devices_itself_is_warned_of_behind_any_program(
    command: str, launcher: str, count: int
) -> None:
    """The user's own configuration of accelerate overrides the variable, and nothing on the line says so."""
    (said,) = made(command, count).warnings
    assert said.startswith(f"{launcher} behind {command.split()[0]} ")


def test_torchrun_as_a_module_of_uv_is_named() -> None:
    assert made("uv run -m torch.distributed.run x.py").remarks[0].startswith("torchrun behind uv")
    assert made("uv run -m train torchrun", 1).warnings == ()


def test_a_folder_of_that_name_is_no_launcher() -> None:
    assert made("./train.sh --repo /data/accelerate").warnings == ()


def test_a_python_script_of_that_name_is_no_launcher() -> None:
    assert made("python run.py torchrun").remarks == ()


def test_ranks_that_are_left_over_in_the_environment_are_named() -> None:
    launch = made("python x.py", environ={"RANK": "0", "WORLD_SIZE": "8"})
    (warning,) = launch.warnings
    assert warning.startswith("RANK=0 WORLD_SIZE=8 in your environment")
    assert made("./x.sh", environ={"RANK": "0"}).warnings == ()
    assert made("env -u RANK python x.py", environ={"RANK": "0"}).warnings == ()


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


def test_the_command_within_one_word_of_env_stays_as_it_is() -> None:
    assert made("env -S 'torchrun a.py'").argv == ("env", "-S", "torchrun a.py")


def test_an_option_of_the_interpreter_is_not_one_of_env() -> None:
    assert made("env A=1 python -S x.py").argv == ("env", "A=1", "python", "-S", "x.py")
    assert made("env -u B python -S x.py").launcher == "python"
