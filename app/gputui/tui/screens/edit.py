"""Editing the command, in a line of its own over the launch line."""

from __future__ import annotations

import shlex

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gputui.launching.compose import Plan
from gputui.launching.words import WordsError, split
from gputui.tui.widgets.one_line import OneLine


class EditScreen(ModalScreen[str | None]):
    """The typed line, or None when it was left with Escape. A quote left open is said while typing."""

    CSS_PATH = "edit.tcss"
    BINDINGS = [
        ("escape", "dismiss(None)", "Back"),
        # Within a text field Textual would copy.
        Binding("ctrl+c", "app.help_quit", show=False, priority=True),
    ]

    def __init__(self, plan: Plan) -> None:
        super().__init__(classes="one-line")
        words = [*(f"{name}={shlex.quote(value)}" for name, value in plan.additions)]
        self._line = " ".join([*words, *([shlex.join(plan.command)] if plan.command else [])])

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("command (⏎ takes it, esc leaves it)", id="what", markup=False)
            yield OneLine(self._line, placeholder="for example: python train.py")

    def on_input_changed(self, event: Input.Changed) -> None:
        what = self.query_one("#what", Static)
        try:
            split(event.value)
        except WordsError as error:
            what.update(f"{error}")
        else:
            what.update("command (⏎ takes it, esc leaves it)")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            split(event.value)
        except WordsError:
            return
        self.dismiss(event.value)
