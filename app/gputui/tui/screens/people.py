"""PeopleScreen: the users on a full page: whom to ask for a device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from gputui.choosing.people import Person, idle_seconds, people
from gputui.inventory.formatting import printable
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.people import headline, idle_notice, listed
from gputui.tui.views.text import Line, clip


class PeopleScreen(ListPage):
    """`open_processes` opens the list of processes, filtered by its argument."""

    BINDINGS = [
        shown("escape,q,P", "dismiss", "back", "esc"),
        *cursor_bindings("person"),
        shown("enter,p", "processes", "their processes", "⏎"),
    ]

    def __init__(self, view: MainView, open_processes: Callable[[str], None]) -> None:
        super().__init__(view)
        self._open_processes = open_processes
        self._people: tuple[Person, ...] = ()

    def item_keys(self) -> Sequence[Hashable]:
        app_state = self.view.app_state
        snapshot = app_state.snapshot
        self._people = people(snapshot, idle_seconds(app_state.watch, snapshot)) if snapshot else ()
        return [(person.user,) for person in self._people]

    def notes(self, width: int) -> list[Line]:
        notice = idle_notice(self._people, self.view.app_state)
        return [clip(((f" {notice}", "warn"),), width)] if notice else []

    def head(self, width: int) -> Line:
        return headline(self._people, width)

    def listing(self, width: int) -> tuple[list[Line], list[int | None]]:
        return listed(self._people, self.view.app_state, width)

    def action_processes(self) -> None:
        # The user under the cursor as it was last painted: the key was meant for that row.
        if self._people:
            name = self._people[self.cursor].user
            self.dismiss()
            self._open_processes(f"user {'?' if name is None else printable(name)}")
