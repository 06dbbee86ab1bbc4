"""Messages: the one that is shown now as one line, and those before as a list with their times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gputui.tui.message_log import Message
from gputui.tui.views.text import Line, clip, wrap

_MARK = 3
"""Cells of the mark before a message."""


def message_line(message: Message | None, width: int) -> Line:
    """The line that messages have to themselves; blank while there is none."""
    if message is None:
        return (("", ""),)
    return clip(((" ▌ ", "key"), (message.text, message.style)), width)


def message_lines(message: Message | None, width: int) -> list[Line]:
    """The message in one line, or, where that would cut it, in two; what is too long for these is cut."""
    pieces = wrap(message.text, max(1, width - _MARK)) if message else []
    if message is None or len(pieces) < 2:
        return [message_line(message, width)]
    both = pieces[0], " ".join(pieces[1:])
    return [message_line(message._replace(text=text), width) for text in both]


def listed(messages: Sequence[Message], width: int) -> tuple[list[Line], list[int]]:
    """The messages, the newest first and whole; and the place of the message that each line shows."""
    lines: list[Line] = []
    places: list[int] = []
    for place, message in enumerate(reversed(messages)):
        clock = time.strftime("%H:%M:%S", time.localtime(message.time))
        for number, piece in enumerate(wrap(message.text, max(10, width - 12))):
            lines.append(((f" {clock if not number else '':8}  ", "dim"), (piece, message.style)))
            places.append(place)
    return lines, places
