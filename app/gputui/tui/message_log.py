"""MessageLog: what the screen has said, so that a message that is gone can be read again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MOST = 200
"""Messages that are kept."""


class Message(NamedTuple):
    """`time` in seconds since the epoch; `style` is one of `widgets/lines.py`."""

    time: float
    text: str
    style: str = ""


class MessageLog:
    """The last messages, the newest last, and the one that is shown now."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque(maxlen=MOST)
        self.shown: Message | None = None

    def add(self, time: float, text: str, style: str = "") -> None:
        """Show a message. One that says the same as the one before it takes its place."""
        self.shown = Message(time, text, style)
        if self.messages and self.messages[-1][1:] == self.shown[1:]:
            self.messages.pop()
        self.messages.append(self.shown)
