"""BoxesScreen: the boxes of the settings, over ssh, as groups of device rows; to select and start there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

from gputui.choosing.verdict import verdicts
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.system.users import own_name
from gputui.tui.controllers.boxes import BoxLaunch, BoxSelection, why_not
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, hidden, shown
from gputui.tui.views.boxes import Row, ShownBox, box_rows, headline, needs_a_person, selected_lines
from gputui.tui.views.text import Line, clip


class BoxesScreen(ListPage):
    """The connections are made when the page opens, and end with it; and so does the selection."""

    BINDINGS = [
        shown("escape,q,O", "dismiss", "back", "esc"),
        *cursor_bindings("row"),
        shown("enter", "unfold", "devices", "⏎", "Show or fold the devices of the box"),
        hidden("enter", "connect", "Let ssh ask for a password or host key here, and connect"),
        shown("space", "select", "select", about="Select or deselect the device"),
        hidden("space", "fold", "Show or fold the devices of the box"),
        hidden("right", "open(True)", "Show the devices of the box"),
        hidden("left", "open(False)", "Fold them"),
        shown("b", "choose('best')", "best", about="Select the best devices of the box, one more each time"),
        hidden("enter", "run", "Run the command there, followed in this terminal"),
        shown("r", "start(False)", "run", about="Run the command there, followed in this terminal"),
        shown("d", "start(True)", "detach", about="Run the command there as a job that nobody follows"),
        shown("y", "copy", "copy", about="Copy the call of gputui that r starts"),
        shown("c", "connect", "connect", about="Let ssh ask for a password or host key here, and connect"),
        shown("f", "only_free", "free anywhere", about="Only boxes with free devices, or all"),
        hidden("B", "choose('other')", "Select the next best set of the box"),
        hidden("n", "choose('ask')", "Select the best N devices of the box"),
        hidden("o", "choose('order')", "Order the selected devices"),
        hidden("J", "choose('later')", "The selected device later in the order"),
        hidden("K", "choose('earlier')", "The selected device earlier in the order"),
        hidden("x", "choose('clear')", "Clear the selection"),
        hidden("e", "perform('edit')", "Edit the command"),
        hidden("l", "perform('launcher')", "Change the launcher"),
        *(hidden(str(n), f"number({n})", "Select the GPU of that number of the box") for n in range(10)),
    ]

    def __init__(
        self, view: MainView, channels: Channels, launch: LaunchController, environ: Mapping[str, str]
    ) -> None:
        super().__init__(view)
        self._channels = channels
        self._unfolded: frozenset[str] = frozenset()
        self._only_free = False
        self._judged: dict[str, tuple[Snapshot, ShownBox]] = {}
        self._all: list[ShownBox] = []
        self._rows: list[Row] = []
        self.selection = BoxSelection(view)
        self.launch = BoxLaunch(view, launch, environ, self.selection)

    def on_mount(self) -> None:
        self._channels.start()
        super().on_mount()

    def on_unmount(self) -> None:
        # (It waits for each of them a little.)
        threading.Thread(target=self._channels.stop, daemon=True).start()

    # What is painted

    def item_keys(self) -> Sequence[Hashable]:
        states = self._channels.states
        self.selection.follow(states)
        self._all = [self._shown(state) for state in states]
        moved, self.selection.moved_to = self.selection.moved_to, None
        if moved is not None:
            self._unfolded |= {moved[0]}
            self.key = moved
        visible = [box for box in self._all if box.free or not self._only_free]
        self._rows = box_rows(visible, self._unfolded, self.selection.rank)
        return [row.key for row in self._rows if row.key is not None]

    def lines(self, width: int, height: int) -> list[Line]:
        room, place = max(1, height - 1), -1
        places: list[int | None] = []
        for row in self._rows:
            place += row.key is not None
            places.append(place if row.key is not None else None)
        visible = self.window([row.line for row in self._rows], places, room, above=1)
        hidden_rows = self.top, len(self._rows) - self.top - len(visible)
        head = headline(self._all, self._only_free, hidden_rows, width)
        return [head, *(clip(line, width) for line in visible)]

    def notes(self, width: int) -> list[Line]:
        state = self._state
        if state is not None and state.asks and not self._device:
            return needs_a_person(state, width)
        box = self._state_of(self.selection.box)
        why = why_not(box) if box is not None else None
        selected = self.selection.selected
        if self.key != (self.selection.box, selected.cursor):
            selected = replace(selected, cursor=None)
        return selected_lines(self.selection.box, selected, self.launch.line, why, width)

    def _shown(self, state: BoxState) -> ShownBox:
        snapshot = state.reading.snapshot if state.reading else None
        if snapshot is None:
            return ShownBox(state)
        kept = self._judged.get(state.alias)
        if kept is not None and _same_devices(kept[0], snapshot):
            return kept[1].now(state)
        made = ShownBox(state, verdicts(snapshot, self.view.app_state.rules), _mine(snapshot, _user(state)))
        self._judged[state.alias] = snapshot, made
        return made

    # The row at the cursor

    @property
    def _box(self) -> str | None:
        return self.key[0] if isinstance(self.key, tuple) else None

    @property
    def _device(self) -> str | None:
        return (self.key[1] or None) if isinstance(self.key, tuple) else None

    @property
    def _state(self) -> BoxState | None:
        return self._state_of(self._box)

    def _state_of(self, alias: str | None) -> BoxState | None:
        return next((box.state for box in self._all if box.state.alias == alias), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        on_device, state = self._device is not None, self._state
        if action in ("select", "run"):
            return on_device
        if action == "fold":
            return not on_device
        if action == "unfold":
            return not on_device and not (state is not None and state.asks)
        if action == "connect":
            return not on_device and state is not None and state.state == "dead"
        if action in ("start", "copy"):
            return bool(self.launch.words)
        return super().check_action(action, parameters)

    # Folding

    def action_fold(self) -> None:
        if self._box is not None:
            self._unfolded ^= {self._box}
            self.draw()

    def action_unfold(self) -> None:
        self.action_fold()

    def action_open(self, opened: bool) -> None:
        box = self._box
        if box is not None:
            self._unfolded = self._unfolded | {box} if opened else self._unfolded - {box}
            if not opened:
                self.key = (box, "")
            self.draw()

    def action_only_free(self) -> None:
        self._only_free = not self._only_free
        self.draw()

    def clicked(self, place: int) -> None:
        self.go_to(place)
        if self._device is not None:
            self.action_select()
        else:
            self.action_fold()

    # Selecting

    def _aimed(self) -> bool:
        """Whether devices of the box at the cursor can be selected; where not, why is shown."""
        self.selection.keys.finish_digits()
        return self._aim()

    def _aim(self) -> bool:
        state = self._state
        why = why_not(state)
        if why is not None or state is None:
            self.show_message(why or "")
            return False
        self.selection.aim(state, self._device)
        return True

    def action_select(self) -> None:
        if self._device is not None and self._aimed():
            self.selection.keys.click(self._device)

    def action_number(self, digit: int) -> None:
        if self._aim():
            self.selection.keys.press_digit(digit)

    def action_choose(self, what: str) -> None:
        keys = self.selection.keys
        there: dict[str, Callable[[], None]] = {
            "best": keys.add_best,
            "other": keys.next_best,
            "ask": keys.ask_for_best,
        }
        if what in there:
            if self._aimed():
                self._unfolded |= {self._box or ""}
                there[what]()
            return
        keys.finish_digits()
        self.selection.aim_at_selected()
        selected: dict[str, Callable[[], None]] = {
            "order": keys.next_order,
            "later": partial(keys.reorder, 1),
            "earlier": partial(keys.reorder, -1),
            "clear": keys.clear,
        }
        selected[what]()

    # Starting

    def action_run(self) -> None:
        self.action_start(False)

    def action_start(self, detached: bool) -> None:
        self.selection.keys.finish_digits()
        self.launch.start(self._state_of(self.selection.box), detached)
        self.draw()

    def action_copy(self) -> None:
        self.selection.keys.finish_digits()
        self.launch.copy()

    def action_connect(self) -> None:
        if self._box is not None:
            self.launch.connect(self._box, self._channels)
            self.draw()

    def action_perform(self, action_id: str) -> None:
        """The command is the main screen's."""
        self.view.perform(action_id)


def _same_devices(before: Snapshot, now: Snapshot) -> bool:
    """Whether there is nothing to judge that was not there before. (The same objects, not equal ones: a
    reading keeps those that are as they were.)"""
    if before is now:
        return True
    alike = before.claims is now.claims and len(before.devices) == len(now.devices)
    return alike and all(a is b for a, b in zip(before.devices, now.devices, strict=True))


def _user(state: BoxState) -> object:
    """Our name there; an older gputui does not tell it, and it is the one that we have here."""
    document = state.reading.document if state.reading else None
    return (document or {}).get("user") or own_name()


def _mine(snapshot: Snapshot, own: object) -> int:
    """How many of the devices we use or have claimed, by our name there."""
    claimed = snapshot.claimed
    return sum(
        (device.key in claimed and claimed[device.key].own)
        or any(process.user == own for process in device.processes or ())
        for device in snapshot.devices
    )
