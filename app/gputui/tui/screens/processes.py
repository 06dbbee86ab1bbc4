"""The processes on the whole screen: sorted, filtered, as a list or as trees; and signals to one's own."""

from __future__ import annotations

import signal
from collections.abc import Callable

from textual import events

from gputui.inventory.formatting import printable, program
from gputui.inventory.process import Process
from gputui.system.signals import SignalError, send
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import SORTS, Row, rows
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.processes import listed
from gputui.tui.views.text import Line, clip, title, wrap

_KEYS = " esc back  ↑↓ process  s sort  / filter  tab tree  P people  X signal"


class ProcessesScreen(PartsScreen):
    """Follows the app state of the screen below; the key that opened it closes it. `people` opens that
    screen."""

    BINDINGS = [
        ("escape,q,p", "dismiss", "Close"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("home,g", "cursor(-100000)", "First"),
        ("end,G", "cursor(100000)", "Last"),
        ("s", "sort", "Sort"),
        ("slash", "filter", "Filter"),
        ("tab", "tree", "List or trees"),
        ("P", "people", "People"),
        ("X", "signal", "Signal"),
    ]

    def __init__(
        self, app_state: Callable[[], AppState], people: Callable[[], None], wanted: str = ""
    ) -> None:
        super().__init__()
        self._app_state, self._people = app_state, people
        self._sort, self._wanted, self._tree = SORTS[0], wanted, False
        self._cursor = self._top = 0
        self._at: Row | None = None
        self._asked: tuple[Process, int] | None = None
        self._terminated: set[tuple[int, float | None]] = set()
        self._message = ""

    def on_key(self, event: events.Key) -> None:
        self._message = ""
        if event.key != "X":
            self._asked = None

    # What is painted

    def draw(self) -> None:
        width = self.size.width
        if not width:
            return
        self._follow()
        told: list[Line] = []
        if self._at is not None:
            # The whole command line of the one under the cursor: the list cuts it.
            told = [((f" {piece}", "dim"),) for piece in wrap(self._at.what, width - 2)[:3]]
        line = ((" ▌ ", "key"), (self._message, "")) if self._message else ((_KEYS, "dim"),)
        self.paint(self._drawn, [title("command", width), *told, clip(line, width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        found = self._follow()
        room = max(1, height - 2)
        self._top = window(self._top, self._cursor, room, len(found))
        self.picture.lit = self._cursor - self._top + 2 if found else None
        said = [f"by {self._sort}", *([f"with “{self._wanted}”"] if self._wanted else [])]
        head = title("processes", width, ", ".join(said))
        return [head, *listed(found[self._top : self._top + room], width, found)]

    @property
    def _rows(self) -> tuple[Row, ...]:
        return rows(self._app_state(), self._sort, self._wanted, self._tree)

    def _follow(self) -> tuple[Row, ...]:
        """The rows; the cursor stays with its process when the list changes, or else in its place."""
        found = self._rows
        wanted = self._at.identity if self._at else None
        place = next((n for n, row in enumerate(found) if row.identity == wanted), None)
        self._cursor = min(self._cursor, max(0, len(found) - 1)) if place is None else place
        self._at = found[self._cursor] if found else None
        return found

    def _go(self, place: int) -> None:
        found = self._rows
        self._cursor = min(max(0, place), max(0, len(found) - 1))
        self._at = found[self._cursor] if found else None
        self.draw()

    # What keys do

    def action_cursor(self, by: int) -> None:
        self._follow()
        self._go(self._cursor + by)

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.draw()

    def action_tree(self) -> None:
        self._tree = not self._tree
        self.draw()

    def action_filter(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self._wanted = text.strip()
                self._go(0)
            self.draw()

        prompt = "a user, a word of the command, a pid, a container, “gpu 3” (empty: all)"
        self.app.push_screen(LineScreen(prompt, self._wanted), answered)

    def action_people(self) -> None:
        self.dismiss()
        self._people()

    def action_signal(self) -> None:
        """Asked for twice; SIGTERM at first, SIGKILL for one that has had it.

        The second press is for the process that the first one named, wherever it is in the list by now.
        """
        app_state = self._app_state()
        if self._asked is not None:
            (process, number), self._asked = self._asked, None
            self._message = self._sent(process, number)
        elif app_state.label:
            self._message = f"these processes are not this machine's ({app_state.label})"
        elif self._at is None or self._at.process is None:
            self._message = "no process to signal here"
        else:
            process = self._at.process
            again = (process.pid, process.started) in self._terminated
            self._asked = (process, signal.SIGKILL if again else signal.SIGTERM)
            self._message = f"X again sends {_what(*self._asked)}"
        self.draw()

    def _sent(self, process: Process, number: int) -> str:
        """Send it; what became of it."""
        try:
            send(process, number)
        except SignalError as error:
            return printable(str(error))
        self._terminated.add((process.pid, process.started))
        return f"{_what(process, number)} is sent"

    def on_click(self, event: events.Click) -> None:
        place = event.y - 2 + self._top
        self._message, self._asked = "", None
        if event.widget is self.picture and event.y >= 2 and place < len(self._rows):
            self._go(place)


def _what(process: Process, number: int) -> str:
    return f"{signal.Signals(number).name} to {program(process.command or '?')} (pid {process.pid})"
