"""The device table as a widget: it follows the cursor, scrolls with the wheel, and accepts clicks."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from gputui.sources.source import Want
from gputui.tui.app_state import AppState
from gputui.tui.views.table import table
from gputui.tui.views.text import Line
from gputui.tui.widgets.lines import Lines

_WHEEL = 2
"""Rows that one step of the wheel scrolls."""


class DeviceTable(Lines):
    """A heading and a row per device. `clicked` is called with the key of a clicked device."""

    def __init__(self, id: str, clicked: Callable[[str], object]) -> None:
        super().__init__(id=id)
        self._clicked = clicked
        self._keys: tuple[str, ...] = ()
        self.needs = Want(0)
        """The facts that a source has to read for the displayed columns."""
        self._top = 0
        self._followed: object = None

    @property
    def in_view(self) -> tuple[str, ...]:
        """The keys of the displayed devices, from the top."""
        return self._keys

    def show(self, app_state: AppState) -> None:
        """Show the app state's devices, as many as fit."""
        self.draw(lambda width, height: self._rows(app_state, width, height))

    def _rows(self, app_state: AppState, width: int, height: int) -> list[Line]:
        self._scroll(app_state, max(1, height - 1))
        found = table(app_state, width, height, self._top)
        self._keys, self.lit, self.needs = found.keys, found.lit, found.needs
        return found.lines

    def _scroll(self, app_state: AppState, room: int) -> None:
        """Bring the cursor into view when it, the rows or the room change; the wheel may leave it behind."""
        rows = app_state.rows
        now = (app_state.cursor, room, app_state.screen.sort, app_state.screen.filter)
        if now != self._followed:
            self._followed = now
            place = next((i for i, device in enumerate(rows) if device.key == app_state.cursor), self._top)
            self._top = min(max(self._top, place - room + 1), place)
        self._top = max(0, min(self._top, len(rows) - room))

    def _move(self, by: int) -> None:
        """Scroll by some rows; `_scroll` stops at the ends."""
        self._top = max(0, self._top + by)
        if self._build is not None:
            self.draw(self._build)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._move(_WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._move(-_WHEEL)

    def on_click(self, event: events.Click) -> None:
        place = event.y - 1
        if 0 <= place < len(self._keys):
            self._clicked(self._keys[place])
