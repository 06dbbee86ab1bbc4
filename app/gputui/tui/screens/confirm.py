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

Answer = Literal["run", "wait", "back", "detach", "return"]

_KEYS: dict[Answer, tuple[str, str]] = {
    # The safe answer comes first.
    "wait": ("w", "wait"),
    "run": ("⏎", "yes"),
    "detach": ("d", "as a job"),
    "return": ("r", "run and come back"),
    "back": ("esc", "no"),
}

_UNREAD = 0.5
"""Seconds in which Enter may be a second press of the key that asked: it then starts nothing unread."""


class ConfirmScreen(ModalScreen[Answer]):
    """`reasons` are the facts that the answer depends on, a line each; `offers` are the answers beside yes
    and no; `yes` is what Enter does. With `warns`, the reasons must be read first."""

    CSS_PATH = "dialog.tcss"
    BINDINGS = [
        ("enter", "yes", "Yes"),
        ("y", "answer('run')", "Yes"),
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
        offers: Sequence[Answer] = (),
        warns: bool = False,
        yes: str = "yes",
    ) -> None:
        super().__init__(classes="dialog tells-notes")
        self._view, self._question, self.reasons, self._warns = view, question, reasons, warns
        answers = _KEYS | {"run": ("⏎", yes)}
        self._answers = {each: keys for each, keys in answers.items() if each in ("run", *offers, "back")}
        self._asked = time.monotonic()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False, classes="question")
            for line in self.reasons:
                yield Static(line, markup=False)
        yield DialogKeys([*self._answers.values(), ("?", "help")])

    def action_yes(self) -> None:
        if not self._warns or time.monotonic() - self._asked >= _UNREAD:
            self.dismiss("run")

    def action_answer(self, answer: Answer) -> None:
        if answer in self._answers:
            self.dismiss(answer)

    def action_help(self) -> None:
        rows = tuple((key, words[:1].upper() + words[1:]) for key, words in self._answers.values())
        self._view.open_help(PageKeys(rows, frozenset()))
