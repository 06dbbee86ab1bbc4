"""What has changed between choosing and launching, and the question whether to go on."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static


class ChangedScreen(ModalScreen[bool]):
    """True: run all the same. Enter is no answer, so that a second press of it starts nothing unread."""

    CSS_PATH = "dialog.tcss"
    BINDINGS = [("y", "answer(True)", "Run"), ("n,escape,q", "answer(False)", "Back")]

    def __init__(self, news: tuple[str, ...]) -> None:
        super().__init__(classes="dialog")
        self._news = news

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "changed since you chose"
            for line in self._news:
                yield Static(line, markup=False)
            yield Static("y  run all the same      n  back", markup=False, classes="note")

    def action_answer(self, go: bool) -> None:
        self.dismiss(go)
