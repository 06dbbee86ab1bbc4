"""ProcessesScreen: all processes as a list, as trees, or by person; signals to the user's own."""

from __future__ import annotations

from gputui.tui.app_state import AppState
from gputui.tui.main_view import MainView
from gputui.tui.process_rows import SORTS, Form, Row, rows
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import cursor_bindings, shown
from gputui.tui.screens.process_list import ProcessListPage, part_shown
from gputui.tui.views.processes import idle_notice, listed
from gputui.tui.views.text import Line, clip, title, told_lines


class ProcessesScreen(ProcessListPage):
    """The people open it by person."""

    BINDINGS = [
        shown("escape,q,p", "dismiss", "back", "esc"),
        *cursor_bindings("process"),
        shown("s", "sort", "sort", about="Next order: " + ", ".join(SORTS)),
        shown("slash", "filter", "filter", "/", "Show some processes only"),
        shown("tab", "show_as('trees')", "tree", about="As trees of who started whom, or as a list"),
        shown("P", "show_as('people')", "people", about="By person, or as a list"),
        shown("X", "signal", "signal", about="Send SIGTERM, the next time SIGKILL; asks first"),
        shown("enter", "user", "this user", "⏎", "Only the processes of the user at the cursor"),
    ]

    def __init__(self, view: MainView, form: Form = "list") -> None:
        super().__init__(view)
        self._sort, self._filter_text, self._form = SORTS[0], "", form
        self._visible: tuple[Row, ...] = ()
        self._made: tuple[AppState, tuple[str, str, Form], tuple[Row, ...]] | None = None

    # Painting

    def process_rows(self) -> tuple[Row, ...]:
        app_state, how = self.view.app_state, (self._sort, self._filter_text, self._form)
        # A key press calls this several times, and two thousand processes take a while.
        if self._made is None or self._made[0] is not app_state or self._made[1] != how:
            self._made = (app_state, how, rows(app_state, *how))
        return self._made[2]

    def looked_at(self) -> tuple[str, ...]:
        # A sort by use needs the use of all processes.
        seen = self.rows if self._sort in ("GPU", "CPU", "RAM") else self._visible
        keys = {row.key for row in seen if row.process}
        snapshot = self.view.app_state.snapshot
        return tuple(device.key for device in snapshot.devices if device.key in keys) if snapshot else ()

    def notes(self, width: int) -> list[Line]:
        row = self.row
        notice = idle_notice([each.person for each in self.rows if each.person], self.view.app_state)
        idle = [clip(((f" {notice}", "warn"),), width)] if notice else []
        # The whole command line of the row under the cursor: the list may have cut it. A person has devices.
        name, text = ("devices", row.short) if row and row.person else ("command", row.what if row else "")
        return [*idle, title(name, width), *(told_lines(text, "dim", width)[:3] if row else ())]

    def lines(self, width: int, height: int) -> list[Line]:
        if not self.rows:
            self._visible = ()
            nothing = self._form == "people" and not self._filter_text
            none = " no processes or claims on this box" if nothing else " none"
            return [self._head(width, ""), clip(((none, "dim"),), width)]
        room = max(1, height - 2)
        listing = listed(self.rows, width, room)
        visible = self.part(listing, room, above=2)
        seen = listing.items[self.top : self.top + room]
        self._visible = tuple(self.rows[place] for place in dict.fromkeys(seen))
        part = part_shown(seen, len(self.rows))
        return [self._head(width, part), listing.heading, *visible]

    def _head(self, width: int, part: str) -> Line:
        people = sum(row.person is not None for row in self.rows)
        by_person = self._form == "people"
        how = [
            f"{people} on this box" if people else "",
            f"by {self._sort}" if not by_person or self._sort != SORTS[0] else "",
            f"with “{self._filter_text}”" if self._filter_text else "",
            part,
        ]
        return title("people" if by_person else "processes", width, ", ".join(filter(None, how)))

    # Key actions

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.draw()

    def action_user(self) -> None:
        # The row as it was last painted: the key was meant for that row.
        if self.row is not None and self.row.same_user:
            self._filter_text, self._form = self.row.same_user, "list"
            self.draw()

    def action_show_as(self, form: Form) -> None:
        """Change to this form; from it, back to the list."""
        self._form = "list" if form == self._form else form
        if self._form == "people" and self._filter_text.startswith("user "):
            self._filter_text = ""
        self.draw()

    def action_filter(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self._filter_text = text.strip()
                self.go_to(0)
            self.draw()

        prompt = "a user, a word of the command, a pid, a container, “gpu 3” (empty: all)"
        self.app.push_screen(LineScreen(prompt, self._filter_text), answered)
