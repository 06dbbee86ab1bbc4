"""One line to type, at the bottom of the screen: a command, a number, a name."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gputui.tui.widgets.one_line import OneLine


class LineScreen(ModalScreen[str | None]):
    """What was typed, or None when it was left with Escape.

    `check` says what is wrong with a line, while it is typed; such a line is not taken.
    """

    CSS_PATH = "line_input.tcss"
    BINDINGS = [("escape", "dismiss(None)", "Back")]

    def __init__(
        self,
        prompt: str,
        value: str = "",
        placeholder: str = "",
        check: Callable[[str], str | None] | None = None,
    ) -> None:
        super().__init__(classes="one-line")
        self._prompt, self._value, self._placeholder = prompt, value, placeholder
        self._check = check or (lambda line: None)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._prompt, id="what", markup=False)
            yield OneLine(self._value, placeholder=self._placeholder)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#what", Static).update(self._wrong(event.value) or self._prompt)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        wrong = self._wrong(event.value)
        if wrong is None:
            self.dismiss(event.value)
        else:
            self.query_one("#what", Static).update(wrong)

    def _wrong(self, line: str) -> str | None:
        return self._check(line) if line.strip() else None
