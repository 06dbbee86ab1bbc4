"""The key line as a widget: each key can be clicked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events

from gputui.tui.app_state import AppState
from gputui.tui.views.keys import keys
from gputui.tui.views.text import Line, Place
from gputui.tui.widgets.lines import Lines


class KeyLine(Lines):
    """The keys of the main screen. `perform` is called with the action of a clicked key."""

    def __init__(self, id: str, perform: Callable[[str], object]) -> None:
        super().__init__(id=id)
        self._perform = perform
        self._places: tuple[Place, ...] = ()

    def show(self, app_state: AppState, instead: Sequence[Line] = ()) -> None:
        """Show the keys, or a line `instead`."""

        def build(width: int, _: int) -> list[Line]:
            if instead:
                self._places = ()
                return [*instead]
            line, self._places = keys(app_state, width)
            return [line]

        self.draw(build)

    def on_click(self, event: events.Click) -> None:
        for begin, end, action_id in self._places:
            if begin <= event.x < end:
                self._perform(action_id)
