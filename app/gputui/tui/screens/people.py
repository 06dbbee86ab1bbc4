"""The people on the whole screen: whom to ask for a device."""

from __future__ import annotations

from collections.abc import Callable

from gputui.choosing.people import Person, people, quiet_for
from gputui.tui.board import Board
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.people import headline, idle_words, listed
from gputui.tui.views.text import Line, clip

_KEYS = " esc back  ↑↓ person  ⏎ their processes"


class PeopleScreen(PartsScreen):
    """Follows the board of the screen below; `processes` opens the list of one user's."""

    BINDINGS = [
        ("escape,q,P", "dismiss", "Back"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("enter,p", "processes", "Processes"),
    ]

    def __init__(self, board: Callable[[], Board], processes: Callable[[str], None]) -> None:
        super().__init__()
        self._board, self._processes = board, processes
        self._cursor = self._top = 0

    @property
    def _people(self) -> tuple[Person, ...]:
        board = self._board()
        if board.snapshot is None:
            return ()
        return people(board.snapshot, quiet_for(board.watch, board.snapshot))

    def draw(self) -> None:
        width = self.size.width
        if not width:
            return
        words = idle_words(self._people, self._board())
        told: list[Line] = [clip(((f" {words}", "warn"),), width)] if words else []
        self.paint(self._drawn, [*told, clip(((_KEYS, "dim"),), width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        found = self._people
        self._cursor = min(self._cursor, max(0, len(found) - 1))
        lines, places = listed(found, self._board(), width)
        place = places[self._cursor] if places else 0
        room = max(1, height - 1)
        self._top = window(self._top, place, room, len(lines))
        self.picture.lit = place - self._top + 1 if places else None
        return [headline(found, width), *lines[self._top : self._top + room]]

    def action_cursor(self, by: int) -> None:
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._people) - 1))
        self.draw()

    def action_processes(self) -> None:
        found = self._people
        if found:
            self.dismiss()
            self._processes(found[self._cursor].user or "?")
