"""The command's environment is its caller's: variables that Python adds (PEP 538) do not reach it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.jobs.store import all_jobs
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.claims_support import Box, box_at
from unit.jobs_support import ended

pytestmark = pytest.mark.e2e

LOCALES: list[tuple[dict[str, str], str]] = [
    ({}, "unset"),
    ({"LANG": "C"}, "unset"),
    ({"LANG": "", "LC_ALL": ""}, "unset"),
    ({"LANG": "C.UTF-8"}, "unset"),
    ({"LC_ALL": "C"}, "unset"),
    ({"LC_CTYPE": "C.UTF-8"}, "C.UTF-8"),
    ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "C.UTF-8"),
    ({"LANG": "C", "LC_CTYPE": "C"}, "C"),
    ({"LC_CTYPE": "POSIX"}, "POSIX"),
    ({"LC_CTYPE": ""}, ""),
]
"""The variables that the caller has set, and the LC_CTYPE that the command must find."""
FEW = [LOCALES[1], LOCALES[6], LOCALES[7]]


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    with box_at(tmp_path, simulated_nvml) as made:
        yield made


def _environ(box: Box, locale: dict[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in box.environ.items() if name != "LANG"}, **locale}


def _call(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTUI, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


SAYS = """
from gputui.system.environment import given_environment
print(end=given_environment().get("LC_CTYPE", "unset"))
"""


@each_row(("locale", "expected"), LOCALES, ids=str)
def test_the_environment_that_was_given_is_told_from_what_python_adds(
    locale: dict[str, str], expected: str
) -> None:
    words = [sys.executable, "-c", SAYS]
    assert subprocess.run(words, env=locale, capture_output=True, text=True, check=True).stdout == expected


@pytest.mark.parametrize(
    ("locale", "expected", "road"), [(*FEW[0], "run"), (*FEW[1], "job"), (*FEW[2], "job that waits")]
)
def test_a_command_has_the_locale_of_its_caller(
    box: Box, locale: dict[str, str], expected: str, road: str
) -> None:
    environ, found = _environ(box, locale), box.folder / "found"
    options = {
        "run": (),
        "job": ("--detach",),
        "job that waits": ("--detach", "--wait", "--window", "0"),
    }[road]
    script = f"printf %s ${{LC_CTYPE-unset}} > {found}"
    done = _call(environ, "run", "-q", "-n", "1", *options, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    for job in all_jobs(environ):
        ended(job)
    assert found.read_text() == expected


@pytest.mark.parametrize(("locale", "expected"), FEW, ids=str)
def test_so_has_the_python_that_check_asks(box: Box, locale: dict[str, str], expected: str) -> None:
    python, found = box.folder / "python", box.folder / "found"
    python.write_text(f"#!/bin/sh\nprintf %s ${{LC_CTYPE-unset}} > {found}\nexit 1\n")
    python.chmod(0o755)
    _call(_environ(box, locale), "check", "-n", "1", "--python", str(python), "--", str(python), "train.py")
    assert found.read_text() == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("locale", "expected", "key"), [(*FEW[0], "\r"), (*FEW[1], ":return\r")], ids=["enter", "r"]
)
def test_so_has_what_the_screen_starts(
    start: Start, base_environment: dict[str, str], locale: dict[str, str], expected: str, key: str
) -> None:
    environ = {**{name: value for name, value in base_environment.items() if name != "LANG"}, **locale}
    command = ("sh", "-c", 'echo "found-$LC_CTYPE${LC_CTYPE-unset}"')
    terminal = start("--demo", "shared", "--", *command, environment=environ)
    terminal.until("○ free")
    terminal.send(f"5{key}")
    terminal.start_anyway()
    terminal.until(f"found-{'' if expected == 'unset' else expected}{expected}")
    if key != "\r":
        terminal.until("press Enter to return to gputui")
        terminal.send("\r")
        terminal.until("─ launch")
        terminal.send("q")
    assert terminal.end() == 0
