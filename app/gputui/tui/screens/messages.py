"""MessagesScreen: the last messages with their times, the newest first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputui.tui.screens.page import FILTER, ListPage
from gputui.tui.views.messages import listed
from gputui.tui.views.text import ItemLines, Line, title, told_lines


class MessagesScreen(ListPage):
    """The key that opened the page closes it."""

    BINDINGS = [FILTER]

    def on_mount(self) -> None:
        # The list begins with it.
        self.view.clear_message()

    def item_keys(self) -> Sequence[Hashable]:
        return [(message.time, message.text) for message in reversed(self.view.messages)]

    def head(self, width: int) -> Line:
        return title("messages", width, "newest first", self.beyond)

    def listing(self, width: int) -> ItemLines:
        messages = self.view.messages
        return listed(messages, width) if messages else (told_lines("no messages yet", "dim", width), [None])
