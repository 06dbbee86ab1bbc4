"""ConfirmScreen: the question before a launch: on devices that are not free, or that nobody has selected."""

from __future__ import annotations

from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gputui.tui.widgets.dialog_keys import DialogKeys

Answer = Literal["run", "wait", "back", "detach", "return"]


class ConfirmScreen(ModalScreen[Answer]):
    """`reasons` are the facts that the answer depends on, a line each; `may_wait` offers to wait in line.

    Enter is not accepted as an answer, so that a second press of it starts nothing unread; unless the devices
    are `free` and only the choice is asked about. Then the other ways of a start are offered, too.
    """

    CSS_PATH = "dialog.tcss"
    BINDINGS = [
        ("y", "answer('run')", "Run"),
        ("enter", "answer('run', True)", "Run"),
        ("d", "answer('detach', True)", "Run as a job"),
        ("r", "answer('return', True)", "Run and come back"),
        ("w", "answer('wait')", "Wait in line"),
        ("n,escape,q", "answer('back')", "Back"),
    ]

    def __init__(self, reasons: tuple[str, ...], may_wait: bool = False, free: str = "") -> None:
        super().__init__(classes="dialog tells-notes")
        self.reasons, self._may_wait, self._free = reasons, may_wait, free

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._free or "Start anyway?", markup=False, classes="question")
            for line in self.reasons:
                yield Static(line, markup=False)
        waiting = [("w", "wait in line, as a job")] if self._may_wait else []
        keys = [("y", "start anyway"), *waiting, ("n", "cancel")]
        if self._free:
            keys = [("⏎", "yes"), ("d", "as a job"), ("r", "run and come back"), ("esc", "cancel")]
        yield DialogKeys(keys)

    def action_answer(self, answer: Answer, of_free: bool = False) -> None:
        if (answer != "wait" or self._may_wait) and (self._free or not of_free):
            self.dismiss(answer)
