"""SettingsScreen: everything that is set on the screen: rules, columns, panels, theme. Saved at once."""

from __future__ import annotations

from typing import Any

from gputui.allocating.settings import Settings, SettingsError, settings
from gputui.inventory.light_dataclasses import replace
from gputui.system.environment import Environ
from gputui.tui import setting_rows
from gputui.tui.layout import WIDE
from gputui.tui.main_view import MainView
from gputui.tui.option_rows import Row
from gputui.tui.panels import NOTHING, PANELS_BY_NAME
from gputui.tui.screens.options import OptionsPage
from gputui.tui.screens.page import shown
from gputui.tui.setting_rows import COLUMN, PANEL, Change
from gputui.tui.views.launch_page import settings as listing
from gputui.tui.views.table import columns_of, heading, row
from gputui.tui.views.text import ItemLines, Line, title


class SettingsScreen(OptionsPage):
    """Opens at the first row whose id begins with `first`. Below the columns, a preview of the table."""

    BINDINGS = [
        shown("J,shift+down", "move(1)", "move right", "J"),
        shown("K,shift+up", "move(-1)", "move left", "K"),
    ]

    def __init__(self, view: MainView, environ: Environ, first: str = "") -> None:
        super().__init__(view)
        self._order = setting_rows.columns_in_order(view.app_state)
        """All columns, in the user's order: showing or hiding a column moves no other."""
        try:
            self._saved = settings(environ)
        except SettingsError:
            self._saved = Settings()
        ids = self.item_keys()
        self.cursor = next(place for place, id in enumerate(ids) if str(id).startswith(first))
        self.key = ids[self.cursor]
        # The heading of its section is the first line.
        self.top = max(0, self.listing(80)[1].index(self.cursor) - 1) if first else 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "move":
            return str(self.key).startswith(COLUMN)
        return super().check_action(action, parameters)

    def option_rows(self) -> tuple[Row, ...]:
        fitting = [column.id for column, _ in columns_of(self.app_state, self._table_width).shown]
        found = setting_rows.rows(self.app_state, self._saved, self._order, fitting)
        return tuple(
            replace(row, about=self._why_absent(row.id.removeprefix(PANEL)))
            if row.id.startswith(PANEL)
            else row
            for row in found
        )

    @property
    def _table_width(self) -> int:
        """Cells of the table on the main screen, to which the columns apply: this page is wider."""
        return self.view.table_width

    def _why_absent(self, name: str) -> str:
        """Why a panel that is not hidden is still not on the screen; "" where it may be."""
        width, panel = self.view.app.size.width, PANELS_BY_NAME[name]
        if panel.size(self.app_state, width) == NOTHING:
            return "nothing to show now"
        if not panel.narrow and width < WIDE:
            return f"needs a terminal of {WIDE} columns"
        return "only where lines are free" if panel.spare else ""

    # Painting

    def head(self, width: int) -> Line:
        return title("settings", width, self.beyond)

    def listing(self, width: int) -> ItemLines:
        return listing(self.options, width)

    def notes(self, width: int) -> list[Line]:
        if not str(self.key).startswith(COLUMN):
            return []
        app_state, across = self.app_state, min(width, self._table_width)
        columns = columns_of(app_state, across)
        lines = [title("preview", width), heading(app_state, columns, across)]
        return [*lines, *(row(app_state, device, columns, across) for device in app_state.rows[:1])]

    # Changes

    def changed(self, row: Row, value: Any) -> Change:
        return setting_rows.changed(self.app_state, row, value, self._order)

    def apply(self, change: Change) -> None:
        self.view.save_setting(*change, self._read_again)
        if change.key == "columns" and change.value is None:
            self._order = setting_rows.columns_in_order(self.app_state)

    def _read_again(self, found: Settings) -> None:
        self._saved = found
        self.draw()

    def action_move(self, by: int) -> None:
        name, order = str(self.key).removeprefix(COLUMN), self._order
        place = min(max(order.index(name) + by, 0), len(order) - 1)
        order.remove(name)
        order.insert(place, name)
        chosen = setting_rows.chosen_columns(self.app_state)
        columns = tuple(each for each in order if each in chosen)
        if columns != chosen:
            self.apply(Change(setting_rows.SCREEN, "columns", columns))
        self.draw()
