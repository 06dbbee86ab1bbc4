"""The strip of the selected devices as a widget: a click finds a device, and dragging one reorders them."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from gputui.inventory.light_dataclasses import replace
from gputui.tui.app_state import AppState
from gputui.tui.views.matrix import alike_words
from gputui.tui.views.selection import strip
from gputui.tui.views.text import Line, Place
from gputui.tui.widgets.lines import Lines


class SelectionStrip(Lines):
    """A rule and the selected devices in their order. Where the links between all devices are the same, the
    rule says so, and there is no panel of links.

    clicked  called with the key of a clicked device
    moved    called with the key of a device that was dropped at another place of the order (from 0): during
             the drag, the strip shows the resulting order
    """

    def __init__(
        self, id: str, clicked: Callable[[str], object], moved: Callable[[str, int], object]
    ) -> None:
        super().__init__(id=id)
        self._clicked, self._moved = clicked, moved
        self._app_state: AppState | None = None
        self._items: tuple[Place, ...] = ()
        self._dragged: str | None = None
        self._place = 0
        self._rule = True

    def show(self, app_state: AppState, rule: bool = True) -> None:
        """Show the app state's selection, under a rule where there is room for one.

        If the selection has changed, a drag in progress is cancelled.
        """
        before, self._app_state, self._rule = self._app_state, app_state, rule
        self.set_height(1 + rule)
        if before is not None and before.selection != app_state.selection:
            self._let_go()
        self.draw(self._lines)

    def follow(self, app_state: AppState) -> None:
        """Take another app state with the same strip, so that no earlier reading is kept in memory."""
        self._app_state = app_state

    def _lines(self, width: int, height: int) -> list[Line]:
        app_state = self._app_state
        if app_state is None:
            return []
        if self._dragged is None:
            hidden = "links" in app_state.screen.hidden
            lines, self._items = strip(app_state, width, links="" if hidden else alike_words(app_state))
            return lines[not self._rule :]
        # The pointer refers to the positions at the start of the drag, so that nothing swings.
        rank = app_state.selection.rank(self._dragged) or 0
        moved = app_state.selection.move(self._dragged, self._place - rank)
        return strip(replace(app_state, selection=moved), width, self._dragged).lines[not self._rule :]

    def _at(self, x: int, exactly: bool = False) -> int | None:
        """The place of the device at a cell, or the nearest one; None where there is none."""
        places = range(len(self._items))
        if exactly:
            return next((n for n in places if self._items[n][0] - 1 <= x < self._items[n][1]), None)
        return min(
            places, key=lambda n: max(self._items[n][0] - x, x - self._items[n][1] + 1, 0), default=None
        )

    def on_mouse_down(self, event: events.MouseDown) -> None:
        place = self._at(event.x, exactly=True) if event.y == self._rule and event.button == 1 else None
        if place is not None:
            self._dragged, self._place = self._items[place][2], place
            self.capture_mouse()
            self.draw(self._lines)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        place = self._at(event.x)
        if self._dragged is not None and place is not None and place != self._place:
            self._place = place
            self.draw(self._lines)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        key, place = self._dragged, self._place
        if key is None or self._app_state is None:
            return
        self._let_go()
        self.draw(self._lines)
        if place != self._app_state.selection.rank(key):
            self._moved(key, place)
        else:
            self._clicked(key)

    def _let_go(self) -> None:
        if self._dragged is not None:
            self._dragged = None
            self.release_mouse()
