"""ColumnsScreen: which columns the device table shows, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.columns import BY_ID, COLUMNS, USUAL
from gputui.tui.views.table import columns_of, heading, row
from gputui.tui.views.text import Line, clip, fit, title


class ColumnsScreen(ListPage):
    """Saves every change at once; the lines at the bottom preview the table."""

    BINDINGS = [
        shown("escape,q", "dismiss", "back", "esc"),
        *cursor_bindings("column"),
        shown("space,enter", "show_or_hide", "show or hide", "space/⏎"),
        shown("J,shift+down", "move(1)", "move right", "J"),
        shown("K,shift+up", "move(-1)", "move left", "K"),
        shown("x", "usual", "default", about="The default columns"),
    ]

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        self._order = self._order_at_start()
        """All columns, in the user's order: showing or hiding a column moves no other."""

    @property
    def _chosen(self) -> tuple[str, ...]:
        """The chosen columns, in their order."""
        columns = self.view.app_state.screen.columns
        return USUAL if columns is None else tuple(dict.fromkeys(name for name in columns if name in BY_ID))

    def _order_at_start(self) -> list[str]:
        """The chosen columns in their order; each other column follows its predecessor in `COLUMNS`."""
        order = list(self._chosen)
        for place, column in enumerate(COLUMNS):
            if column.id not in order:
                order.insert(order.index(COLUMNS[place - 1].id) + 1 if place else 0, column.id)
        return order

    def item_keys(self) -> Sequence[Hashable]:
        return self._order

    def notes(self, width: int) -> list[Line]:
        app_state = self.view.app_state
        notes = [title("preview", width)]
        across = self._table_width(width)
        columns = columns_of(app_state, across)
        notes.append(heading(app_state, columns, across))
        return [*notes, *(row(app_state, device, columns, across) for device in app_state.rows[:1])]

    def _table_width(self, width: int) -> int:
        """Cells of the table on the main screen, to which these columns apply: this page is wider."""
        return min(width, self.view.table_width)

    def head(self, width: int) -> Line:
        usual = self.view.app_state.screen.columns is None
        return title("columns", width, "default" if usual else "your own")

    def listing(self, width: int) -> tuple[list[Line], range]:
        names = [BY_ID[str(key)] for key in self.item_keys()]
        there = {column.id for column, _ in columns_of(self.view.app_state, self._table_width(width)).shown}
        listing: list[Line] = []
        for place, column in enumerate(names):
            wanted = column.id in self._chosen
            about = column.title if not wanted or column.id in there else f"{column.title}; no room"
            listing.append(
                clip(
                    (
                        ("▸" if place == self.cursor else " ", "cursor"),
                        (f" [{'x' if wanted else ' '}] ", "prompt"),
                        (f"{fit(column.heading, 9)} ", "strong" if wanted else ""),
                        (about, "" if wanted else "dim"),
                    ),
                    width,
                )
            )
        return listing, range(len(listing))

    def _keep(self, columns: tuple[str, ...] | None) -> None:
        self.view.save_screen(self.view.app_state.screen._replace(columns=columns))
        self.draw()

    def action_show_or_hide(self) -> None:
        self._show({*self._chosen} ^ {str(self.key)})

    def action_move(self, by: int) -> None:
        name, order = str(self.key), self._order
        place = min(max(order.index(name) + by, 0), len(order) - 1)
        order.remove(name)
        order.insert(place, name)
        self._show(self._chosen)

    def _show(self, names: Collection[str]) -> None:
        columns = tuple(name for name in self._order if name in names)
        if columns != self._chosen:
            self._keep(columns)
        self.draw()

    def action_usual(self) -> None:
        self._keep(None)
        self._order = self._order_at_start()
        self.draw()

    def clicked(self, place: int) -> None:
        self.go_to(place)
        self.action_show_or_hide()
