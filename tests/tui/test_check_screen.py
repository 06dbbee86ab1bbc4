"""The check screen: it asks the command's own Python, shows the answer, and leaves nothing running behind."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gputui.sources.source import NoSourceError
from gputui.tui.screens.check import CheckScreen
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.widgets.lines import Lines
from tui.support import Session
from tui.support import session as moving

session = functools.partial(moving, interval=1000)
"""Only requested readings happen, so that the pilot finds the application idle."""


def texts(s: Session) -> list[str]:
    return [text.rstrip() for text in s.app.screen.query_one("#page-body", Lines).texts]


def told(s: Session) -> str:
    return "\n".join(s.app.screen.query_one("#page-footer", Lines).texts)


def answered(s: Session) -> bool:
    return "R check again" in told(s)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


Slow = Callable[[], int]


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    """A `python` that never answers, in a PATH of its own.

    The result returns its pid once it runs, 0 before.
    """
    made = tmp_path / "python"
    pid = shlex.quote(str(tmp_path / "pid"))
    made.write_text(f"#!/bin/sh\necho $$ > {pid}.new; /bin/mv {pid}.new {pid}; exec /bin/sleep 1000\n")
    made.chmod(0o755)

    def runs() -> int:
        file = tmp_path / "pid"
        return int(file.read_text()) if file.exists() else 0

    return runs


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
async def test_a_torch_without_cuda_is_said_and_each_device_is_missing() -> None:
    async with session(command=(sys.executable, "train.py")) as s:
        await s.press("5", "4", "@check")
        assert not answered(s) and "Python" in "\n".join(texts(s))
        await s.until(lambda: answered(s), patience=90)
        text = " ".join("\n".join(texts(s)).split())
        assert "CPU build" in text
        assert "✕ cuda:0 GPU 5 missing" in text
        assert "✕ cuda:1 GPU 4 missing" in text
        assert "✕ not equal" in text


async def test_leaving_early_ends_the_interpreter(slow: Slow, tmp_path: Path) -> None:
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("5", "@check")
        await s.until(slow)
        await s.press("escape")
        assert s.app.screen is s.main
        await s.until(lambda: not alive(slow()))


async def test_the_end_of_gputui_ends_the_interpreter_too(slow: Slow, tmp_path: Path) -> None:
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("5", "@check")
        await s.until(slow)
        await s.press("ctrl+c")
        await s.until(lambda: not s.app.is_running)
    # It is dead at once: nothing that gputui does later could have ended it.
    assert not alive(slow())


async def test_nobody_is_told_of_an_answer_that_comes_after_leaving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    async with session(environ={"PATH": str(tmp_path)}) as s:
        for _ in range(5):
            await s.press("5", "@check", "escape")
            assert s.app.screen is s.main
    for thread in threading.enumerate():
        if thread.name == "gputui: check":
            thread.join(30)
    assert errors == []


async def test_it_asks_again_and_not_twice_at_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "python").write_text(
        f"#!/bin/sh\necho x >> {shlex.quote(str(count))}\nread gate < {shlex.quote(str(gate))}\n"
        "echo why it failed >&2\nexit 3\n"
    )
    (tmp_path / "python").chmod(0o755)
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("5", "@check")
        for turn in (1, 2):
            await s.until(lambda turn=turn: count.exists() and count.read_text().count("x") == turn)
            await s.press("R", "R")
            assert not answered(s)
            gate.write_text("go\n")
            await s.until(lambda: answered(s))
            assert count.read_text().count("x") == turn
            shown = " ".join("\n".join(texts(s)).split())
            assert "ended with 3 " in shown and "why it failed" in shown
            await s.press("R")
            assert not answered(s)
        await s.press("escape")


@pytest.mark.parametrize("command", [("/bin/echo", "hello"), ("no-such-program",), ("sh", "-c", "exit")])
async def test_a_command_without_an_interpreter_is_said(command: tuple[str, ...], tmp_path: Path) -> None:
    async with session(command=command, environ={"PATH": str(tmp_path)}) as s:
        await s.press("5", "@check")
        await s.until(lambda: answered(s))
        assert any(line.startswith(" ✕ ") for line in texts(s))
        await s.press("escape")
        assert s.app.screen is s.main


async def test_without_a_selection_it_offers_the_best_device() -> None:
    async with session() as s:
        await s.press("@check")
        assert isinstance(s.app.screen, ConfirmScreen) and s.selected == ["4"]
        await s.press("enter")
        assert isinstance(s.app.screen, CheckScreen) and s.selected == ["4"]


async def test_on_a_full_box_it_says_that_nothing_is_free() -> None:
    async with session("full") as s:
        await s.press("@check")
        assert s.app.screen is s.main and "no GPU is free" in s.main.message


async def test_with_nothing_read_it_is_not_opened() -> None:
    async with session(NoSourceError("the driver is not loaded")) as s:
        await s.press("@cpu", "@check")
        await s.settle()
        assert s.app.is_running
        assert not isinstance(s.app.screen, CheckScreen)
        assert "read" in s.main.message


@pytest.mark.usefixtures("slow")
async def test_without_a_command_it_checks_the_python_of_the_path(tmp_path: Path) -> None:
    async with session(command=(), environ={"PATH": str(tmp_path)}) as s:
        await s.press("5", "@check")
        await s.settle()
        assert s.app.is_running
        await s.press("escape")
        assert s.app.screen is s.main


@pytest.mark.thorough
async def test_every_size_is_painted_and_the_conclusion_can_be_scrolled_to(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho '\x1b[2Jevil' >&2\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("5", "4", "@check")
        await s.until(lambda: answered(s))
        for width, height in ((130, 40), (80, 24), (40, 10), (20, 5)):
            await s.resize(width, height)
            s.app.screen.draw()  # type: ignore[attr-defined]
            seen = ""
            for _ in range(4):
                assert all(len(line) <= width for line in texts(s))
                seen += "\n".join(texts(s))
                s.app.screen.action_cursor(3)  # type: ignore[attr-defined]
                await s.settle()
            assert "✕" in seen
            s.app.screen.action_cursor(-12)  # type: ignore[attr-defined]
        for widget in s.app.screen.query(Lines):
            assert all("\x1b" not in widget.render_line(y).text for y in range(widget.size.height))


@pytest.mark.usefixtures("slow")
async def test_each_of_its_keys_closes_it_and_starts_nothing(tmp_path: Path) -> None:
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("5")
        for key in ("escape", "q"):
            await s.press("@check")
            assert isinstance(s.app.screen, CheckScreen)
            await s.press(key)
            assert s.app.screen is s.main
            assert s.app.is_running
