"""All keys and signs, from the one table of actions."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gputui.choosing.verdict import GLYPHS, State
from gputui.tui.actions import ACTIONS

MEANINGS: dict[State, str] = {
    "free": "nobody on it",
    "busy": "in use",
    "held": "memory, no process",
    "claimed": "promised to a job",
    "unknown": "not to be read",
    "lost": "gone or hung",
}


class HelpScreen(ModalScreen[None]):
    """Any of the keys that opened it, or Escape, closes it; the arrows scroll."""

    CSS_PATH = "dialog.tcss"
    BINDINGS = [("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self) -> None:
        super().__init__(classes="dialog")

    def compose(self) -> ComposeResult:
        wide = max(len(action.shown) for action in ACTIONS)
        keys = "\n".join(f"{action.shown:<{wide}}  {action.title}" for action in ACTIONS)
        signs = "\n".join(f"{GLYPHS[state]} {state:<8} {meaning}" for state, meaning in MEANINGS.items())
        with Vertical() as box:
            box.can_focus = True
            box.border_title = "keys and signs"
            with Horizontal():
                yield Static(keys, markup=False)
                yield Static(signs, markup=False, classes="aside")

    def on_mount(self) -> None:
        self.query_one(Vertical).focus()
