"""The processes of the box, on the whole screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.screen import ModalScreen

from gputui.tui.board import Board
from gputui.tui.views.processes import processes
from gputui.tui.views.text import Line
from gputui.tui.widgets.lines import Lines

_ALL = 100_000
"""Lines enough for every process and its whole command line."""


class ProcessesScreen(ModalScreen[None]):
    """Follows the board of the screen below; arrows scroll, the key that opened it closes it."""

    CSS_PATH = "processes.tcss"
    BINDINGS = [
        ("escape,q,p", "dismiss", "Close"),
        ("down,j", "scroll(1)", "Down"),
        ("up,k", "scroll(-1)", "Up"),
    ]

    def __init__(self, board: Callable[[], Board]) -> None:
        super().__init__()
        self._board = board
        self._top = 0

    def compose(self) -> ComposeResult:
        yield Lines(id="all")

    def on_mount(self) -> None:
        self.set_interval(1.0, self._draw)

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        rule, *rest = processes(self._board(), width, _ALL)
        self._top = min(self._top, max(0, len(rest) - height + 2))
        shown = rest[self._top : self._top + height - 2]
        filler: list[Line] = [(("", ""),)] * (height - 2 - len(shown))
        lines: list[Line] = [rule, *shown, *filler, ((" esc back   ↑↓ scroll", "dim"),)]
        self.query_one("#all", Lines).draw(lambda width, height: lines)

    def action_scroll(self, by: int) -> None:
        self._top = max(0, self._top + by)
        self._draw()
