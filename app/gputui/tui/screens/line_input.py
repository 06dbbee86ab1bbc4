"""LineScreen: one line of text input, at the bottom of the screen: a command, a number, a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gputui.inventory.errors import GputuiError
from gputui.launching.shell_words import WordsError, for_a_shell, shell_expansion, shell_syntax, split
from gputui.tui.views.text import Hints
from gputui.tui.widgets.dialog_keys import DialogKeys
from gputui.tui.widgets.one_line import CommandLine, OneLine


class LineScreen(ModalScreen[str | None]):
    """Returns the typed line, or None when it was left with Escape.

    check     finds the error in a line while it is typed: returns a text, or raises an error; such a
              line is not accepted
    typed     is called with the line after every change
    explain   returns what Enter does with a valid line, shown in place of the prompt
    edited    the cursor begins behind the first line; otherwise typing replaces that line, which any key
              that moves the cursor keeps
    rewrite   converts a line to another when Tab is pressed, None for no change
    input     the widget for the input
    keys      what the keys do, for the line of keys; the last two stay longest
    recalled  earlier lines, the last one first: up and down put them in place of what is typed
    """

    CSS_PATH = "line_input.tcss"
    BINDINGS = [
        ("escape", "dismiss(None)", "Back"),
        ("tab", "rewrite", "Rewrite"),
        ("up", "recall(1)", "The line before"),
        ("down", "recall(-1)", "The line after"),
    ]

    def __init__(
        self,
        prompt: str,
        value: str = "",
        placeholder: str = "",
        check: Callable[[str], object] = lambda line: None,
        typed: Callable[[str], object] = lambda line: None,
        explain: Callable[[str], str] | None = None,
        edited: bool = False,
        rewrite: Callable[[str], str | None] = lambda line: None,
        input: type[OneLine] = OneLine,
        keys: Hints = (("⏎", "accept"), ("esc", "cancel")),
        recalled: Sequence[str] = (),
    ) -> None:
        super().__init__(classes="one-line")
        self.prompt, self._value, self._placeholder = prompt, value, placeholder
        self._typed, self._check = typed, check
        self._edited, self._rewrite, self._input = edited, rewrite, input
        self._keys = (("↑", "recent"), *keys) if recalled else keys
        self._recalled, self._back = [value, *recalled], 0
        self._explain = explain or (lambda line: prompt)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._words_for(self._value), id="what", markup=False)
            yield self._input(self._value, placeholder=self._placeholder)
        yield DialogKeys(self._keys)

    def on_mount(self) -> None:
        if not self._edited:
            self.query_one(OneLine).action_select_all()

    def on_resize(self) -> None:
        # On a low terminal the text above the line may take all the room.
        self.call_after_refresh(self.query_one(OneLine).scroll_visible, animate=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._typed(event.value)
        what = self.query_one("#what", Static)
        what.update(self._words_for(event.value))
        what.set_class(self._error_in(event.value) is not None, "-wrong")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        error = self._error_in(event.value)
        if error is None:
            self.dismiss(event.value)
        else:
            self.query_one("#what", Static).update(error)
            # (A line of several words is rather mended than typed again.)
            if " " not in event.value.strip():
                self.query_one(OneLine).action_select_all()

    def action_rewrite(self) -> None:
        line = self.query_one(OneLine)
        rewritten = self._rewrite(line.value)
        if rewritten is not None:
            line.value = rewritten
            line.cursor_position = len(rewritten)

    def action_recall(self, by: int) -> None:
        """Show the line before, or after, of those that were entered; the newest is the one being typed."""
        line = self.query_one(OneLine)
        if not self._back:
            self._recalled[0] = line.value
        self._back = min(max(0, self._back + by), len(self._recalled) - 1)
        line.value = self._recalled[self._back]
        line.cursor_position = len(line.value)

    def _words_for(self, line: str) -> str:
        """The text above the line."""
        return self._error_in(line) or (self._explain(line) if line.strip() else self.prompt)

    def _error_in(self, line: str) -> str | None:
        try:
            found = self._check(line) if line.strip() else None
        except (GputuiError, ValueError) as error:
            return str(error)
        return found if isinstance(found, str) else None


def command_input(line: str, what: str, recalled: Sequence[str], enter: str = "accept") -> LineScreen:
    """A screen that asks for a command, named `what`, initially `line`; `enter` is what Enter does, the rest
    as for a LineScreen. A line with an open quote or with shell syntax is not accepted: Tab rewrites shell
    syntax as a call of a shell."""
    for_shell = "tab: bash -c '…'"

    def error_in(typed: str) -> str | None:
        split(typed)  # raises WordsError
        syntax = shell_syntax(typed)
        return f"{syntax} needs a shell   ({for_shell}, or quote it)" if syntax else None

    def explain(typed: str) -> str:
        found = shell_expansion(typed)
        return f"{found} stays as it is, without a shell   ({for_shell})" if found else what

    def rewrite(typed: str) -> str | None:
        try:
            split(typed)
        except WordsError:
            return None
        return for_a_shell(typed) if shell_syntax(typed) or shell_expansion(typed) else None

    example = "for example: python train.py"
    return LineScreen(
        what,
        line,
        example,
        error_in,
        explain=explain,
        edited=True,
        rewrite=rewrite,
        input=CommandLine,
        keys=((("ctrl+u", "clear"),) if line else ()) + (("⏎", enter), ("esc", "cancel")),
        recalled=recalled,
    )
