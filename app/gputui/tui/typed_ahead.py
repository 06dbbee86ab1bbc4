"""TypedAhead: passes keys to the screen one at a time, however fast they arrive.

Textual passes a key on before the one before it has been handled: if `w 2 ⏎` arrives in one write (SSH, a
macro), the main screen gets all three, and the prompt that `w` opens gets none; in a line, `backspace 9`
would insert first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from textual import events
from textual.dom import DOMNode
from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from gputui.tui.app import GputuiApp

_LOOK = 0.005
"""Seconds between two checks whether a screen that has just been opened can handle keys."""
_LOOK_AGAIN = 0.1
"""Seconds between two checks whether a node that is still handling an event is still there."""

Typed = events.Key | events.Paste


class TypedAhead:
    """The events that have not been handled yet. They wait until `start`: before that no screen runs."""

    def __init__(self, app: GputuiApp) -> None:
        self._app = app
        self._waiting: deque[Typed] = deque()
        self.started = False
        """Whether events are passed on."""
        self._task: asyncio.Task[None] | None = None
        self._given: Typed | None = None

    def start(self) -> None:
        """Begin to pass events on: from now on there is a screen that handles them."""
        self.started = True
        self._give_all()

    def stop(self) -> None:
        """Drop the waiting events: no screen is left to handle them."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def takes(self, event: Typed) -> bool:
        """Whether this event has to wait; False for the event whose turn it is."""
        if event is self._given:
            return False
        self._waiting.append(event)
        self._give_all()
        return True

    def _give_all(self) -> None:
        if self.started and self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._give())

    async def _give(self) -> None:
        app = self._app
        while self._waiting and app.is_running and app.screen_stack:
            if not app.screen.is_mounted:
                # The screen has no focus before it is mounted.
                await asyncio.sleep(_LOOK)
                continue
            self._given = self._waiting.popleft()
            target = app.focused or app.screen
            path = [node for node in target.ancestors_with_self if isinstance(node, DOMNode)]
            app.post_message(self._given)
            # A key goes up to the application, which looks up its binding. The binding may send a message (a
            # line is submitted), which goes the same way.
            for node in (app, *path, *path):
                await _has_answered(node)


async def _has_answered(node: MessagePump) -> None:
    """Wait until a node has handled all its messages, or is gone."""
    done = asyncio.Event()
    if not node.call_later(done.set):
        return
    while not done.is_set() and node.is_running:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), _LOOK_AGAIN)
