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
    text = script(box, f"unset SIMCUDA_WAITS; SEEN > {box.folder}/seen")
    environ = {**base_environment, **box.environ, "SIMCUDA_WAITS": str(box.folder / "pipe")}
    os.mkfifo(box.folder / "pipe")
    argv = [*box.machine.before, sys.executable, "-m", "gputui"]
    yield start("--", "sh", text, environment=environ, size=WIDE, argv=argv, cwd=box.folder)


def answer(box: Confined) -> None:
    """Let the driver answer that the proof starts, now or soon."""
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


# From Python.


def in_python(box: Confined, code: str, **more: str) -> list[list[int]]:
    """What the program saw that each `held.popen` or `launch` of the code started, in order."""
    text = f"import sys\nfrom gputui import *\nWORDS = {list(box.python)!r}\n{code}\n"
    done = box.outside(sys.executable, "-c", text, **more)
    assert done.returncode == 0, done.stderr
    return [box.told(line) for line in done.stdout.splitlines()]


OWN = "{**__import__('os').environ, 'CUDA_VISIBLE_DEVICES': '3'}"


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("confine='always'", [[5, 4], [5, 4], [4, 5], [0, 1, 2, 3, 4, 5, 6, 7]]),
        ("confine='never'", [[5, 4], [5, 4], [0, 1], [0, 1, 2, 3, 4, 5, 6, 7]]),
        ("", [[5, 4], [5, 4], [4, 5], [0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_what_held_devices_are_for_is_confined_and_this_process_is_not(
    box: Confined, held: str, expected: list[list[int]]
) -> None:
    sets = ["env", "CUDA_VISIBLE_DEVICES=0,1"]
    code = f"""
import subprocess
with hold(devices=[5, 4], {held}) as held:
    held.popen(WORDS).wait()
    held.popen(WORDS, env={OWN}).wait()
    held.popen({sets!r} + WORDS).wait()
    subprocess.run(WORDS)
"""
    assert in_python(box, code) == expected


def test_a_child_keeps_the_claim_after_the_block(box: Confined) -> None:
    code = """
import sys
with hold(devices=[5, 4]) as held:
    child = held.popen(["sleep", "600"])
try:
    with hold(devices=[5], confine="never"):
        sys.exit("it could be claimed")
except NotEnoughError:
    pass
child.kill()
child.wait()
"""
    assert in_python(box, code) == []


def test_what_cannot_be_confined_is_an_error_or_is_started_all_the_same(box: Confined) -> None:
    code = """
for how in ("always", "no"):
    try:
        with hold(devices=[5, 4], confine=how) as held:
            held.popen(WORDS)
        sys.exit("it was started")
    except RequestError:
        pass
with hold(devices=[5, 4]) as held:
    held.popen(WORDS).wait()
"""
    assert in_python(box, code, SIMCUDA_SEES_ALL="1") == [[5, 4]]


@pytest.mark.parametrize("how", ["", "detach=True, "])
def test_a_launch_from_python_is_confined(box: Confined, how: str) -> None:
    text = script(box, f"SEEN > {box.folder}/seen.part; mv {box.folder}/seen.part {box.folder}/seen")
    code = f"launch(['sh', {text!r}], devices=[5, 4], {how}confine='always')"
    assert in_python(box, code) == []
    assert seen(box) == [5, 4]
