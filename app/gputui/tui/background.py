"""Work that takes seconds, on a thread of its own, so that no key waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_background(what: str, work: Callable[[], object]) -> threading.Thread:
    """Start `work` on a daemon thread; `what` it is, a debugger shows as the name.

    Not by Textual's thread workers: they run in asyncio's executor, which is joined at exit, so that a tool
    that hangs (xclip on a dead display) would hold the exit.
    """
    thread = threading.Thread(target=work, name=f"gputui: {what}", daemon=True)
    thread.start()
    return thread
