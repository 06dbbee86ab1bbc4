"""Messages: the present one as one line, and the earlier ones as a list with their times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gputui.tui.message_log import Message
from gputui.tui.views.text import Line, clip, hanging, width_of

_NAMES_KEY = 40
"""The width in cells from which a cut message names the key that shows it."""


def message_line(message: Message | None, width: int, key: str = "") -> Line:
    """The line reserved for messages, blank without one. A cut message ends with the `key` to show it all."""
    if message is None:
        return (("", ""),)
    line: Line = ((" ▌ ", "key"), (message.text, message.style))
    end = f" {key} for all" if key and width_of(line) > width >= _NAMES_KEY else ""
    return (*clip(line, width - len(end)), *(((end, "dim"),) if end else ()))


def listed(messages: Sequence[Message], width: int) -> tuple[list[Line], list[int]]:
    """The messages, the newest first and uncut; and for each line the place of its message."""
    lines: list[Line] = []
    places: list[int] = []
    for place, message in enumerate(reversed(messages)):
        clock = time.strftime("%H:%M:%S", time.localtime(message.time))
        told = hanging(((f" {clock}  ", "dim"), (message.text, message.style)), width)
        lines += told
        places += [place] * len(told)
    return lines, places
