"""Work that takes seconds, on its own thread, so that no key waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_background(what: str, work: Callable[[], object]) -> threading.Thread:
    """Start `work` on a daemon thread; a debugger shows `what` in the thread's name.

    Textual's thread workers are unsuitable: they run in asyncio's executor, which is joined at exit, so that
    a tool that hangs (xclip on a dead display) would block the exit.
    """
    thread = threading.Thread(target=work, name=f"gputui: {what}", daemon=True)
    thread.start()
    return thread
