"""MainScreen: the box, the selection, and the launch line.

It holds the app state and paints it. What its keys do stands in `tui/controllers`; `_handlers` says which
method does which action of `tui/actions.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import Screen

from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import Sampler
from gputui.sources.source import NoSourceError
from gputui.tui.actions import ACTIONS
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.controllers.pages import PageController
from gputui.tui.controllers.selection import SelectionController
from gputui.tui.messages import NewReading
from gputui.tui.outcome import Outcome
from gputui.tui.screens.page import Page
from gputui.tui.theme import next_theme
from gputui.tui.views.header import header
from gputui.tui.views.launch import launch
from gputui.tui.views.load_chart import history
from gputui.tui.views.matrix import matrix_rows, whole_matrix
from gputui.tui.views.processes import processes
from gputui.tui.views.selection import selection_lines
from gputui.tui.views.text import Line
from gputui.tui.widgets.device_table import DeviceTable
from gputui.tui.widgets.key_line import KeyLine
from gputui.tui.widgets.lines import Lines, LinkLines

Result = TypeVar("Result")

WIDE = 120
"""Cells from which on processes stand beside the table; else below it, where there is room."""

_WORTH_A_LIST = 4
"""Lines below the table from which a list of processes is worth its heading."""

_MOST_LINKED = 8
"""GPUs up to which the matrix of links stands beside the table; for more there is the topology page."""

_LISTS_EVERY = 1.8
"""Seconds between two drawings of processes and history, which a source reads at that pace anyway."""

_STALE = 2.5
"""Readings that are older than this many intervals are called stale."""

_END = 1000
"""Rows: more than any box has, so that the cursor goes to the end."""


class MainScreen(Screen[None]):
    """Shows an `AppState`; every key makes a new one.

    clock                 seconds since the epoch
    write                 sends an escape sequence to the terminal, on any thread; None: through /dev/tty
    end_without_terminal  ends the process when the terminal is gone
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    BINDINGS = [
        *(
            Binding(
                action.keys,
                f"perform('{action.id}')",
                action.title,
                id=action.id,
                tooltip=action.about,
                show=False,
            )
            for action in ACTIONS
        ),
        *(Binding(str(n), f"number({n})", show=False, id=f"number-{n}") for n in range(10)),
    ]

    def __init__(
        self,
        app_state: AppState,
        sampler: Sampler,
        end_without_terminal: Callable[[], NoReturn],
        clock: Callable[[], float] = time.time,
        write: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._app_state = app_state
        self._sampler = sampler
        self._clock = clock
        environ = app_state.environ
        self.selection = SelectionController(self)
        self.launch = LaunchController(self, sampler, environ, clock, write, end_without_terminal)
        self.pages = PageController(self, self.launch, environ)
        self.handlers = self._handlers_by_action()
        self._cpu: float | None = None
        self._lists_drawn = 0.0
        self._charts_due = False
        self._with_matrix = False
        self._table, self._keys = DeviceTable(id="table"), KeyLine(id="keys")
        self._header, self._history, self._selection_lines, self._launch_lines = (
            Lines(id=name) for name in ("header", "history", "selection", "launch")
        )
        self._lists = LinkLines(id="lists")

    def compose(self) -> ComposeResult:
        yield self._header
        with Container(id="body"):
            with Container(id="list"):
                yield self._table
                yield self._history
            yield self._lists
        yield self._selection_lines
        yield self._launch_lines
        yield self._keys

    def on_mount(self) -> None:
        if not self.app_state.label:
            in_background("load psutil", _load_psutil)

    def on_unmount(self) -> None:
        self.launch.release_all()

    # What keys, clicks and the palette do

    def _handlers_by_action(self) -> Mapping[str, Callable[[], object]]:
        """Who does which action, by its id in `tui/actions.py`."""
        selection, launch, pages = self.selection, self.launch, self.pages
        return {
            "select": selection.toggle_current,
            "clear": selection.clear,
            "cpu": selection.cpu_only,
            "command": partial(selection.read_command, again=True),
            "best": selection.add_best,
            "other": selection.next_best,
            "ask": selection.ask_for_best,
            "order": selection.next_order,
            "later": partial(selection.reorder, 1),
            "earlier": partial(selection.reorder, -1),
            "down": partial(selection.move_cursor, 1),
            "up": partial(selection.move_cursor, -1),
            "first": partial(selection.move_cursor, -_END),
            "last": partial(selection.move_cursor, _END),
            "edit": launch.edit,
            "launcher": launch.next_launcher,
            "ids": launch.other_ids,
            "copy": launch.copy,
            "launch": partial(launch.launch, "become"),
            "return": partial(launch.launch, "return"),
            "detach": partial(launch.launch, "detach"),
            "wait": launch.wait_in_line,
            "topology": pages.open_topology,
            "processes": pages.open_processes,
            "people": pages.open_people,
            "launch_page": pages.open_launch_page,
            "jobs": pages.open_jobs,
            "export": pages.open_export,
            "check": pages.open_check,
            "help": pages.open_help,
            "theme": self._next_theme,
            "palette": self._open_palette,
            "stop": lambda: self.app.action_suspend_process(),
            "quit": lambda: self.app.exit(Outcome(text=self.launch.uncertain_copy)),
        }

    def perform(self, action_id: str) -> None:
        """Do one of the actions of `tui/actions.py`."""
        self.handlers[action_id]()

    def action_perform(self, action_id: str) -> None:
        self.perform(action_id)

    def toggle_number(self, index: int) -> None:
        """Select or deselect the GPU with this NVML index."""
        self.selection.toggle_number(index)

    def action_number(self, index: int) -> None:
        self.toggle_number(index)

    def on_device_table_clicked(self, message: DeviceTable.Clicked) -> None:
        device = self.app_state.snapshot.by_key.get(message.key) if self.app_state.snapshot else None
        if device is not None:
            self.selection.toggle(device, move_cursor=False)

    def on_key_line_pressed(self, message: KeyLine.Pressed) -> None:
        self.perform(message.action_id)

    def _next_theme(self) -> None:
        self.app.theme = next_theme(self.app.theme)

    def _open_palette(self) -> None:
        self.launch.cancel()
        self.app.action_command_palette()

    def open(self, screen: Screen[Result], answered: Callable[[Result | None], None] | None = None) -> None:
        """Push a screen over this one. A launch that is pending is cancelled."""
        self.launch.cancel()

        def closed(result: Result | None) -> None:
            if answered is not None:
                answered(result)
            # A page that is open shows the app state, too.
            if isinstance(self.app.screen, Page):
                self.app.screen.draw()

        self.app.push_screen(screen, closed)

    # The app state, and the readings that change it

    @property
    def app_state(self) -> AppState:
        """What is shown now."""
        return self._app_state

    def set_app_state(self, app_state: AppState) -> None:
        """Show another app state. Where it changes the launch, a launch that is pending is cancelled."""
        before, self._app_state = self._app_state, app_state
        if app_state is before:
            return
        if (app_state.selection, app_state.options) != (before.selection, before.options):
            self.launch.cancel()
        if _same_sections(before, app_state):
            self._draw_box()
        else:
            self._draw()

    def on_new_reading(self, message: NewReading) -> None:
        """A reading of the box, good or bad."""
        result = message.reading.result
        if isinstance(result, NoSourceError):
            self.set_app_state(self.app_state.with_problem(str(result)))
        elif isinstance(result, Snapshot):
            number_before = len(self.app_state.selection)
            # (Taken before the app state changes, which would cancel it where a device of it has vanished.)
            pending = self.launch.take_reread(message.reading.began)
            self.set_app_state(self.app_state.with_snapshot(result))
            if pending is not None:
                self.launch.start_or_ask(pending)
            elif self.app_state.command_is_unread and (result.links or len(result.devices) < 2):
                # (Without links, the best set would be another one a moment later.)
                self.selection.read_command_away()
            elif len(self.app_state.selection) < number_before:
                self.show_message("a selected device is not there any more and is deselected", "lost")
        else:
            raise result

    def tick(self) -> None:
        """Called every two seconds: what must be shown though nothing has been read."""
        age = self._sampler.age
        if age is None or age > 1.5:
            self._draw_header()
        self.launch.ask_without_reread()

    # The message

    @property
    def message(self) -> str:
        """The message that is shown in place of the keys, "" for none."""
        return self._keys.message

    def show_message(self, text: str | None, style: str = "") -> None:
        """Show a message until the next key, in a style of `widgets/lines.py`; None changes nothing."""
        if text:
            self._keys.show_message(text, style)

    def clear_message(self) -> None:
        """Show the keys again."""
        self._keys.show_message("")

    # Painting

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def repaint(self) -> None:
        """Paint every cell: after Ctrl-Z the terminal has forgotten those that did not change."""
        for widget in self.query(Lines):
            widget.refresh()
        self.refresh(repaint=True, layout=True)

    def _draw(self) -> None:
        """Everything, and how much room each part gets."""
        width, height = self.size
        if not self.is_mounted or not width:
            return
        app_state = self.app_state
        launch_lines = launch(app_state, width, most=max(2, height - min(len(app_state.rows), 16) - 5))
        self._selection_lines.draw_all(selection_lines(app_state, width))
        self._launch_lines.draw_all(launch_lines)
        room = height - 4 - len(launch_lines)
        wide = width >= WIDE
        rows = len(app_state.rows) + 1
        self._table.set_height(min(rows, room) if app_state.rows else room)
        self._lists.display = bool(app_state.rows) and (wide or room - rows >= _WORTH_A_LIST)
        gpus = len(matrix_rows(app_state))
        linked = app_state.snapshot is not None and bool(app_state.snapshot.links)
        self._with_matrix = wide and linked and 1 < gpus <= _MOST_LINKED and room >= 2 * gpus + 8
        self._history.display = wide and room - rows >= _WORTH_A_LIST
        self._lists_drawn = 0.0
        self._draw_box()

    def _draw_box(self) -> None:
        """What changes with every reading. The lists beside the table follow at half the pace."""
        app_state, now = self.app_state, time.monotonic()
        lists_due = now - self._lists_drawn >= _LISTS_EVERY
        psutil = sys.modules.get("psutil") if lists_due and not app_state.label else None
        if psutil is not None and hasattr(psutil, "cpu_percent"):
            self._cpu = psutil.cpu_percent(None)
        self._draw_header()
        self._table.show(app_state)
        if not lists_due:
            return
        # The charts scroll, which repaints all of them: every other time is often enough.
        self._charts_due = not self._charts_due or not self._lists_drawn
        self._lists_drawn = now
        if self._lists.display:
            self._lists.draw(self._processes_and_links)
        if self._history.display and self._charts_due:
            self._history.draw(lambda width, height: [((" ", ""),), *history(app_state, width, height - 1)])

    def _processes_and_links(self, width: int, height: int) -> list[Line]:
        """The processes, and on a wide terminal the links below them."""
        if not self._with_matrix:
            return processes(self.app_state, width, height)
        links = whole_matrix(self.app_state, width)
        above = processes(self.app_state, width, height - len(links))[: height - len(links)]
        blank: list[Line] = [(("", ""),)] * (height - len(links) - len(above))
        return [*above, *blank, *links]

    def _draw_header(self) -> None:
        age = self._sampler.age
        late = age if age is not None and age > _STALE * self._sampler.pace else None
        line = header(self.app_state, self.size.width, late, self._cpu, self._clock())
        self._header.draw(lambda width, height: [line])


def _load_psutil() -> None:
    """Import psutil (20 ms) away from the thread that paints; its first figure is of no use anyway."""
    import psutil

    psutil.cpu_percent(None)


def _same_sections(before: AppState, app_state: AppState) -> bool:
    """Whether only facts about the devices differ, so that all but the table stands as it is."""
    return (
        (before.selection, before.options, before.limits, before.cursor, before.problem, before.warnings)
        == (
            app_state.selection,
            app_state.options,
            app_state.limits,
            app_state.cursor,
            app_state.problem,
            app_state.warnings,
        )
        and before.snapshot is not None
        and app_state.snapshot is not None
        and len(before.rows) == len(app_state.rows)
        and before.snapshot.links == app_state.snapshot.links
    )
