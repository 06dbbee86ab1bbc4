"""Terminals of every size and kind: tiny, huge, resized, without UTF-8, partly absent, or killed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from e2e.conftest import GPUTUI, Start
from e2e.terminal import PATIENCE, Terminal

pytestmark = pytest.mark.e2e

PAGES = (
    *("t", "?", "p", "D", "\x1b[C"),
    *(
        f":{name}\r"
        for name in ("timelines", "people", "queue", "panels", "columns", "messages", "launch page")
    ),
)
"""What opens a page each; esc closes it."""


def gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def ends(terminal: Terminal, patience: float = PATIENCE) -> None:
    """Wait until the process has ended."""
    deadline = time.monotonic() + patience
    while not gone(terminal.pid):
        assert time.monotonic() < deadline, "it lives on without a terminal"
        signal.sigtimedwait([signal.SIGCHLD], 0.05)


def left(terminal: Terminal) -> None:
    """Leave the program, and check that it ended well."""
    terminal.send("q")
    assert terminal.end() == 0
    assert b"Traceback" not in terminal.raw


@pytest.fixture
def still(tmp_path: Path) -> str:
    """A recording: only keys change its screen."""
    file = tmp_path / "box.json"
    subprocess.run([*GPUTUI, "record", str(file), "--demo"], capture_output=True, check=True)
    return str(file)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(20, 5), (250, 70)])
def test_every_page_can_be_opened_and_closed_at_this_size(
    start: Start, still: str, size: tuple[int, int]
) -> None:
    terminal = start("--from", still, size=size)
    terminal.until("●").until("? help")
    keys = terminal.last_line  # they differ from page to page
    for key in PAGES:
        terminal.send(key)
        terminal.until(lambda t: "esc" in t.last_line)
        terminal.send("\x1b")
        terminal.until(lambda t: t.last_line == keys)
    terminal.send("\x03")
    assert terminal.end() == 130
    assert b"Traceback" not in terminal.raw


@pytest.mark.thorough
def test_a_window_that_is_dragged_about_is_right_in_the_end(start: Start) -> None:
    terminal = start("--demo")
    terminal.until("○ free")
    sizes = itertools.cycle([(20, 5), (400, 120), (1, 1), (80, 24), (60, 15), (200, 60), (21, 6)])
    for columns, lines in itertools.islice(sizes, 60):
        terminal._child.setwinsize(lines, columns)
    terminal.send(":timelines\r")
    for columns, lines in itertools.islice(sizes, 40):
        terminal._child.setwinsize(lines, columns)
    terminal.resize(130, 40)
    terminal.until("all GPUs").until(lambda t: "? help" in t.lines[39])
    terminal.send("\x1b")
    terminal.until("─ launch").until(lambda t: "? help" in t.lines[39])
    left(terminal)


def test_a_terminal_that_has_no_size_gets_a_screen(start: Start, base_environment: dict[str, str]) -> None:
    terminal = start(
        argv=["sh", "-c", f"stty rows 0 cols 0; exec {' '.join(GPUTUI)} --demo"], environment=base_environment
    )
    terminal.until("○ free")
    left(terminal)


@pytest.mark.thorough
def test_a_size_in_the_environment_that_no_terminal_has_is_not_believed(
    start: Start, base_environment: dict[str, str]
) -> None:
    """Painting 100,000 columns and lines takes a gigabyte within seconds, and no key is answered."""
    environment = base_environment | {"COLUMNS": "100000", "LINES": "100000"}
    terminal = start("--demo", environment=environment, size=(100, 30))
    terminal.until("○ free").until("? help")
    assert len(terminal.lines[-1]) > 20, "the bottom line is at the bottom"
    terminal.send("?")
    terminal.until("keys and symbols").until(lambda t: "? help" not in t.lines[-1])
    assert psutil.Process(terminal.pid).memory_info().rss < 100 * 2**20
    terminal.send("\x1b")
    # The page of keys has the same words. A key directly after the escape would form one sequence with it.
    terminal.until(lambda t: "keys and symbols" not in t.text and "? help" in t.lines[-1])
    left(terminal)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=["C", "latin-1"],
)
def test_without_utf8_nothing_breaks(
    start: Start, base_environment: dict[str, str], variables: dict[str, str]
) -> None:
    environment = {**base_environment, **variables}
    for words in (("ls",), ("topo",), ("people",), ("ls", "--json"), ("pick", "-n2", "--why")):
        done = subprocess.run(
            [*GPUTUI, *words, "--demo"], env=environment, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0 and done.stdout and b"Traceback" not in done.stderr, done.stderr
    terminal = start("--demo", environment=environment)
    terminal.until("selected")
    terminal.send("5")
    terminal.until("cuda:0 = GPU 5")
    left(terminal)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kinds",
    [
        ("null", "tty", "tty"),
        ("closed", "tty", "tty"),
        ("tty", "null", "tty"),
        ("tty", "closed", "tty"),
        ("tty", "tty", "closed"),
        ("null", "null", "closed"),
        ("closed", "closed", "closed"),
    ],
)
def test_whatever_the_three_descriptors_are_there_is_a_screen_or_the_table(
    start: Start, kinds: tuple[str, str, str]
) -> None:
    words = {"tty": "", "null": "{n}{way}/dev/null", "closed": "{n}{way}&-"}
    how = " ".join(words[kind].format(n=n, way="<" if n == 0 else ">") for n, kind in enumerate(kinds))
    terminal = start(argv=["sh", "-c", f"exec {' '.join(GPUTUI)} --demo {how}"])
    if kinds[0] == "tty" and "tty" in kinds[1:]:
        terminal.until("○ free")
        left(terminal)
        return
    assert terminal.end() in (0, 1)
    assert b"Traceback" not in terminal.raw
    assert ("○ free" in terminal.text) == (kinds[1] == "tty")


@pytest.mark.thorough
@pytest.mark.parametrize("words", [("ls",), ("pick", "-n1"), ("completion", "bash")])
def test_a_reader_that_has_gone_is_no_error_message(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    demo = () if words[0] == "completion" else ("--demo",)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run([*GPUTUI, *words, *demo], stdout=closed, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (141, b"")
        # Messages that cannot be written change nothing.
        done = subprocess.run([*GPUTUI, *words, *demo], stdout=subprocess.PIPE, stderr=closed, check=False)
        assert done.returncode == 0 and done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["page", "storm"])
def test_a_terminal_that_is_killed_takes_us_with_it(start: Start, moment: str) -> None:
    terminal = start("--demo")
    terminal.until("○ free")
    if moment == "page":
        terminal.send("D")
        terminal.until("log of")
    if moment == "storm":
        terminal.send("5" * 500)
    terminal.hang_up()
    ends(terminal)


@pytest.mark.parametrize("key", ["D", ":filter\r"])
def test_a_signal_ends_us_on_any_page_with_the_screen_restored(start: Start, key: str) -> None:
    terminal = start("--demo")
    terminal.until("○ free")
    shown = terminal.text
    terminal.send(key)
    terminal.until(lambda t: t.text != shown)
    terminal.signal(signal.SIGTERM)
    assert terminal.end() == 143
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
