"""ProcessesScreen: all processes: sorted, filtered, as a list or as trees; and signals to one's own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Hashable, Sequence

from gputui.inventory.formatting import printable, program
from gputui.inventory.process import Process
from gputui.system.signals import SignalError, send
from gputui.tui.main_view import MainView
from gputui.tui.process_rows import SORTS, Row, rows
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.processes import listed
from gputui.tui.views.text import Line, title, wrap


class ProcessesScreen(ListPage):
    """The key that opened it closes it. `open_people` opens that page; `filter_text` is as in `rows`."""

    BINDINGS = [
        shown("escape,q,p", "dismiss", "back", "esc"),
        *cursor_bindings("process"),
        shown("s", "sort", "sort"),
        shown("slash", "filter", "filter", "/"),
        shown("tab", "tree", "tree"),
        shown("P", "people", "people"),
        shown("X", "signal", "signal"),
    ]

    def __init__(self, view: MainView, open_people: Callable[[], None], filter_text: str = "") -> None:
        super().__init__(view)
        self._open_people = open_people
        self._sort, self._filter_text, self._tree = SORTS[0], filter_text, False
        self._rows: tuple[Row, ...] = ()
        self._terminated: set[tuple[int, float | None]] = set()

    # What is painted

    def item_keys(self) -> Sequence[Hashable]:
        self._rows = rows(self.view.app_state, self._sort, self._filter_text, self._tree)
        return [row.identity for row in self._rows]

    @property
    def _row(self) -> Row | None:
        """The row under the cursor, as it was painted last."""
        return self._rows[self.cursor] if self._rows else None

    def notes(self, width: int) -> list[Line]:
        row = self._row
        # The whole command line of the one under the cursor: the list cuts it.
        command: list[Line] = (
            [((f" {piece}", "dim"),) for piece in wrap(row.what, width - 2)[:3]] if row else []
        )
        return [title("command", width), *command]

    def lines(self, width: int, height: int) -> list[Line]:
        how = [f"by {self._sort}", *([f"with “{self._filter_text}”"] if self._filter_text else [])]
        head = title("processes", width, ", ".join(how))
        heading, *listing = listed(self._rows, width, self._rows)
        return [head, heading, *self.window(listing, range(len(listing)), max(1, height - 2), above=2)]

    # What keys do

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.draw()

    def action_tree(self) -> None:
        self._tree = not self._tree
        self.draw()

    def action_filter(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self._filter_text = text.strip()
                self.go_to(0)
            self.draw()

        prompt = "a user, a word of the command, a pid, a container, “gpu 3” (empty: all)"
        self.app.push_screen(LineScreen(prompt, self._filter_text), answered)

    def action_people(self) -> None:
        self.dismiss()
        self._open_people()

    def action_signal(self) -> None:
        """Asked for twice; SIGTERM at first, SIGKILL for one that has had it.

        The second press is for the process that the first one named, wherever it is in the list by now.
        """
        asked, row = self.confirmed("signal"), self._row
        if asked is not None:
            self.show_message(self._send(*asked))
        elif self.view.app_state.label:
            self.show_message(f"these processes are not this machine's ({self.view.app_state.label})")
        elif row is None or row.process is None:
            self.show_message("no process to signal here")
        else:
            again = (row.process.pid, row.process.started) in self._terminated
            number = signal.SIGKILL if again else signal.SIGTERM
            self.ask_again("signal", (row.process, number), f"X again sends {_what(row.process, number)}")

    def _send(self, process: Process, number: int) -> str:
        """Send the signal; what became of it."""
        try:
            send(process, number)
        except SignalError as error:
            return printable(str(error))
        self._terminated.add((process.pid, process.started))
        return f"{_what(process, number)} is sent"


def _what(process: Process, number: int) -> str:
    return f"{signal.Signals(number).name} to {program(process.command or '?')} (pid {process.pid})"
