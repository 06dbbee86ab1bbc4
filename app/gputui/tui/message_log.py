"""MessageLog: the messages of the screen, so that an earlier message can be read again."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

MOST = 200
"""The number of messages that are kept."""

LASTS = 3.0
"""Seconds for which a lasting message survives a key, and for which news leaves the answer to a key alone."""


Kind = Literal["answer", "lasting", "passing", "news"]
"""answer   what a key has done
lasting  the same; it survives a key that follows at once, and esc, which people press until they are sure
passing  what is visible anyway: it is not kept
news     what no key has asked for: it survives such a key, too, and waits while an answer is new
"""


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
        self._kind: Kind = "answer"
        self._lasts = False
        self._waiting: deque[Message] = deque(maxlen=MOST)

    def add(self, time: float, text: str, style: str = "", kind: Kind = "answer") -> None:
        """Show a message. One with the text and style of the one before replaces it in the list."""
        message = Message(time, text, style)
        if kind != "passing":
            if self.messages and self.messages[-1][1:] == message[1:]:
                self.messages.pop()
            self.messages.append(message)
        answered = self._kind in ("answer", "lasting")
        if kind == "news" and answered and self.shown is not None and time - self.shown.time < LASTS:
            self._waiting.append(message)
        else:
            self.shown, self._kind, self._lasts = message, kind, kind in ("lasting", "news")

    def show_waiting(self, time: float) -> bool:
        """Show the next news that waits, if no message has just been shown; return whether it is shown."""
        if not self._waiting or (self.shown is not None and time - self.shown.time < LASTS):
            return False
        self.shown, self._kind, self._lasts = self._waiting.popleft()._replace(time=time), "news", True
        return True

    def key_pressed(self, time: float, key: str = "") -> bool:
        """Remove the displayed message after a key, "" for any; return whether there is none now.

        The first key within a few seconds leaves a lasting message: there was no time to read it yet.
        """
        new = self.shown is not None and self._lasts and time - self.shown.time < LASTS
        if new or (self._kind == "lasting" and key == "escape"):
            self._lasts = False
            return False
        self.shown = None
        return True
