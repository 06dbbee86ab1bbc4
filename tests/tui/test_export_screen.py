"""The export screen: every form of the launch is copied or written to a file, and never over another file."""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path

import pytest
from textual.widgets import Input

from gputui.launching.exports import DEFAULT, FORMS, ExportError
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.export import ExportScreen, written
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.widgets.lines import Lines
from tui.support import Session
from tui.support import session as moving

session = functools.partial(moving, interval=1000)
"""Only requested readings happen, so that the pilot finds the application idle."""


def texts(s: Session) -> list[str]:
    return [text.rstrip() for text in s.app.screen.query_one("#page-body", Lines).texts]


def told(s: Session) -> str:
    return "\n".join(s.app.screen.query_one("#page-footer", Lines).texts)


def screen(s: Session) -> ExportScreen:
    shown = s.app.screen
    assert isinstance(shown, ExportScreen)
    return shown


async def test_each_form_is_shown_as_the_command_line_would_write_it() -> None:
    async with session(size=(130, 60)) as s:
        await s.press("5", "4", "@export")
        launch = s.main.app_state.launch
        for place, (name, form) in enumerate(FORMS.items()):
            screen(s).action_cursor(-100)
            screen(s).action_cursor(place)
            assert texts(s)[place + 1].startswith(f"▸ {name}")
            text = "".join("".join(texts(s)).split())
            try:
                wanted = form.write(launch, DEFAULT)
            except ExportError as error:
                wanted = str(error)
            assert "".join(wanted.split()) in text


async def test_spaces_of_a_text_are_as_they_are() -> None:
    async with session(command=("python", "a  b.py"), size=(130, 60)) as s:
        await s.press("5", "@export")
        assert any("'a  b.py'" in line for line in texts(s))
        screen(s).action_cursor(list(FORMS).index("vscode"))
        assert any(line.startswith("     ") for line in texts(s))


@pytest.mark.parametrize("key", ["enter", "y"])
async def test_a_form_is_copied(key: str, tmp_path: Path) -> None:
    tool = tmp_path / "xclip"
    tool.write_text(f"#!/bin/sh\nexec /bin/cat > {tmp_path}/taken\n")
    tool.chmod(0o755)
    async with session(environ={"PATH": str(tmp_path), "DISPLAY": ":9"}) as s:
        await s.press("5", "@export", "j", key)
        await s.until(lambda: "xclip" in told(s))
        assert (tmp_path / "taken").read_text() == FORMS["fish"].write(s.main.app_state.launch, DEFAULT)


async def test_a_form_is_written_to_a_file_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "run here.fish"
    async with session(size=(200, 24)) as s:
        await s.press("5", "@export", "j", ":save")
        assert isinstance(s.app.screen, LineScreen)
        s.app.screen.query_one(Input).value = f" {file} "
        await s.press("enter")
        assert f"wrote {file}" in told(s)
        before = file.read_text()
        assert before == FORMS["fish"].write(s.main.app_state.launch, DEFAULT) + "\n"
        await s.press("g", "k", ":save")
        s.app.screen.query_one(Input).value = str(file)
        await s.press("enter")
        assert f"{file} already exists" in told(s)
        assert file.read_text() == before
        await s.press(":save", "escape")
        assert isinstance(s.app.screen, ExportScreen)


def test_a_file_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert "already exists" in written(str(tmp_path / "dangling"), "x")
    assert "already exists" in written(str(tmp_path), "x")
    assert os.strerror(errno.ENOENT) in written(str(tmp_path / "no" / "x"), "x")
    assert os.strerror(errno.ENAMETOOLONG) in written(str(tmp_path / ("x" * 300)), "x")
    assert written("a\0b", "x").startswith("cannot write")
    assert "user 'nobody-of-that-name'" in written("~nobody-of-that-name/x", "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling"]


@pytest.mark.thorough
async def test_every_size_shows_the_form_at_the_cursor_and_some_of_its_text() -> None:
    async with session(environ={"A": "1"}) as s:
        await s.press("5", "4", "@export")
        for width, height in ((200, 50), (80, 24), (40, 10), (20, 5)):
            await s.resize(width, height)
            for place in (0, len(FORMS) // 2, len(FORMS) - 1):
                screen(s).action_cursor(-100)
                screen(s).action_cursor(place)
                assert all(len(line) <= width for line in texts(s))
                (at,) = (n for n, line in enumerate(texts(s)) if line.startswith("▸"))
                assert texts(s)[at].startswith(f"▸ {list(FORMS)[place]}"[:width])
                if height >= 10:
                    assert len(texts(s)) - 1 > next(n for n, x in enumerate(texts(s)) if n and "─" in x)


async def test_a_long_text_scrolls_and_says_that_there_is_more() -> None:
    async with session(command=("python", *(f"word{n}" for n in range(300)))) as s:
        await s.press("5", "@export")
        assert any("▼" in line for line in texts(s))
        await s.press(*["pagedown"] * 8)
        assert "word299" in "\n".join(texts(s))
        assert not any("▼" in line for line in texts(s))


async def test_a_click_chooses_a_form_and_one_into_the_text_does_not() -> None:
    async with session() as s:
        await s.press("5", "@export")
        await s.pilot.click("#page-body", offset=(5, 3))
        assert texts(s)[3].startswith("▸ powershell")
        await s.pilot.click("#page-body", offset=(5, len(FORMS) + 2))
        assert texts(s)[3].startswith("▸ powershell")


async def test_foreign_text_does_nothing_to_the_terminal() -> None:
    async with session(command=("python", "\x1b]0;pwn\x07\u202e\nevil")) as s:
        await s.press("5", "@export")
        for place in range(len(FORMS)):
            screen(s).action_cursor(-100)
            screen(s).action_cursor(place)
            for widget in s.app.screen.query(Lines):
                for y in range(widget.size.height):
                    assert widget.render_line(y).text.isprintable()


async def test_without_a_selection_it_offers_the_best_device_and_its_keys_close_it() -> None:
    async with session() as s:
        await s.press("@export")
        assert isinstance(s.app.screen, ConfirmScreen) and s.selected == ["4"]
        await s.press("escape")
        assert s.app.screen is s.main and not s.selected
        await s.press("@export", "enter")
        assert isinstance(s.app.screen, ExportScreen) and s.selected == ["4"]
        await s.press("escape", "@cpu")
        for key in ("escape", "q"):
            await s.press("@export")
            assert isinstance(s.app.screen, ExportScreen)
            await s.press(key)
            assert s.app.screen is s.main


async def test_without_a_command_each_form_that_needs_one_says_so() -> None:
    async with session(command=()) as s:
        await s.press("5", "@export")
        for place in range(len(FORMS)):
            screen(s).action_cursor(-100)
            screen(s).action_cursor(place)
            await s.press("y")
            assert s.app.is_running
            assert "clipboard" in told(s) or told(s).startswith(" ▌ no ")
