"""BoxSelection, BoxCalls and BoxLaunch: select devices of another box, and start and follow commands
there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from textual.app import App
from textual.screen import Screen

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.settings import ScreenSettings
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.named_devices import short_names
from gputui.inventory.formatting import printable
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.box_calls import follow_words, line, line_on, start_detached, stop_there, words_on
from gputui.jobs.own_call import this_gputui
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.controllers.selection import SelectionController
from gputui.tui.main_view import MainView

if TYPE_CHECKING:
    from gputui.jobs.box_jobs import JobsOfBoxes

Result = TypeVar("Result")


def why_not(state: BoxState | None) -> str | None:
    """Why nothing can be started on a box now, None where it can."""
    if state is None:
        return "no box at the cursor"
    if state.state != "live" or state.reading is None:
        return f"{state.alias} is {state.state}{f': {state.error}' if state.error else ''}"
    if state.reading.document is None:
        return f"nothing can start on {state.alias}: it has no gputui"
    return None


class BoxSelection:
    """The selected devices, all of one box; takes the role of a main screen for `SelectionController`.

    box   the box of the selected devices, None before the first selection
    at    the box that the keys act on: the first device selected there begins a new selection
    """

    def __init__(self, view: MainView) -> None:
        self._view = view
        self.box: str | None = None
        self.at: str | None = None
        self._selected = self._other = self._empty()
        self._said = ""
        self.moved_to: tuple[str, str] | None = None
        """The box and the device that a key has moved to, until the page follows."""
        self.keys = SelectionController(self, lambda: self.show_message(_ONLY_HERE, "warn"))

    def _empty(self) -> AppState:
        # Preferences apply to devices of this machine only, and gputui on the box decides by a single
        # reading.
        rules = replace(self._view.app_state.rules, never=(), prefer=(), window=0.0)
        return AppState({}, rules=rules, always_warns=True)

    def follow(self, states: Sequence[BoxState]) -> None:
        """Update the box of the selection to its present state."""
        for state in states:
            snapshot = state.reading.snapshot if state.reading else None
            if state.alias == self.box and snapshot is not None and snapshot is not self._selected.snapshot:
                self._selected = self._selected.with_snapshot(snapshot)

    def aim(self, state: BoxState, device: str | None) -> None:
        """Make the keys act on this box, with the cursor on the device with this key."""
        self.at = state.alias
        if self.at != self.box:
            snapshot = state.reading.snapshot if state.reading else None
            self._other = self._empty().with_snapshot(snapshot) if snapshot else self._empty()
        if device != self.app_state.cursor:
            self._keep(replace(self.app_state, cursor=device))

    def aim_at_selected(self) -> None:
        """Make the keys act on the box of the selected devices."""
        self.at = self.box

    @property
    def selected(self) -> AppState:
        """The app state of the box with the selection."""
        return self._selected

    def rank(self, alias: str, key: str) -> int | None:
        """The index of a device in the selection, None where it is not selected."""
        return self._selected.selection.rank(key) if alias == self.box else None

    # The interface that a `SelectionController` needs from a view

    @property
    def app(self) -> App[object]:
        """The running application."""
        return self._view.app

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
            self.moved_to = self.at, app_state.cursor
        if self.at != self.box and app_state.selection.keys:
            count = len(self._selected.selection.keys)
            if count:
                self._said = f"the selection on {self.box} ({count} GPU{'s' * (count > 1)}) was cleared"
                self._view.show_message(self._said)
            self.box = self.at
        self._keep(app_state)
        self.redraw_page()

    def show_message(
        self, text: str | None, style: str = "", lasting: bool = False, passing: bool = False
    ) -> None:
        """Show a message. If the selection of another box was cleared, the message about that replaces it.
        The reason that prevents the new selection is shown below the call."""
        said, self._said = self._said, ""
        if text:
            self._view.show_message(text, style, lasting, passing)
            if said:
                self._view.show_message(said)
            self.redraw_page()

    def clear_message(self) -> None:
        """Show no message."""
        self._view.clear_message()

    def save_screen(self, screen: ScreenSettings) -> None:
        """Save how the main screen's rows are sorted and filtered."""
        self._view.save_screen(screen)

    def redraw_page(self) -> None:
        """Draw the page."""
        self._view.redraw_page()

    def open(self, screen: Screen[Result], answered: Callable[[Result | None], None] | None = None) -> None:
        """Push a screen over the page."""
        self._view.open(screen, answered)


_ONLY_HERE = "auto is for this machine: type a number"
_LIST = "LIST"
"""Shown in place of the devices while none are selected, as in the help of `gputui run`."""
SELECT_FIRST = "select devices of one box first (space, 0-9, b)"


class BoxCalls:
    """Calls of gputui about other boxes. In a demo the boxes are simulated, and the calls do nothing."""

    def __init__(self, view: MainView, launch: LaunchController, environ: Mapping[str, str]) -> None:
        self._view, self._launch, self._environ = view, launch, environ

    def _simulated(self, what: str = "these boxes are simulated, and nothing is started") -> bool:
        """Whether the boxes are a demo's; if so, show a message."""
        label = self._view.app_state.label
        if label:
            self._view.show_message(f"{label}: {what}", "warn")
        return bool(label)

    def _call(self, text: str, call: Callable[[], tuple[str, bool]], done: Callable[[bool], object]) -> None:
        """Make the call in the background and show its message; `done` receives whether it succeeded."""
        app = self._view.app
        self._view.show_message(text, passing=True)

        def told(text: str, good: bool) -> None:
            done(good)
            self._view.show_message(text, "" if good else "lost")
            self._view.redraw_page()

        in_background("a call about another box", lambda: app.call_later(told, *call()))

    def follow(self, job: Job) -> None:
        """Follow the log of a job in this terminal."""
        if self._simulated("these jobs are simulated"):
            return
        words = follow_words(job.address)
        ended = self._launch.lend_terminal(Launch(this_gputui(words)), line(words))
        if ended is not None:
            # The user usually ends it with Ctrl-C: that needs no message.
            self._view.show_message(None if ended.how else ended.text, "lost")

    def stop(self, job: Job, boxes: JobsOfBoxes) -> None:
        """Stop a job, and query its box again."""
        if self._simulated("these jobs are simulated"):
            return
        self._call(
            f"stopping {job.address} …",
            lambda: stop_there(job.address, self._environ),
            lambda good: boxes.ask_now(job.box),
        )


class BoxLaunch(BoxCalls):
    """Starts the main screen's command on the selected devices of another box, by `gputui run --on`.

    The box picks nothing: it receives the UUIDs, and refuses devices that are not free at that time.
    """

    def __init__(
        self, view: MainView, launch: LaunchController, environ: Mapping[str, str], selection: BoxSelection
    ) -> None:
        super().__init__(view, launch, environ)
        self._selection = selection

    @property
    def request(self) -> LaunchRequest | None:
        """The request to the box; None where no device is selected, or there is no command."""
        selected = self._selection.selected
        if self._selection.box is None or selected.snapshot is None or self.missing:
            return None
        names = short_names(selected.selection.keys, selected.snapshot)
        return self._of(names, selected.grouping)

    def _of(self, names: Sequence[str], grouping: Grouping = ALL_REDUCE) -> LaunchRequest:
        """The request to run the main screen's command on the named devices, only if all of them are free at
        that time."""
        group = None if grouping == ALL_REDUCE else grouping
        devices = DeviceRequest(names=",".join(names), if_free=True, group=group)
        return LaunchRequest(self._view.app_state.options, devices)

    @property
    def line(self) -> str:
        """The call as it is shown, copied and started; "" where there is no call."""
        box, request = self._selection.box, self.request
        return line_on(box, request) if request is not None and box is not None else ""

    def outline(self, box: str | None) -> str:
        """The call on that box, as far as it is known before a selection; "" without a command."""
        if not self._view.app_state.options.command or box is None:
            return ""
        return line_on(box, self._of((_LIST,)))

    @property
    def launcher(self) -> str:
        """The name of the launcher, "" without a command."""
        return self._view.app_state.launcher if self._view.app_state.options.command else ""

    @property
    def missing(self) -> str:
        """A message about the missing part of the call, "" if the call is complete."""
        if not self._selection.selected.selection.keys:
            return SELECT_FIRST
        return "" if self._view.app_state.options.command else "no command yet: e types it"

    def copy(self) -> None:
        """Copy the call to the clipboard, or show what is missing."""
        if self.missing:
            self._view.show_message(self.missing, "warn")
        else:
            self._launch.copy_text(self.line)

    def start(self, state: BoxState | None, detached: bool) -> None:
        """Start the command on that box: in this terminal, or detached as a job."""
        box, request = self._selection.box, self.request
        if not self._selection.selected.selection.keys:
            self._view.show_message(SELECT_FIRST, "warn")
        elif not self._view.app_state.options.command:
            self._launch.edit()
        elif self._simulated():
            return
        elif (why := why_not(state)) is not None:
            self._view.show_message(why, "lost")
        elif box is None or request is None:
            return
        elif detached:
            self._detach(box, request)
        else:
            ended = self._launch.lend_terminal(Launch(this_gputui(words_on(box, request))), self.line)
            if ended is not None:
                text = f"{self._selection.box}: {ended.how}" if ended.how else ended.text
                self._view.show_message(text, "" if ended.good else "lost")

    def _detach(self, box: str, request: LaunchRequest) -> None:
        keys = self._selection.selected.selection

        def done(good: bool) -> None:
            if good and (self._selection.box, self._selection.selected.selection) == (box, keys):
                # The devices belong to that job now, so the next launch needs others.
                self._selection.aim_at_selected()
                self._selection.set_app_state(self._selection.selected.clear())

        self._call(f"starting on {box} …", lambda: start_detached(box, request, self._environ), done)

    def open_jobs(self, channels: Channels) -> None:
        """Open the jobs page of these boxes over the boxes page."""
        from gputui.tui.screens.box_jobs import BoxJobsScreen

        self._view.open(BoxJobsScreen(self._view, self._jobs_of(channels), self))

    def _jobs_of(self, channels: Channels) -> JobsOfBoxes:
        if self._view.app_state.label:
            from gputui.jobs.simulated_box_jobs import JobsOfSimulatedBoxes

            return JobsOfSimulatedBoxes(lambda: channels.states)
        from gputui.jobs.box_jobs import JobsOfBoxes

        return JobsOfBoxes([state.alias for state in channels.states], channels.way)

    def connect(self, state: BoxState, channels: Channels, in_terminal: bool) -> None:
        """Connect again. With `in_terminal`, first let ssh prompt in this terminal, for example for a
        password."""
        alias = state.alias
        if self._simulated():
            return
        if not in_terminal:
            channels.connect_now(alias)
            self._view.show_message(f"connecting to {printable(alias)} …", passing=True)
            return
        words = f"ssh {alias} true"
        ended = self._launch.lend_terminal(Launch(channels.asking(alias)), words)
        channels.connect_now(alias)
        if ended is None:
            return
        text = f"{words}: {ended.how}" if ended.how else ended.text
        text = f"{words} is done: connecting to {alias} …" if ended.good else text
        self._view.show_message(printable(text), "" if ended.good else "lost")
