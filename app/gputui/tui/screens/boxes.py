"""BoxesScreen: the boxes of the settings, over ssh, as groups of device rows; selects and starts there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import count

from textual.binding import Binding

from gputui.choosing.verdict import verdicts
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.system.users import own_name
from gputui.tui.controllers.boxes import BoxLaunch, BoxSelection, why_not
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, hidden, shown
from gputui.tui.views.boxes import Row, ShownBox, box_rows, headline, launch_lines, trouble_lines
from gputui.tui.views.text import Line, clip

_ENTER = "Box: show or fold its devices, or connect. Device: as r"
_SPACE = "Box: show or fold its devices. Device: select or deselect"
_ANSWERS_SEEN_WITHIN = 0.2
"""Seconds until the first answer of a box is shown; later answers are shown every second."""
_OTHER_LINES = 3
"""The rule at the top, the message and the keys."""


class BoxesScreen(ListPage):
    """The connections open with the page and close with it; the selection ends with it too."""

    BINDINGS = [
        shown("escape,q,O", "dismiss", "back", "esc"),
        *cursor_bindings("row"),
        shown("enter", "unfold", "devices", "⏎", _ENTER),
        shown("enter", "connect(False)", "connect", "⏎", _ENTER),
        shown("enter", "run", "run", "⏎ r", _ENTER),
        shown("space", "select", "select", about=_SPACE),
        hidden("space", "fold", _SPACE),
        hidden("right", "open(True)", "Show the devices of the box"),
        hidden("left", "open(False)", "Fold them"),
        shown("b", "choose('best')", "best", about="Select the best devices of the box, one more each time"),
        shown("r", "start(False)", "run", about="Run the command there, followed in this terminal"),
        shown("d", "start(True)", "detach", about="Run the command there as a job that nobody follows"),
        shown("y", "copy", "copy", about="Copy the call of gputui that r starts"),
        shown("c", "connect(True)", "ssh", about="Let ssh ask for a password or host key here, and connect"),
        shown("D", "jobs", "jobs", about="The jobs of these boxes: their logs; stop one"),
        shown("f", "only_free", "with free", about="Only boxes with free devices, or all"),
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
        # Textual calls the handler of each class: `Page` starts the page's timer.
        self._channels.start()
        self._connecting = self.set_interval(_ANSWERS_SEEN_WITHIN, self._show_answers)

    def _show_answers(self) -> None:
        states = self._channels.states
        if [state.state for state in states] != [box.state.state for box in self._all]:
            self.draw()
        if all(state.state != "connecting" for state in states):
            self._connecting.stop()

    def on_unmount(self) -> None:
        # This call waits a little for each connection.
        threading.Thread(target=self._channels.stop, daemon=True).start()

    # Painting

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

    def head(self, width: int) -> Line:
        return headline(self._all, self._only_free, self.beyond, width)

    def listing(self, width: int) -> tuple[list[Line], list[int | None]]:
        places = count()
        items = [next(places) if row.key is not None else None for row in self._rows]
        return [clip(row.line, width) for row in self._rows], items

    def notes(self, width: int) -> list[Line]:
        box = self._state_of(self.selection.box)
        why = why_not(box) if box is not None else None
        selected, launch = self.selection.selected, self.launch
        if self.key != (self.selection.box, selected.cursor):
            selected = replace(selected, cursor=None)
        call = launch.line or launch.outline(self.selection.box if selected.selection.keys else self._box)
        lines = launch_lines(self.selection.box, selected, launch.launcher, call, launch.missing, why, width)
        if launch.missing and len(lines) + len(self._rows) + _OTHER_LINES > self.size.height:
            # The boxes take precedence over a call that cannot start.
            lines = lines[:1]
        state = self._state
        return [*lines, *(trouble_lines(state, width) if state is not None and not self._device else ())]

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
        dead = not on_device and state is not None and state.state == "dead"
        if action in ("select", "run"):
            return on_device
        if action == "fold":
            return not on_device
        if action == "unfold":
            return not on_device and not dead
        if action == "connect":
            return dead
        return super().check_action(action, parameters)

    def _does(self, binding: Binding) -> bool:
        # Without a selection, these keys only show what is missing. On a device, the hint of ⏎ names r too.
        if binding.action in ("run", "start(False)", "start(True)", "copy") and self.launch.request is None:
            return False
        if binding.action == "start(False)" and self._device is not None:
            return False
        return super()._does(binding)

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
        """Whether devices of the box at the cursor can be selected; if not, show why."""
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

    def _refused(self, alias: str | None) -> str | None:
        """Why nothing can be selected on a box, None where the keys now act on it. (A number typed where none
        is accepted must not select devices.)"""
        state = self._state_of(alias)
        why = why_not(state)
        if why is None and state is not None:
            self._unfolded |= {state.alias}
            self.selection.aim(state, self._device)
        return why

    def action_select(self) -> None:
        if self._device is not None and self._aimed():
            self.selection.keys.click(self._device)

    def action_number(self, digit: int) -> None:
        if self._aim():
            self.selection.keys.press_digit(digit)

    def action_choose(self, what: str) -> None:
        keys = self.selection.keys
        there: dict[str, Callable[[], None]] = {"best": keys.add_best, "other": keys.next_best}
        if what == "ask":
            keys.finish_digits()
            keys.ask_for_best(partial(self._refused, self._box))
            return
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

    def action_connect(self, in_terminal: bool) -> None:
        """Connect; `in_terminal`: ssh may prompt here, as it must where it needs an answer from the user."""
        state = self._state
        if state is not None:
            self.launch.connect(state, self._channels, in_terminal or state.asks)
            self.draw()

    def action_jobs(self) -> None:
        self.selection.keys.finish_digits()
        self.launch.open_jobs(self._channels)

    def action_perform(self, action_id: str) -> None:
        """Perform an action of the main screen, to which the command belongs."""
        self.view.perform(action_id)
        self.draw()


def _same_devices(before: Snapshot, now: Snapshot) -> bool:
    """Whether there is nothing new to judge. A reading keeps the objects of unchanged devices: identity is
    compared, not equality."""
    if before is now:
        return True
    alike = before.claims is now.claims and len(before.devices) == len(now.devices)
    return alike and all(a is b for a, b in zip(before.devices, now.devices, strict=True))


def _user(state: BoxState) -> object:
    """The user's name on the box; an older gputui does not report it, and then it is the local name."""
    document = state.reading.document if state.reading else None
    return (document or {}).get("user") or own_name()


def _mine(snapshot: Snapshot, own: object) -> int:
    """How many of the devices the user uses or has claimed, by the user's name there."""
    claimed = snapshot.claimed
    return sum(
        (device.key in claimed and claimed[device.key].own)
        or any(process.user == own for process in device.processes or ())
        for device in snapshot.devices
    )
