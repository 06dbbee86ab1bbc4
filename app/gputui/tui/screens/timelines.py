"""TimelinesScreen: utilization, memory and power over the last minutes or hours, with a cursor in time.

The device is the one at the main screen's cursor.
"""

from __future__ import annotations

from textual import events

from gputui.inventory.device import Device
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.timeline.store import METRICS, Metric
from gputui.tui.controllers.timelines import TimelineController
from gputui.tui.cycle import following
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import Page, hidden, shown
from gputui.tui.views.table import filter_in_title
from gputui.tui.views.text import Line, clip, title, told_lines
from gputui.tui.views.timelines import (
    GAPS,
    USUAL_ZOOM,
    Frame,
    charted,
    charts_of,
    clock,
    read_out,
    why_no_charts,
    zoom_name,
    zoomed,
)

_WHAT: tuple[Metric | None, ...] = (None, *METRICS)
"""The selections of metrics in their order; None: all three."""


class TimelinesScreen(Page):
    """All devices in one column, or one of them on the whole page."""

    BINDINGS = [
        shown("plus,equals_sign", "zoom(-1)", "zoom", "+/-", "A shorter span"),
        hidden("minus", "zoom(1)", "A longer span"),
        shown("left", "moment(-1)", "moment", "←→", "Read the values one column earlier"),
        hidden("right", "moment(1)", "One column later"),
        hidden("shift+left", "moment(-10)", "Ten columns earlier"),
        hidden("shift+right", "moment(10)", "Ten columns later"),
        shown("enter,a", "one", "one or all", "⏎", "One device, or all of them"),
        shown("tab", "metric", "metric", about="Utilization, memory, power, or all three"),
    ]

    def __init__(self, view: MainView, timelines: TimelineController) -> None:
        super().__init__(view)
        self._timelines = timelines
        self._zoom = USUAL_ZOOM
        self._metric: Metric | None = None
        self._one = False
        self._first = 0
        self._moment: float | None = None
        self._pointed: str | None = None
        self._frame: Frame | None = None

    # Painting

    def lines(self, width: int, height: int) -> list[Line]:
        app_state = self.app_state
        device = app_state.current if self._one else None
        room = max(2, height - 1)
        drawn = self._charts(width, room, device)
        seen = len(self._frame.shown) if self._frame else 0
        every = len(app_state.box.devices)
        subject = "all GPUs" if seen == every else f"{seen} of {every} GPUs"
        if device is not None:
            subject = f"GPU {printable(app_state.box.label(device))}"
        head = title(f"timelines: {subject}", width, *self._in_title())
        why = why_no_charts(app_state, device, self._metric)
        return [head, *(drawn or told_lines(why, "dim", width))]

    def _in_title(self) -> list[str]:
        """The selected moment, the span, the metrics and the filter, the most informative first."""
        frame, moment = self._frame, self._moment
        return [
            f"at {clock(frame.span, moment)}" if frame is not None and moment is not None else "",
            f"last {zoom_name(self._zoom)}{GAPS if frame is not None and frame.gaps else ''}",
            ", ".join(frame.metrics) if frame is not None else "",
            "" if self._one else filter_in_title(self.app_state),
        ]

    def _charts(self, width: int, room: int, device: Device | None) -> list[Line]:
        """The charts of one device, or of as many devices as fit, including the device of the cursor."""
        app_state = self.app_state
        keys = [device.key] if device else [each.key for each in charted(app_state, self._metric)]
        place = keys.index(app_state.cursor) if app_state.cursor in keys else 0

        def charts(first: int) -> tuple[list[Line], Frame | None]:
            return charts_of(
                app_state, width, room, self._zoom, self._metric, device, first, self._moment, page=True
            )

        first = min(self._first, place)
        drawn, frame = charts(first)
        while frame is not None and keys[place] not in frame.devices and first < place:
            first = max(first + 1, place - len(frame.shown) + 1)
            drawn, frame = charts(first)
        # After the terminal has grown, no device stays scrolled out while lines are blank.
        while frame is not None and first and keys[-1] in frame.devices:
            more = charts(first - 1)
            if more[1] is None or keys[-1] not in more[1].devices:
                break
            first, (drawn, frame) = first - 1, more
        self._frame = frame
        if device is None:
            self._first = first
        return drawn

    def notes(self, width: int) -> list[Line]:
        app_state = self.app_state
        device, frame = app_state.current, self._frame
        if self._pointed is not None:
            device = app_state.box.by_key.get(self._pointed, device)
        # Without charts there is nothing to read.
        text, style = "← → or the mouse reads the values at a moment" if frame else "", "dim"
        if device is not None and frame is not None and self._moment is not None:
            text, style = read_out(app_state, device, frame, self._moment), "strong"
        elif self._timelines.not_kept:
            text = f"timelines cannot be saved: {self._timelines.not_kept}"
        return [clip(((f" {text}", style),), width)]

    # Key and mouse actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "moment" or self._frame is not None

    def action_zoom(self, by: int) -> None:
        self._zoom = zoomed(self._zoom, by)
        self.draw()

    def action_moment(self, by: int) -> None:
        if self._frame is None:
            return
        span = self._frame.span
        column = span.columns - 1 if self._moment is None else span.column(self._moment) + by
        self._moment = span.time(min(max(0, column), span.columns - 1))
        self.draw()

    def action_back(self) -> None:
        """Close one thing: the selected moment, then the single device, then the page."""
        if self._moment is not None:
            self._pointed = self._moment = None
            self.draw()
        elif self._one:
            self.action_one()
        else:
            super().action_back()

    def action_cursor(self, by: int) -> None:
        """Go to the next device with charts; the main screen's cursor goes with it."""
        self._pointed = None
        app_state = self.app_state
        self.view.set_app_state(app_state.move_cursor(by, charted(app_state, self._metric)))
        self.draw()

    def action_one(self) -> None:
        self._one = not self._one
        self.draw()

    def action_metric(self) -> None:
        self._metric = following(_WHAT, self._metric)
        self.draw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(event)

    def on_click(self, event: events.Click) -> None:
        self._press()
        self._point(event)
        if self._pointed is not None:
            self.view.set_app_state(replace(self.app_state, cursor=self._pointed))
        self.draw()

    def _point(self, event: events.MouseEvent) -> None:
        """Select the moment and the device under the mouse."""
        frame = self._frame
        moment = frame.moment(event.x) if frame is not None and event.widget is self.body else None
        if frame is None or moment is None or not 0 < event.y <= len(frame.devices):
            return
        pointed = frame.devices[event.y - 1] or self._pointed
        if (moment, pointed) != (self._moment, self._pointed):
            self._moment, self._pointed = moment, pointed
            self.draw()
