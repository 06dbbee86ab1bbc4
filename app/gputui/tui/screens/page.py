"""Page and ListPage: the common parts of the pages over the main screen.

A page is a body above a footer: notes, a line for messages, the keys. A list page has a cursor too.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual import events
from textual.actions import parse
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from gputui.inventory.light_dataclasses import frozen
from gputui.tui.actions import BY_ID, by_key, written
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView, Then
from gputui.tui.message_log import Kind
from gputui.tui.views.messages import message_line
from gputui.tui.views.text import Hints, ItemLines, Line, hanging, hint_line
from gputui.tui.widgets.lines import Lines

if TYPE_CHECKING:
    from gputui.tui.screens.line_input import LineScreen

_SHORT = 8
"""Lines of height below which a page has no separate line for messages."""
_LEAST_BODY = 3
"""Lines that the body keeps above the notes."""

_HELP_KEYS = "question_mark,f1"

_MOVE, _MOVE_FAR, _TO_AN_END = "Down, up", "A page down, a page up", "To the first, to the last"
_OF_KEYS = ("cursor", "page", "back", "leave", "help")
"""Actions of all pages: nobody looks for them by words."""

_EVERYWHERE = ("palette", "help", "stop", "quit")
"""The actions that every page performs. Each page binds `q` and `?` itself."""

_NO = ("escape", "n")
"""The keys that answer no to a question."""

_END = 100_000
"""Items: more than any list has, so that the cursor goes to the end."""


def shown(keys: str, action: str, hint: str, key_display: str = "", about: str = "") -> Binding:
    """A binding that the last line of a page names: `key_display` (default: the key), and the hint.

    `about` is its description in the help, where the hint is not enough.
    """
    return Binding(keys, action, hint, key_display=key_display or keys, tooltip=about)


def hidden(keys: str, action: str, description: str) -> Binding:
    """A binding that the last line does not name."""
    return Binding(keys, action, description, show=False)


def worded(word: str, action: str, hint: str, about: str, key_line: bool = False) -> Binding:
    """A binding without a key, found in the palette by its word: its letter means something else on other
    pages. With `key_line` the last line names it."""
    return Binding(f":{word}", action, hint, show=key_line, tooltip=about)


FILTER = shown("slash", "filter", "filter", "/", "Show only what has these words; esc shows all again")
"""The binding of a page that can be filtered."""


@frozen
class PageKeys:
    """The help's content about a page: its own keys and their descriptions, and the ids of the main screen's
    actions that it supports, too."""

    rows: Hints
    actions: frozenset[str]


class Entry(NamedTuple):
    """An action in the palette: each of `names` finds it before all others; `also` are further words.
    `chosen`: nothing would change. `acts`: it starts or ends something at once."""

    keys: str
    title: str
    about: str
    names: tuple[str, ...]
    also: str
    run: Then
    chosen: bool = False
    acts: bool = False


def choice_entry(word: str, label: str, choice: str, chosen: bool, run: Then, also: str = "") -> Entry:
    """An entry that takes one choice of the action with this word: its key says all that there is to say."""
    name, asked = f"{label} {choice}", f"{word} {choice}"
    return Entry(f":{asked}", "", "now" if chosen else "", (word, name, asked), f"{name} {also}", run, chosen)


def page_keys(bindings: Sequence[Binding]) -> Hints:
    """The keys of a page and their descriptions. Keys with the same description share a row."""
    rows: dict[str, list[str]] = {}
    for binding in bindings:
        meaning = binding.tooltip or binding.description
        keys = rows.setdefault(meaning[:1].upper() + meaning[1:], [])
        keys += [key for key in map(written, binding.key.split(",")) if key not in keys]
    found = ((_together(keys), meaning) for meaning, keys in rows.items())
    return tuple(found)


def _together(keys: Sequence[str]) -> str:
    """The keys with one description; consecutive digits as "1-9"."""
    digits = len(keys) > 2 and "".join(keys) in "0123456789"
    return f"{keys[0]}-{keys[-1]}" if digits else " ".join(keys)


class Page(ModalScreen[None]):
    """Follows the main screen (`view`): is drawn every second, after every change of size, and by `draw`."""

    CSS_PATH = "page.tcss"
    BINDINGS = [
        shown("escape", "back", "back", "esc", "Clear the filter, then go back"),
        hidden("q", "leave", "Close this page"),
        hidden(_HELP_KEYS, "help", "Help"),
        hidden("down,j", "cursor(1)", _MOVE),
        hidden("up,k", "cursor(-1)", _MOVE),
        hidden("pagedown", "page(1)", _MOVE_FAR),
        hidden("pageup", "page(-1)", _MOVE_FAR),
        hidden("home,g", f"cursor({-_END})", _TO_AN_END),
        hidden("end,G", f"cursor({_END})", _TO_AN_END),
    ]
    """These keys mean the same on every page. The bindings of a subclass are added, and come first."""
    FILTER_PROMPT = "show only what has these words   (empty: all)"
    HERE: frozenset[str] = frozenset()
    """The actions of the main screen, apart from those that open a page, that are performed on this page."""

    def __init__(self, view: MainView) -> None:
        super().__init__(classes="page")
        self.view = view
        self._asked: tuple[str, Collection[str], Then] | None = None
        """The question, the keys that answer it with yes, and what is done then; None without a question."""
        self._pressed = False
        """Whether a key or the mouse has been pressed."""
        self.filter = ""
        """The words that are shown alone, "" for everything."""
        self.step, self.top = 1, 0
        """How far a page up or down goes, and the first line that is shown."""

    @property
    def app_state(self) -> AppState:
        """The app state that the main screen shows now."""
        return self.view.app_state

    def compose(self) -> ComposeResult:
        yield Lines(id="page-body")
        yield Lines(id="page-footer")

    def on_mount(self) -> None:
        self.set_interval(1.0, self.draw)

    def on_resize(self) -> None:
        self.draw()

    def on_key(self, event: events.Key) -> None:
        # This runs before the lookup of the key's binding.
        asked = self._asked
        self._press()
        if asked is not None and event.key in (*asked[1], *_NO):
            event.stop()
            if event.key not in _NO:
                asked[2]()
            self.draw()
            return
        action_id = self._main_keys().get(event.key)
        if action_id is None:
            return
        event.stop()
        if self.can_perform(action_id):
            self.action_perform(action_id)
        elif action_id == self.view.page_action:
            # The key that opens a page closes it, too.
            self.leave()
        else:
            self.view.replace_page(action_id)

    def can_perform(self, action_id: str) -> bool:
        """Whether an action of the main screen is performed on this page."""
        return action_id in self.HERE or action_id in _EVERYWHERE

    def action_perform(self, action_id: str) -> None:
        """Perform an action of the main screen on this page."""
        if action_id == "help":
            self.action_help()
        else:
            self.view.perform(action_id)
            self.draw()

    def entries(self) -> list[Entry]:
        """What this page does now, as entries of the palette."""
        does: dict[str, Binding] = {}
        for binding in self._own:
            if self._does(binding) and not binding.action.startswith(_OF_KEYS):
                does.setdefault(binding.tooltip or binding.description, binding)
        return [
            Entry(
                binding.key_display or written(binding.key.split(",")[0]),
                meaning[:1].upper() + meaning[1:],
                "",
                (binding.description, binding.key.removeprefix(":")),
                "",
                partial(self.app.call_later, self.run_action, binding.action),
            )
            for meaning, binding in does.items()
        ]

    @property
    def _own(self) -> list[Binding]:
        """The bindings of this page and of all pages, without those that a subclass replaces."""
        found: list[Binding] = []
        for kind in type(self).__mro__[: type(self).__mro__.index(Page) + 1]:
            taken = {key for each in found for key in each.key.split(",")}
            every = vars(kind).get("BINDINGS", ())
            found = [*(each for each in every if not taken.issuperset(each.key.split(","))), *found]
        return found

    def _main_keys(self) -> dict[str, str]:
        """The keys that mean the same here as on the main screen, with their actions: those of actions that
        open a page in place of this one, or are performed here. The page's own keys come first."""
        own = {key for each in self._own for key in each.key.split(",")} | {*_HELP_KEYS.split(",")}
        keys = by_key(self.app_state.screen.keymap)
        return {
            key: action_id
            for key, action_id in keys.items()
            if key not in own and (BY_ID[action_id].page or self.can_perform(action_id))
        }

    def leave(self) -> None:
        """Close this page."""
        self.dismiss()

    def action_leave(self) -> None:
        self.leave()

    def action_back(self) -> None:
        """Show everything again, or close this page."""
        if self.filter:
            self.show_only("")
        else:
            self.leave()

    def action_cursor(self, by: int) -> None:
        """Scroll what `scrolled` shows."""
        self.top = max(0, self.top + by)
        self.draw()

    def action_page(self, by: int) -> None:
        self.action_cursor(by * self.step)

    def action_filter(self) -> None:
        from gputui.tui.screens.line_input import LineScreen

        before = self.filter

        def answered(words: str | None) -> None:
            self.show_only(before if words is None else words)

        self.app.push_screen(LineScreen(self.FILTER_PROMPT, before, typed=self.show_only), answered)

    def type_line(self, line: LineScreen, then: Callable[[str], object]) -> None:
        """Let the user type a line; `then` gets it, unless they go back."""

        def answered(text: str | None) -> None:
            if text is not None:
                then(text)
            self.draw()

        self.app.push_screen(line, answered)

    def show_only(self, words: str) -> None:
        """Show only what has these words."""
        self.filter = words.strip()
        self.draw()

    def _press(self) -> None:
        """Note a key or a click: it answers a question."""
        self._asked, self._pressed = None, True

    # Painting

    def draw(self) -> None:
        """Show the present state; nothing before the page is laid out, or after it has gone."""
        width, height = self.size
        if not (width and self.is_mounted and self.is_attached):
            return
        # The body comes first: the footer may describe what was drawn there.
        self.body.draw(self.lines)
        asked, told = self._asked, self.view.message_shown
        if asked:
            # As below a question about a launch.
            keys = hint_line([("⏎", "yes")], [("esc", "no"), ("?", "help")], width)
            last = [*hanging(((" ▌ ", "key"), (f"{asked[0]}?", "")), width)[: max(1, height - 2)], keys]
        else:
            message, keys = message_line(told, width), self._key_hints(width)
            # Where there is hardly room for a list, a message takes the place of the keys.
            last = [message if told else keys] if height < _SHORT else [message, keys]
        # Notes may be as long as a command line; the body and the keys take precedence.
        room = height - len(last) - _LEAST_BODY
        footer = [*(self.notes(width)[:room] if room > 1 else ()), *last]
        self.query_one("#page-footer", Lines).draw_all(footer)

    @abstractmethod
    def lines(self, width: int, height: int) -> list[Line]:
        """The lines of the body."""

    def scrolled(self, lines: list[Line], room: int) -> list[Line]:
        """The lines that are shown in this room."""
        self.step = max(1, room)
        self.top = min(self.top, max(0, len(lines) - self.step))
        return lines[self.top : self.top + self.step]

    def notes(self, width: int) -> list[Line]:
        """The lines of the footer above the message."""
        return []

    def _key_hints(self, width: int) -> Line:
        """The keys that have an effect now, from BINDINGS: as many as fit, none cut. The help's stays
        longest, then the way back."""
        hints = [
            (binding.key_display or binding.key, binding.description)
            for binding in self._own
            if binding.show and self._does(binding)
        ]
        more = any(binding.key[0] == ":" and self._does(binding) for binding in self._own)
        last = [(":", "more")] if more else []
        last += [("?", "help")] if self.check_action("help", ()) else []
        return hint_line(hints, last, width)

    def _does(self, binding: Binding) -> bool:
        """Whether the action of a binding is possible now."""
        _, name, parameters = parse(binding.action)
        return bool(self.check_action(name, parameters))

    def action_help(self) -> None:
        """Open the help, which begins with the keys of this page."""
        self.view.open_help(PageKeys(page_keys(self._own), frozenset(self._main_keys().values())))

    @property
    def body(self) -> Lines:
        """The surface above the footer."""
        return self.query_one("#page-body", Lines)

    # Messages and questions

    def show_message(self, text: str | None, kind: Kind = "answer") -> None:
        """Show a message until the next key or click, or as its kind says."""
        self.view.show_message(text, kind=kind)
        self.draw()

    def work(self, text: str, work: Callable[[], str | None]) -> None:
        """Say what is being done, do it in the background, and show the message about the result. The page
        may be closed by then."""
        self.show_message(f"{text} …", "passing")
        app = self.app
        in_background(text, lambda: app.call_later(self.show_message, work(), "news"))

    def ask(self, action: str, question: str, then: Then) -> None:
        """Ask before a dangerous action. The next key answers: Enter, y, or a key of the action calls `then`;
        Escape and n only end the question; any other key does what it always does."""
        own = [key for each in self._own if each.action == action for key in each.key.split(",")]
        self._asked = question, ("enter", "y", *own), then
        self.draw()


class ListPage(Page):
    """A page with a list of items. The cursor stays with its item when the list changes, else in its place.

    A subclass defines the items in `item_keys`, and their lines in `head` and `listing`; a page with more
    than a list overrides `lines` and calls `window`. A filter leaves the items whose lines have its words.
    """

    OF_ITEM: frozenset[str] = frozenset({"cursor"})
    """The actions of the item at the cursor, which an empty list does not have."""

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        self.cursor = self.below = 0
        self.key: Hashable | None = None
        self.beyond = ""
        """The filter, and how many lines are above and below those of `window`: "▲ 3 more ▼ 12 more"."""
        self._listed: Sequence[int] = range(0)
        """The places of the items that the filter leaves."""
        self._items: list[int | None] = []

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # A filter that leaves no row can be changed.
        return self.key is not None or action not in (*self.OF_ITEM, *([] if self.filter else ["filter"]))

    @abstractmethod
    def item_keys(self) -> Sequence[Hashable]:
        """The identities of the items, in their order. Each call reads them again."""

    def head(self, width: int) -> Line:
        """The rule at the top; called after `window` has set `beyond`."""
        raise NotImplementedError

    def listing(self, width: int) -> ItemLines:
        """The lines of the list, and for each the place of its item, None for a line without an item."""
        raise NotImplementedError

    def lines(self, width: int, height: int) -> list[Line]:
        visible = self.window(*self.listing(width), max(1, height - 1), above=1)
        return [self.head(width), *visible]

    def follow(self) -> None:
        """Find the cursor's item in the present list."""
        keys = self.item_keys()
        place = next((n for n, key in enumerate(keys) if key == self.key), self.cursor)
        self._set_cursor(place, keys)

    def places_kept(self, count: int) -> Sequence[int]:
        """The places of the items, of so many, that the filter leaves."""
        words, texts = self.filter.lower().split(), dict[int, str]()
        if not words:
            return range(count)
        for line, item in zip(*self.listing(self.size.width), strict=True):
            if item is not None:
                texts[item] = texts.get(item, "") + "".join(text for text, _ in line).lower()
        return [item for item, text in texts.items() if all(word in text for word in words)]

    def _set_cursor(self, place: int, keys: Sequence[Hashable]) -> None:
        self._listed = self.places_kept(len(keys))
        after = bisect_left(self._listed, place)
        self.cursor = self._listed[min(after, len(self._listed) - 1)] if self._listed else 0
        self.key = keys[self.cursor] if self._listed else None

    def go_to(self, place: int) -> None:
        """Move the cursor to a place, or to the nearer end."""
        self._set_cursor(place, self.item_keys())
        self.draw()

    def draw(self) -> None:
        # A long list takes time to read. A page above hides this one, which is drawn when that page closes.
        above = self.app.screen
        if isinstance(above, Page) and above is not self:
            return
        self.follow()
        super().draw()

    def window(
        self, lines: Sequence[Line], items: Sequence[int | None], room: int, above: int
    ) -> Sequence[Line]:
        """The `room` lines around the cursor, scrolled as little as possible.

        items  for each line the place of its item, None for a line without an item
        above  how many lines of the body are above these
        """
        if not isinstance(self._listed, range):
            lines, items = self._those_kept(lines, items)
        own = [n for n, item in enumerate(items) if item == self.cursor]
        first, last = (own[0], own[-1]) if own else (0, 0)
        if first < room and {*items[:first]} <= {None}:
            # Whoever goes back to the first item sees the heading again.
            first = 0
        # The whole item is visible where it fits, and its first line always.
        self.top = window(window(self.top, last, room, len(lines)), first, room, len(lines))
        self.step = max(1, room - 1)
        hidden = (("▲", self.top), ("▼", len(lines) - self.top - room))
        only = [f"with “{self.filter}”"] if self.filter else []
        self.beyond = " ".join([*only, *(f"{mark} {count} more" for mark, count in hidden if count > 0)])
        self.lay_out(items[self.top : self.top + room], above)
        return self.pointed(lines[self.top : self.top + room], above)

    def text_below(self, lines: list[Line], room: int) -> list[Line]:
        """What this room shows of a text below the list, from line `below` on."""
        self.below = min(self.below, max(0, len(lines) - room))
        return lines[self.below : self.below + room]

    def _those_kept(self, lines: Sequence[Line], items: Sequence[int | None]) -> ItemLines:
        """The lines of the items that the filter leaves, below the headings of their sections."""
        kept: list[tuple[Line, int | None]] = []
        heading: list[tuple[Line, int | None]] = []
        before: int | None = None
        for line, item in zip(lines, items, strict=True):
            if item is None:
                heading = [*(heading if before is None else ()), (line, None)]
            elif item in self._listed:
                kept, heading = [*kept, *heading, (line, item)], []
            before = item
        none: Line = ((f" nothing has “{self.filter}”: esc shows all", "dim"),)
        kept = kept or [(none, None)]
        return [line for line, _ in kept], [item for _, item in kept]

    def pointed(self, lines: Sequence[Line], above: int) -> list[Line]:
        """These lines of the body, `above` lines below its top, with the cursor's sign where it fits: a
        terminal may show no background."""
        at = None if self.body.lit is None else self.body.lit - above
        return [_with_cursor(line) if place == at else line for place, line in enumerate(lines)]

    def lay_out(self, items: Sequence[int | None], above: int) -> None:
        """Record the item of each line below the first `above`, for clicks and the cursor's background."""
        self._items = [*[None] * above, *items]
        self.body.lit = self._items.index(self.cursor) if self.cursor in self._items else None

    def action_cursor(self, by: int) -> None:
        self.follow()
        if self._listed:
            place = bisect_left(self._listed, self.cursor) + by
            self.go_to(self._listed[min(max(0, place), len(self._listed) - 1)])

    def on_click(self, event: events.Click) -> None:
        self.view.clear_message()
        self._press()
        if event.widget is self.body and event.y < len(self._items):
            place = self._items[event.y]
            if place is not None:
                self.clicked(place)
                return
        self.draw()

    def clicked(self, place: int) -> None:
        """Handle a click on the item at a place: move there; a click where the cursor is does more."""
        again = place == self.cursor
        self.go_to(place)
        if again:
            self.clicked_again()

    def clicked_again(self) -> None:
        """Act on the item at the cursor, where a page does so at a click."""


def _with_cursor(line: Line) -> Line:
    """The line with the cursor's sign in place of its first blank, if it begins with one."""
    if not line or not line[0][0].startswith(" "):
        return line
    (text, style), *rest = line
    return (("▸", "cursor"), (text[1:], style), *rest)


def window(top: int, place: int, room: int, count: int) -> int:
    """The first line to show so that the line at `place` is visible, scrolled as little as possible."""
    return min(max(top, place - room + 1), place, max(0, count - room))
