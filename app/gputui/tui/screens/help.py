"""HelpScreen: all keys, from the table of actions, and what the signs mean."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gputui.choosing.verdict import GLYPHS, State
from gputui.tui.actions import ACTIONS
from gputui.tui.views.matrix import SIGNS

MEANINGS: dict[State, str] = {
    "free": "ready to use",
    "busy": "in use",
    "held": "no visible process",
    "claimed": "leased to a job",
    "cooling": "free, not for long",
    "unknown": "unreadable",
    "lost": "gone, needs reset",
}


LINKS: tuple[tuple[str, str], ...] = (
    ("NV", "NVLinks, and how many"),
    ("PIX", "PIX one PCIe switch"),
    ("PXB", "PXB several switches"),
    ("PHB", "PHB a host bridge"),
    ("NODE", "NODE one NUMA node"),
    ("SYS", "SYS across CPUs"),
)

PAIRS: dict[str, tuple[str, str, str]] = {
    "later": ("earlier", "J K", "Move the selected later, earlier"),
    "down": ("up", "↓↑ j k", "Cursor"),
    "first": ("last", "g G", "Cursor to the first, the last"),
    "palette": ("stop", "^p ^z", "Search; back to the shell"),
}
"""Two actions on one line: by the id of the first, that of the second, the keys of both, and the text."""


class HelpScreen(ModalScreen[None]):
    """Any of the keys that opened it, or Escape, closes it; the arrows scroll."""

    CSS_PATH = "dialog.tcss"
    BINDINGS = [("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self) -> None:
        super().__init__(classes="dialog")

    def compose(self) -> ComposeResult:
        second = {other for other, _, _ in PAIRS.values()}
        rows = [
            PAIRS[action.id][1:] if action.id in PAIRS else (action.shown, action.title)
            for action in ACTIONS
            if action.id not in second
        ]
        wide = max(len(shown) for shown, _ in rows)
        keys = "\n".join(f"{shown:<{wide}}  {title}" for shown, title in rows)
        states = [f"{GLYPHS[state]} {state:<8} {meaning}" for state, meaning in MEANINGS.items()]
        signs = "\n".join([*states, "", *(f"{SIGNS[word][0]} {meaning}" for word, meaning in LINKS)])
        with Vertical() as box:
            box.can_focus = True
            box.border_title = "keys and signs"
            with Horizontal():
                yield Static(keys, markup=False)
                yield Static(signs, markup=False, classes="second-column")

    def on_mount(self) -> None:
        self.query_one(Vertical).focus()
