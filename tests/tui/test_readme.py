"""The first keys of the README, in the demo that the README starts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tui.support import session

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_first_call_of_the_readme_starts_nothing() -> None:
    """Enter on its screen rehearses a start: a command of its own would really run."""
    (call,) = re.findall(r"&& \S+/gputui(.*)$", README, re.MULTILINE)
    assert shlex.split(call) == ["--demo"]


async def test_the_first_keys_select_free_devices() -> None:
    story = re.search(r"Press `(\d)`, then `(\d)`\. The screen shows `([^`]+)`", README)
    call = re.search(r"gputui -- (.+)", README)
    assert story and call, "the README tells of two keys, and of the call that begins with a command"
    first, second, shown = story.groups()
    async with session("shared", command=tuple(shlex.split(call[1])), interval=1000) as s:
        await s.press(first, second)
        state = s.main.app_state
        assert s.selected == [first, second] and s.main.message == ""
        assert all(state.verdicts[key].free for key in state.selection)
        assert not any(warning.startswith("GPU") for warning in state.warnings)
        (line,) = (text for text in s.texts("#selection") if "cuda:0" in text)
        for words in shown.split("  "):
            assert words in line
