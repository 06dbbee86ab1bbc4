"""PanelsScreen: which panels the main screen shows; every change is saved in the settings."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputui.tui.layout import WIDE
from gputui.tui.panels import NOTHING, PANELS, Panel
from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.text import Line, clip, title


class PanelsScreen(ListPage):
    """The key that opened the page closes it."""

    BINDINGS = [
        shown("escape,q", "dismiss", "back", "esc"),
        *cursor_bindings("panel"),
        shown("space,enter", "hide", "show or hide", "space/⏎"),
    ]

    def item_keys(self) -> Sequence[Hashable]:
        return [panel.name for panel in PANELS]

    def head(self, width: int) -> Line:
        return title("panels", width, "saved in the settings")

    def listing(self, width: int) -> tuple[list[Line], range]:
        app_state = self.view.app_state
        listing: list[Line] = []
        for panel in PANELS:
            hidden = panel.name in app_state.screen.hidden
            name = (f"{panel.title:<14}", "dim" if hidden else "")
            sign = ("  [ ] " if hidden else "  [x] ", "key")
            listing.append(clip((sign, name, (self._why_absent(panel), "dim")), width))
        return listing, range(len(listing))

    def _why_absent(self, panel: Panel) -> str:
        """Why a panel that is not hidden is still not on the screen; "" where it may be."""
        width = self.app.size.width
        if panel.size(self.view.app_state, width) == NOTHING:
            return "nothing to show now"
        if width >= WIDE:
            return ""
        if panel.place == "table":
            return f"below {WIDE} columns only where lines are left over"
        return "" if panel.narrow else f"needs a terminal of {WIDE} columns"

    def action_hide(self) -> None:
        name, screen = PANELS[self.cursor].name, self.view.app_state.screen
        shown_now = name not in screen.hidden
        others = tuple(each for each in screen.hidden if each != name)
        self.view.save_screen(screen._replace(hidden=(*others, name) if shown_now else others))
        self.draw()

    def clicked(self, place: int) -> None:
        self.go_to(place)
        self.action_hide()
