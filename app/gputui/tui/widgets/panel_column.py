"""A column of panels as one widget. A panel that is slow to build is built again only when its content has
changed."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from gputui.tui.app_state import AppState
from gputui.tui.layout import Column
from gputui.tui.panels import PANELS_BY_NAME
from gputui.tui.views.text import Line
from gputui.tui.widgets.lines import Lines


class PanelColumn(Lines):
    """Panels in a column. `perform` is called with the action of a clicked panel."""

    def __init__(self, id: str, perform: Callable[[str], object]) -> None:
        super().__init__(id=id)
        self._perform = perform
        self._column = Column(0)
        self._app_state = AppState({})
        self._built: dict[str, tuple[object, list[Line]]] = {}

    def show(self, app_state: AppState, column: Column | None) -> None:
        """Show the panels of the column; None hides the widget."""
        self.display = column is not None and bool(column.heights)
        if column is not None and self.display:
            self._column, self._app_state = column, app_state
            self._show(
                [line for name, height in column.heights for line in self._panel(app_state, name, height)]
            )

    def _panel(self, app_state: AppState, name: str, height: int) -> list[Line]:
        """The lines of one panel, exactly `height`; from the cache if they would be the same."""
        panel, width = PANELS_BY_NAME[name], self._column.width
        facts = panel.facts and (width, height, panel.facts(app_state, width, height))
        before = self._built.get(name)
        if facts and before is not None and before[0] == facts:
            return before[1]
        lines = panel.lines(app_state, width, height)[:height]
        blank: Line = (("", ""),)
        lines += [blank] * (height - len(lines))
        self._built[name] = (facts, lines)
        return lines

    def on_resize(self) -> None:
        # The width of the column is that of its layout: nothing is built again.
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        top = 0
        for name, height in self._column.heights:
            if top <= event.y < top + height:
                action = PANELS_BY_NAME[name].action
                self._perform(action if isinstance(action, str) else action(self._app_state))
            top += height
