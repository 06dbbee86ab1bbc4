"""A single-line text input."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.widgets import Input

from gputui.launching.shell_words import one_line


class OneLine(Input):
    """Textual's Input without a blinking cursor, which would cost 0.3 % CPU."""

    def __init__(self, value: str, placeholder: str) -> None:
        super().__init__(value, placeholder=placeholder, select_on_focus=False)
        self.cursor_blink = False


class CommandLine(OneLine):
    """A command input: keeps all lines of a paste, joined after a backslash; other line breaks are shown."""

    @property
    def _value(self) -> Text:
        return Text(self.value.replace("\n", "⏎"), no_wrap=True, overflow="ignore", end="")

    def _on_paste(self, event: events.Paste) -> None:
        # Textual's own handler keeps only the first line.
        event.prevent_default()
        event.stop()
        self.replace(one_line(event.text), *self.selection)
