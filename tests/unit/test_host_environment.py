"""Launchers' queries about the machine: files, programs and their versions, a free port."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.launching.host_environment import ThisHost

LIMIT = 1 << 16


@pytest.fixture
def machine() -> ThisHost:
    return ThisHost()


# Files.


def test_a_text_is_read_whole(machine: ThisHost, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("ä: 1\n" * 100)
    assert machine.text(str(file)) == "ä: 1\n" * 100
    assert machine.is_file(str(file))


@pytest.mark.parametrize("odd", ["missing", "folder", "latin", "long", "nul\0name", "x" * 5000])
def test_what_is_no_short_text_is_none(machine: ThisHost, tmp_path: Path, odd: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes("ä".encode("latin-1"))
    (tmp_path / "long").write_text("x" * (LIMIT + 1))
    assert machine.text(str(tmp_path / odd)) is None


def test_a_text_of_the_greatest_length_is_read(machine: ThisHost, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * LIMIT)
    assert machine.text(str(tmp_path / "long")) == "x" * LIMIT


def test_a_pipe_is_no_file_and_nobody_waits_for_it(machine: ThisHost, tmp_path: Path) -> None:
    """`--config_file <(…)`: opening it for reading would wait for a writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answers: list[str | None] = ["not yet"]
    asking = threading.Thread(target=lambda: answers.append(machine.text(str(pipe))), daemon=True)
    asking.start()
    asking.join(timeout=60)
    assert answers[-1] is None
    assert not machine.is_file(str(pipe))


def test_a_file_without_an_end_is_not_read(machine: ThisHost) -> None:
    assert machine.text("/dev/zero") is None
    assert not machine.is_file("/dev/null")


@pytest.mark.parametrize("odd", ["missing", "folder", "pipe", "/dev/zero", "/", "nul\0name", "x" * 5000])
def test_only_a_regular_file_has_a_beginning(machine: ThisHost, tmp_path: Path, odd: str) -> None:
    """`gputui run -- /` tries to read a directory: it is refused as a shell refuses it."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    opened = set(Path("/dev/fd").iterdir())
    assert machine.beginning(str(tmp_path / odd), LIMIT) is None
    assert set(Path("/dev/fd").iterdir()) == opened


@pytest.mark.parametrize(("size", "whole"), [(0, True), (7, True), (8, True), (9, False)])
def test_the_beginning_of_a_file_is_read(machine: ThisHost, tmp_path: Path, size: int, whole: bool) -> None:
    file = tmp_path / "train.sh"
    file.write_bytes(b"\xe4" * size)
    assert machine.beginning(str(file), 8) == ("\udce4" * min(size, 8), whole)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_there_all_the_same(machine: ThisHost, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a: 1")
    file.chmod(0)
    assert machine.text(str(file)) is None
    assert machine.is_file(str(file))


# Programs and versions.


def program(folder: Path, name: str, first: str = "") -> Path:
    """A program of that name, with this first line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return path


def package(folder: Path, name: str) -> None:
    """A package as pip installs it."""
    (folder / f"{name}.dist-info").mkdir(parents=True)


def test_a_program_is_found_in_the_path_of_the_launch(machine: ThisHost, tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "tool")
    assert machine.program("tool", {"PATH": str(path.parent)}) == str(path)
    assert machine.program("tool", {"PATH": str(tmp_path)}) is None
    assert machine.program(str(path), {"PATH": ""}) == str(path)


@pytest.mark.parametrize(
    "place", ["lib/python3.11/site-packages", "lib64/python3.9/site-packages", "lib/python3.11/dist-packages"]
)
def test_a_version_is_read_beside_the_program(machine: ThisHost, tmp_path: Path, place: str) -> None:
    tool = program(tmp_path / "bin", "deepspeed")
    package(tmp_path / place, "deepspeed-0.15.1+cu121")
    package(tmp_path / place, "deepspeed_kernels-9.9")
    assert machine.version("deepspeed", str(tool)) == (0, 15, 1)
    assert machine.version("torch", str(tool)) is None


def test_the_interpreter_of_the_first_line_says_where_the_packages_are(
    machine: ThisHost, tmp_path: Path
) -> None:
    """`~/bin/deepspeed` may be a copy of an environment's script."""
    tool = program(tmp_path / "home" / "bin", "deepspeed", f"#!{tmp_path}/venv/bin/python3 -u")
    package(tmp_path / "home/lib/python3.11/site-packages", "deepspeed-0.1")
    package(tmp_path / "venv/lib/python3.11/site-packages", "deepspeed-0.19.8")
    assert machine.version("deepspeed", str(tool)) == (0, 19, 8)


@pytest.mark.parametrize("first", ["#!{}/usr/bin/env python3", "#!{}/bin/sh"])
def test_a_first_line_that_does_not_name_the_interpreter_says_nothing(
    machine: ThisHost, tmp_path: Path, first: str
) -> None:
    """pip writes /bin/sh where the interpreter's path is too long."""
    tool = program(tmp_path / "venv/bin", "deepspeed", first.format(tmp_path))
    package(tmp_path / "lib/python3/dist-packages", "deepspeed-0.1")
    package(tmp_path / "usr/lib/python3/dist-packages", "deepspeed-0.1")
    package(tmp_path / "venv/lib/python3.11/site-packages", "deepspeed-0.19.8")
    assert machine.version("deepspeed", str(tool)) == (0, 19, 8)


def test_a_version_is_looked_up_once(machine: ThisHost, tmp_path: Path) -> None:
    tool = program(tmp_path / "bin", "deepspeed")
    assert machine.version("deepspeed", str(tool)) is None
    package(tmp_path / "lib/python3.11/site-packages", "deepspeed-0.1")
    assert machine.version("deepspeed", str(tool)) is None
    assert ThisHost().version("deepspeed", str(tool)) == (0, 1)


def test_a_program_that_is_gone_has_no_version(machine: ThisHost, tmp_path: Path) -> None:
    assert machine.version("torch", str(tmp_path / "bin" / "gone")) is None


# The port.


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as held:
        yield held


def test_a_free_port_can_be_listened_on(machine: ThisHost, listening: socket.socket) -> None:
    listening.bind(("", machine.free_port()))
    listening.listen()


def test_the_port_stays_the_same_as_long_as_it_is_free(machine: ThisHost, listening: socket.socket) -> None:
    first = machine.free_port()
    assert machine.free_port() == first
    listening.bind(("127.0.0.1", first))
    listening.listen()
    assert machine.free_port() != first


def test_a_port_that_another_program_has_on_one_address_is_not_free(listening: socket.socket) -> None:
    """Launchers listen on all addresses."""

    class Chosen(ThisHost):
        def __init__(self, port: int) -> None:
            super().__init__()
            self._port = port

    listening.bind(("127.0.0.2", 0))
    listening.listen()
    port = listening.getsockname()[1]
    assert Chosen(port).free_port() != port


def test_two_launches_of_one_screen_have_one_port_and_two_machines_two(machine: ThisHost) -> None:
    with socket.socket() as held:
        held.bind(("", machine.free_port()))
        held.listen()
        assert ThisHost().free_port() != held.getsockname()[1]
