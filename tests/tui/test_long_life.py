"""A screen that stays open for weeks keeps nothing of its earlier pages that grows."""

from __future__ import annotations

import gc
import weakref

import pytest
from textual.strip import Strip

from gputui.tui.screens.page import Page
from tui.support import Session, box_at, session

PAGES = ("right", "t", "p", "D", "question_mark", "ctrl+p", "@timelines", "@messages")
"""The keys that open pages of each kind, and the palette."""


def _alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def _open_and_close(s: Session, key: str, times: int) -> None:
    for _ in range(times):
        await s.press(key)
        await s.until(lambda: len(s.app.screen_stack) == 2)
        await s.press("escape")
        await s.until(lambda: len(s.app.screen_stack) == 1)


@pytest.mark.thorough
@pytest.mark.parametrize("key", PAGES)
async def test_a_page_that_was_closed_leaves_nothing_behind(key: str) -> None:
    async with session() as s:
        # An export needs a selected device.
        await s.press("4")
        await _open_and_close(s, key, 1)
        painted = _alive(Strip)
        await _open_and_close(s, key, 4)
        # One page has some 25 to 100 painted lines, and the test opened four pages. The event loop and the
        # pilot still hold the last ones, and a page is released only when its own tasks have ended.
        await s.until(lambda: _alive(Strip) < painted + 60 and _alive(Page) <= 4)


async def test_of_earlier_readings_nothing_is_kept() -> None:
    # A snapshot may have thousands of processes.
    async with session(interval=0.02) as s:
        await s.press("4")
        first = s.main.app_state.snapshot
        assert first is not None
        gone = weakref.ref(first)
        del first
        for second in range(1, 4):
            s.source.snapshot = now = box_at("shared", float(second))
            await s.until(lambda now=now: s.main.app_state.snapshot is now)
        await s.settle()
        gc.collect()
        assert gone() is None
