"""HelpScreen: all keys, from the table of actions, and the meaning of the symbols: paged and filtered."""

from __future__ import annotations

from gputui.tui.main_view import MainView
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import Page, PageKeys, hidden, shown
from gputui.tui.views.help import help_lines
from gputui.tui.views.text import Line, title

_END = 100_000


class HelpScreen(Page):
    """The key that opened the help closes it. Escape first ends the filter.

    of_page  the keys of the page that the help was opened on: they come first, then those of the main screen
    """

    BINDINGS = [
        shown("escape", "back", "back", "esc"),
        hidden("q,question_mark,f1,enter", "dismiss", "Back"),
        shown("pagedown,space", "pages(1)", "page", "pgdn/pgup", "Next page"),
        hidden("pageup", "pages(-1)", "Previous page"),
        shown("down,j", "scroll(1)", "scroll", "↑↓"),
        hidden("up,k", "scroll(-1)", "Up"),
        hidden("home,g", f"scroll({-_END})", "Top"),
        hidden("end,G", f"scroll({_END})", "End"),
        shown("slash", "filter", "filter", "/", "Only what has these words in it"),
    ]

    def __init__(self, view: MainView, of_page: PageKeys | None = None) -> None:
        super().__init__(view)
        self._of_page = of_page
        self._filter, self._top, self._room = "", 0, 1

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "help"

    def lines(self, width: int, height: int) -> list[Line]:
        page, keymap = self._of_page, self.view.app_state.screen.keymap
        of_page, there = (page.rows, page.actions) if page else ((), None)
        without = () if self.view.app_state.has_nodes else ("nodes",)
        every = help_lines(keymap, self._filter, width, of_page, there, without)
        self._room = max(1, height - 1)
        self._top = min(max(0, self._top), max(0, len(every) - self._room))
        pages = -(-len(every) // self._room)
        now = -(-(self._top + self._room) // self._room) if self._top + self._room < len(every) else pages
        told = [f"with “{self._filter}”"] if self._filter else []
        told += [f"page {now} of {pages}"] if pages > 1 else []
        return [title("keys and symbols", width, ", ".join(told)), *every[self._top : self._top + self._room]]

    def action_scroll(self, by: int) -> None:
        self._top += by
        self.draw()

    def action_pages(self, by: int) -> None:
        self.action_scroll(by * self._room)

    def action_back(self) -> None:
        if self._filter:
            self._show_with("")
        else:
            self.dismiss()

    def action_filter(self) -> None:
        before = self._filter

        def answered(text: str | None) -> None:
            self._show_with(before if text is None else text.strip())

        prompt = "a key, or words of what it does   (⏎ accept, esc cancel)"
        self.app.push_screen(LineScreen(prompt, before, typed=self._show_with), answered)

    def _show_with(self, words: str) -> None:
        self._filter, self._top = words, 0
        self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)
