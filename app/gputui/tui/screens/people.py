"""The people on the whole screen: whom to ask for a device."""

from __future__ import annotations

from collections.abc import Callable

from gputui.choosing.people import Person, idle_seconds, people
from gputui.inventory.formatting import printable
from gputui.tui.app_state import AppState
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.people import headline, held_lines, idle_words, listed
from gputui.tui.views.text import Line, clip

_KEYS = " esc back  ↑↓ person  ⏎ their processes"


class PeopleScreen(PartsScreen):
    """Follows the app state of the screen below; `processes` opens the list of one user's."""

    BINDINGS = [
        ("escape,q,P", "dismiss", "Back"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("home,g", "cursor(-100000)", "First"),
        ("end,G", "cursor(100000)", "Last"),
        ("enter,p", "processes", "Processes"),
    ]

    def __init__(self, app_state: Callable[[], AppState], processes: Callable[[str], None]) -> None:
        super().__init__()
        self._app_state, self._processes = app_state, processes
        self._cursor = self._top = 0
        self._at: Person | None = None

    @property
    def _people(self) -> tuple[Person, ...]:
        app_state = self._app_state()
        if app_state.snapshot is None:
            return ()
        return people(app_state.snapshot, idle_seconds(app_state.watch, app_state.snapshot))

    def draw(self) -> None:
        width = self.size.width
        if not width:
            return
        words = idle_words(self._people, self._app_state())
        told: list[Line] = [clip(((f" {words}", "warn"),), width)] if words else []
        self.paint(self._drawn, [*told, clip(((_KEYS, "dim"),), width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        found = self._follow()
        lines, places = listed(found, self._app_state(), width)
        lines += held_lines(found, self._app_state(), width)
        place = places[self._cursor] if places else 0
        last = ([*places, len(lines)][self._cursor + 1] if places else len(lines)) - 1
        room = max(1, height - 1)
        # All of a person where that fits, the name in any case.
        self._top = window(window(self._top, last, room, len(lines)), place, room, len(lines))
        self.picture.lit = place - self._top + 1 if places else None
        return [headline(found, width), *lines[self._top : self._top + room]]

    def _follow(self) -> tuple[Person, ...]:
        """The people; the cursor stays with its person, whose place changes with the memory of all."""
        found = self._people
        place = next((n for n, each in enumerate(found) if self._at and each.user == self._at.user), None)
        self._cursor = min(self._cursor, max(0, len(found) - 1)) if place is None else place
        self._at = found[self._cursor] if found else None
        return found

    def action_cursor(self, by: int) -> None:
        found = self._follow()
        self._cursor = min(max(0, self._cursor + by), max(0, len(found) - 1))
        self._at = found[self._cursor] if found else None
        self.draw()

    def action_processes(self) -> None:
        # The one under the cursor as it was painted last: that is whom the key was meant for.
        if self._at is not None:
            name = self._at.user
            self.dismiss()
            self._processes(f"user {'?' if name is None else printable(name)}")
