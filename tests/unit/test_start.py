"""Becoming the command: the same process, its own status, its environment to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gputui.launching.launch import Launch
from gputui.launching.start import StartError, look_ahead, replace_process

PROGRAM = """
import json, os, sys
from gputui.launching.launch import Launch
from gputui.launching.start import StartError, replace_process

told = json.loads(sys.argv[1])
launch = Launch(tuple(told["argv"]), tuple(map(tuple, told["changes"])), told["directory"])
before, here = dict(os.environ), os.getcwd()
try:
    replace_process(launch, os.environ if told["environ"] is None else told["environ"])
except StartError as error:
    print(json.dumps({"message": str(error), "unchanged": dict(os.environ) == before}))
    sys.exit(error.status)
"""
"""Becomes the launch that it receives; prints the reason when it cannot."""


@dataclass(frozen=True)
class Ended:
    pid: int
    status: int
    output: bytes
    messages: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.output)


def _become(
    *argv: str,
    changes: tuple[tuple[str, str | None], ...] = (),
    directory: str | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ended:
    told = {"argv": argv, "changes": changes, "directory": directory, "environ": environ}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(told)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
    ) as child:
        output, messages = child.communicate(timeout=60)
    return Ended(child.pid, child.returncode, output, messages)


DUMP = (sys.executable, "-S", "-E", str(Path(__file__).with_name("dump.py")))


def test_the_command_is_the_same_process() -> None:
    ended = _become(*DUMP)
    assert ended.told["pid"] == ended.pid


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_commands_own_status_comes_through(status: int) -> None:
    assert _become("/bin/sh", "-c", f"exit {status}").status == status


def test_death_by_a_signal_comes_through() -> None:
    assert _become("/bin/sh", "-c", "kill -TERM $$").status == -15


def test_the_words_of_the_command_arrive_as_they_are() -> None:
    hostile = ["", "a b", "$HOME", "it's", "new\nline", "👩\u200d🚀", "caf\udce9", "=x"]
    ended = _become(*DUMP, *hostile)
    assert [bytes.fromhex(word) for word in ended.told["argv"]][1:] == [os.fsencode(word) for word in hostile]


def test_the_environment_is_exactly_the_base_with_the_changes() -> None:
    base = {"PATH": os.defpath, "KEPT": "a\nb", "GONE": "x", "CHANGED": "old", "ODD": "caf\udce9"}
    changes = (("GONE", None), ("CHANGED", "new"), ("ADDED", "$x y"), ("NEVER", None))
    ended = _become(*DUMP, changes=changes, environ=base)
    environ = {bytes.fromhex(name): bytes.fromhex(value) for name, value in ended.told["environ"].items()}
    expected = {"PATH": os.defpath, "KEPT": "a\nb", "CHANGED": "new", "ADDED": "$x y", "ODD": "caf\udce9"}
    assert environ == {os.fsencode(name): os.fsencode(value) for name, value in expected.items()}


def test_the_program_is_looked_for_in_the_path_of_the_launch(tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\nexit 42\n")
    program.chmod(0o755)
    assert _become("only-here").status == 127
    assert _become("only-here", changes=(("PATH", str(tmp_path)),)).status == 42


def test_signals_that_python_ignores_are_not_ignored_by_the_command() -> None:
    ended = _become("/bin/cat", "/proc/self/status")
    ignored = next(line for line in ended.output.splitlines() if line.startswith(b"SigIgn:"))
    assert int(ignored.split()[1], 16) & (1 << 12 | 1 << 24) == 0


def test_a_command_whose_reader_has_gone_ends_as_after_any_shell() -> None:
    told = {"argv": ["/bin/cat", "/dev/zero"], "changes": [], "directory": None, "environ": None}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(told)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout and child.stderr
        child.stdout.read(1)
        child.stdout.close()
        assert child.wait(timeout=60) == -13
        assert child.stderr.read() == b""


def test_the_command_starts_in_its_directory(tmp_path: Path) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    for directory in (str(place), "a b"):
        ended = _become(*DUMP, directory=directory, cwd=tmp_path)
        assert bytes.fromhex(ended.told["directory"]) == os.fsencode(place)


def test_a_script_without_a_first_line_for_the_kernel_runs_as_after_any_shell(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('echo "$0" "$@"; exit 3\n')
    script.chmod(0o755)
    ended = _become(str(script), "a b")
    assert (ended.status, ended.output.decode()) == (3, f"{script} a b\n")


# Commands that cannot be started.


def test_a_program_that_is_not_there_is_127() -> None:
    ended = _become("no-such-program-anywhere")
    assert ended.status == 127
    assert "'no-such-program-anywhere'" in ended.told["message"]


def test_a_path_that_is_not_there_is_127() -> None:
    assert _become("/no/such/program").status == 127


def test_a_directory_is_126(tmp_path: Path) -> None:
    ended = _become(str(tmp_path))
    assert ended.status == 126 and "ermission" in ended.told["message"]


def test_a_file_that_may_not_be_run_is_126(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("")
    file.chmod(0o644)
    assert _become(str(file)).status == 126


def test_a_word_that_no_command_can_have_is_126() -> None:
    ended = _become("/bin/echo", "a\0b")
    assert ended.status == 126 and "\n" not in ended.told["message"]


def test_a_directory_that_is_not_there_is_126_and_nothing_starts(tmp_path: Path) -> None:
    ended = _become("/bin/echo", "started", directory=str(tmp_path / "none"))
    assert ended.status == 126
    assert "none" in ended.told["message"] and "started" not in ended.told["message"]


def test_the_empty_program_cannot_be_started() -> None:
    assert _become("").status == 126


@pytest.mark.parametrize("argv", [("no-such-program-anywhere",), ("/",), ("/bin/echo", "a\0b")])
def test_a_launch_that_fails_has_not_changed_our_own_environment(argv: tuple[str, ...]) -> None:
    ended = _become(*argv, changes=(("HOME", None), ("ADDED", "x")))
    assert ended.status in (126, 127) and ended.told["unchanged"]


def test_a_launch_that_fails_says_so_and_raises_nothing_else() -> None:
    with pytest.raises(StartError) as error:
        replace_process(Launch(("x",), directory="/no/such/directory"), {})
    assert error.value.status == 126


def test_the_environment_of_a_launch_is_a_new_one() -> None:
    base = {"A": "1", "B": "2"}
    assert Launch(("x",), (("A", None), ("C", "3"))).environment(base) == {"B": "2", "C": "3"}
    assert base == {"A": "1", "B": "2"}


def _ahead(*argv: str, directory: str | None = None, path: str = os.environ["PATH"]) -> int:
    try:
        look_ahead(Launch(argv, directory=directory), {"PATH": path})
    except StartError as error:
        return error.status
    return 0


def test_what_is_missing_is_told_before_the_start_with_the_status_that_it_would_have(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch(0o644)
    (tmp_path / "run.sh").touch(0o755)
    for argv, directory in (
        (("no-such-program-anywhere",), None),
        (("/no/such/program",), None),
        ((str(tmp_path),), None),
        ((str(tmp_path / "train.py"),), None),
        (("./train.py",), str(tmp_path)),
        (("true",), str(tmp_path / "none")),
        (("true",), str(tmp_path / "train.py")),
        (("true",), str(tmp_path)),
        (("./run.sh",), str(tmp_path)),
    ):
        expected = _become(*argv, directory=directory).status
        assert _ahead(*argv, directory=directory) == expected, argv
    assert _ahead("run.sh", path=f"/no/such:{tmp_path}") == 0
    assert _ahead("train.py", path=str(tmp_path)) == 126
