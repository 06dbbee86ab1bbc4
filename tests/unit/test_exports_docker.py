"""The docker form: the words that a shell passes to docker, and the real client's request to the daemon."""

from __future__ import annotations

import base64
import csv
import itertools
import json
import os
import re
import shlex
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
from gputui.launching.compose import compose
from gputui.launching.container_command import read_container
from gputui.launching.exports import DEFAULT, ExportError, ExportOptions
from gputui.launching.exports.docker import docker_notes, to_docker
from gputui.launching.host_environment import ThisHost
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.wrappers import unwrap
from gputui.vendors.nvidia.vendor import VENDOR
from table_tests import each_row
from unit.builders import gpu, instance
from unit.docker_daemon import Daemon, daemon
from unit.host_environments import Told
from unit.test_quoting_in_shells import HOSTILE, is_text, words

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
    """A launch for these devices; a typed container command is composed for them."""
    if read_container(unwrap(argv)[1]) is None:
        return Launch(argv, (*VENDOR.visibility.changes(devices), *more), directory, devices=devices)
    launch = compose(devices, LaunchOptions(argv, directory=directory), {}, ThisHost())
    return replace(launch, changes=(*launch.changes, *more))


def _notes(launch: Launch, options: ExportOptions = DEFAULT) -> tuple[str, ...]:
    """The messages about a launch and its export."""
    return (*docker_notes(launch, options), *launch.warnings, *launch.remarks)


TEXTS = [word for word in HOSTILE if is_text(word)]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `docker`, a `podman` and a `nerdctl` that print their words."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("docker", "podman", "nerdctl"):
        program = folder / name
        program.write_text(
            f"#!{sys.executable} -SE\nimport json, os, sys\n"
            "print(json.dumps([os.getcwd(), *map(os.fsdecode, sys.argv[1:])]))\n"
        )
        program.chmod(0o755)
    return folder


def _words(line: str, recorder: Path, cwd: Path | None = None) -> list[str]:
    """The words that docker gets from a real shell; the first is the working directory."""
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
        *("run", "--rm", "-it", "--gpus", f'"device={uuids}"', "-e", f"CUDA_VISIBLE_DEVICES={uuids}"),
        *("--ipc=host", "pytorch/pytorch", "python", "train.py"),
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


def test_an_instance_is_given_by_its_uuid(recorder: Path) -> None:
    part = instance(gpu(1, mig=True))
    told = _words(to_docker(_launch("x", devices=(part,)), PYTORCH), recorder)
    assert told[1:] == ["run", "--rm", "-it", "--gpus", f'"device={part.uuid}"', "pytorch/pytorch", "x"]
    assert "--ipc=host" not in told, "one device shares with nobody"


def test_of_several_instances_the_first_is_told_by_the_list(recorder: Path) -> None:
    """A process uses the first instance of the list."""
    parts = (instance(gpu(1, mig=True), 1), instance(gpu(1, mig=True), 0))
    told = _words(to_docker(_launch("x", devices=parts), PYTORCH), recorder)
    assert _variables(told) == {"CUDA_VISIBLE_DEVICES": f"{parts[0].uuid},{parts[1].uuid}"}


def _variables(told: list[str]) -> dict[str, str]:
    """The variables that `-e` sets, each in words of its own."""
    return dict(value.split("=", 1) for e, value in itertools.pairwise(told) if e == "-e")


# The devices that a program in the container counts.

A100 = gpu(0, name="NVIDIA A100")


@each_row(
    ("devices", "expected"),
    [
        ((ZERO,), {}),
        ((ZERO, TWO), {}),
        ((gpu(9), gpu(10)), {}),
        ((A100, TWO), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ((TWO, ZERO), {"CUDA_VISIBLE_DEVICES": f"{TWO.uuid},{ZERO.uuid}"}),
        ((TWO, A100), {"CUDA_VISIBLE_DEVICES": f"{TWO.uuid},{A100.uuid}"}),
        ((), {"CUDA_VISIBLE_DEVICES": ""}),
    ],
    ids=["one", "ascending", "as numbers", "unlike", "another order", "unlike, another order", "none"],
)
def test_the_list_is_there_only_where_the_container_would_count_otherwise(
    devices: tuple[Device, ...], expected: dict[str, str]
) -> None:
    assert _variables(shlex.split(to_docker(_launch("x", devices=devices), PYTORCH))) == expected
    typed = to_docker(_launch("docker", "run", "--gpus", "all", "image", "x", devices=devices))
    assert _variables(shlex.split(typed)) == expected


def _seen_inside(words: list[str], box: tuple[Device, ...]) -> list[Device]:
    """The devices that a program in the container counts, by the rules of docker and of CUDA.

    The container has the devices of `--gpus` and counts them in bus order (equal devices). A list of numbers
    refers to these, and UUIDs are the same inside.
    """
    if "--gpus" not in words:
        return []
    uuids = words[words.index("--gpus") + 1].strip('"').removeprefix("device=").split(",")
    inside = [device for device in box if device.uuid in uuids]
    assert len(inside) == len(uuids)
    listed = _variables(words).get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return inside
    by_name = {device.uuid: device for device in inside} | {str(n): d for n, d in enumerate(inside)}
    return [by_name[entry] for entry in listed.split(",")]


@given(st.permutations(range(5)), st.integers(1, 5), st.sampled_from(["vllm/vllm-openai", "pytorch/pytorch"]))
@settings(max_examples=25, deadline=None)
def test_any_order_is_what_a_program_inside_counts(order: list[int], count: int, image: str) -> None:
    box = tuple(gpu(index) for index in range(5))
    chosen = tuple(box[index] for index in order[:count])
    words = shlex.split(to_docker(_launch("x", devices=chosen), ExportOptions(image=image)))
    assert _seen_inside(words, box) == list(chosen)


@each_row(
    ("image", "command"),
    [
        ("vllm/vllm-openai:v0.9.0", "--model m --tensor-parallel-size 2"),
        ("rocm/vllm-dev", "vllm serve m"),
        ("mine", "vllm serve m -tp 2"),
        ("mine", "uv run vllm serve m"),
        ("mine", "/opt/venv/bin/vllm serve m"),
        ("mine", "python3 -m vllm.entrypoints.openai.api_server --model m"),
        ("mine", "python3 -m vllm.entrypoints.cli.main serve m"),
    ],
)
def test_vllm_takes_numbers_as_the_container_counts(image: str, command: str) -> None:
    numbers = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0,1"}
    for devices, expected in (((gpu(7), TWO, gpu(3)), numbers), ((TWO, gpu(7)), {})):
        line = to_docker(_launch("docker", "run", image, *command.split(), devices=devices))
        assert _variables(shlex.split(line)) == expected
        wrapped = to_docker(_launch(*command.split(), devices=devices), ExportOptions(image=image))
        assert _variables(shlex.split(wrapped)) == expected


@each_row("image", ["user/vllm-openai-tools", "vllm-openai.example/mine:1", "mine:vllm-openai"])
def test_an_image_starts_a_program_by_its_own_name_only(image: str) -> None:
    line = to_docker(_launch("docker", "run", image, "--model", "m"))
    assert "--tensor-parallel-size" not in line


@pytest.mark.parametrize("command", ["mine vllm serve m", "vllm/vllm-openai:latest --model m"])
def test_a_program_inside_that_is_complete_is_not_spoken_of_again(command: str) -> None:
    argv = ("docker", "run", "--gpus", "all", *command.split())
    launch = compose([TWO, ZERO], LaunchOptions(argv), {}, Told())
    added = [note for note in launch.remarks if "--tensor-parallel-size" in note]
    assert len(added) == 1 and "--tensor-parallel-size=2" in launch.argv
    assert not [note for note in docker_notes(launch) if "--tensor-parallel-size" in note]


def test_vllm_is_given_no_uuid_of_an_instance() -> None:
    parts = (instance(gpu(1, mig=True), 1), instance(gpu(1, mig=True), 0))
    for devices in (parts, parts[:1]):
        told = shlex.split(to_docker(_launch("vllm", "serve", "m", devices=devices), PYTORCH))
        assert _variables(told) == {} and f'"device={",".join(d.uuid for d in devices)}"' in told


# A launcher in the container.


@each_row(
    ("inner", "devices", "expected"),
    [
        ("torchrun t.py", (ZERO, TWO), "torchrun --standalone --nproc-per-node=2 t.py"),
        ("torchrun t.py", (TWO, ZERO), "torchrun --standalone --nproc-per-node=2 t.py"),
        ("torchrun --nproc-per-node=2 t.py", (ZERO, TWO), "torchrun --standalone --nproc-per-node=2 t.py"),
        ("uv run torchrun t.py", (ZERO, TWO), "uv run torchrun --standalone --nproc-per-node=2 t.py"),
        ("mpirun python t.py", (ZERO, TWO), "mpirun -np 2 python t.py"),
        (
            "python -m torch.distributed.run t.py",
            (TWO,),
            "python -m torch.distributed.run --standalone --nproc-per-node=1 t.py",
        ),
        ("python t.py", (ZERO, TWO), "python t.py"),
        ("t.py", (ZERO, TWO), "t.py"),
        ("bash -c x", (ZERO,), "bash -c x"),
        ("", (ZERO,), ""),
    ],
)
def test_a_launcher_inside_is_completed(inner: str, devices: tuple[Device, ...], expected: str) -> None:
    launch = _launch("docker", "run", "--rm", "image", *inner.split(), devices=devices)
    told = shlex.split(to_docker(launch))
    assert told[told.index("image") + 1 :] == expected.split()


def test_a_launcher_that_numbers_devices_numbers_the_containers() -> None:
    """A container with GPU 3 and 5 has GPU 0 and 1."""
    launch = _launch("docker", "run", "image", "accelerate", "launch", "t.py", devices=(gpu(3), gpu(5)))
    told = shlex.split(to_docker(launch))
    inner = told[told.index("image") + 1 :]
    assert "--num_processes=2" in inner and not {"3", "5"} & _numbers(inner)
    launch = _launch("docker", "run", "image", "deepspeed", "t.py", devices=(gpu(3), gpu(5)))
    told = shlex.split(to_docker(launch))
    assert not {"3", "5"} & _numbers(told[told.index("image") :])


def _numbers(words: list[str]) -> set[str]:
    return set(re.findall(r"\d+", " ".join(words)))


def test_the_entrypoint_that_is_named_is_the_command() -> None:
    launch = _launch("docker", "run", "--entrypoint", "torchrun", "image", "t.py", devices=(ZERO, TWO))
    told = shlex.split(to_docker(launch))
    assert told[told.index("--entrypoint") + 1] == "torchrun"
    assert told[told.index("image") + 1 :] == ["--standalone", "--nproc-per-node=2", "t.py"]


def test_a_variable_of_the_container_counts_for_the_launcher_inside() -> None:
    launch = _launch("docker", "run", "-e", "PET_NPROC_PER_NODE=3", "image", "torchrun", "t.py")
    assert any("PET_NPROC_PER_NODE" in note for note in _notes(launch))


def test_a_count_that_is_not_that_of_the_devices_is_said() -> None:
    launch = _launch("docker", "run", "image", "torchrun", "--nproc-per-node=4", "t.py")
    assert any("4" in note and "2 GPUs" in note for note in _notes(launch))


def test_the_devices_win_over_those_that_a_launcher_inside_names() -> None:
    for options in (("--include", "localhost:2,3"), ("--num_gpus", "4")):
        launch = _launch("docker", "run", "image", "deepspeed", *options, "t.py", devices=(gpu(3), gpu(5)))
        told = shlex.split(to_docker(launch))
        assert "--include=localhost:0,1" in told and options[1] not in told
        assert any(options[0] in note for note in _notes(launch))
    with pytest.raises(ExportError, match="--num_nodes"):
        to_docker(_launch("docker", "run", "image", "deepspeed", "--num_nodes", "2", "t.py"))


def test_a_launcher_inside_that_names_an_order_counts_by_bus_id() -> None:
    """deepspeed replaces the container's list with indices of the container's own devices."""
    launch = _launch("docker", "run", "image", "deepspeed", "t.py", devices=(gpu(5), gpu(3)))
    told = shlex.split(to_docker(launch))
    (world,) = (word.partition("=")[2] for word in told if word.startswith("--world_info="))
    assert base64.urlsafe_b64decode(world) == b'{"localhost":[1,0]}'
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in told


def test_several_instances_are_shown_to_a_process_each_inside_too() -> None:
    parts = tuple(instance(gpu(0, mig=True), index) for index in range(2))
    launch = _launch("docker", "run", "image", "accelerate", "launch", "t.py", devices=parts)
    told = shlex.split(to_docker(launch))
    assert "PET_VIRTUAL_LOCAL_RANK=1" in told
    with pytest.raises(ExportError, match="MIG instance"):
        to_docker(_launch("docker", "run", "image", "deepspeed", "t.py", devices=parts))


def test_what_is_complete_stays_as_it_is() -> None:
    """The result is the same whether the launch was made for a container or the export completes it."""
    for inner in ("torchrun t.py", "accelerate launch t.py", "vllm serve m", "mpirun python t.py"):
        line = to_docker(_launch("docker", "run", "--gpus", "all", "-it", "image", *inner.split()))
        assert to_docker(_launch(*shlex.split(line))) == line


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
    ours = ("--gpus", f'"device={uuids}"', "-e", f"CUDA_VISIBLE_DEVICES={uuids}", "--ipc=host")
    assert told == [*argv[1 : place + 1], *ours, *argv[place + 1 :]]


@each_row("before", [("sudo",), ("sudo", "-E", "-u", "me"), ("nice", "-n", "5"), ("env", "A=1")])
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


@pytest.mark.parametrize("typed", [("--device", "nvidia.com/gpu=all"), ("--device=nvidia.com/gpu=1",)])
@pytest.mark.parametrize("engine", ["docker", "nerdctl"])
def test_devices_by_cdi_are_named_by_cdi(recorder: Path, engine: str, typed: tuple[str, ...]) -> None:
    """The container device interface, which the user's daemon is set up for (docker, `--device`)."""
    line = to_docker(_launch(engine, "run", *typed, "--device", "/dev/fuse", "image", "x"))
    told = _words(line, recorder)[1:]
    named = [told[place + 1] for place, word in enumerate(told) if word == "--device"]
    assert named == [f"nvidia.com/gpu={TWO.uuid}", f"nvidia.com/gpu={ZERO.uuid}", "/dev/fuse"]
    assert "--gpus" not in told


UUIDS = f"{TWO.uuid},{ZERO.uuid}"


@each_row(
    "option",
    [
        *(("--gpus", "all"), ("--gpus=2",), ("--gpus", '"device=0,1"'), ("--gpus=device=GPU-x",)),
        *(("--env=NVIDIA_VISIBLE_DEVICES=all",), ("--gpus", "count=3")),
        *(("-e", "CUDA_VISIBLE_DEVICES"), ("-eCUDA_DEVICE_ORDER=FASTEST_FIRST",)),
        *(("-e", f"CUDA_VISIBLE_DEVICES={UUIDS}"), ("-eCUDA_VISIBLE_DEVICES=2,0",)),
        *(("--gpus", '"device=0,2"', "-e", "CUDA_VISIBLE_DEVICES=1,0"), ("--gpus", "device=0,1")),
    ],
    ids=" ".join,
)
@each_row("engine", ["docker", "podman", "nerdctl"])
def test_devices_that_the_command_names_give_way(option: tuple[str, ...], engine: str) -> None:
    plain = to_docker(_launch(engine, "run", "-v", "/a:/b", "image", "x"))
    assert to_docker(_launch(engine, "run", *option, "-v", "/a:/b", "image", "x")) == plain
    said = " ".join(_notes(_launch(engine, "run", *option, "image", "x")))
    assert ("the selected devices" in said) == (UUIDS not in "".join(option)), (
        "the same in the same words is nothing to say"
    )


@each_row(
    ("value", "capabilities"),
    [
        ("all,capabilities=utility", "utility"),
        ('"capabilities=compute,utility","device=4,5"', "compute,utility"),
        ('"device=4,5",capabilities=utility', "utility"),
    ],
)
def test_the_capabilities_that_were_asked_for_stay(value: str, capabilities: str) -> None:
    line = to_docker(_launch("docker", "run", "--gpus", value, "image", "x"))
    words = shlex.split(line)
    gpus = words[words.index("--gpus") + 1]
    assert sorted(next(csv.reader([gpus]))) == sorted([f"device={UUIDS}", f"capabilities={capabilities}"])
    again = _launch(*words)
    assert to_docker(again) == line and not any("gives way" in note for note in _notes(again))


@needs_docker
def test_the_real_client_asks_for_the_capabilities_too(docker: Daemon) -> None:
    launch = _launch("docker", "run", "-it", "--gpus", '"device=4,5","capabilities=compute,utility"', "i")
    request = docker.run(os.fsencode(to_docker(launch)))["HostConfig"]["DeviceRequests"][0]
    assert request["DeviceIDs"] == UUIDS.split(",")
    assert sorted(request["Capabilities"][0]) == ["compute", "gpu", "utility"]


def test_a_letter_that_goes_leaves_the_others_of_its_word() -> None:
    told = shlex.split(to_docker(_launch("docker", "run", "-ite", "CUDA_DEVICE_ORDER=x", "i")))
    assert "-it" in told and "CUDA_DEVICE_ORDER=x" not in told


@each_row(
    "option",
    [
        *(("-e", "CUDA_VISIBLE_DEVICES=0"), ("-eCUDA_VISIBLE_DEVICES=0,2",), ("-eCUDA_VISIBLE_DEVICES=",)),
        ("--gpus", '"device=0,2"', "-e", "CUDA_VISIBLE_DEVICES=0,1"),
        ("-e", f"CUDA_VISIBLE_DEVICES={ZERO.uuid}"),
        ("--gpus", "2", "-e", "CUDA_VISIBLE_DEVICES=2,0"),
    ],
    ids=" ".join,
)
def test_a_list_of_others_for_the_program_inside_gives_way(option: tuple[str, ...]) -> None:
    told = shlex.split(to_docker(_launch("docker", "run", "--rm", *option, "image", "x")))
    assert option[-1] not in told and told.count("--gpus") == 1


REFUSED = [
    (_launch("x", devices=(gpu(3, uuid=""),)), PYTORCH, "GPU 3"),
    (_launch("x", directory="here"), PYTORCH, "absolute path"),
    (_launch("x"), ExportOptions(image="--privileged"), "image"),
    (_launch("x"), replace(PYTORCH, name="a b"), "'a b'"),
    (_launch("x"), replace(PYTORCH, name=""), "''"),
    (_launch("x"), replace(PYTORCH, name="日本"), "name of a container"),
    (_launch("docker", "run", "i"), ExportOptions(name="a\nb"), "name of a container"),
    (_launch("docker", "compose", "up"), ExportOptions(), "docker run"),
    (_launch("docker", "run", "i"), PYTORCH, "--image"),
    (_launch("docker", "run", "--name", "a", "i"), ExportOptions(name="b"), "--name"),
    (_launch("caf\udce9"), PYTORCH, "UTF-8"),
    (
        Launch(("deepspeed",), (("CUDA_VISIBLE_DEVICES", None),), devices=(ZERO,), names=True),
        PYTORCH,
        "renumbers",
    ),
]


@each_row(("launch", "options", "reason"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_docker_cannot_be_told_is_refused(launch: Launch, options: ExportOptions, reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        to_docker(launch, options)


def test_what_is_added_is_said() -> None:
    told = " ".join(_notes(_launch("x"), ExportOptions()))
    assert "IMAGE" in told and "--ipc=host" in told
    assert _notes(_launch("x", devices=(ZERO,)), PYTORCH) == ()


# The real client.


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that records the requests of the real docker."""
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
@given(st.lists(words.filter(is_text), min_size=1, max_size=8), st.lists(words.filter(is_text), max_size=3))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_real_client_reads_any_words_and_values(
    docker: Daemon, argv: list[str], values: list[str]
) -> None:
    more = tuple((f"VALUE_{place}", value) for place, value in enumerate(values))
    asked = docker.run(to_docker(_launch("x", *argv, more=more), PYTORCH).encode())
    assert asked["Cmd"] == ["x", *argv]
    # The client does not sort the variables, so the test does.
    assert sorted(asked["Env"]) == sorted(
        [f"CUDA_VISIBLE_DEVICES={TWO.uuid},{ZERO.uuid}", *(f"{name}={value}" for name, value in more)]
    )
