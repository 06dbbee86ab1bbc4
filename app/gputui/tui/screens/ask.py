"""How many of the best devices, and for what: one line to type."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gputui.choosing.job import Job, JobError, asked
from gputui.tui.widgets.one_line import OneLine

PROMPT = "how many of the best?  4, or 8 tp=2 pp=2   (⏎ takes, esc leaves)"


class AskScreen(ModalScreen[tuple[int, Job] | None]):
    """A number and a shape, or None when it was left with Escape. What is wrong is said while typing."""

    CSS_PATH = "edit.tcss"
    BINDINGS = [
        ("escape", "dismiss(None)", "Back"),
        Binding("ctrl+c", "app.help_quit", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__(classes="one-line")

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(PROMPT, id="what", markup=False)
            yield OneLine("", placeholder="how many")

    def on_input_changed(self, event: Input.Changed) -> None:
        what = self.query_one("#what", Static)
        try:
            if event.value.strip():
                asked(event.value)
        except JobError as error:
            what.update(f"{error}")
        else:
            what.update(PROMPT)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if not event.value.strip():
            self.dismiss(None)
            return
        try:
            self.dismiss(asked(event.value))
        except JobError as error:
            self.query_one("#what", Static).update(f"{error}")
