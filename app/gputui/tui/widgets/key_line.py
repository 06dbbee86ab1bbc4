"""The key line as a widget: each key can be clicked."""

from __future__ import annotations

from textual import events
from textual.message import Message

from gputui.tui.views.keys import keys
from gputui.tui.views.text import Line, clip
from gputui.tui.widgets.lines import Lines


class KeyLine(Lines):
    """The keys that matter, or a message in their place. Posts `Pressed` with an action that was clicked."""

    class Pressed(Message):
        """A key was clicked."""

        def __init__(self, action_id: str) -> None:
            super().__init__()
            self.action_id = action_id

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._places: list[tuple[int, int, str]] = []
        self.message = ""
        self._message_style = ""
        self.draw(self._line)

    def show_message(self, message: str, style: str = "") -> None:
        """Show a message in place of the keys, where it covers no device and no launch; "" ends it."""
        if message != self.message:
            self.message, self._message_style = message, style
            self.draw(self._line)

    def _line(self, width: int, height: int) -> list[Line]:
        if self.message:
            self._places = []
            return [clip(((" ▌ ", "key"), (self.message, self._message_style)), width)]
        line, self._places = keys(width)
        return [line]

    def on_click(self, event: events.Click) -> None:
        for begin, end, action_id in self._places:
            if begin <= event.x < end:
                self.post_message(self.Pressed(action_id))
