"""MessagesScreen: the last messages with their times, the newest first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.messages import listed
from gputui.tui.views.text import Line, title


class MessagesScreen(ListPage):
    """The key that opened it closes it."""

    BINDINGS = [shown("escape,q,M", "dismiss", "back", "esc"), *cursor_bindings("message")]

    def item_keys(self) -> Sequence[Hashable]:
        return [(message.time, message.text) for message in reversed(self.view.messages)]

    def lines(self, width: int, height: int) -> list[Line]:
        head = title("messages", width, "newest first")
        messages = self.view.messages
        if not messages:
            return [head, ((" none yet", "dim"),)]
        lines, places = listed(messages, width)
        return [head, *self.window(lines, places, max(1, height - 1), above=1)]
