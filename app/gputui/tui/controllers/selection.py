"""SelectionController: the keys that select and order devices. Each key makes a new app state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.choosing.grouping import GroupingError, parse_request
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.main_view import SelectionView

SECOND_DIGIT = 0.5
"""Seconds for which a digit waits for another, on boxes where some GPU's number has two digits."""

AUTO = "auto"
"""Typed instead of a number: as many devices as the model of the command needs."""

BEST_PROMPT = "number of GPUs: 4, 8 tp=2 pp=2, or auto (as the model needs)"


class SelectionController:
    """Changes the selection, its order and the cursor of the app state that `view` shows.

    `select_enough` selects as many devices as the model of the command needs.
    """

    def __init__(self, view: SelectionView, select_enough: Callable[[], None]) -> None:
        self._view, self._select_enough = view, select_enough
        self._digits = ""
        self._divided: Device | None = None
        """The GPU with MIG instances whose number was just typed: the next digit is an instance's number."""
        self._stop_timer: Callable[[], object] = lambda: None
        """The keys of the devices that were deselected together last, in their order."""
        self.after: Callable[[float, Callable[[], None]], Callable[[], object]] = self._on_timer
        """Calls a function after so many seconds, unless the returned function is called before."""

    @property
    def _app_state(self) -> AppState:
        return self._view.app_state

    def toggle(self, device: Device) -> None:
        """Select or deselect a device. The cursor and all rows stay where they are."""
        self._warn(*self._app_state.toggle(device))

    def toggle_current(self) -> None:
        if self._app_state.current is not None:
            self.toggle(self._app_state.current)

    def click(self, key: str) -> None:
        """Put the cursor on the device with this key unless it is filtered out; select or deselect it."""
        before = self._app_state
        if key not in before.box.by_key:
            return
        hidden = all(device.key != key for device in before.rows)
        # One app state, so that the screen is drawn once.
        at_device = before if hidden else replace(before, cursor=key)
        self._warn(*at_device.toggle(before.box.by_key[key]))

    def to_device(self, key: str) -> None:
        """Put the cursor on the device with this key."""
        app_state = self._app_state
        if key in app_state.box.by_key:
            self._view.set_app_state(replace(app_state, cursor=key))

    def move_to(self, key: str, place: int) -> None:
        """Move the selected device with this key to another place in the order."""
        self._view.set_app_state(self._app_state.move_to(key, place))

    # Digits

    def press_digit(self, digit: int) -> None:
        """Add a digit to the index of a GPU, which is selected or deselected as soon as it is unambiguous.

        A digit acts at once if no longer index begins with it; otherwise it waits for the next digit. After
        the number of a GPU with MIG instances, the next digit is the number of an instance.
        """
        divided = self._divided
        if divided is not None:
            self.forget_digits()
            self._toggle_instance(divided, digit)
            return
        indices = [str(d.index) for d in self._app_state.box.devices if d.parent is None]
        text = f"{self._digits}{digit}"
        if self._digits and not any(index.startswith(text) for index in indices):
            self.finish_digits()
            text = str(digit)
        self.forget_digits()
        if any(index.startswith(text) and index != text for index in indices):
            self._digits = text
            self._view.show_message(f"GPU {text}_", kind="passing")
            self._stop_timer = self.after(SECOND_DIGIT, self._digits_in_time)
        else:
            self.toggle_number(int(text))

    def finish_digits(self) -> None:
        """Take the typed digits as the number: another key was pressed, or no other digit in time."""
        text = self._digits
        if self.forget_digits() and text:
            self.toggle_number(int(text))

    def _digits_in_time(self) -> None:
        self.finish_digits()
        self._view.redraw_page()

    def forget_digits(self) -> bool:
        """Forget the digits that wait for another; return whether there were any."""
        waited = bool(self._digits) or self._divided is not None
        if self._digits:
            self._view.clear_message()
        self._stop_timer()
        self._digits, self._divided, self._stop_timer = "", None, lambda: None
        return waited

    def _on_timer(self, seconds: float, call: Callable[[], None]) -> Callable[[], object]:
        return self._view.app.set_timer(seconds, call).stop

    def toggle_number(self, index: int) -> None:
        """Act as a click on the GPU with this index; where several vendors have one, ask which."""
        found = self._app_state.gpus_with_index(index)
        if not found:
            self._view.show_message(f"there is no GPU {index}", "warn")
        elif len(found) > 1:
            self._ask_which(index, found)
        elif found[0].mig:
            self._go_to_instances(found[0])
        else:
            self.click(found[0].key)

    def _go_to_instances(self, gpu: Device) -> None:
        """Put the cursor on the first free instance of a GPU, and wait a moment for an instance's number."""
        app_state = self._app_state
        instances = [device for device in app_state.rows if device.parent == gpu.key]
        first = next((d for d in instances if app_state.verdicts[d.key].free), next(iter(instances), None))
        if first is None:
            self.click(gpu.key)
            return
        self.to_device(first.key)
        self._divided = gpu
        name, label = (app_state.box.label(each) for each in (gpu, first))
        words = f"GPU {name} is divided into MIG instances: space selects {label}"
        words = f"{words}; so does {gpu.index} {first.index}, typed quickly"
        self._view.show_message(words, kind="passing")
        self._stop_timer = self.after(SECOND_DIGIT, self._digits_in_time)

    def _toggle_instance(self, gpu: Device, index: int) -> None:
        snapshot = self._app_state.box
        found = [d for d in snapshot.devices if d.parent == gpu.key and d.index == index]
        if found:
            self.click(found[0].key)
        else:
            self._view.show_message(f"there is no MIG instance {snapshot.label(gpu)}:{index}", "warn")

    def _ask_which(self, index: int, found: Sequence[Device]) -> None:
        from gputui.tui.screens.line_input import LineScreen

        snapshot = self._app_state.box
        labels = {snapshot.label(device): device.key for device in found}
        names = " or ".join(labels)

        def matching(line: str) -> list[str]:
            return [key for label, key in labels.items() if label.startswith(line.strip().lower())]

        def check(line: str) -> str | None:
            return None if len(matching(line)) == 1 else f"GPU {index} is {names}: type one of them"

        def answered(line: str | None) -> None:
            if line and line.strip():
                self.click(matching(line)[0])

        self._view.open(LineScreen(f"which GPU {index}: {names}?", check=check), answered)

    # The cursor, and the list

    def move_cursor(self, by: int) -> None:
        self._view.set_app_state(self._app_state.move_cursor(by))

    def ask_for_filter(self) -> None:
        """Ask which devices to list."""
        from gputui.tui.screens.line_input import LineScreen

        before, cursor = self._app_state.screen.filter, self._app_state.cursor

        def answered(line: str | None) -> None:
            if line is None:
                self._list_only(before)
                self.to_device(cursor or "")

        prompt = "show only: free, idle, another state, a user, part of a name, mine   (empty: all)"
        self._view.open(LineScreen(prompt, before, typed=self._list_only), answered)

    def end_filter(self) -> None:
        """Show all devices again."""
        self._list_only("")

    def _list_only(self, words: str) -> None:
        """List the devices with these words, until the screen is closed: whoever opens it the next time
        would look for the devices that they hide."""
        app_state = self._app_state
        screen = app_state.screen._replace(filter=words.strip())
        self._view.set_app_state(app_state.with_screen(screen))

    def reorder(self, by: int) -> None:
        self._warn(*self._app_state.reorder(by))

    def add_best(self) -> None:
        self._show(*self._app_state.add_best())

    def next_best(self) -> None:
        self._show(*self._app_state.next_best())

    def ask_for_best(self, refused: Callable[[], str | None] = lambda: None) -> None:
        """Ask how many devices, and for which grouping; then select the best. `refused` returns why no number
        is accepted now, None where one is."""
        from gputui.tui.screens.line_input import LineScreen

        def answered(line: str | None) -> None:
            if line and line.strip() == AUTO:
                self._select_enough()
            elif line and line.strip():
                self.select_best(line)

        def error_in(line: str) -> str | None:
            why = refused()
            if why is None and line.strip() != AUTO:
                parse_request(line)  # raises GroupingError
            return why

        prompt = refused() or BEST_PROMPT
        self._view.open(LineScreen(prompt, placeholder="how many", check=error_in), answered)

    def select_best(self, line: str) -> None:
        """Select the best devices for "4" or "8 tp=2". Raises GroupingError."""
        self._show(*self._app_state.select_best(*parse_request(line)))

    def read_command(self, again: bool = False) -> None:
        """Select the devices that the command asks for, if any; `again`: even if the request is the same."""
        if again and not self._app_state.options.command:
            edit = key_of("edit", self._app_state.screen.keymap)
            self._view.show_message(f"no command yet: press {edit} to type one", "warn")
        elif self._app_state.snapshot is not None:
            app_state, message = self._app_state.with_command_read(again)
            self._view.set_app_state(app_state)
            self._view.show_message(self._with_waiting(message), "warn")

    def clear(self) -> None:
        """Clear the selection. With nothing selected, the message of the key before stays: people press esc
        until they are sure."""
        before = self._app_state
        words = "no longer CPU only" if before.selection.cpu_only else ""
        if before.selected:
            words = f"selection {before.selected_labels} cleared: {self._restore} brings it back"
        if words:
            earlier = (None, before.selection) if before.selected else before.earlier
            self._view.set_app_state(replace(before.clear(), earlier=earlier))
            self._view.show_message(words, kind="lasting")

    @property
    def _restore(self) -> str:
        return key_of("restore", self._app_state.screen.keymap)

    def restore(self) -> None:
        """Select again, in their order, the devices that were cleared last and are still there; after a plan
        was put on the launch line, bring back the command and the selection of before."""
        before = self._app_state
        restored = before.restored()
        if restored is None:
            self._view.show_message(
                "nothing to restore: no selection was cleared, and no plan was used", "warn"
            )
            return
        self._view.set_app_state(restored)
        if restored.options != before.options:
            self._view.show_message("the command from before the plan is back; the plan's files stay")
        elif restored.earlier != before.earlier:
            were, them = ("was", "it") if len(before.selected) == 1 else ("were", "them")
            words = f"restored {restored.selected_labels}; {before.selected_labels} {were} selected"
            self._view.show_message(f"{words}: {self._restore} brings {them} back", kind="lasting")

    def cpu_only(self) -> None:
        self._view.set_app_state(self._app_state.cpu_only())

    def _warn(self, app_state: AppState, message: str | None) -> None:
        """Show the result of a key, with its warning if there is one."""
        self._view.set_app_state(app_state)
        self._view.show_message(message, "warn")

    def _show(self, app_state: AppState, message: str | None) -> None:
        """Show the result of a key; its message is a warning where the key could not change anything."""
        unchanged = app_state is self._app_state or app_state.short_of is not None
        self._view.set_app_state(app_state)
        self._view.show_message(self._with_waiting(message), "warn" if unchanged else "")

    def _with_waiting(self, message: str | None) -> str | None:
        """The message; where too few devices are free, with the key that waits for that number."""
        app_state = self._app_state
        if message is None or app_state.short_of is None or not app_state.options.command:
            return message
        from gputui.tui.wait_request import read_wait_request

        try:
            read_wait_request(str(app_state.short_of), app_state)
        except GroupingError:
            return message
        key = key_of("wait", app_state.screen.keymap)
        return f"{message}: {key} waits in line for {app_state.short_of}"
