"""MessagesScreen: the last messages with their times, the newest first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.messages import listed
from gputui.tui.views.text import Line, title


class MessagesScreen(ListPage):
    """The key that opened the page closes it."""

    BINDINGS = [shown("escape,q", "dismiss", "back", "esc"), *cursor_bindings("message")]

    def item_keys(self) -> Sequence[Hashable]:
        return [(message.time, message.text) for message in reversed(self.view.messages)]

    def head(self, width: int) -> Line:
        return title("messages", width, "newest first")

    def listing(self, width: int) -> tuple[Sequence[Line], Sequence[int | None]]:
        messages = self.view.messages
        return listed(messages, width) if messages else ([((" none yet", "dim"),)], [None])
