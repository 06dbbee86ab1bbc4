"""A line to type in."""

from __future__ import annotations

from textual.widgets import Input


class OneLine(Input):
    """Textual's Input without a blinking cursor, which would cost 0.3 % CPU."""

    def __init__(self, value: str, placeholder: str) -> None:
        super().__init__(value, placeholder=placeholder, select_on_focus=False)
        self.cursor_blink = False
