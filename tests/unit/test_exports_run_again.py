"""An export starts the launch again in its reader: each launcher's command, variables and directory."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device
from gputui.launching.compose import compose
from gputui.launching.exports import ExportError, ExportOptions
from gputui.launching.exports.docker import to_docker
from gputui.launching.exports.dotenv import to_dotenv
from gputui.launching.exports.shell_lines import to_sh
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu
from unit.docker_daemon import Daemon, daemon

SHELLS = [
    name.split()
    for name in ("sh", "dash", "bash", "bash --posix", "zsh -f", "ksh", "mksh", "busybox sh")
    if shutil.which(name.split()[0])
]
BOX = tuple(gpu(index) for index in range(4))
COMMANDS = {
    "python": ("python", "train.py", "--lr", "3e-4"),
    "torchrun": ("torchrun", "--max-restarts", "3", "train.py", "a b"),
    "accelerate": ("accelerate", "launch", "train.py", "it's"),
    "deepspeed": ("deepspeed", "train.py", "--deepspeed", "ds.json"),
    "mpirun": ("mpirun", "python", "train.py"),
    "uv": ("uv", "run", "torchrun", "train.py"),
    "other": ("./run me", "$HOME", "*", ""),
}
VARIABLES = (("TF_FORCE_GPU_ALLOW_GROWTH", "true"), ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))

DUMP = """
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every program of the commands prints how it was started."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "dump.py").write_text(DUMP)
    for name in {command[0].removeprefix("./") for command in COMMANDS.values()}:
        text = f'#!/bin/sh\nexec {sys.executable} -SE {folder}/dump.py {shlex.quote(name)} "$@"\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def _launch(name: str, place: Path, *order: int) -> Launch:
    options = LaunchOptions(COMMANDS[name], additions=VARIABLES, directory=str(place))
    return compose([BOX[index] for index in order], options, {})


def _environ(place: Path) -> dict[str, str]:
    return {"PATH": f"{place}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "9", "KEPT": "1"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_line_for_sh_starts_the_launch_in_every_shell(place: Path, shell: list[str], name: str) -> None:
    launch = _launch(name, place, 2, 0)
    (place / "line.sh").write_text(to_sh(launch) + "\n")
    done = subprocess.run(
        [*shell, str(place / "line.sh")], env=_environ(place), capture_output=True, check=True, timeout=60
    )
    argv, environ, directory = json.loads(done.stdout)
    assert argv == [launch.argv[0].removeprefix("./"), *launch.argv[1:]]
    expected = launch.environment(_environ(place))
    assert {key: environ.get(key) for key in expected} == expected
    assert "CUDA_VISIBLE_DEVICES" in expected or "CUDA_VISIBLE_DEVICES" not in environ
    assert directory == str(place)


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_dotenv_runs_has_the_variables_of_the_launch(place: Path, name: str) -> None:
    pytest.importorskip("click", reason="python-dotenv's own command needs click")
    launch = _launch(name, place, 2, 0)
    try:
        text = to_dotenv(launch)
    except ExportError as error:
        assert None in dict(launch.changes).values(), error
        return
    (place / ".env").write_text(text + "\n")
    words = [sys.executable, "-m", "dotenv", "-f", str(place / ".env"), "run", "--", *launch.argv]
    if name == "other":
        words[-len(launch.argv)] = str(place / "run me")
    done = subprocess.run(words, env=_environ(place), capture_output=True, timeout=60, check=True)
    argv, environ, _ = json.loads(done.stdout)
    assert argv[1:] == list(launch.argv[1:])
    expected = launch.environment(_environ(place))
    assert {key: environ[key] for key in expected} == expected


# The devices that a program in the container counts, from the request of the real client.


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that records the requests of the real docker."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    with daemon(tmp_path_factory.mktemp("docker")) as made:
        yield made


def _counted(asked: dict[str, Any]) -> list[Device]:
    """The devices in the order in which a program in that container counts them (equal devices)."""
    (request,) = asked["HostConfig"]["DeviceRequests"]
    inside = [device for device in BOX if device.uuid in request["DeviceIDs"]]
    variables = dict(entry.split("=", 1) for entry in asked["Env"] or [])
    listed = variables.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return inside
    named = {device.uuid: device for device in inside}
    named |= {str(number): device for number, device in enumerate(inside)}
    return [named[entry] for entry in listed.split(",")]


@given(
    st.permutations(range(4)),
    st.integers(1, 4),
    st.sampled_from(["", "--gpus all", "--gpus 3", "--gpus '\"device=1,3\"'", "-e CUDA_VISIBLE_DEVICES"]),
    st.sampled_from(["image torchrun t.py", "vllm/vllm-openai:v1 --model m", "image python t.py"]),
)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_program_in_the_container_counts_what_was_selected(
    docker: Daemon, order: list[int], count: int, options: str, rest: str
) -> None:
    chosen = [BOX[index] for index in order[:count]]
    command = shlex.split(f"docker run -it {options} {rest}")
    typed = to_docker(compose(chosen, LaunchOptions(tuple(command)), {}))
    asked = docker.run(typed.encode())
    assert _counted(asked) == chosen
    if "torchrun" in rest:
        assert asked["Cmd"] == ["torchrun", "--standalone", f"--nproc-per-node={count}", "t.py"]
    wrapped = compose(chosen, LaunchOptions(tuple(rest.split()[1:]) or ("x",)), {})
    ours = docker.run(to_docker(wrapped, ExportOptions(image=rest.split()[0])).encode())
    assert _counted(ours) == chosen and ours["Cmd"] == list(wrapped.argv)
