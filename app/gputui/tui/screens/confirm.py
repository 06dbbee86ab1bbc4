"""ConfirmScreen: the question before a launch on devices that are not free, or for which others wait."""

from __future__ import annotations

from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

Answer = Literal["run", "wait", "back"]


class ConfirmScreen(ModalScreen[Answer]):
    """`reasons` are the facts that the answer depends on, a line each; `may_wait` offers to wait in line.

    Enter is not accepted as an answer, so that a second press of it starts nothing unread.
    """

    CSS_PATH = "dialog.tcss"
    BINDINGS = [
        ("y", "answer('run')", "Run"),
        ("w", "answer('wait')", "Wait in line"),
        ("n,escape,q", "answer('back')", "Back"),
    ]

    def __init__(self, reasons: tuple[str, ...], may_wait: bool = False) -> None:
        super().__init__(classes="dialog")
        self.reasons, self._may_wait = reasons, may_wait

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "start anyway?"
            for line in self.reasons:
                yield Static(line, markup=False)
            waiting = "w  wait in line, as a job      " if self._may_wait else ""
            yield Static(f"y  start anyway      {waiting}n  cancel", markup=False, classes="note")

    def action_answer(self, answer: Answer) -> None:
        if answer != "wait" or self._may_wait:
            self.dismiss(answer)
