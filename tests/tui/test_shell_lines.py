"""A command line that needs a shell, typed or pasted: it is refused, and one key wraps it in a shell."""

from __future__ import annotations

import pytest
from textual import events
from textual.widgets import Input, Static

from gputui.tui.screens.line_input import LineScreen
from tui.support import Session, session


async def _edit(s: Session, line: str) -> Input:
    await s.press("e")
    field = s.app.screen.query_one(Input)
    field.value = line
    await s.settle()
    return field


def _command(s: Session) -> tuple[str, ...]:
    return s.main.app_state.options.command


HARMFUL = "rm -r out; python victim.py"


@pytest.mark.parametrize("line", [HARMFUL, "python a.py > log", "a $(b)"])
async def test_it_is_not_taken_and_tab_makes_it_a_shells(line: str) -> None:
    async with session() as s:
        before = _command(s)
        field = await _edit(s, line)
        await s.press("enter")
        assert s.app.screen is not s.main and _command(s) == before and field.value == line
        assert s.app.screen.query_one("#what").has_class("-wrong")
        await s.press("tab")
        assert not s.app.screen.query_one("#what").has_class("-wrong")
        await s.press("enter")
        assert s.app.screen is s.main and _command(s) == ("bash", "-c", line)


async def test_quoted_it_is_a_plain_argument() -> None:
    async with session() as s:
        field = await _edit(s, "python a.py 'b;c' \"d|e\"")
        await s.press("tab")
        assert field.value == "python a.py 'b;c' \"d|e\""
        await s.press("enter")
        assert _command(s) == ("python", "a.py", "b;c", "d|e")
        await s.press("e", "enter")
        assert s.app.screen is s.main and _command(s) == ("python", "a.py", "b;c", "d|e")


async def test_what_a_shell_would_replace_stays_and_is_said() -> None:
    async with session() as s:
        await _edit(s, "python a.py $HOME/b")
        assert "$HOME" in str(s.app.screen.query_one("#what", Static).render())
        await s.press("enter")
        assert _command(s) == ("python", "a.py", "$HOME/b")
        assert "$HOME" in s.main.messages[-1].text
        await _edit(s, "python a.py $HOME/b")
        await s.press("tab", "enter")
        assert _command(s) == ("bash", "-c", "python a.py $HOME/b")


async def test_a_paste_of_several_lines_is_one_command_where_they_are_joined() -> None:
    async with session() as s:
        field = await _edit(s, "")
        field.post_message(events.Paste("python a.py \\\n  --lr 3 \\\n  --out 'b\nc'\n"))
        await s.until(lambda: field.value)
        await s.press("enter")
        assert _command(s) == ("python", "a.py", "--lr", "3", "--out", "b\nc")


async def test_a_paste_of_several_commands_is_not_taken_in_part() -> None:
    async with session() as s:
        before = _command(s)
        field = await _edit(s, "")
        field.post_message(events.Paste("cd project\npython a.py\n"))
        await s.until(lambda: field.value)
        await s.press("enter")
        assert s.app.screen is not s.main and _command(s) == before
        await s.press("tab", "enter")
        assert _command(s) == ("bash", "-c", "cd project\npython a.py")


async def test_a_paste_on_the_main_screen_is_a_command_to_edit() -> None:
    async with session() as s:
        before = _command(s)
        s.app.post_message(events.Paste("torchrun a.py \\\n  --lr 3"))
        await s.until(lambda: isinstance(s.app.screen, LineScreen))
        assert s.app.screen.query_one(Input).value == "torchrun a.py   --lr 3" and _command(s) == before
        await s.press("enter")
        assert _command(s) == ("torchrun", "a.py", "--lr", "3")


async def test_tab_does_nothing_where_nothing_is_to_be_rewritten() -> None:
    async with session() as s:
        field = await _edit(s, "python 'a.py; b")
        await s.press("tab")
        assert field.value == "python 'a.py; b" and field.has_focus
        await s.press("escape", "@filter", *"a;b", "tab")
        assert s.app.screen.query_one(Input).value == "a;b"
