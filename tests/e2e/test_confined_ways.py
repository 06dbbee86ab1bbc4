"""Every way to start a command starts it confined: which devices it sees then."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pytest

from confinement import Confined, needs_landlock, script
from e2e.conftest import Start
from e2e.terminal import Terminal
from unit.jobs_support import until

pytestmark = [pytest.mark.e2e, needs_landlock]

WIDE = (130, 40)


@pytest.fixture
def screen(box: Confined, start: Start, base_environment: dict[str, str]) -> Iterator[Terminal]:
    """The screen on that machine, with a command that writes down what it sees."""
    text = script(box, f"SEEN > {box.folder}/seen")
    environ = {**base_environment, **box.environ, "SIMCUDA_WAITS": str(box.folder / "pipe")}
    os.mkfifo(box.folder / "pipe")
    argv = [*box.machine.before, sys.executable, "-m", "gputui"]
    yield start("--", "sh", text, environment=environ, size=WIDE, argv=argv, cwd=box.folder)


def answer(box: Confined) -> None:
    """Let the driver answer that a program has started, or is going to."""
    (box.folder / "pipe").open("w").close()


def seen(box: Confined) -> list[int]:
    """What the command wrote down."""
    file = box.folder / "seen"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return box.told(file.read_text())


def row_of_cursor(terminal: Terminal) -> list[str]:
    return [line for line in terminal.lines if line.startswith("▸")]


@pytest.mark.parametrize("key", ["d", "\r"], ids=["job", "become"])
def test_keys_are_answered_while_the_screen_has_it_proved(box: Confined, screen: Terminal, key: str) -> None:
    screen.until("○ free")
    screen.send("62")
    screen.until("cuda:1 = GPU 2")
    before = row_of_cursor(screen)
    screen.send(key)
    screen.until("proving")
    # (The driver does not answer yet.)
    screen.send("k")
    screen.until(lambda terminal: row_of_cursor(terminal) not in ([], before))
    answer(box)
    answer(box)
    assert seen(box) == [6, 2]


def test_a_launch_is_left_while_it_is_proved(box: Confined, screen: Terminal) -> None:
    screen.until("○ free")
    screen.send("62")
    screen.until("cuda:1 = GPU 2")
    screen.send("d")
    screen.until("proving")
    screen.send("x")
    screen.until(lambda terminal: "cuda:1 = GPU 2" not in terminal.text)
    answer(box)
    screen.until("nothing is started")
    assert not json.loads(box.call("jobs", "--json").stdout)["jobs"]
    assert not json.loads(box.call("claims", "--json").stdout)["claims"]
