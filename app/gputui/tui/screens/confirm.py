"""The question before a launch on devices that are not free, or for which others wait."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static


class ConfirmScreen(ModalScreen[bool]):
    """True: run all the same. Enter is no answer, so that a second press of it starts nothing unread."""

    CSS_PATH = "dialog.tcss"
    BINDINGS = [("y", "answer(True)", "Run"), ("n,escape,q", "answer(False)", "Back")]

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(classes="dialog")
        self.reasons = reasons
        """What there is to know before the answer, a line each."""

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "run on these devices?"
            for line in self.reasons:
                yield Static(line, markup=False)
            yield Static("y  run all the same      n  back", markup=False, classes="note")

    def action_answer(self, go: bool) -> None:
        self.dismiss(go)
