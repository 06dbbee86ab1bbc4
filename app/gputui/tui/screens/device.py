"""DeviceScreen: everything about one device: its facts, its timelines, its processes and their ancestors."""

from __future__ import annotations

from gputui.choosing.verdict_text import NO_PROCESS
from gputui.inventory.device import Device
from gputui.inventory.formatting import counted
from gputui.inventory.light_dataclasses import replace
from gputui.tui.main_view import MainView
from gputui.tui.process_rows import Row, device_rows
from gputui.tui.screens.page import hidden, shown
from gputui.tui.screens.page import window as window_of
from gputui.tui.screens.process_list import END, ProcessListPage
from gputui.tui.views.device import device_facts, device_head
from gputui.tui.views.processes import Listing, listed
from gputui.tui.views.text import Line, clip, title
from gputui.tui.views.timelines import USUAL_ZOOM, charts_of, zoom_name, zoomed

_LEAST_ROWS = 4
"""The least rows of processes below the facts: on a smaller screen, they are above them, and the whole page
scrolls."""

_LEAST_TIMELINE, _MOST_TIMELINE = 6, 26
"""Lines of the timelines, with their rule and axis: fewer show nothing, more show no more."""


class DeviceScreen(ProcessListPage):
    """Opens on the device at the cursor of the main screen; the cursor follows to other devices."""

    BINDINGS = [
        hidden("left", "leave", "Close this page"),
        shown("right_square_bracket,tab", "device(1)", "other GPU", "[ ]", "Next GPU"),
        hidden("left_square_bracket,shift+tab", "device(-1)", "Previous GPU"),
        shown("space", "select", "select", about="Select the GPU, or deselect it"),
        END,
        shown("plus,equals_sign", "zoom(-1)", "zoom", "+/-", "A shorter span of the timelines"),
        hidden("minus", "zoom(1)", "A longer span of the timelines"),
    ]

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        current = view.app_state.current
        self._key = current.key if current else ""
        self._zoom = USUAL_ZOOM
        self._charted = False
        """Whether there was room for timelines."""
        self._moved = False
        """Whether the next painting scrolls the page to the process at the cursor."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._charted if action == "zoom" else super().check_action(action, parameters)

    def process_rows(self) -> tuple[Row, ...]:
        return device_rows(self.app_state, self._key)

    def looked_at(self) -> tuple[str, ...]:
        return (self._key,)

    # Painting

    def lines(self, width: int, height: int) -> list[Line]:
        app_state = self.app_state
        device = app_state.box.by_key.get(self._key)
        if device is None:
            return [title("device", width), clip(((" this GPU is no longer present", "lost"),), width)]
        head, own = device_head(app_state, device, width), device_facts(app_state, device, width)
        facts = [*head, *own]
        one = all(row.key in (None, self._key) for row in self.rows)
        listing = listed(self.rows, width, max(1, height - len(facts) - 2), of_one_device=one)
        if not self.rows:
            nothing = "no process uses it"
            if device.processes is None:
                nothing = "the driver does not list processes"
            elif app_state.verdicts[self._key].unseen:
                nothing = NO_PROCESS
            listing = Listing(clip(((f" {nothing}", "dim"),), width), (), lambda first, end: [])
        charts = self._timeline(device, width, height - len(facts) - 2 - max(1, len(listing.items)))
        facts += charts
        self._charted = bool(charts)
        room = height - len(facts) - 2
        if room < min(len(listing.items), _LEAST_ROWS):
            return self._scrolled([*head, title("processes", width), listing.heading], listing, own, height)
        visible = self.part(listing, room, above=len(facts) + 2)
        return [*facts, title("processes", width, self.beyond), listing.heading, *visible]

    def _timeline(self, device: Device, width: int, room: int) -> list[Line]:
        """The timelines in the room that facts and processes leave."""
        if room < _LEAST_TIMELINE:
            return []
        height = min(room, _MOST_TIMELINE) - 1
        drawn, _ = charts_of(self.app_state, width, height, self._zoom, device=device)
        return [title("timelines", width, f"last {zoom_name(self._zoom)}"), *drawn] if drawn else []

    def _scrolled(self, above: list[Line], listing: Listing, below: list[Line], height: int) -> list[Line]:
        """The whole page as one text, whose last line says how many lines follow."""
        items: list[int | None] = [*[None] * len(above), *listing.items, *[None] * len(below)]
        room = max(1, height - 1)
        if self._moved:
            place = items.index(self.cursor) if self.cursor in items else 0
            self.top = window_of(self.top, place, room, len(items)) if self.cursor else 0
        self.top = min(self.top, max(0, len(items) - room))
        self._moved = False
        end = self.top + room
        self.lay_out(items[self.top : end], above=0)
        first, after = (max(0, each - len(above)) for each in (self.top, end))
        listed = listing.lines(first, min(after, len(listing.items)))
        first, after = (max(0, each - len(listing.items)) for each in (first, after))
        rest = len(items) - end
        more = f" {counted(rest, 'more line')}: " if rest > 0 else ""
        text = self.pointed([*above[self.top : end], *listed, *below[first:after]], above=0)
        return [*text, ((more, "dim"), ("pgdn" if more else "", "key"))]

    # Key actions

    def go_to(self, place: int) -> None:
        self._moved = True
        super().go_to(place)

    def action_page(self, by: int) -> None:
        self.top = max(0, self.top + by * max(1, self.body.size.height - 2))
        self.draw()

    def action_zoom(self, by: int) -> None:
        self._zoom = zoomed(self._zoom, by)
        self.draw()

    def action_device(self, by: int) -> None:
        self._show_at_cursor()
        self.view.set_app_state(self.app_state.move_cursor(by))
        current = self.app_state.current
        if current is not None and current.key != self._key:
            self._key, self.top = current.key, 0
        self.go_to(0)

    def action_select(self) -> None:
        self._show_at_cursor()
        self.view.perform("select")
        self._show_at_cursor()
        self.draw()

    def _show_at_cursor(self) -> None:
        """Move the cursor of the main screen to the device of this page: the main screen's actions use it."""
        app_state = self.app_state
        if self._key in app_state.box.by_key:
            self.view.set_app_state(replace(app_state, cursor=self._key))
