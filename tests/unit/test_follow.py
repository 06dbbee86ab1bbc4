"""`ls --json --follow`: one document per line, the pace from standard input, and an end with its input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gputui.choosing.rules import DEFAULT_RULES
from gputui.cli.ls_follow import Changes, Documents, follow
from gputui.inventory.device import Device
from gputui.inventory.document_reader import from_document
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Want
from gputui.system.users import own_name
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import box, busy, gpu
from unit.calling import Call


@contextmanager
def following(*words: str, environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of `ls --json --follow`, killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "ls", "--json", "--follow", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def document(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_each_line_is_a_document_that_can_be_read_back_and_the_end_of_input_ends_it() -> None:
    with following("--demo", "--interval", "0.1") as process:
        documents = [document(process) for _ in range(3)]
        assert all(from_document(each).devices for each in documents)
        assert documents[0]["time"] < documents[1]["time"] < documents[2]["time"]
        # Links come with the second document.
        assert documents[1]["links"]
        rest, said = process.communicate()
        assert (process.returncode, said) == (0, b"")
        assert all(json.loads(line)["schema"] == 1 for line in rest.splitlines())
        assert all(json.loads(line)["user"] == own_name() for line in rest.splitlines())


def test_a_line_of_standard_input_is_the_pace_from_then_on() -> None:
    with following("--demo", "--interval", "3600") as process:
        assert process.stdin is not None and process.stderr is not None
        first = [document(process), document(process)]
        process.stdin.write(b"nonsense\n0.1\n")
        process.stdin.flush()
        assert document(process)["time"] > first[1]["time"]
        assert b"nonsense" in process.stderr.readline()


def test_a_reader_that_has_gone_ends_it() -> None:
    with following("--demo", "--interval", "0.1") as process:
        document(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 128 + 13


def test_without_a_driver_the_status_is_that_of_ls(simulated_nvml: SimulatedNvml) -> None:
    with following(environ=simulated_nvml.environment()) as process:
        assert process.wait(60) == 3
        assert process.stderr is not None and process.stderr.read().count(b"\n") == 1


class Failing:
    """A source that can be read only every other time."""

    label = "failing"

    def __init__(self) -> None:
        self.turn = 0

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.turn += 1
        if self.turn % 2 == 0:
            raise NoSourceError("gone")
        return box(gpu(0))

    def close(self) -> None: ...


def test_a_reading_that_fails_later_is_a_line_and_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    (stdin, hold), (output, stdout) = os.pipe(), os.pipe()
    with open(stdin) as ours, open(stdout, "w") as writes, open(output) as reads:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", ours)
        monkeypatch.setattr(sys, "stdout", writes)
        call = threading.Thread(target=follow, args=(Failing(), Documents(DEFAULT_RULES), 0.1), daemon=True)
        call.start()
        lines = [json.loads(reads.readline()) for _ in range(4)]
        os.close(hold)
        call.join(90)
        assert not call.is_alive()
    failed = {"schema": 1, "error": "gone"}
    assert lines[1::2] == [failed, failed] and all(each["devices"] for each in lines[::2])


def test_without_json_a_device_has_a_line_when_its_state_changes() -> None:
    texts = Changes(DEFAULT_RULES)

    def told(*devices: Device) -> list[str]:
        return [line.split(" ", 1)[1] for line in texts.of(box(*devices)).splitlines()]

    first = told(gpu(0), busy(gpu(1)))
    assert [line.split()[:3] for line in first] == [["GPU", "0", "free:"], ["GPU", "1", "busy:"]]
    assert told(gpu(0), busy(gpu(1))) == []
    assert [line.split()[1] for line in told(busy(gpu(0)), busy(gpu(1)))] == ["0"]
    assert texts.failed("gone").endswith(" gone") and texts.failed("gone") == ""
    (line,) = told(busy(gpu(0)))
    assert line.startswith("GPU 1 ")


def test_the_plain_list_ends_with_its_input() -> None:
    words = [sys.executable, "-m", "gputui", "ls", "--demo", "idle", "--follow", "--interval", "0.1"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"GPU 0 free" in process.stdout.readline()
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and b"\x1b" not in rest


@each_row(
    "words",
    [
        ("--follow", "--format", "{free}"),
        ("--follow", "--hosts", "gpu1"),
        ("--json", "--follow", "--details"),
        ("--json", "--interval", "2"),
    ],
)
def test_what_does_not_go_together_is_refused(call: Call, words: tuple[str, ...]) -> None:
    call("ls", "--demo", *words).refused(2)
