"""Keys that arrive faster than they are answered: each does what it would have done alone, in order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from gputui.allocating.settings import ScreenSettings
from gputui.launching.launch_options import AUTO
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.topology import TopologyScreen
from tui.support import Session, session

OWN = ScreenSettings(keymap={"ask": "n", "filter": "slash", "clear": "x", "launch_page": "L"})
CHARACTERS = {"space": " "}


def burst(s: Session, *keys: str) -> None:
    """Send the keys in one write."""
    for key in keys:
        s.app.post_message(events.Key(key, key if len(key) == 1 else CHARACTERS.get(key)))


def line(s: Session) -> str:
    """The text in the line that is typed, "" where none is open."""
    # The page opens before its field exists.
    fields = s.app.screen.query(Input) if isinstance(s.app.screen, LineScreen) else ()
    return next((field.value for field in fields), "")


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


async def test_what_follows_the_key_of_a_prompt_is_typed_in_it() -> None:
    async with session("idle", screen=OWN) as s:
        burst(s, "n", "2")
        await s.until(lambda: line(s) == "2")
        burst(s, "enter")
        await s.until(lambda: len(s.selected) == 2)


async def test_a_number_asked_for_in_one_write_is_selected() -> None:
    async with session("dgx-2", screen=OWN) as s:
        burst(s, "n", "2", "enter", "J", "x", "n", "4", "enter")
        await s.until(lambda: len(s.selected) == 4)
        assert s.app.screen is s.main


async def test_keys_behind_a_line_are_the_main_screens_again() -> None:
    async with session("dgx-2", screen=OWN) as s:
        burst(s, "n", "4", "enter", "t", "escape", "x", "5", "space", "t")
        await s.until(lambda: isinstance(s.app.screen, TopologyScreen) and not s.selected)


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (("a", "b", "backspace", "9", "9"), "a99"),
        (("x", "ctrl+u", "a", "b", "c"), "abc"),
        (("a", "b", "home", "c", "end", "d"), "cabd"),
        (("a", "b", "left", "c", "delete", "d"), "acd"),
        (("a", "space", "b", "ctrl+w", "c"), "a c"),
        (("a", "b", "ctrl+a", "ctrl+k", "c"), "c"),
    ],
)
async def test_editing_keys_act_before_what_is_typed_behind_them(keys: tuple[str, ...], left: str) -> None:
    async with session("idle", screen=OWN) as s:
        burst(s, "slash", *keys)
        await s.until(lambda: line(s) == left)


async def test_a_page_gets_the_keys_behind_the_one_that_opens_it(environ: Mapping[str, str]) -> None:
    async with session(environ=environ, screen=OWN) as s:
        burst(s, "5", "L", "space")
        await s.until(lambda: s.main.app_state.options.launcher != AUTO)
        burst(s, "q", "t", "q", "x")
        await s.until(lambda: s.app.screen is s.main and not s.selected)


async def test_a_text_that_is_pasted_behind_the_key_of_a_prompt_goes_into_it() -> None:
    async with session(screen=OWN) as s:
        burst(s, "slash")
        s.app.post_message(events.Paste("olek"))
        burst(s, "enter")
        await s.until(lambda: s.main.app_state.screen.filter == "olek")


async def test_ctrl_c_does_not_wait_for_its_turn() -> None:
    async with session() as s:
        burst(s, *"jk" * 20, "ctrl+c")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_code == 130
