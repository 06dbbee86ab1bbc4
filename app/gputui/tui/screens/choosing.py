"""The keys by which devices are chosen and ordered, on a screen that shows an app state."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from textual.screen import Screen

from gputui.choosing.grouping import GroupingError, asked
from gputui.inventory.device import Device
from gputui.tui.app_state import AppState

BEST_PROMPT = "how many of the best?  4, or 8 tp=2 pp=2   (⏎ takes, esc leaves)"


def wrong_number(line: str) -> str | None:
    """What is wrong with a number of devices and a shape, None for nothing."""
    try:
        asked(line)
    except GroupingError as error:
        return str(error)
    return None


class Choosing(Screen[None]):
    """What `tui/actions.py` calls to choose. A screen of this kind shows an app state and says things."""

    app_state: AppState

    @abstractmethod
    def set_app_state(self, app_state: AppState) -> None:
        """Show another app state."""

    @abstractmethod
    def say(self, text: str | None, tone: str = "") -> None:
        """Say something until the next key; None says nothing."""

    @property
    @abstractmethod
    def message(self) -> str:
        """What is being said, "" for nothing."""

    def toggle(self, device: Device, follow: bool = True) -> None:
        cursor = self.app_state.cursor
        app_state, news = self.app_state.toggle(device)
        self.set_app_state(app_state if follow else replace(app_state, cursor=cursor))
        self.say(news, "warn")

    def _take(self, app_state: AppState, news: str | None) -> None:
        """Show an app state that a key has made, and say what there is to it: a warning where it made
        none."""
        unchanged = app_state is self.app_state
        self.set_app_state(app_state)
        self.say(news, "warn" if unchanged else "")

    def action_select(self) -> None:
        if self.app_state.current is not None:
            self.toggle(self.app_state.current)

    def action_number(self, index: int) -> None:
        device = self.app_state.numbered(index)
        if device is None:
            self.say(f"there is no GPU {index}", "warn")
        else:
            self.toggle(device, follow=False)

    def action_cursor(self, by: int) -> None:
        self.set_app_state(self.app_state.move_cursor(by))

    def action_reorder(self, by: int) -> None:
        if not self.app_state.selection.keys:
            self.say("nothing is chosen yet: space or 0-9 chooses", "warn")
        self.set_app_state(self.app_state.reorder(by))

    def action_best(self) -> None:
        self._take(*self.app_state.add_best())

    def action_other_best(self) -> None:
        self._take(*self.app_state.other_best())

    def action_ask_best(self) -> None:
        from gputui.tui.screens.line_input import LineScreen

        def answered(line: str | None) -> None:
            if line and line.strip():
                self._take(*self.app_state.best_of(*asked(line)))
            self._follow()

        self.app.push_screen(LineScreen(BEST_PROMPT, placeholder="how many", check=wrong_number), answered)

    def action_topology(self) -> None:
        from gputui.tui.screens.topology import TopologyScreen

        if isinstance(self.app.screen, TopologyScreen):
            return
        self.app.push_screen(
            TopologyScreen(lambda: self.app_state, self.set_app_state, self.run_action, lambda: self.message)
        )

    def _follow(self) -> None:
        """Let the screen that stands over this one show the app state at once."""
        follow = getattr(self.app.screen, "draw", None)
        if follow is not None and self.app.screen is not self:
            follow()

    def action_order(self) -> None:
        self._take(*self.app_state.next_order())

    def action_clear(self) -> None:
        self.set_app_state(self.app_state.clear())

    def action_cpu(self) -> None:
        self.set_app_state(self.app_state.cpu_only())

    def action_ids(self) -> None:
        self.set_app_state(self.app_state.other_ids())

    def action_launcher(self) -> None:
        self.set_app_state(self.app_state.next_launcher())
