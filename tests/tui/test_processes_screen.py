"""The processes page, and signals to real processes."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from gputui.inventory.process import Ancestor, Process
from gputui.inventory.snapshot import Snapshot
from gputui.tui.screens.processes import ProcessesScreen
from gputui.tui.widgets.lines import Lines
from tui.support import Session
from tui.support import session as moving
from unit.builders import GIB, box, busy, gpu, job

session = functools.partial(moving, interval=1000)

# A program that receives SIGTERM, reports it, and goes on.
_STUBBORN = """
import signal
signal.signal(signal.SIGTERM, lambda number, frame: print("term", flush=True))
print("on", flush=True)
while True:
    signal.pause()
"""

Child = subprocess.Popen[str]


@pytest.fixture
def children() -> Iterator[list[Child]]:
    """Two processes of that program."""
    started = [
        subprocess.Popen([sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    try:
        for child in started:
            assert heard(child) == "on"
        yield started
    finally:
        for child in started:
            child.kill()
            child.communicate()


def heard(child: Child) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def process(child: Child) -> Process:
    there = psutil.Process(child.pid)
    return Process(
        child.pid,
        "compute",
        there.username(),
        GIB,
        f"python job-{child.pid}.py",
        there.create_time(),
    )


def on(*processes: Process) -> Snapshot:
    return box(*(busy(gpu(n), each) for n, each in enumerate(processes)))


def texts(s: Session, part: str = "#page-body") -> list[str]:
    """The lines without the cursor mark."""
    shown = s.app.screen.query_one(part, Lines).texts
    return [text.replace("▸", " ", 1).rstrip() for text in shown]


def labels(s: Session) -> list[str]:
    """The devices of the listed rows; a command continues below its row."""
    return [t[:4].strip() for t in texts(s)[2:] if t[:4].strip()]


def lit(s: Session) -> str:
    picture = s.app.screen.query_one("#page-body", Lines)
    assert picture.lit is not None
    return picture.texts[picture.lit].strip("▸ ")


def told(s: Session) -> str:
    return texts(s, "#page-footer")[-2]


def asks(s: Session) -> tuple[str, int] | None:
    """The signal that another X would send, and the pid of its process; None without a question."""
    footer = " ".join(texts(s, "#page-footer"))
    found = re.search(r"send (SIG\w+) to .* \(pid (\d+)\b.*\)\?.* ⏎ yes", footer)
    return (found[1], int(found[2])) if found else None


def show(s: Session, snapshot: Snapshot) -> None:
    """Show another reading of the box."""
    s.main.set_app_state(s.main.app_state.with_snapshot(snapshot))
    screen = s.app.screen
    assert isinstance(screen, ProcessesScreen)
    screen.draw()


def show_on_one(s: Session, *children: Child) -> None:
    """Show another reading, of a box with one GPU that all these processes use."""
    s.main.set_app_state(s.main.app_state.with_snapshot(box(busy(gpu(0), *map(process, children)))))
    if isinstance(s.app.screen, ProcessesScreen):
        s.app.screen.draw()


async def test_the_page_begins_at_a_process_of_the_device_at_the_cursor() -> None:
    snapshot = box(busy(gpu(0), job(1)), gpu(1), busy(gpu(2), job(7), job(8)))
    async with session(snapshot) as s:
        for row, pid in ((0, "1"), (1, "1"), (2, "7")):
            await s.press("g", *["down"] * row, "p")
            assert lit(s).split()[1] == pid
            await s.press("escape")


async def test_X_twice_sends_SIGTERM_and_twice_more_SIGKILL(children: list[Child]) -> None:
    child, other = children
    async with session(on(process(child), process(other))) as s:
        await s.press("p", "X")
        assert asks(s) == ("SIGTERM", child.pid)
        await s.press("X")
        assert asks(s) is None and f"job-{child.pid}.py (pid {child.pid}" in told(s)
        assert "was sent" in told(s)
        assert heard(child) == "term"
        await s.press("X")
        assert asks(s) == ("SIGKILL", child.pid)
        await s.press("X")
        assert child.wait(60) == -signal.SIGKILL
        # Nothing is remembered about the other process.
        await s.press("down", "X")
        assert asks(s) == ("SIGTERM", other.pid)
    assert other.poll() is None


async def test_the_question_says_which_process_it_is_and_what_it_has(children: list[Child]) -> None:
    child, _ = children
    async with session(on(process(child))) as s:
        await s.press("p", "X")
        words = (f"job-{child.pid}.py", f"pid {child.pid}", "GPU 0", "1.0G", "⏎ yes")
        footer = " ".join(texts(s, "#page-footer"))
        assert all(each in footer for each in words)


async def test_another_users_process_is_refused_without_a_question(
    children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = replace(process(children[0]), user="bo")
    async with session(on(theirs)) as s:
        await s.press("p")
        monkeypatch.setattr(os, "getuid", lambda: 64000)
        await s.press("X")
        assert asks(s) is None and f"pid {theirs.pid} is bo's, not yours" in told(s)


async def test_another_key_or_a_click_between_takes_it_back(children: list[Child]) -> None:
    child, _ = children
    async with session(on(process(child))) as s:
        await s.press("p")
        for key in ("down", "s"):
            await s.press("X", key)
            assert asks(s) is None
        await s.press("X")
        await s.pilot.click("#page-body", offset=(3, 2))
        await s.press("X")
        assert asks(s) == ("SIGTERM", child.pid)
    assert child.poll() is None


async def test_the_second_press_is_for_the_process_that_the_first_one_named(children: list[Child]) -> None:
    child, other = children
    async with session(on(process(child), process(other))) as s:
        show_on_one(s, child, other)
        await s.press("p", "X")
        assert f"pid {child.pid}" in told(s)
        # The process moves to the other row.
        show_on_one(s, other, child)
        assert f"job-{child.pid}.py" in lit(s)
        await s.press("X")
        assert f"pid {child.pid}," in told(s) and "was sent" in told(s)
        assert heard(child) == "term"
    # The other process would have reported "term" first.
    other.send_signal(signal.SIGKILL)
    assert heard(other) == ""


async def test_when_the_one_that_was_named_has_ended_no_other_is_hit(children: list[Child]) -> None:
    child, other = children
    async with session(on(process(child), process(other))) as s:
        await s.press("p", "X")
        child.kill()
        child.wait()
        show(s, on(process(other)))
        await s.press("X")
        assert f"pid {child.pid} has ended" in told(s)
    other.kill()
    assert heard(other) == ""


async def test_a_pid_that_was_given_anew_is_another_process(children: list[Child]) -> None:
    """The list is of an earlier moment, or the earlier signal was for the previous process."""
    child, _ = children
    before = replace(process(child), started=(process(child).started or 0) - 100)
    async with session(on(before)) as s:
        await s.press("p", "X")
        assert asks(s) is None and f"pid {child.pid} " in told(s)
        show(s, on(process(child)))
        await s.press("X", "X")
        assert heard(child) == "term"
        show(s, on(replace(process(child), started=(process(child).started or 0) + 100)))
        await s.press("X")
        assert asks(s) is None and f"pid {child.pid} " in told(s)


async def test_what_is_no_process_of_this_machine_gets_no_signal() -> None:
    async with session("shared") as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo: shared"))
        await s.press("p", "X")
        assert asks(s) is None and s.main.app_state.not_of_this_machine("processes") in told(s)


async def test_held_rows_and_launchers_in_a_tree_get_no_signal() -> None:
    held = gpu(1, memory_used=22 * GIB, memory_free=58 * GIB)
    async with session(box(busy(gpu(0), job(2, ancestors=(Ancestor(1, "init"),))), held)) as s:
        await s.press("p", "G")
        assert "held" in lit(s).split()
        await s.press("X")
        assert asks(s) is None and "no process" in told(s)
        await s.press("tab", "g")
        assert lit(s).endswith("init")
        await s.press("X", "X")
        assert asks(s) is None and "no process" in told(s)


async def test_a_refusal_is_said_and_a_hostile_note_does_nothing_to_the_terminal() -> None:
    async with session(on(job(4, note="e\x1b[2Jvil\n"))) as s:
        await s.press("p", "X", "X")
        assert "pid 4: e·[2Jvil" in told(s)


async def test_sixty_processes_scroll() -> None:
    async with session(on(*(job(1000 + n) for n in range(60)))) as s:
        await s.press("p")
        assert lit(s).startswith("0 ")
        await s.press("G")
        assert lit(s).startswith("59") and texts(s)[-1].split()[0] == "59"
        await s.press(*["k"] * 3)
        assert lit(s).startswith("56")
        await s.press("g")
        assert lit(s).startswith("0 ") and len([t for t in texts(s)[2:] if t]) < 60


async def test_a_filter_is_typed_and_taken_away_again() -> None:
    async with session("shared") as s:
        await s.press("p", "slash", *"gpu", "space", "3", "enter")
        assert "with “gpu 3”" in texts(s)[0]
        assert labels(s) == ["3"]
        await s.press("slash", "ctrl+u", "x", "x", "enter")
        (words,) = [t for t in texts(s)[1:] if t]
        assert "xx" in words and "/ filter" in texts(s, "#page-footer")[-1]
        await s.press("X", "j")
        await s.press("slash", "ctrl+u", "enter")
        assert labels(s) == ["0", "1", "2", "3", "6"]
        await s.press("slash", *"bo", "escape")
        assert labels(s) == ["0", "1", "2", "3", "6"]


async def test_the_cursor_stays_with_its_process_through_every_order_and_the_tree() -> None:
    those = on(job(1, memory=GIB, ancestors=(Ancestor(9, "sh"),)), job(2, memory=9 * GIB), job(3, user="ana"))
    async with session(those) as s:
        await s.press("p", "down")
        for key in ("s", "s", "tab"):
            await s.press(key)
            assert " 2  " in lit(s)


@pytest.mark.thorough
async def test_every_size_is_painted_and_each_of_its_keys_closes_it() -> None:
    async with session("shared") as s:
        for width, height in ((130, 40), (40, 10), (20, 5)):
            await s.resize(width, height)
            await s.press("p")
            assert all(len(line) <= width for line in texts(s))
            assert s.app.screen.query_one("#page-body").size.height >= 3
            await s.press({130: "escape", 40: "q"}.get(width, "p"))
            assert s.app.screen is s.main
