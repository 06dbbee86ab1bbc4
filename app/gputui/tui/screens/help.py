"""HelpScreen: all keys, from the table of actions, and the meaning of the symbols: paged and filtered."""

from __future__ import annotations

from gputui.tui.main_view import MainView
from gputui.tui.screens.page import FILTER, Page, PageKeys, hidden, shown
from gputui.tui.views.help import help_lines
from gputui.tui.views.text import Line, title


class HelpScreen(Page):
    """The key that opened the help closes it.

    of_page  the keys of the page that the help was opened on: they come first, then those of the main screen
    """

    FILTER_PROMPT = "a key, or words that describe what it does"
    BINDINGS = [
        FILTER,
        hidden("question_mark,f1,enter", "leave", "Close the help"),
        shown("space", "page(1)", "page", about="The next page"),
    ]

    def __init__(self, view: MainView, of_page: PageKeys | None) -> None:
        super().__init__(view)
        self._of_page, self._pages = of_page, 1

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "help" and (action != "page" or self._pages > 1)

    def lines(self, width: int, height: int) -> list[Line]:
        page, keymap = self._of_page, self.app_state.screen.keymap
        of_page, there = (page.rows, page.actions) if page else ((), None)
        every = help_lines(keymap, self.filter, width, of_page, there)
        visible = self.scrolled(every, height - 1)
        self._pages = pages = -(-len(every) // self.step)
        now = -(-(self.top + self.step) // self.step) if self.top + self.step < len(every) else pages
        told = [f"with “{self.filter}”"] if self.filter else []
        told += [f"page {now} of {pages}"] if pages > 1 else []
        return [title("keys and symbols", width, ", ".join(told)), *visible]

    def show_only(self, words: str) -> None:
        self.top = 0
        super().show_only(words)

    def on_mouse_scroll_down(self) -> None:
        self.action_cursor(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_cursor(-3)
