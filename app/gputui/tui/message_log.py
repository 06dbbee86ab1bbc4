"""MessageLog: the messages of the screen, so that an earlier message can be read again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MOST = 200
"""The number of messages that are kept."""

LASTS = 3.0
"""Seconds for which a lasting message survives a key."""


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
        self._lasts = False

    def add(
        self, time: float, text: str, style: str = "", lasting: bool = False, passing: bool = False
    ) -> None:
        """Show a message; a `lasting` one survives a key that follows at once. A message with the text and
        style of the one before replaces it. A `passing` one is not kept: it reports what is visible anyway.
        """
        self.shown, self._lasts = Message(time, text, style), lasting
        if passing:
            return
        if self.messages and self.messages[-1][1:] == self.shown[1:]:
            self.messages.pop()
        self.messages.append(self.shown)

    def key_pressed(self, time: float) -> bool:
        """Remove the displayed message; return whether there is none now.

        The first key within a few seconds leaves a lasting message: there was no time to read it yet.
        """
        if self.shown is not None and self._lasts and time - self.shown.time < LASTS:
            self._lasts = False
            return False
        self.shown = None
        return True
