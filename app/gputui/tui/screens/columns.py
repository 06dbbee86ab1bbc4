"""ColumnsScreen: which columns the device table shows, and in which order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.columns import BY_ID, COLUMNS, USUAL, Columns
from gputui.tui.views.table import heading, row
from gputui.tui.views.text import Line, clip, fit, title


class ColumnsScreen(ListPage):
    """Every change is kept at once; the lines at the bottom show what the table looks like."""

    BINDINGS = [
        shown("escape,q,f", "dismiss", "back", "esc"),
        *cursor_bindings("column"),
        shown("space,enter", "show_or_hide", "show or hide", "space"),
        shown("J,shift+down", "move(1)", "move right", "J"),
        shown("K,shift+up", "move(-1)", "move left", "K"),
        shown("x", "usual", "default", about="The default columns"),
    ]

    @property
    def _chosen(self) -> tuple[str, ...]:
        """The columns that are wanted, in their order."""
        columns = self.view.app_state.screen.columns
        return USUAL if columns is None else tuple(dict.fromkeys(name for name in columns if name in BY_ID))

    def item_keys(self) -> Sequence[Hashable]:
        return [*self._chosen, *(column.id for column in COLUMNS if column.id not in self._chosen)]

    def notes(self, width: int) -> list[Line]:
        app_state = self.view.app_state
        notes = [title("preview", width)]
        columns = Columns.of(app_state, width)
        notes.append(heading(app_state, columns, width))
        return [*notes, *(row(app_state, device, columns, width) for device in app_state.rows[:1])]

    def lines(self, width: int, height: int) -> list[Line]:
        names = [BY_ID[str(key)] for key in self.item_keys()]
        there = {column.id for column, _ in Columns.of(self.view.app_state, width).shown}
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
        usual = self.view.app_state.screen.columns is None
        head = title("columns", width, "default" if usual else "your own")
        return [head, *self.window(listing, range(len(listing)), max(1, height - 1), above=1)]

    def _keep(self, columns: tuple[str, ...] | None) -> None:
        self.view.save_screen(self.view.app_state.screen._replace(columns=columns))
        self.draw()

    def action_show_or_hide(self) -> None:
        name, chosen = str(self.key), self._chosen
        if name in chosen:
            self._keep(tuple(each for each in chosen if each != name))
        else:
            self._keep((*chosen, name))

    def action_move(self, by: int) -> None:
        name, chosen = str(self.key), list(self._chosen)
        if name not in chosen:
            self.show_message("this column is hidden: space shows it")
            return
        place = min(max(chosen.index(name) + by, 0), len(chosen) - 1)
        chosen.remove(name)
        chosen.insert(place, name)
        self._keep(tuple(chosen))

    def action_usual(self) -> None:
        self._keep(None)

    def clicked(self, place: int) -> None:
        self.go_to(place)
        self.action_show_or_hide()
