"""Work that takes seconds, on its own thread, so that no key waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial


def in_background(what: str, work: Callable[[], object]) -> threading.Thread:
    """Start `work` on a daemon thread; a debugger shows `what` in the thread's name.

    Textual's thread workers are unsuitable: they run in asyncio's executor, which is joined at exit, so that
    a tool that hangs (xclip on a dead display) would block the exit.

    The thread has a copy of the caller's context, so that a widget finds its app even after it was closed.
    """
    work_here = partial(copy_context().run, work)
    thread = threading.Thread(target=work_here, name=f"gputui: {what}", daemon=True)
    thread.start()
    return thread
