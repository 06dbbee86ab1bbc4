"""PaletteScreen: every action by the words that a user has for it, those of the present page first."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from functools import partial

from textual import events

from gputui.tui.actions import ACTIONS, key_of
from gputui.tui.controllers.pages import NO_NODES
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import Entry, ListPage, Page, hidden, shown
from gputui.tui.views.help import row
from gputui.tui.views.text import Line, clip, title

_WORDS = re.compile(r"[^\W_]+(?:[.-]\w+)*|[^\w\s]+")

_LEFT_OUT = ("palette", "up", "down", "first", "last")
"""Actions that nobody looks for by words."""


class PaletteScreen(ListPage):
    """Typing filters the list. `page` is the page that it was opened on, None on the main screen."""

    BINDINGS = [
        shown("escape", "back", "back", "esc"),
        shown("enter", "take", "do it", "⏎"),
        shown("down,tab", "cursor(1)", "choose", "↑↓", "Next"),
        hidden("up,shift+tab", "cursor(-1)", "Previous"),
        hidden("pagedown", "cursor(10)", "Further down"),
        hidden("pageup", "cursor(-10)", "Further up"),
        hidden("backspace", "erase(1)", "Erase a letter"),
        hidden("ctrl+u,ctrl+w", "erase(1000)", "Erase what is typed"),
    ]

    def __init__(self, view: MainView, page: Page | None) -> None:
        super().__init__(view)
        self._typed = ""
        keymap = view.app_state.screen.keymap
        here = page.entries() if page else []
        actions = [
            Entry(
                key_of(action.id, keymap) if action.keys or action.id in keymap else "",
                action.title,
                action.about if action.id != "nodes" or view.app_state.has_nodes else NO_NODES,
                (action.query, action.id.replace("_", " ")),
                f"{action.also} {action.group}",
                partial(view.choose, action.id),
            )
            for action in ACTIONS
            if action.id not in _LEFT_OUT
        ]
        self._entries = [*here, *actions]
        # What has no key comes first: the keys are known or in the help.
        self._unfiltered = [*here, *sorted(actions, key=lambda entry: bool(entry.keys))]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "help"

    def _main_keys(self) -> dict[str, str]:
        return {}

    def on_key(self, event: events.Key) -> None:
        if event.character and event.is_printable:
            event.stop()
            self._type(self._typed + event.character)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._type(self._typed + " ".join(event.text.split()))

    def _type(self, words: str) -> None:
        self._typed, self.cursor, self.key = words, 0, None
        self.draw()

    def action_erase(self, letters: int) -> None:
        self._type(self._typed[:-letters])

    def action_back(self) -> None:
        """Erase what is typed, or close the page."""
        if self._typed:
            self._type("")
        else:
            self.dismiss()

    def _found(self) -> list[Entry]:
        return found(self._typed, self._entries) if self._typed.strip() else self._unfiltered

    def item_keys(self) -> Sequence[Hashable]:
        return [entry.title for entry in self._found()]

    def head(self, width: int) -> Line:
        return title("do anything", width, self.beyond)

    def listing(self, width: int) -> tuple[list[Line], range]:
        lines = [clip(row(e.keys, e.title, e.about), width) for e in self._found()]
        return (lines, range(len(lines))) if lines else ([(("  nothing matches", "dim"),)], range(1))

    def lines(self, width: int, height: int) -> list[Line]:
        visible = self.window(*self.listing(width), max(1, height - 2), above=2)
        words = (
            (self._typed, "strong") if self._typed else ("type a word of it: sort, docker, history", "dim")
        )
        return [self.head(width), ((" : ", "prompt"), words), *visible]

    def action_take(self) -> None:
        """Close the palette and do what the cursor is on."""
        entries = self._found()
        if entries:
            self.dismiss()
            entries[self.cursor].run()

    def clicked(self, place: int) -> None:
        self.go_to(place)
        self.action_take()


def found(query: str, entries: Sequence[Entry]) -> list[Entry]:
    """The entries with the words of a query, the best first; where none has them, by scattered letters."""
    query = query.strip().lower()
    scored = [(2.0 if query in e.names else score(query, e.title, e.about, e.also), e) for e in entries]
    scored.sort(key=lambda each: -each[0])
    by_words = [entry for score, entry in scored if score]
    return by_words or [entry for entry in entries if _scattered(query, entry.title.lower())]


def _scattered(letters: str, text: str) -> bool:
    rest = iter(text)
    return all(letter in rest for letter in letters if letter != " ")


def score(query: str, title: str, about: str, others: str = "") -> float:
    """How well the worst word of a query is found, 0 where a word is nowhere. The best match is a word of the
    title, then the beginning of one; then a word of the description or of the search words (`others`, the
    group among them), and the beginning of one of these; last, any part of a word."""
    texts = tuple(_WORDS.findall(text.lower()) for text in (title, about, others))
    return min((_score(word, texts) for word in query.lower().split()), default=0.0)


_WHOLE, _BEGINNING, _WITHIN = (1.0, 0.8, 0.75), (0.9, 0.7, 0.6), (0.3, 0.2, 0.1)
"""The score of a match in the title, in the description, and in the other words."""


def _score(word: str, texts: Sequence[Sequence[str]]) -> float:
    best = 0.0
    for place, words in enumerate(texts):
        if word in words:
            best = max(best, _WHOLE[place])
        elif begun := [len(each) for each in words if each.startswith(word)]:
            # The query "pow" more likely means "power" than "PowerShell".
            best = max(best, _BEGINNING[place] + 0.04 * len(word) / min(begun))
        elif any(word in each for each in words):
            best = max(best, _WITHIN[place])
    return best
