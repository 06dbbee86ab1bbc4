"""SelectionController: what the keys do that select and order devices. Each makes a new app state."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.grouping import GroupingError, parse_request
from gputui.inventory.device import Device
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView

BEST_PROMPT = "how many of the best?  4, or 8 tp=2 pp=2   (⏎ takes, esc leaves)"


def count_error(line: str) -> str | None:
    """What is wrong with a line like "4" or "8 tp=2 pp=2", None for nothing."""
    try:
        parse_request(line)
    except GroupingError as error:
        return str(error)
    return None


class SelectionController:
    """Changes the selection, its order and the cursor of the app state that `view` shows."""

    def __init__(self, view: MainView) -> None:
        self._view = view
        self._reading_command = False

    def toggle(self, device: Device, move_cursor: bool = True) -> None:
        """Select or deselect a device; `move_cursor` lets the cursor go on to the next row."""
        before = self._view.app_state
        app_state, message = before.toggle(device)
        self._view.set_app_state(app_state if move_cursor else replace(app_state, cursor=before.cursor))
        self._view.show_message(message, "warn")

    def toggle_current(self) -> None:
        if self._view.app_state.current is not None:
            self.toggle(self._view.app_state.current)

    def toggle_number(self, index: int) -> None:
        """Select or deselect the GPU with this NVML index."""
        device = self._view.app_state.gpu_with_index(index)
        if device is None:
            self._view.show_message(f"there is no GPU {index}", "warn")
        else:
            self.toggle(device, move_cursor=False)

    def move_cursor(self, by: int) -> None:
        self._view.set_app_state(self._view.app_state.move_cursor(by))

    def reorder(self, by: int) -> None:
        if not self._view.app_state.selection.keys:
            self._view.show_message("nothing is selected yet: space or 0-9 selects", "warn")
        self._view.set_app_state(self._view.app_state.reorder(by))

    def add_best(self) -> None:
        self._show(*self._view.app_state.add_best())

    def next_best(self) -> None:
        self._show(*self._view.app_state.next_best())

    def ask_for_best(self) -> None:
        """Ask how many devices, and for which grouping; then select the best."""
        from gputui.tui.screens.line_input import LineScreen

        def answered(line: str | None) -> None:
            if line and line.strip():
                self._show(*self._view.app_state.select_best(*parse_request(line)))

        self._view.open(LineScreen(BEST_PROMPT, placeholder="how many", check=count_error), answered)

    def next_order(self) -> None:
        self._show(*self._view.app_state.next_order())

    def read_command_away(self) -> None:
        """The same as `read_command`; the scripts that the command starts are read away from the thread that
        paints, which for a long one takes a tenth of a second, and again from a cache."""
        if self._reading_command:
            return
        self._reading_command = True
        app_state, app = self._view.app_state, self._view.app

        def read() -> None:
            self._reading_command = False
            if self._view.app_state.command_is_unread:
                self.read_command()

        def work() -> None:
            _ = app_state.intent
            app.call_later(read)

        in_background("read the command", work)

    def read_command(self, again: bool = False) -> None:
        """Select what the command says of devices, if anything; `again`: also where it said that before."""
        if again and not self._view.app_state.options.command:
            self._view.show_message("there is no command yet: e types it", "warn")
        elif self._view.app_state.snapshot is not None:
            app_state, message = self._view.app_state.with_command_read(again)
            self._view.set_app_state(app_state)
            self._view.show_message(message, "warn")

    def clear(self) -> None:
        self._view.set_app_state(self._view.app_state.clear())

    def cpu_only(self) -> None:
        self._view.set_app_state(self._view.app_state.cpu_only())

    def _show(self, app_state: AppState, message: str | None) -> None:
        """Show what a key has made; its message is a warning where the key could not change anything."""
        unchanged = app_state is self._view.app_state
        self._view.set_app_state(app_state)
        self._view.show_message(message, "warn" if unchanged else "")
