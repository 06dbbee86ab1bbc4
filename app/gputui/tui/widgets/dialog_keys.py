"""The keys of a question, in place of those of the screen below it."""

from __future__ import annotations

from gputui.tui.views.text import Hints, hint_line
from gputui.tui.widgets.lines import Lines


class DialogKeys(Lines):
    """The last line of the terminal: each key, and what it does now."""

    def __init__(self, hints: Hints) -> None:
        super().__init__(id="hints")
        self.draw(lambda width, height: [hint_line(hints[:-2], hints[-2:], width)])
