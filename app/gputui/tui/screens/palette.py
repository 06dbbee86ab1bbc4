"""PaletteScreen: every action by the words that a user has for it, those of the present page first."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual import events

from gputui.allocating.settings import Settings
from gputui.choosing.grouping import GroupingError, parse_request
from gputui.tui import option_rows, setting_rows
from gputui.tui.actions import ACTIONS, BY_ID, key_of
from gputui.tui.app_state import ORDER_NAMES
from gputui.tui.main_view import MainView
from gputui.tui.option_rows import Row
from gputui.tui.screens.page import Entry, ListPage, Page, choice_entry, hidden, shown
from gputui.tui.views.help import KEYS
from gputui.tui.views.help import row as line_of
from gputui.tui.views.text import ItemLines, Line, cells_of, clip, title

if TYPE_CHECKING:
    from gputui.choosing.order import Order

_WORDS = re.compile(r"[^\W_]+(?:[.-]\w+)*|[^\w\s]+")

_LISTED: dict[str, tuple[str, ...]] = {
    "select": ("ask", "cpu"),
    "launch": ("launch_page", "plan", "export", "check"),
    "look": ("processes", "queue", "usage", "timelines", "nodes"),
    "settings": ("settings",),
}
"""The actions that are listed before anything is typed. Others have a key, or are found by their words."""

CHOSEN = ("sort", "theme", "order", "launcher", "ids")
"""Actions in whose place their choices are listed."""

_BY_PERSON = ("people", "idle", "held")
"""Words that open the processes by person."""

_ALSO_NAMED = {
    "detach": ("background",),
    "launches": ("history", "recent"),
    "nodes": ("slurm",),
    "processes": _BY_PERSON,
    "return": ("return",),
}
"""Further words that find an action before all others."""

_ACTING = ("launch", "detach", "return", "stop", "quit")
"""Actions that start or end something at once: only their own name finds them before others."""

_LEFT_OUT = ("palette", "up", "down", "first", "last", "page_up", "page_down", "people", *CHOSEN)
"""These, actions that nobody looks for by words, and `people`, whose words find the processes."""


class PaletteScreen(ListPage):
    """Typing filters the list. `page` is the page that it was opened on, None on the main screen; `typed` is
    what the user is taken to have typed."""

    BINDINGS = [
        shown("enter", "take", "do it", "⏎"),
        shown("down,tab", "cursor(1)", "choose", "↑↓", "Next"),
        hidden("up,shift+tab", "cursor(-1)", "Previous"),
        hidden("backspace", "erase(1)", "Erase a letter"),
        hidden("ctrl+u,ctrl+w", "erase(1000)", "Erase what is typed"),
    ]

    def __init__(self, view: MainView, page: Page | None, has_nodes: bool, typed: str) -> None:
        super().__init__(view)
        keymap = view.app_state.screen.keymap
        actions = {
            action.id: Entry(
                key_of(action.id, keymap),
                action.title,
                action.about,
                (action.query, *_ALSO_NAMED.get(action.id, ())),
                action.also,
                partial(view.choose, action.id),
                acts=action.id in _ACTING,
            )
            for action in ACTIONS
            if action.id not in _LEFT_OUT
        }
        actions["processes"] = actions["processes"]._replace(run=self._processes)
        # What the page performs itself is listed once, by the page's key.
        known = {action.title: action for action in actions.values()}
        here = [_of_page(each, known.pop(each.title, None)) for each in (page.entries() if page else ())]
        self._entries = [*here, *self._choices(), *known.values()]
        self._best = actions["ask"] if page is None or page.can_perform("ask") else None
        self._unfiltered = {"this page": here}
        for group, ids in _LISTED.items():
            listed = [actions[each] for each in ids if each != "nodes" or has_nodes]
            self._unfiltered[group] = [each for each in listed if each.title in known]
        self._type(typed)

    def _choices(self) -> Iterator[Entry]:
        """What the devices are sorted by, the themes, the launchers, …: each choice in a line."""
        app_state = self.app_state
        for order, name in ORDER_NAMES.items():
            chosen = order == app_state.order
            yield choice_entry("order", "order", name, chosen, partial(self._put, order))
        every = (
            *((row, self._set) for row in setting_rows.rows(app_state, Settings(), (), ())),
            *((row, self._set_of_launch) for row in option_rows.rows(app_state)),
        )
        for row, change in every:
            for choice in row.choices if row.id in CHOSEN else ():
                run = partial(change, row, choice)
                action = BY_ID[row.id]
                yield choice_entry(action.query, row.label, choice, choice == row.value, run, action.also)

    def _processes(self) -> None:
        """Open the processes, by person where the typed word asks for that."""
        query = self._query
        asked = any(word.startswith(query) for word in _BY_PERSON) and not "processes".startswith(query)
        self.view.choose("people" if asked else "processes")

    def _put(self, order: Order) -> None:
        """Put the selected devices in this order."""
        app_state, message = self.app_state.in_order(order)
        self.view.set_app_state(app_state)
        self.view.show_message(message)

    def _set_of_launch(self, row: Row, choice: str) -> None:
        self.view.set_app_state(option_rows.changed(self.app_state, row, choice))
        self.view.show_message(f"{row.label} {choice}", kind="passing")

    def _set(self, row: Row, choice: str) -> None:
        app_state = self.app_state
        self.view.save_setting(*setting_rows.changed(app_state, row, choice, ()), lambda saved: None)
        saved = f"not saved: {app_state.label}" if app_state.label else "saved in your settings"
        self.view.show_message(f"{row.label} {choice}, {saved}", kind="passing")

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
        # Who has read ":idle" types the colon, too.
        query = self._query = words.strip().removeprefix(":").strip().lower()
        every = [entry for entries in self._unfiltered.values() for entry in entries]
        self._typed, self._found = words, matching(query, self._entries) if query else every
        if self._best is not None and _is_number(query):
            # The number is the answer to what the entry would ask.
            best = self._best._replace(
                title=f"select the best {query}", run=partial(self.view.select_best, query)
            )
            self._found = [best, *(entry for entry in self._found if entry.title != self._best.title)]
        # Enter changes nothing until another choice is taken.
        at = (n for n, entry in enumerate(self._found) if entry.chosen and query in entry.names)
        self.cursor, self.key = next(at, 0), None
        self.draw()

    def action_erase(self, letters: int) -> None:
        self._type(self._typed[:-letters])

    def item_keys(self) -> Sequence[Hashable]:
        return [(entry.keys, entry.title) for entry in self._found]

    def head(self, width: int) -> Line:
        return title("commands", width, self.beyond)

    def listing(self, width: int) -> ItemLines:
        cells = max([KEYS, *(cells_of(entry.keys) + 1 for entry in self._found)])
        lines = [clip(line_of(entry.keys, entry.title, entry.about, cells), width) for entry in self._found]
        items: list[int | None] = [*range(len(lines))]
        if not lines:
            return [(("  nothing matches", "dim"),)], [0]
        if not self._query:
            at = len(lines)
            for group, entries in reversed(self._unfiltered.items()):
                at -= len(entries)
                if entries:
                    lines.insert(at, title(group, width))
                    items.insert(at, None)
        return lines, items

    def lines(self, width: int, height: int) -> list[Line]:
        visible = self.window(*self.listing(width), max(1, height - 2), above=2)
        words = (self._typed, "strong") if self._typed else ("type a word: sort, docker, history", "dim")
        return [self.head(width), ((" : ", "prompt"), words), *visible]

    def action_take(self) -> None:
        """Do what the cursor is on. Where it starts or ends something, and is the best match of other words
        than its name, show its name first: Enter then does it."""
        if self._found:
            entry = self._found[self.cursor]
            if entry.acts and self._query and self.cursor == 0 and self._query not in entry.names:
                self._type(entry.names[0])
            else:
                self.clicked(self.cursor)

    def clicked(self, place: int) -> None:
        self.dismiss()
        self._found[place].run()


def _of_page(entry: Entry, action: Entry | None) -> Entry:
    """An entry of the page, with the words of the main screen's action that it performs."""
    if action is None:
        return entry
    return action._replace(keys=entry.keys, names=(*action.names, *entry.names), run=entry.run)


def _is_number(query: str) -> bool:
    """Whether this is a number of devices, perhaps with their grouping: "2", "8 tp=2"."""
    try:
        return query[:1].isdigit() and bool(parse_request(query))
    except GroupingError:
        return False


def matching(query: str, entries: Sequence[Entry]) -> list[Entry]:
    """The entries with the words of a query, the best first."""
    query = query.strip().lower()
    scored = [(_rank(query, entry), entry) for entry in entries]
    scored.sort(key=lambda each: -each[0])
    return [entry for rank, entry in scored if rank]


def _rank(query: str, entry: Entry) -> float:
    """How well a query finds an entry: best by its name, then by the first words of its name, then by the
    beginning of a word, the larger the better. One that starts or ends something comes after all others
    unless three letters of its name are typed."""
    begun = [
        1.0 if query == name else 0.99 if name.startswith(f"{query} ") else 0.9 * len(query) / len(name)
        for name in entry.names
        if name.startswith(query)
    ]
    if begun and (len(query) > 2 or not entry.acts):
        return 1 + max(begun)
    found = score(query, entry.title, entry.about, entry.also)
    return found / 100 if entry.acts else found


def score(query: str, title: str, about: str, others: str = "") -> float:
    """How well the worst word of a query is found, 0 where a word is nowhere. The best match is a word of the
    title, then the beginning of one; then a word of the description or of the search words (`others`), and
    the beginning of one of these; last, any part of a word."""
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
