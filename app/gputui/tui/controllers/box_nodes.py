"""BoxNodes: boxes over ssh on the page of nodes; selects devices of one, and starts commands there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual.app import App
from textual.screen import Screen

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.named_devices import short_names
from gputui.choosing.verdict import verdicts
from gputui.inventory.formatting import counted
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.box_calls import follow_words, launch_on, line, line_on, start_detached, stop_there
from gputui.jobs.own_call import this_gputui
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.system.users import own_name
from gputui.tui.app_state import AppState
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.controllers.nodes import NO_COMMAND, Nodes
from gputui.tui.controllers.selection import SelectionController
from gputui.tui.main_view import MainView
from gputui.tui.message_log import Kind
from gputui.tui.views.nodes import Node, box_node, broken, launch_lines, trouble_lines
from gputui.tui.views.selection import strip
from gputui.tui.views.text import Line

if TYPE_CHECKING:
    from gputui.jobs.box_jobs import JobsOfBoxes
    from gputui.system.environment import Environ

Result = TypeVar("Result")

_ONLY_HERE = "auto works on this machine only: type a number"
_LIST = "LIST"
"""Shown in place of the devices while none are selected, as in the help of `gputui run`."""
_OF_A_CALL = ("run", "return", "detach", "copy")
SELECT_FIRST = "select GPUs of one box first (space, 0-9, b)"


def why_not(state: BoxState | None) -> str | None:
    """Why nothing can be started on a box now, None where it can."""
    if state is None:
        return "no box at the cursor"
    if state.state != "live" or state.reading is None:
        return f"{state.alias} is {state.state}{f': {state.error}' if state.error else ''}"
    if state.reading.document is None:
        return f"nothing can start on {state.alias}: it has no gputui"
    return None


class BoxNodes(Nodes[LaunchRequest]):
    """The boxes over ssh. Devices of one of them are selected, and the main screen's command is started on
    exactly these by `gputui run --on`, which refuses devices that are not free at that time.

    It takes the role of a main screen for a `SelectionController`, whose keys act on the box `at`; the first
    device selected there begins a new selection, and `box` is the box of the selection.
    """

    def __init__(
        self, view: MainView, launch: LaunchController, environ: Environ, channels: Channels
    ) -> None:
        super().__init__(view, launch, environ)
        self._channels = channels
        self._unfolded: frozenset[str] = frozenset()
        self._states: tuple[BoxState, ...] = ()
        self.box: str | None = None
        self.at: str | None = None
        self._selected = self._other = self._empty()
        self._said = ""
        keys = self._keys = SelectionController(self, lambda: self.show_message(_ONLY_HERE, "warn"))
        self.does = {
            "unfold": self._fold,
            "fold": self._fold,
            "select": self._select,
            "right": partial(self._open, True),
            "left": partial(self._open, False),
            "connect": partial(self._connect, False),
            "ssh": partial(self._connect, True),
            "number": partial(self._choose, keys.press_digit),
            "best": partial(self._choose, keys.add_best),
            "other": partial(self._choose, keys.next_best),
            "ask": self._ask,
            "later": partial(self._change, partial(keys.reorder, 1)),
            "earlier": partial(self._change, partial(keys.reorder, -1)),
            "clear": partial(self._change, keys.clear),
            "run": partial(self._start, False),
            "return": partial(self._start, False),
            "detach": partial(self._start, True),
            "copy": self._copy,
        }

    def do(self, action: str, *given: object) -> None:
        if action != "number":
            self._keys.finish_digits()
        super().do(action, *given)

    def begin(self) -> None:
        self._channels.start()

    def end(self) -> None:
        # This call waits a little for each connection.
        threading.Thread(target=self._channels.stop, daemon=True).start()

    # The boxes

    def nodes(self) -> list[Node]:
        self._states = self._channels.states
        for state in self._states:
            snapshot = state.snapshot
            if state.alias == self.box and snapshot is not None and snapshot is not self._selected.snapshot:
                self._selected = self._selected.with_snapshot(snapshot)
        found = [self._node(state) for state in self._states]
        self.free = [node.free for node in found]
        return found

    def _node(self, state: BoxState) -> Node:
        snapshot = state.snapshot
        judged = verdicts(snapshot, self.view.app_state.rules) if snapshot is not None else {}
        mine = _mine(snapshot, _user(state)) if snapshot is not None else 0
        return box_node(state, judged, mine, state.alias in self._unfolded, self._rank)

    def _rank(self, alias: str, key: str) -> int | None:
        """The index of a device in the selection, None where it is not selected."""
        return self._selected.selection.rank(key) if alias == self.box else None

    @property
    def awaited(self) -> int:
        return sum(state.state == "connecting" for state in self._channels.states)

    # The row at the cursor

    @property
    def _alias(self) -> str | None:
        return self.key[0] if isinstance(self.key, tuple) else None

    @property
    def _device(self) -> str | None:
        return (self.key[1] or None) if isinstance(self.key, tuple) else None

    def state_of(self, alias: str | None) -> BoxState | None:
        """The state of a box as it was last painted."""
        return next((state for state in self._states if state.alias == alias), None)

    def can(self, action: str) -> bool:
        on_device, state = self._device is not None, self.state_of(self._alias)
        dead = not on_device and state is not None and state.state == "dead"
        if action in ("select", "run"):
            return on_device
        if action in ("fold", "unfold", "connect"):
            return not on_device and (action == "fold" or dead == (action == "connect"))
        return super().can(action)

    def hints(self, action: str) -> bool:
        # Without a selection, some keys only show what is missing. On a device, the hint of ⏎ is enough.
        if action == "number" or (action in _OF_A_CALL and isinstance(self.launched(False), str)):
            return False
        return super().hints(action) and not (action == "return" and self._device is not None)

    def _fold(self) -> None:
        if self._alias is not None:
            self._unfolded ^= {self._alias}

    def _open(self, opened: bool) -> None:
        box = self._alias
        if box is not None:
            self._unfolded = self._unfolded | {box} if opened else self._unfolded - {box}
            if not opened:
                self.moved_to = (box, "")

    # Selecting

    def _refused(self, alias: str | None) -> str | None:
        """Why nothing can be selected on a box; None where the keys now act on it, with their cursor on the
        device at the page's. (A number typed where none is accepted must not select devices.)"""
        state = self.state_of(alias)
        why = why_not(state)
        if why is not None or state is None:
            return why
        self._unfolded |= {state.alias}
        self.at = state.alias
        if self.at != self.box:
            self._other = self._empty().with_snapshot(state.snapshot) if state.snapshot else self._empty()
        self._keep(replace(self.app_state, cursor=self._device))
        return None

    def _choose(self, choose: Callable[..., object], *given: object) -> None:
        """Select devices of the box at the cursor, or show why none can be selected there."""
        why = self._refused(self._alias)
        if why is None:
            choose(*given)
        else:
            self.view.show_message(why)

    def _select(self) -> None:
        self._choose(self._keys.click, self._device or "")

    def _ask(self) -> None:
        self._keys.ask_for_best(partial(self._refused, self._alias))

    def _change(self, change: Callable[[], None]) -> None:
        """Change the selection, in whichever box it is."""
        self.at = self.box
        change()

    # The interface that a `SelectionController` needs from a view

    def _empty(self) -> AppState:
        # Preferences apply to devices of this machine only, and gputui on the box decides by a single
        # reading.
        rules = replace(self.view.app_state.rules, never=(), prefer=(), window=0.0)
        return AppState({}, rules=rules)

    @property
    def app(self) -> App[object]:
        """The running application."""
        return self.view.app

    @property
    def app_state(self) -> AppState:
        """The app state of the box that the keys act on."""
        return self._selected if self.at == self.box else self._other

    def _keep(self, app_state: AppState) -> None:
        if self.at == self.box:
            self._selected = app_state
        else:
            self._other = app_state

    def set_app_state(self, app_state: AppState) -> None:
        """Keep another app state of the box that the keys act on."""
        if self.at is not None and app_state.cursor and app_state.cursor != self.app_state.cursor:
            self._unfolded |= {self.at}
            self.moved_to = self.at, app_state.cursor
        if self.at != self.box and app_state.selection.keys:
            count = len(self._selected.selection.keys)
            if count:
                self._said = f"the selection on {self.box} ({counted(count, 'GPU')}) was cleared"
                self.view.show_message(self._said)
            self.box = self.at
        self._keep(app_state)
        self.redraw_page()

    def show_message(self, text: str | None, style: str = "", kind: Kind = "answer") -> None:
        """Show a message. If the selection of another box was cleared, the message about that replaces it.
        The reason that prevents the new selection is shown below the call."""
        said, self._said = self._said, ""
        if text:
            self.view.show_message(text, style, kind)
            if said:
                self.view.show_message(said)
            self.redraw_page()

    def clear_message(self) -> None:
        """Show no message."""
        self.view.clear_message()

    def redraw_page(self) -> None:
        """Draw the page."""
        self.view.redraw_page()

    def open(self, screen: Screen[Result], answered: Callable[[Result | None], None] | None = None) -> None:
        """Push a screen over the page."""
        self.view.open(screen, answered)

    # The call

    def launched(self, starts: bool) -> LaunchRequest | str:
        selected = self._selected
        if selected.snapshot is None or not selected.selection.keys:
            return SELECT_FIRST
        if not self.view.app_state.options.command:
            return NO_COMMAND
        why = why_not(self.state_of(self.box)) if starts else None
        return why or self._of(short_names(selected.selection.keys, selected.snapshot), selected.grouping)

    def _of(self, names: Sequence[str], grouping: Grouping = ALL_REDUCE) -> LaunchRequest:
        """The request to run the main screen's command on the named devices, only if all of them are free at
        that time."""
        group = None if grouping == ALL_REDUCE else grouping
        devices = DeviceRequest(names=",".join(names), if_free=True, group=group)
        return LaunchRequest(self.view.app_state.options, devices)

    def line(self, launched: LaunchRequest) -> str:
        return line_on(self.box or "", launched)

    def launch(self, width: int, room: int) -> list[Line]:
        selected, command = self._selected, self.view.app_state.options.command
        chosen, launched = bool(selected.selection.keys), self.launched(starts=False)
        missing = launched if isinstance(launched, str) else ""
        box = self.box if chosen else self._alias
        if self.key != (self.box, selected.cursor):
            selected = replace(selected, cursor=None)
        example = self._of((_LIST,)) if isinstance(launched, str) else launched
        shown = line_on(box, example) if command and box is not None else ""
        why = why_not(self.state_of(self.box)) if chosen else None
        name = f"launch: {self.view.app_state.starter}" if command else "launch"
        lines = launch_lines(
            f"{name}, on {box}" if chosen else name,
            missing or "started only if all are free",
            strip(selected, width).lines[1:] if chosen else (),
            broken(shown, width - 4) if shown else (),
            "dim" if missing else "",
            [(f"! {text}", "warn") for text in (*([why] if why else ()), *selected.warnings)],
            width,
        )
        if missing and len(lines) > room:
            # The nodes take precedence over a call that cannot start.
            lines = lines[:1]
        state = self.state_of(self._alias)
        return [*lines, *(trouble_lines(state, width) if state is not None and not self._device else ())]

    def _start(self, detached: bool) -> None:
        """Start the command on the box of the selection: in this terminal, or detached as a job."""
        box, request = self.box, self._launched()
        if box is None or request is None:
            return
        if detached:
            self._detach(box, request)
        else:
            self._in_terminal(launch_on(box, request), self.line(request), box)

    def _detach(self, box: str, request: LaunchRequest) -> None:
        keys = self._selected.selection

        def done(good: bool) -> None:
            if good and (self.box, self._selected.selection) == (box, keys):
                # The devices belong to that job now, so the next launch needs others.
                self.at = self.box
                self.set_app_state(self._selected.clear())

        self._background(f"starting on {box} …", lambda: start_detached(box, request, self._environ), done)

    def _connect(self, in_terminal: bool) -> None:
        """Connect again. With `in_terminal`, and where it needs an answer from the user, first let ssh prompt
        in this terminal."""
        state = self.state_of(self._alias)
        if state is None or self._simulated():
            return
        self.view.show_message(f"connecting to {state.alias} …", kind="passing")
        if in_terminal or state.asks:
            words = f"ssh {state.alias} true"
            self._in_terminal(Launch(self._channels.asking(state.alias)), words, words)
        self._channels.connect_now(state.alias)

    # Jobs

    def jobs_of_boxes(self) -> JobsOfBoxes:
        """The jobs of these boxes, for a page."""
        self._keys.finish_digits()
        channels = self._channels
        if self.view.app_state.label:
            from gputui.jobs.simulated_box_jobs import JobsOfSimulatedBoxes

            return JobsOfSimulatedBoxes(lambda: channels.states)
        from gputui.jobs.box_jobs import JobsOfBoxes

        return JobsOfBoxes([state.alias for state in channels.states], channels.way)

    def follow_log(self, job: Job) -> None:
        """Follow the log of a job of a box in this terminal."""
        if self._simulated("these jobs are simulated"):
            return
        words = follow_words(job.address)
        ended = self._launch.lend_terminal(Launch(this_gputui(words)), line(words))
        if ended is not None:
            # The user usually ends it with Ctrl-C: that needs no message.
            self.view.show_message(None if ended.how else ended.text, "lost")

    def stop_job(self, job: Job, boxes: JobsOfBoxes) -> None:
        """Stop a job of a box, and query its box again."""
        if self._simulated("these jobs are simulated"):
            return
        self._background(
            f"stopping {job.address} …",
            lambda: stop_there(job.address, self._environ),
            lambda good: boxes.ask_now(job.box),
        )


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
