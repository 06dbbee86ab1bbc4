"""OptionsPage: a list of options, each changed by the same keys: space, e and x."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from gputui.tui.main_view import MainView
from gputui.tui.option_rows import Row
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import FILTER, ListPage, hidden, shown
from gputui.tui.screens.palette import CHOSEN


class OptionsPage(ListPage):
    """A subclass gives the rows, and the change that another value stands for; `apply` makes it."""

    BINDINGS = [
        FILTER,
        shown("space,right", "change", "change", "space/⏎", "Change the setting"),
        hidden("enter", "choose", "Change the setting; list its choices"),
        shown("e", "type", "type", about="Type the setting"),
        shown("x,delete,backspace", "default", "default", "x", "Back to the default"),
    ]

    OF_ITEM = frozenset({"cursor", "change", "choose", "type", "default"})

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        self.options: tuple[Row, ...] = ()

    @abstractmethod
    def option_rows(self) -> tuple[Row, ...]:
        """The present rows."""

    @abstractmethod
    def changed(self, row: Row, value: Any) -> Any:
        """The change by another value: a choice, True or False, a typed line, None for the default. Raises
        ValueError."""

    @abstractmethod
    def apply(self, change: Any) -> None:
        """Make one of these changes."""

    def item_keys(self) -> Sequence[Hashable]:
        """The ids of the rows; the set of rows may change."""
        self.options = self.option_rows()
        return [row.id for row in self.options]

    @property
    def row(self) -> Row:
        """The option under the cursor."""
        self.follow()
        return self.options[self.cursor]

    def action_change(self) -> None:
        if self.row.kind == "text":
            self.action_type()
        else:
            self.apply(self.changed(self.row, self.row.pressed))
            self.draw()

    def action_choose(self) -> None:
        """List the choices where they have a word: Enter means "go on" elsewhere, and must not change what it
        does not show."""
        if self.row.kind == "choice" and self.row.id in CHOSEN:
            self.view.perform(self.row.id)
        else:
            self.action_change()

    def action_type(self) -> None:
        row = self.row
        if row.kind == "choice" or (row.kind == "switch" and not row.box):
            self.action_change()
            return

        def typed(line: str) -> Any:
            return self.changed(row, line if line.strip() else None)

        prompt = f"{row.label}: {row.about}   (empty: default)"
        line = LineScreen(prompt, row.typed, check=lambda line: typed(line) and None)
        self.type_line(line, lambda line: self.apply(typed(line)))

    def action_default(self) -> None:
        self.apply(self.changed(self.row, None))
        self.draw()

    def clicked_again(self) -> None:
        self.action_change()
