"""The processes on the whole screen: sorted, filtered, as a list or as trees; and signals to one's own."""

from __future__ import annotations

import signal
from collections.abc import Callable

from textual import events

from gputui.inventory.process import Process
from gputui.inventory.wording import program
from gputui.launching.signals import SignalError, send
from gputui.tui.board import Board
from gputui.tui.process_rows import SORTS, Row, rows
from gputui.tui.screens.line import LineScreen
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.processes import listed
from gputui.tui.views.text import Line, clip, title, wrap

_KEYS = " esc back  ↑↓ process  s sort  / filter  tab tree  P people  X signal"


class ProcessesScreen(PartsScreen):
    """Follows the board of the screen below; the key that opened it closes it. `people` opens that screen."""

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

    def __init__(self, board: Callable[[], Board], people: Callable[[], None], wanted: str = "") -> None:
        super().__init__()
        self._board, self._people = board, people
        self._sort, self._wanted, self._tree = SORTS[0], wanted, False
        self._cursor = self._top = 0
        self._asked: tuple[int, int] | None = None
        self._terminated: set[int] = set()
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
        found = self._rows
        told: list[Line] = []
        if found:
            # The whole command line of the one under the cursor: the list cuts it.
            row = found[min(self._cursor, len(found) - 1)]
            told = [((f" {piece}", "dim"),) for piece in wrap(row.what, width - 2)[:3]]
        line = ((" ▌ ", "key"), (self._message, "")) if self._message else ((_KEYS, "dim"),)
        self.paint(self._drawn, [title("command", width), *told, clip(line, width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        found = self._rows
        self._cursor = min(self._cursor, max(0, len(found) - 1))
        room = max(1, height - 2)
        self._top = window(self._top, self._cursor, room, len(found))
        self.picture.lit = self._cursor - self._top + 2 if found else None
        said = [f"by {self._sort}", *([f"with “{self._wanted}”"] if self._wanted else [])]
        head = title("processes", width, ", ".join(said))
        return [head, *listed(found[self._top : self._top + room], width, found)]

    @property
    def _rows(self) -> tuple[Row, ...]:
        return rows(self._board(), self._sort, self._wanted, self._tree)

    @property
    def _process(self) -> Process | None:
        found = self._rows
        return found[min(self._cursor, len(found) - 1)].process if found else None

    # What keys do

    def action_cursor(self, by: int) -> None:
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._rows) - 1))
        self.draw()

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.draw()

    def action_tree(self) -> None:
        self._tree = not self._tree
        self.draw()

    def action_filter(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self._wanted, self._cursor = text.strip(), 0
            self.draw()

        prompt = "a user, a word of the command, a pid, a container, “gpu 3” (empty: all)"
        self.app.push_screen(LineScreen(prompt, self._wanted), answered)

    def action_people(self) -> None:
        self.dismiss()
        self._people()

    def action_signal(self) -> None:
        """Asked for twice; SIGTERM at first, SIGKILL for one that has had it."""
        process = self._process
        if process is None:
            self._message = "no process to signal here"
            self.draw()
            return
        number = signal.SIGKILL if process.pid in self._terminated else signal.SIGTERM
        what = f"{number.name} to {program(process.command or '?')} (pid {process.pid})"
        if self._asked != (process.pid, number):
            self._asked = (process.pid, number)
            self._message = f"X again sends {what}"
        else:
            self._asked = None
            try:
                send(process, number)
                self._terminated.add(process.pid)
                self._message = f"{what} is sent"
            except SignalError as error:
                self._message = str(error)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        place = event.y - 2 + self._top
        if event.widget is self.picture and event.y >= 2 and place < len(self._rows):
            self._cursor = place
            self.draw()
