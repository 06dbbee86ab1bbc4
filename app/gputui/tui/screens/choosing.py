"""The keys by which devices are chosen and ordered, on a screen that shows a board."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from textual.screen import Screen

from gputui.choosing.job import JobError, asked
from gputui.inventory.device import Device
from gputui.tui.board import Board

BEST_PROMPT = "how many of the best?  4, or 8 tp=2 pp=2   (⏎ takes, esc leaves)"


def wrong_number(line: str) -> str | None:
    """What is wrong with a number of devices and a shape, None for nothing."""
    try:
        asked(line)
    except JobError as error:
        return str(error)
    return None


class Choosing(Screen[None]):
    """What `tui/actions.py` calls to choose. A screen of this kind shows a board and says things."""

    board: Board

    @abstractmethod
    def set_board(self, board: Board) -> None:
        """Show another board."""

    @abstractmethod
    def say(self, text: str | None, tone: str = "") -> None:
        """Say something until the next key; None says nothing."""

    @property
    @abstractmethod
    def message(self) -> str:
        """What is being said, "" for nothing."""

    def toggle(self, device: Device, follow: bool = True) -> None:
        cursor = self.board.cursor
        board, news = self.board.toggle(device)
        self.set_board(board if follow else replace(board, cursor=cursor))
        self.say(news, "warn")

    def _take(self, board: Board, news: str | None) -> None:
        """Show a board that a key has made, and say what there is to it: a warning where it made none."""
        unchanged = board is self.board
        self.set_board(board)
        self.say(news, "warn" if unchanged else "")

    def action_select(self) -> None:
        if self.board.current is not None:
            self.toggle(self.board.current)

    def action_number(self, index: int) -> None:
        device = self.board.numbered(index)
        if device is None:
            self.say(f"there is no GPU {index}", "warn")
        else:
            self.toggle(device, follow=False)

    def action_cursor(self, by: int) -> None:
        self.set_board(self.board.move_cursor(by))

    def action_reorder(self, by: int) -> None:
        if not self.board.selection.keys:
            self.say("nothing is chosen yet: space or 0-9 chooses", "warn")
        self.set_board(self.board.reorder(by))

    def action_best(self) -> None:
        self._take(*self.board.add_best())

    def action_other_best(self) -> None:
        self._take(*self.board.other_best())

    def action_ask_best(self) -> None:
        from gputui.tui.screens.line import LineScreen

        def answered(line: str | None) -> None:
            if line and line.strip():
                self._take(*self.board.best_of(*asked(line)))
            self._follow()

        self.app.push_screen(LineScreen(BEST_PROMPT, placeholder="how many", check=wrong_number), answered)

    def action_topology(self) -> None:
        from gputui.tui.screens.topology import TopologyScreen

        if isinstance(self.app.screen, TopologyScreen):
            return
        self.app.push_screen(
            TopologyScreen(lambda: self.board, self.set_board, self.run_action, lambda: self.message)
        )

    def _follow(self) -> None:
        """Let the screen that stands over this one show the board at once."""
        follow = getattr(self.app.screen, "draw", None)
        if follow is not None and self.app.screen is not self:
            follow()

    def action_order(self) -> None:
        self._take(*self.board.next_order())

    def action_clear(self) -> None:
        self.set_board(self.board.clear())

    def action_cpu(self) -> None:
        self.set_board(self.board.cpu_only())

    def action_ids(self) -> None:
        self.set_board(self.board.other_ids())

    def action_launcher(self) -> None:
        self.set_board(self.board.next_launcher())
