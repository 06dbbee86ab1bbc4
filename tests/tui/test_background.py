"""Work on a thread of its own, which may end after the screen that asked for it."""

from __future__ import annotations

import threading

from gputui.tui.background import in_background
from tui.support import session


async def test_work_that_ends_after_the_program_raises_nothing() -> None:
    closed, told = threading.Event(), threading.Event()
    async with session() as s:
        view = s.main

        def work() -> None:
            closed.wait(60)
            view.app.call_later(print)
            told.set()

        thread = in_background("outlive the screen", work)
    closed.set()
    thread.join(60)
    assert told.is_set()
