"""The first frame: the main screen before its panels are known, drawn without Textual."""

from __future__ import annotations

import time

from gputui.inventory.formatting import printable
from gputui.tui.app_state import AppState
from gputui.tui.layout import launch_room, lay_out
from gputui.tui.views.header import header
from gputui.tui.views.keys import keys
from gputui.tui.views.launch import launch, lines_wanted
from gputui.tui.views.selection import selection_lines
from gputui.tui.views.table import table
from gputui.tui.views.text import Line, Span, clip

_LOOKS = {"brand": "\x1b[7;1m", "strong": "\x1b[1m", "key": "\x1b[1m", "slot": "\x1b[1m", "title": "\x1b[1m"}


def frame(app_state: AppState, width: int, height: int) -> str:
    """The screen with every part in its place, and the room of the panels blank, as text for a terminal."""
    blank: Line = (("", ""),)
    room = launch_room(height, len(app_state.rows), lines_wanted(app_state, width))
    below = [*selection_lines(app_state, width)[not room.ruled :], *launch(app_state, width, room)]
    layout = lay_out(width, height, len(app_state.rows), len(below), None)
    below += [blank] * layout.roomy + [keys(app_state, width)[0]]
    lines: list[Line] = [header(app_state, width, None, time.time())] * layout.roomy
    lines += table(app_state, layout.left.width, layout.table).lines
    lines += [blank] * (height - len(lines) - len(below)) + below
    return "\r\n".join("".join(map(_styled, clip(line, width))) for line in lines[:height])


def _styled(span: Span) -> str:
    text, style = span
    look = _LOOKS.get(style.removesuffix("-on"))
    return f"{look}{printable(text)}\x1b[0m" if look else printable(text)
