"""ConfirmScreen: the question before a launch: on devices that are not free, or that nobody has selected."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gputui.tui.main_view import MainView
from gputui.tui.screens.page import PageKeys
from gputui.tui.widgets.dialog_keys import DialogKeys

Answer = Literal["run", "instead", "wait", "back", "detach", "return"]

_KEYS: dict[Answer, tuple[str, str]] = {
    "run": ("f", "start anyway"),
    "wait": ("w", "wait"),
    "detach": ("d", "as a job"),
    "return": ("r", "run and come back"),
    "back": ("esc", "no"),
}

_UNREAD = 0.5
"""Seconds in which Enter may be a second press of the key that asked: it then answers nothing unread."""


class ConfirmScreen(ModalScreen[Answer]):
    """A question about a launch begins with its whole `line`. `reasons` are the facts that the answer depends
    on, a line each; `offers` are the answers beside yes and no. Enter is yes: `yes` is the answer, named
    `words`; None where the question has none. With `warns`, the reasons must be read first."""

    CSS_PATH = "dialog.tcss"
    BINDINGS = [
        ("enter", "yes", "Yes"),
        ("y", "yes(True)", "Yes"),
        ("f", "answer('run')", "Start anyway"),
        ("d", "answer('detach')", "Run as a job"),
        ("r", "answer('return')", "Run and come back"),
        ("w", "answer('wait')", "Wait in line"),
        ("n,escape,q", "answer('back')", "No"),
        ("question_mark,f1", "help", "Help"),
    ]

    def __init__(
        self,
        view: MainView,
        question: str,
        reasons: Sequence[str],
        yes: Answer | None,
        words: str = "yes",
        offers: Sequence[Answer] = (),
        warns: bool = False,
        line: str = "",
    ) -> None:
        super().__init__(classes="dialog tells-notes")
        self._view, self._question, self.reasons, self._warns = view, question, reasons, warns
        self._line = line
        self._yes, self._offers = yes, (*offers, "back")
        keys = [keys for each, keys in _KEYS.items() if each in self._offers]
        # The first one stays longest where the room is short: never the one that starts anyway.
        self._keys = [("⏎", words), *keys] if yes is not None else [*keys[-1:], *keys[:-1]]
        self._asked = time.monotonic()

    def compose(self) -> ComposeResult:
        with Vertical():
            if self._line:
                yield Static(f"$ {self._line}", markup=False)
            yield Static(self._question, markup=False, classes="question")
            for line in self.reasons:
                yield Static(line, markup=False)
        yield DialogKeys([*self._keys, ("?", "help")])

    def action_yes(self, read: bool = False) -> None:
        read = read or not self._warns or time.monotonic() - self._asked >= _UNREAD
        if self._yes is not None and read:
            self.dismiss(self._yes)

    def action_answer(self, answer: Answer) -> None:
        if answer in self._offers:
            self.dismiss(answer)

    def action_help(self) -> None:
        rows = tuple((key, words[:1].upper() + words[1:]) for key, words in self._keys)
        self._view.open_help(PageKeys(rows, frozenset()))
