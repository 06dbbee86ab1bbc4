"""Every reader of a command's files ends soon and uses little memory, or reports that it does not read the
file.

This tries a few hostile files for each; `python -m fuzz --bounds` tries all of them, in all sizes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import bounds
from fuzz.bounds import MIB, READERS, SECONDS, Worst, assert_costs, measured, warmed_up
from fuzz.hostile_files import EVERY
from gputui.inventory.others_files import NotReadError, beginning, go_on, not_read, one_reading, parse_json
from gputui.launching.configuration_text import read_values
from gputui.launching.host_environment import ThisHost
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.read_intent import read_intent
from gputui.launching.training_words import training_of
from gputui.system import files
from gputui.system.files import open_given
from table_tests import each_row

TIOCGPTN, TIOCSPTLCK = 0x80045430, 0x40045431
"""Requests of asm-generic/ioctls.h: the number of a terminal's other side, and whether it is locked."""

WORST = (
    ("YAML of accelerate", "YAML: merges of merges", 617),
    ("YAML of accelerate", "YAML: merges of merges", 1 << 16),
    ("YAML of vLLM", "YAML: aliases of aliases", 4096),
    ("YAML of vLLM", "YAML: a number base 60", 1 << 16),
    ("YAML of vLLM", "YAML: keys of equal hash", 1 << 16),
    ("YAML of axolotl", "JSON: ones", 1 << 16),
    ("shell script", "bytes: NUL bytes", 1 << 16),
    ("shell script", "shell: pipes", 1 << 15),
    ("shell script", "shell: doubled arguments", 1 << 15),
    ("shell script", "shell: tests", 1 << 17),
    ("shell script", "shell: patterns", 1 << 17),
    ("shell script", "shell: sources of itself", 1 << 17),
    ("shell script", "shell: comments in an array that stays open", 64),
    ("shell script", "shell: backticks in an array that stays open", 128),
    ("shell script", "shell: a long variable, often", 1 << 17),
    ("shell script", "shell: a long list, often", 1 << 17),
    ("shell script", "shell: a long variable in many words", 1 << 17),
    ("shell script", "shell: doubled variables that are not known", 1 << 13),
    ("shell script", "shell: here-documents of one line", 1 << 17),
    ("shell script", "shell: bash -c in words", 1 << 15),
    ("Python script", "Python: statements", 1 << 17),
    ("Python script", "Python: braces in a format string", 1 << 17),
    ("Python script", "Python: indices", 1 << 17),
    ("Python script", "Python: a list of devices behind spaces", 1 << 17),
    ("Python script", "Python: an import of a trainer before spaces", 1 << 14),
    ("config.json", "JSON: small objects", 10 << 20),
    ("safetensors header", "JSON: numbers of 4,000 digits", 10 << 20),
    ("safetensors index", "JSON: files of an index", 1_950_000),
    ("safetensors index", "JSON: files of an index", 3_700_000),
    ("fsdp.json", "YAML: many keys", 617),
    ("header of a GGUF file", "GGUF: lists of numbers in a list", 1 << 20),
    ("header of a GGUF file", "GGUF: keys without a letter", 1 << 20),
    ("header of a GGUF file", "GGUF: a shape without an end", 1 << 20),
    ("recording of several readings", "readings: readings of one moment", 10 << 20),
    ("recording as CSV", "CSV: cells of lists", 10 << 20),
    ("recording as CSV", "CSV: cells without an end", 16 << 20),
    ("recording as CSV", "CSV: empty rows", 10 << 20),
    ("usage of a day", "JSON: empty lists", (1 << 20) - 10),
    ("log of a variant", "bytes: empty lines", 16 << 20),
    ("recording", "lines: first line", 10 << 20),
    ("recording", "bytes: NUL bytes", 48 << 20),
    ("recording", "bytes: empty lines", 48 << 20),
    ("settings", "TOML: a key in keys", 1 << 16),
    ("settings", "TOML: keys in keys", 1 << 16),
    ("settings", "TOML: digits", 1 << 14),
    ("file of tasks", "lines: tasks", 1 << 18),
    ("file of tasks", "lines: tasks in quotes", 350_000),
    ("file of tasks", "lines: empty words in many tasks", 1 << 19),
    ("file of tasks", "lines: words in lines of 8,000", (1 << 20) - 1),
    ("file of tasks", "lines: marks in lines of 8,000", (1 << 20) - 1),
    ("file of tasks", "bytes: empty lines", (1 << 20) - 1),
)


@pytest.mark.parametrize(("reader", "file", "size"), WORST)
def test_the_worst_known_file_of_each_reader_is_read_within_bounds(reader: str, file: str, size: int) -> None:
    warmed_up(READERS[reader])
    found: list[Worst] = []

    def cost() -> float:
        found.append(measured(READERS[reader], file, EVERY[file](size)))
        return found[-1].seconds

    assert_costs(SECONDS, cost)
    assert min(each.mib for each in found) <= MIB, found


@each_row(
    ("slower", "seconds", "fits"), [(1.0, 1.0, True), (1.0, 1.1, False), (3.0, 3.0, True), (3.0, 3.1, False)]
)
def test_a_bound_grows_with_how_slow_the_machine_is_and_no_further(
    monkeypatch: pytest.MonkeyPatch, slower: float, seconds: float, fits: bool
) -> None:
    monkeypatch.setattr(bounds, "slowness", lambda: slower)
    with contextlib.nullcontext() if fits else pytest.raises(AssertionError, match="more than"):
        assert_costs(1.0, lambda: seconds)


def test_work_that_is_slow_for_a_moment_is_tried_again() -> None:
    costs = iter((1000.0, 1000.0, 0.5))
    assert_costs(1.0, lambda: next(costs))


def _warnings(path: Path, *words: str) -> str:
    options = LaunchOptions(tuple(word.replace("@", str(path)) for word in words))
    return " ".join(read_intent(options, {"PATH": ""}, ThisHost()).warnings)


@each_row(
    ("words", "data"),
    [
        (("bash", "@"), b"python a.py\n\0"),
        (("bash", "@"), b"python a.py\n" * 20_000),
        (("python", "@"), b"import torch\n'cuda'\n\0"),
        (("vllm", "serve", "m", "--config", "@"), EVERY["YAML: merges of merges"](617)),
        (("vllm", "serve", "m", "--config", "@"), b"a: 1\n" * 20_000),
        (("vllm", "serve", "m", "--config", "@"), b"a: 1\n\0"),
    ],
)
def test_what_is_not_read_to_its_end_is_said(tmp_path: Path, words: tuple[str, ...], data: bytes) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(data)
    said = _warnings(file, *words)
    assert "c.yaml" in said and ("not read" in said or "in part" in said)


def test_what_is_read_is_not_said(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"tensor-parallel-size: 2\n")
    assert not _warnings(file, "vllm", "serve", "m", "--config", "@")
    assert not _warnings(tmp_path / "none.sh", "bash", "@")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.sh")
    assert "not a regular file" in _warnings(tmp_path / "x.sh", "bash", "@")


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="no O_PATH")
@pytest.mark.parametrize("reader", [lambda file: beginning(file, 1), open_given])
def test_a_device_to_which_a_link_leads_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[str], object]
) -> None:
    """Opening has effects: here, the other side of a terminal sees that its first reader has gone."""
    monkeypatch.setattr(files, "who_can_change", lambda _file: "another user owns")
    other_side = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        number = struct.unpack("i", fcntl.ioctl(other_side, TIOCGPTN, bytes(4)))[0]
        fcntl.ioctl(other_side, TIOCSPTLCK, bytes(4))
        (tmp_path / "link").symlink_to(f"/dev/pts/{number}")
        with pytest.raises(OSError, match="not a regular file"):
            reader(str(tmp_path / "link"))
        watch = select.poll()
        watch.register(other_side, select.POLLHUP)
        assert watch.poll(0) == []
    finally:
        os.close(other_side)


def test_a_plan_says_which_file_it_has_not_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(EVERY["YAML: aliases of aliases"](4096))
    options = LaunchOptions(("axolotl", "train", str(tmp_path / "c.yaml")))
    assert any("c.yaml" in each for each in training_of(options, {}).doubts)


def test_a_few_aliases_and_merges_are_read() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\n"
    assert read_values(text, "YAML") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}


@each_row("text", ["a: [", "a: !!timestamp x", "\0", "a: *b", "[" * 20 + "]"])
def test_what_is_no_yaml_is_not_taken_for_unread(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_values(text, "YAML")
    assert not isinstance(caught.value, NotReadError)


def test_a_reading_is_over_after_its_time_and_the_next_one_begins_anew() -> None:
    with one_reading() as notes, one_reading():
        with pytest.raises(NotReadError):
            while True:
                go_on()
        not_read("x", "why")
    assert [*notes] == ["x is not read: why"]
    with one_reading() as later:
        go_on()
    assert not later
    go_on()


@each_row("text", ['"\\ud800"', "[1, 2.5, null]", '{"a": "é"}'])
def test_json_of_a_usual_size_is_read_as_it_stands(text: str) -> None:
    import json

    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)


_ENDLESS = """
import sys
from gputui.inventory import others_files
from gputui.launching import shell_script as shell
go_on = shell.go_on
def told():
    sys.stdout.write("reading\\n"); sys.stdout.flush()
    shell.go_on = go_on
    go_on()
others_files.SECONDS, shell.go_on = 1000, told
from gputui.cli.main import main
sys.exit(main(["run", "--demo", "--dry-run", "--", "bash", sys.argv[1]]))
"""


def test_ctrl_c_ends_a_call_that_reads(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_bytes(b"python a.py\n" * 10_000)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    child = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path / "x.sh")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "reading\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(60) in (130, -signal.SIGINT)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 10


def test_a_file_that_just_fits_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abcd")
    assert [beginning(file, most) for most in (4, 3)] == [(b"abcd", True), (b"abc", False)]
