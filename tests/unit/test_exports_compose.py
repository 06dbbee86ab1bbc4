"""The compose form: valid by the Compose Specification's schema, and read by the real podman-compose."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputui.inventory.device import Device
from gputui.launching.exports import FORMS, ExportError, ExportOptions
from gputui.launching.exports.docker import docker_notes
from gputui.vendors.amd.vendor import VENDOR as AMD
from gputui.vendors.intel.vendor import VENDOR as INTEL
from table_tests import each_row
from unit.builders import gpu
from unit.test_exports_docker import PYTORCH, TEXTS, TWO, ZERO, _launch, needs_docker
from unit.test_release import published_schema, validate

PODMAN_COMPOSE = Path(sys.executable).parent / "podman-compose"


def _text(*argv: str, options: ExportOptions = PYTORCH, **more: Any) -> str:
    return FORMS["compose"].write(_launch(*argv, **more), options)


def _service(text: str) -> dict[str, Any]:
    """The one service of a file, as Compose has it when variables are replaced."""
    (service,) = yaml.safe_load(text)["services"].values()
    assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text.split("\n", 1)[1]), "nothing is replaced"
    found: dict[str, Any] = json.loads(json.dumps(service).replace("$$", "$"))
    return found


def _devices(service: dict[str, Any]) -> list[str]:
    (reserved,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (reserved["driver"], reserved["capabilities"]) == ("nvidia", ["gpu"])
    ids: list[str] = reserved["device_ids"]
    return ids


def test_a_service_gets_the_devices_and_keeps_their_order() -> None:
    service = _service(_text("python", "train.py", directory="/two words"))
    assert _devices(service) == [TWO.uuid, ZERO.uuid]
    assert service["environment"] == [f"CUDA_VISIBLE_DEVICES={TWO.uuid},{ZERO.uuid}"]
    assert (service["image"], service["command"]) == ("pytorch/pytorch", ["python", "train.py"])
    assert (service["working_dir"], service["ipc"]) == ("/two words", "host")


def test_hostile_words_and_values_are_in_it_as_they_are() -> None:
    service = _service(_text(*TEXTS, more=tuple((f"V{n}", word) for n, word in enumerate(TEXTS))))
    assert service["command"] == TEXTS
    assert service["environment"][1:] == [f"V{n}={word}" for n, word in enumerate(TEXTS)]


def test_the_name_of_the_file_stays_in_its_comment() -> None:
    options = replace(PYTORCH, file="/tmp/a\nname: other\n#.yml")
    found = yaml.safe_load(_text("python", "train.py", options=options))
    assert found == yaml.safe_load(_text("python", "train.py"))


NO_STRINGS = [
    *("1e-4", "0o17", "0x1F", "1_000", "-.5", "+1", "12:30:45", "2026-01-01", "y", "N", "yes", "off", "true"),
    *("null", "~", ".inf", "<<", "=", "-", "? x", "&a", "*a", "!x", "%x", "@x", "- x", "a: b", "a #b"),
]


@pytest.mark.parametrize("form", ["compose", "kubernetes"])
def test_what_some_reader_of_yaml_takes_for_no_string_is_in_quotes(form: str) -> None:
    text = FORMS[form].write(_launch("x", *NO_STRINGS), PYTORCH)
    written = [line.strip().removeprefix("- ") for line in text.splitlines()]
    assert not [word for word in NO_STRINGS if f'"{word}"' not in written and f"'{word}'" not in written]


def test_without_devices_none_are_asked_for() -> None:
    service = _service(_text("x", devices=()))
    assert "deploy" not in service and service["environment"] == ["CUDA_VISIBLE_DEVICES="]


def test_devices_of_other_vendors_are_device_files() -> None:
    for vendor, node in ((AMD, "/dev/kfd"), (INTEL, "/dev/dri/renderD128")):
        device = Device(index=0, uuid="", vendor=vendor.name, render="renderD128")
        launch = replace(_launch("x"), devices=(device,), vendor_name=vendor.name)
        assert node in _service(FORMS["compose"].write(launch, PYTORCH))["devices"]


def test_the_users_own_container_is_the_service() -> None:
    own = (
        "docker run -it --rm --gpus all -v /d:/w:ro -v /e:/e --shm-size 8g -p 22:22 -e A=$x -e B -u 0 --init"
    )
    text = _text(*own.split(), "--entrypoint", "torchrun", "mine:1", "t.py", options=ExportOptions())
    service = _service(text)
    assert _devices(service) == [TWO.uuid, ZERO.uuid]
    assert service["volumes"] == ["/d:/w:ro", "/e:/e"] and service["ports"] == ["22:22"]
    assert service["environment"][-2:] == ["A=$x", "B"]
    assert (service["shm_size"], service["user"]) == ("8g", "0") and service["stdin_open"] and service["init"]
    assert service["entrypoint"] == ["torchrun"]
    assert service["command"] == ["--standalone", "--nproc-per-node=2", "t.py"]
    assert docker_notes(_launch(*own.split(), "mine:1", "t.py")) == ()


def test_devices_by_the_container_device_interface_stay_so() -> None:
    service = _service(
        _text("podman", "run", "--device", "nvidia.com/gpu=all", "i", "x", options=ExportOptions())
    )
    assert service["devices"] == [f"nvidia.com/gpu={TWO.uuid}", f"nvidia.com/gpu={ZERO.uuid}"]


@each_row(
    ("words", "reason"),
    [
        ("docker run --ulimit memlock=-1 i x", "--ulimit"),
        ("docker run -v data:/d i x", "'data:/d'"),
        ("docker run -v ./d:/d i x", "absolute path"),
        ("sudo docker run i x", "'sudo'"),
        ("docker run --name ;x i x", "name of a service"),
        ("docker run --gpus capabilities=utility i x", "capabilities=utility"),
        ("docker compose up", "run"),
    ],
)
def test_what_a_service_cannot_say_is_refused(words: str, reason: str) -> None:
    with pytest.raises(ExportError, match=re.escape(reason)):
        _text(*words.split(), options=ExportOptions())


def test_the_comment_on_top_starts_it() -> None:
    text = _text("t.py", options=replace(PYTORCH, name="mine", file="a b.yaml"))
    assert shlex.split(text.splitlines()[0]) == [
        *("#", "docker", "compose", "-f", "a b.yaml", "run", "--rm", "mine")
    ]
    assert _service(text)["container_name"] == "mine" and list(yaml.safe_load(text)["services"]) == ["mine"]


@each_row(
    "words",
    [
        "x",
        "docker run -it --gpus all -v /d:/w -p 22:22 -e A --shm-size 8g --init -u 0 --tmpfs /t -l a=b i x",
        "docker run --device nvidia.com/gpu=all --group-add 7 --add-host h:1.2.3.4 --env-file /e i",
        "docker run --entrypoint y --network host --pid host --restart no -m 8g --read-only --privileged i x",
    ],
)
@each_row("devices", [(), (ZERO,), (TWO, ZERO)], ids=["none", "one", "two"])
def test_the_schema_of_the_specification_accepts_it(words: str, devices: tuple[Device, ...]) -> None:
    text = _text(*words.split(), *TEXTS, options=ExportOptions(), devices=devices)
    validate(yaml.safe_load(text), published_schema("compose-spec"))


# Real programs that read it.


@needs_docker
def test_dockers_own_parser_reads_words_and_values_as_they_are() -> None:
    """`docker stack config` reads a file without a daemon. (It knows no devices, and writes a lone
    line break so that nobody can read it.)"""
    words = [word for word in (*TEXTS, *NO_STRINGS) if word != "\n"]
    values = {f"V{place}": word for place, word in enumerate(words)}
    text = _text(*words, devices=(), more=tuple(values.items()), directory="/w d")
    command = ["docker", "stack", "config", "--compose-file", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    (service,) = yaml.load(done.stdout, yaml.BaseLoader)["services"].values()
    assert service["command"] == words
    assert service["environment"] == {"CUDA_VISIBLE_DEVICES": "", **values}
    assert (service["image"], service["working_dir"]) == ("pytorch/pytorch", "/w d")


@pytest.fixture
def started(tmp_path: Path) -> Callable[[str], list[str]]:
    """Start the service of a file by podman-compose, and return the words of the `podman run`."""
    if not PODMAN_COMPOSE.exists():
        pytest.skip("podman-compose is not installed")
    podman, told = tmp_path / "podman", tmp_path / "told"
    podman.write_text(
        f"#!{sys.executable} -SE\nimport json, os, sys\n"
        f"words = [*map(os.fsdecode, sys.argv[1:])]\ntold = open({str(told)!r}, 'a')\n"
        "told.write(json.dumps(words) + '\\n')\n"
        "print({'ps': '[]', '--version': 'podman version 5.4.0'}.get(words[0], ''))\n"
    )
    podman.chmod(0o755)

    def start(text: str) -> list[str]:
        file = tmp_path / "compose.yaml"
        file.write_text(text, encoding="utf-8")
        line = shlex.split(text.splitlines()[0])[3:]
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONUTF8": "1"}
        done = subprocess.run(
            [PODMAN_COMPOSE, *line], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        runs = [words for words in map(json.loads, told.read_text().splitlines()) if words[0] == "run"]
        found: list[str] = runs[-1]
        return found

    return start


def test_podman_compose_passes_on_devices_variables_and_words(started: Callable[[str], list[str]]) -> None:
    words = started(_text(*TEXTS[1:], more=(("VALUE", "a'b\n$c ${d} 1e-4"),), directory="/w d"))
    given = [words[place + 1] for place, word in enumerate(words) if word == "--device"]
    assert given == [f"nvidia.com/gpu={TWO.uuid}", f"nvidia.com/gpu={ZERO.uuid}"]
    assert words[words.index("pytorch/pytorch") + 1 :] == TEXTS[1:]
    assert f"CUDA_VISIBLE_DEVICES={TWO.uuid},{ZERO.uuid}" in words and "VALUE=a'b\n$c ${d} 1e-4" in words
    assert "/w d" in words


def test_podman_compose_reads_the_users_own_container(started: Callable[[str], list[str]]) -> None:
    own = "docker run --gpus 2 -v /d:/w -p 8080:80 --shm-size 8g -e A=1 --user 7 mine x"
    words = started(_text(*own.split(), options=ExportOptions(), devices=(gpu(3), gpu(5))))
    assert f"nvidia.com/gpu={gpu(3).uuid}" in words and "A=1" in words and words[-2:] == ["mine", "x"]
    assert {"/d:/w", "8g", "7"} <= {*words}
