"""The docker form: what a shell hands to docker, and what the real client then asks the daemon for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device
from gputui.launching.exports import ExportError, ExportOptions
from gputui.launching.exports.docker import docker_notes, to_docker
from gputui.launching.launch import Launch
from gputui.vendors.nvidia.vendor import VENDOR
from unit.builders import gpu, instance
from unit.docker_daemon import Daemon, daemon
from unit.test_quoting_in_shells import HOSTILE, words

TWO, ZERO = gpu(2), gpu(0)
PYTORCH = ExportOptions(image="pytorch/pytorch")
Changes = tuple[tuple[str, str | None], ...]

needs_docker = pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")


def _launch(
    *argv: str,
    devices: tuple[Device, ...] = (TWO, ZERO),
    more: Changes = (),
    directory: str | None = None,
) -> Launch:
    return Launch(argv, (*VENDOR.visibility.changes(devices), *more), directory, devices=devices)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


TEXTS = [word for word in HOSTILE if _is_text(word)]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `docker` and a `podman` that tell their words."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("docker", "podman"):
        program = folder / name
        program.write_text(
            f"#!{sys.executable} -SE\nimport json, os, sys\n"
            "print(json.dumps([os.getcwd(), *map(os.fsdecode, sys.argv[1:])]))\n"
        )
        program.chmod(0o755)
    return folder


def _words(line: str, recorder: Path, cwd: Path | None = None) -> list[str]:
    """The words that docker gets from a real shell; the first is where it was started."""
    done = subprocess.run(
        ["sh", "-c", os.fsencode(line)],
        env={"PATH": f"{recorder}:/usr/bin:/bin", "PYTHONUTF8": "1"},
        cwd=cwd,
        capture_output=True,
        timeout=60,
        check=True,
    )
    told: list[str] = json.loads(done.stdout)
    return told


def test_a_container_gets_the_devices_and_keeps_their_order(recorder: Path) -> None:
    uuids = f"{TWO.uuid},{ZERO.uuid}"
    assert _words(to_docker(_launch("python", "train.py"), PYTORCH), recorder)[1:] == [
        *("run", "--rm", "-it", "--gpus", f'"device={uuids}"', "--ipc=host"),
        *("-e", f"CUDA_VISIBLE_DEVICES={uuids}", "pytorch/pytorch", "python", "train.py"),
    ]


def test_hostile_words_reach_docker_as_they_are(recorder: Path) -> None:
    told = _words(to_docker(_launch(*TEXTS, more=(("VALUE", "a'b\n$c"),)), PYTORCH), recorder)
    assert told[-len(TEXTS) :] == TEXTS
    assert "VALUE=a'b\n$c" in told


def test_what_is_unset_is_not_named_as_it_is_not_there_inside(recorder: Path) -> None:
    told = _words(to_docker(_launch("x", more=(("GONE", None),)), PYTORCH), recorder)
    assert not [word for word in told if "GONE" in word]


def test_cpu_only_asks_for_no_device(recorder: Path) -> None:
    told = _words(to_docker(_launch("x", devices=()), PYTORCH), recorder)
    assert told[1:] == ["run", "--rm", "-it", "-e", "CUDA_VISIBLE_DEVICES=", "pytorch/pytorch", "x"]


def test_an_instance_is_named_by_its_uuid(recorder: Path) -> None:
    part = instance(gpu(1, mig=True))
    told = _words(to_docker(_launch("x", devices=(part,)), PYTORCH), recorder)
    assert f'"device={part.uuid}"' in told and f"CUDA_VISIBLE_DEVICES={part.uuid}" in told
    assert "--ipc=host" not in told, "one device shares with nobody"


def test_the_directory_and_the_name_are_the_containers(recorder: Path) -> None:
    launch = _launch("x", directory="/two words")
    told = _words(to_docker(launch, replace(PYTORCH, name="mine")), recorder)
    assert told[told.index("-w") + 1] == "/two words"
    assert told[told.index("--name") + 1] == "mine"


OWN = [
    ("docker", "run", "pytorch/pytorch", "python", "train.py", "--gpus", "2"),
    ("docker", "container", "run", "--rm", "-it", "-v", "--gpus:/x", "image", "-e", "CUDA_VISIBLE_DEVICES=9"),
    ("docker", "run", "-itv/a:/b", "--name=mine", "--user", "1:1", "image", "--device", "nvidia.com/gpu=0"),
    ("docker", "run", "-e", "A=1", "-eB=2", "--env=C", "--", "image", "--ipc", "private"),
]


@pytest.mark.parametrize("argv", OWN, ids=" ".join)
def test_the_options_go_into_the_commands_own_docker_run(recorder: Path, argv: tuple[str, ...]) -> None:
    told = _words(to_docker(_launch(*argv)), recorder)[1:]
    place = argv.index("run")
    uuids = f"{TWO.uuid},{ZERO.uuid}"
    ours = ("--gpus", f'"device={uuids}"', "--ipc=host", "-e", f"CUDA_VISIBLE_DEVICES={uuids}")
    assert told == [*argv[1 : place + 1], *ours, *argv[place + 1 :]]


@pytest.mark.parametrize(
    "before", [("sudo",), ("sudo", "-E", "-u", "me"), ("nice", "-n", "5"), ("env", "A=1")]
)
def test_what_stands_before_docker_stays_there(before: tuple[str, ...]) -> None:
    line = to_docker(_launch(*before, "docker", "run", "image", "x"))
    assert line.startswith(" ".join((*before, "docker run --gpus ")))
    assert line.endswith(" image x")


def test_the_commands_own_shared_memory_is_kept(recorder: Path) -> None:
    for option in (("--ipc", "private"), ("--shm-size=8g",)):
        assert "--ipc=host" not in _words(to_docker(_launch("docker", "run", *option, "i")), recorder)


def test_the_commands_own_docker_starts_in_the_directory(recorder: Path, tmp_path: Path) -> None:
    place = tmp_path / "two words"
    place.mkdir()
    for directory in (str(place), place.name):
        line = to_docker(_launch("docker", "run", "i", directory=directory))
        assert _words(line, recorder, tmp_path)[0] == str(place)


def test_podman_is_given_devices_as_it_names_them(recorder: Path) -> None:
    told = _words(to_docker(_launch("podman", "run", "--rm", "image", "x")), recorder)[1:]
    assert told[:5] == [
        *("run", "--device", f"nvidia.com/gpu={TWO.uuid}", "--device", f"nvidia.com/gpu={ZERO.uuid}"),
    ]
    assert "--gpus" not in told


@pytest.mark.parametrize(
    "option",
    [
        *(("--gpus", "all"), ("--gpus=2",), ("-e", "CUDA_VISIBLE_DEVICES=0"), ("-eCUDA_VISIBLE_DEVICES=0",)),
        *(
            ("--env=NVIDIA_VISIBLE_DEVICES=all",),
            ("-ite", "CUDA_DEVICE_ORDER=x"),
            ("--device", "nvidia.com/gpu=0"),
        ),
    ],
    ids=" ".join,
)
def test_a_command_that_names_devices_itself_is_refused(option: tuple[str, ...]) -> None:
    with pytest.raises(ExportError, match="already"):
        to_docker(_launch("docker", "run", "--rm", *option, "image", "x"))


REFUSED = [
    (_launch("x", devices=(gpu(3, uuid=""),)), PYTORCH, "GPU 3"),
    (_launch("x", directory="here"), PYTORCH, "whole path"),
    (_launch("x"), ExportOptions(image="--privileged"), "image"),
    (_launch("docker", "compose", "up"), ExportOptions(), "docker run"),
    (_launch("docker", "run", "i"), PYTORCH, "--image"),
    (_launch("docker", "run", "--name", "a", "i"), ExportOptions(name="b"), "--name"),
    (_launch("caf\udce9"), PYTORCH, "UTF-8"),
    (Launch(("deepspeed",), (("CUDA_VISIBLE_DEVICES", None),), devices=(ZERO,)), PYTORCH, "anew"),
]


@pytest.mark.parametrize(("launch", "options", "reason"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_docker_cannot_be_told_is_refused(launch: Launch, options: ExportOptions, reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        to_docker(launch, options)


def test_what_is_added_is_said() -> None:
    told = " ".join(docker_notes(_launch("x"), ExportOptions()))
    assert "IMAGE" in told and "--ipc=host" in told
    assert docker_notes(_launch("x", devices=(ZERO,)), PYTORCH) == ()


# The real client.


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that tells what the real docker asks for."""
    with daemon(tmp_path_factory.mktemp("docker")) as made:
        yield made


@needs_docker
def test_the_real_client_asks_for_the_devices_in_their_order(docker: Daemon) -> None:
    asked = docker.run(to_docker(_launch("python", "train.py", directory="/w d"), PYTORCH).encode())
    assert asked["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [TWO.uuid, ZERO.uuid]
    assert len(asked["HostConfig"]["DeviceRequests"]) == 1
    assert asked["HostConfig"]["IpcMode"] == "host"
    assert asked["Env"] == [f"CUDA_VISIBLE_DEVICES={TWO.uuid},{ZERO.uuid}"]
    assert (asked["Image"], asked["Cmd"], asked["WorkingDir"]) == (
        "pytorch/pytorch",
        ["python", "train.py"],
        "/w d",
    )


@needs_docker
def test_the_real_client_asks_for_no_device_on_the_cpu(docker: Daemon) -> None:
    asked = docker.run(to_docker(_launch("x", devices=()), PYTORCH).encode())
    assert not asked["HostConfig"]["DeviceRequests"] and asked["Env"] == ["CUDA_VISIBLE_DEVICES="]


@needs_docker
@pytest.mark.parametrize(
    "argv", [("docker", "run", "-it", *OWN[0][2:]), ("docker", "run", "-it", *OWN[3][2:])]
)
def test_the_real_client_reads_the_commands_own_words_as_before(
    docker: Daemon, argv: tuple[str, ...]
) -> None:
    asked = docker.run(to_docker(_launch(*argv)).encode())
    assert asked["Image"] in argv and asked["Cmd"] == list(argv[argv.index(asked["Image"]) + 1 :])
    assert asked["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [TWO.uuid, ZERO.uuid]


@needs_docker
@given(st.lists(words.filter(_is_text), min_size=1, max_size=8), st.lists(words.filter(_is_text), max_size=3))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_real_client_reads_any_words_and_values(
    docker: Daemon, argv: list[str], values: list[str]
) -> None:
    more = tuple((f"VALUE_{place}", value) for place, value in enumerate(values))
    asked = docker.run(to_docker(_launch("x", *argv, more=more), PYTORCH).encode())
    assert asked["Cmd"] == ["x", *argv]
    # (The client sorts them by nothing.)
    assert sorted(asked["Env"]) == sorted(
        [f"CUDA_VISIBLE_DEVICES={TWO.uuid},{ZERO.uuid}", *(f"{name}={value}" for name, value in more)]
    )
