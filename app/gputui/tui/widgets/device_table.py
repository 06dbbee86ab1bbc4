"""The device table as a widget: scrolls so that the cursor is always to be seen, and is clicked."""

from __future__ import annotations

from textual import events
from textual.message import Message

from gputui.inventory.device import Device
from gputui.tui.app_state import AppState
from gputui.tui.views.table import Columns, facts_shown, heading, nothing, row
from gputui.tui.views.text import Line
from gputui.tui.widgets.lines import Lines


class DeviceTable(Lines):
    """A heading and a row a device. Posts `Clicked` with the key of the device that was clicked."""

    class Clicked(Message):
        """A device was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._keys: tuple[str, ...] = ()
        self._top = 0
        self._drawn: dict[str, tuple[object, Line]] = {}

    def show(self, app_state: AppState) -> None:
        """Show the app state's devices, as many as fit, those around the cursor."""
        self.draw(lambda width, height: self._rows(app_state, width, height))

    def _rows(self, app_state: AppState, width: int, height: int) -> list[Line]:
        room, rows = max(1, height - 1), app_state.rows
        if not rows:
            self._keys, self.lit = (), None
            return nothing(app_state, width)
        place = next((i for i, device in enumerate(rows) if device.key == app_state.cursor), 0)
        self._top = min(max(self._top, place - room + 1), place, max(0, len(rows) - room))
        self.lit = place - self._top + 1
        shown = rows[self._top : self._top + room]
        self._keys = tuple(device.key for device in shown)
        columns = Columns.of(app_state, width)
        return [heading(columns, width), *(self._row(app_state, device, columns, width) for device in shown)]

    def _row(self, app_state: AppState, device: Device, columns: Columns, width: int) -> Line:
        """The device's row, from before if nothing that it shows has changed."""
        shows = (columns, width, facts_shown(app_state, device))
        before = self._drawn.get(device.key)
        if before is None or before[0] != shows:
            before = self._drawn[device.key] = (shows, row(app_state, device, columns, width))
        return before[1]

    def on_click(self, event: events.Click) -> None:
        place = event.y - 1
        if 0 <= place < len(self._keys):
            self.post_message(self.Clicked(self._keys[place]))
