"""ProcessesScreen: all processes as a list, as trees, or by person; signals to the user's own."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.tui.app_state import AppState
from gputui.tui.cycle import following
from gputui.tui.main_view import MainView
from gputui.tui.process_rows import SORTS, Form, Row, next_step, rows
from gputui.tui.screens.page import FILTER, shown
from gputui.tui.screens.process_list import END, ProcessListPage
from gputui.tui.views.processes import Listing, listed
from gputui.tui.views.table import why_no_rows
from gputui.tui.views.text import Line, title, told_lines


class ProcessesScreen(ProcessListPage):
    """Its other opening, `:people`, is by person."""

    BINDINGS = [
        FILTER,
        shown("s", "sort", "sort", about="Next order: " + ", ".join(SORTS)),
        shown("tab", "show_as('trees')", "tree", about="As trees of parent processes"),
        shown("tab", "show_list('trees')", "list", about="As a list again"),
        shown("P", "show_as('people')", "by person", about="By person, who is idle first"),
        shown("P", "show_list('people')", "by device", about="By device again"),
        END,
        shown("enter", "user", "this user", "⏎", "Only the processes of the user at the cursor"),
    ]

    FILTER_PROMPT = "a user, a word of the command, a pid, a container, “gpu 3” (empty: all)"

    def __init__(self, view: MainView, form: Form = "list") -> None:
        super().__init__(view)
        self._sort, self._form = SORTS[0], form
        self._visible: tuple[Row, ...] = ()
        self._made: tuple[AppState, tuple[str, str, Form], tuple[Row, ...]] | None = None
        self._listing: Listing | None = None
        """The list as it was last drawn."""
        if form != "people":
            # Who may be asked for a device is at the top of the people.
            here = view.app_state.cursor
            self.key = next((row.identity for row in self.process_rows() if row.key == here), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("show_as", "show_list"):
            return (parameters[0] == self._form) == (action == "show_list")
        return super().check_action(action, parameters)

    def places_kept(self, count: int) -> Sequence[int]:
        # The rows are those that match: more than their lines show.
        return range(count)

    # Painting

    def process_rows(self) -> tuple[Row, ...]:
        app_state, how = self.app_state, (self._sort, self.filter, self._form)
        # A key press calls this several times, and two thousand processes take a while.
        if self._made is None or self._made[0] is not app_state or self._made[1] != how:
            self._made = (app_state, how, rows(app_state, *how))
        return self._made[2]

    def looked_at(self) -> tuple[str, ...]:
        # A sort by use needs the use of all processes.
        seen = self.rows if self._sort in ("load", "CPU", "RAM") else self._visible
        keys = {row.key for row in seen if row.process}
        return tuple(device.key for device in self.app_state.box.devices if device.key in keys)

    def notes(self, width: int) -> list[Line]:
        row, listing = self.row, self._listing
        if row is None or listing is None:
            return []
        # What the row does not show: the rest of a command that is cut, the path of its program.
        line = listing.lines(self.cursor, self.cursor + 1)[0]
        whole = row.what == row.short and not line[-1][0].endswith("…")
        text = "" if whole else row.what
        name = "command" if text and row.pid else row.state or row.user
        texts = filter(None, (text, next_step(self.app_state, row)))
        told = [line for each in texts for line in told_lines(each, "dim", width)[:3]]
        return [title(name, width), *told] if told else []

    def lines(self, width: int, height: int) -> list[Line]:
        if not self.rows:
            self._visible = ()
            return [self._head(width), *told_lines(self._none(), "dim", width)]
        room = max(1, height - 2)
        listing = self._listing = listed(self.rows, width)
        visible = self.part(listing, room, above=2)
        seen = listing.items[self.top : self.top + room]
        self._visible = tuple(self.rows[place] for place in dict.fromkeys(seen))
        return [self._head(width), listing.heading, *visible]

    def _none(self) -> str:
        """Why the list is empty."""
        if self.filter:
            return f"no process matches “{self.filter}”: / changes the filter"
        if not self.app_state.box.devices:
            return why_no_rows(self.app_state)
        return "nobody uses a device of this box, or has claimed one"

    def _head(self, width: int) -> Line:
        people = sum(row.person is not None for row in self.rows)
        by_person = self._form == "people"
        how = [
            f"{people} {'person' if people == 1 else 'people'}" if people else "",
            f"by {self._sort}" if not by_person or self._sort != SORTS[0] else "",
            self.beyond if self.rows else "",
        ]
        return title("processes by person" if by_person else "processes", width, ", ".join(filter(None, how)))

    # Key actions

    def action_sort(self) -> None:
        self._sort = following(SORTS, self._sort)
        self.draw()

    def action_user(self) -> None:
        # The row as it was last painted: the key was meant for that row.
        if self.row is not None and self.row.same_user:
            self.filter, self._form = self.row.same_user, "list"
            self.draw()

    def action_show_as(self, form: Form) -> None:
        """Change to this form."""
        self._form = form
        if self._form == "people":
            # Who may be asked for a device is at the top.
            self.cursor, self.key = 0, None
            if self.filter.startswith("user "):
                self.filter = ""
        self.draw()

    def action_show_list(self, form: Form) -> None:
        """Change from this form to the list."""
        self.action_show_as("list")
