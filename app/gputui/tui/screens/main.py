"""The main screen: the box, the selection, and the launch line."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container

from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError
from gputui.tui.actions import ACTIONS, BY_ID
from gputui.tui.app_state import AppState
from gputui.tui.messages import Read
from gputui.tui.screens.pages import Pages
from gputui.tui.session import Outcome
from gputui.tui.views.header import header
from gputui.tui.views.history import history
from gputui.tui.views.launch import launch
from gputui.tui.views.matrix import beside, matrix_rows
from gputui.tui.views.processes import processes
from gputui.tui.views.selection import chosen
from gputui.tui.views.text import Line
from gputui.tui.widgets.device_table import DeviceTable
from gputui.tui.widgets.key_line import KeyLine
from gputui.tui.widgets.lines import Lines, LinkLines

WIDE = 120
"""From this width on processes stand beside the table; else below it, where there is room."""

_PATIENCE = 2.0
"""Seconds to wait for the chosen devices to be read again before a launch."""

_WORTH_A_LIST = 4
"""Lines below the table from which a list of processes is worth its heading."""

_MOST_LINKED = 8
"""GPUs up to which the links of all stand beside the table; of more, on the screen of their own."""

_ASIDE_EVERY = 1.8
"""Seconds between two drawings of processes and history, which a source reads at that pace anyway."""

_STALE = 2.5
"""Readings that are older than this many intervals are called stale."""


class MainScreen(Pages):
    """Shows an `AppState`; every key makes a new one."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    BINDINGS = [
        *(
            Binding(action.keys, action.call, action.title, id=action.id, tooltip=action.about, show=False)
            for action in ACTIONS
        ),
        *(Binding(str(n), f"number({n})", show=False, id=f"number-{n}") for n in range(10)),
    ]

    def __init__(
        self, app_state: AppState, environ: Mapping[str, str], clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self.app_state = app_state
        self._environ = environ
        self._clock = clock
        self._cpu: float | None = None
        self._aside_drawn = 0.0
        self._charts_due = False
        self._beside = False
        self._table, self._keys = DeviceTable(id="table"), KeyLine(id="keys")
        self._header, self._history, self._chosen, self._launch = (
            Lines(id=name) for name in ("header", "history", "chosen", "launch")
        )
        self._aside = LinkLines(id="aside")

    def compose(self) -> ComposeResult:
        yield self._header
        with Container(id="body"):
            with Container(id="list"):
                yield self._table
                yield self._history
            yield self._aside
        yield self._chosen
        yield self._launch
        yield self._keys

    def on_mount(self) -> None:
        if not self.app_state.label:
            threading.Thread(target=_load_psutil, daemon=True).start()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def repaint(self) -> None:
        """Paint every cell: after Ctrl-Z the terminal has forgotten those that did not change."""
        for widget in self.query(Lines):
            widget.refresh()
        self.refresh(repaint=True, layout=True)

    # What arrives

    def on_read(self, message: Read) -> None:
        """A reading of the box, good or bad."""
        news = message.reading.news
        if isinstance(news, NoSourceError):
            self.set_app_state(self.app_state.troubled(str(news)))
        elif isinstance(news, Snapshot):
            chosen_before, launching = len(self.app_state.selection), self._launching
            self.set_app_state(self.app_state.seen(news))
            if launching is not None and message.reading.began >= launching.since:
                self._launching = None
                self._launch_or_ask(launching)
            elif len(self.app_state.selection) < chosen_before:
                self.say("a chosen device is not there any more and is taken out", "lost")
        else:
            raise news

    def on_device_table_clicked(self, message: DeviceTable.Clicked) -> None:
        device = self.app_state.snapshot.by_key.get(message.key) if self.app_state.snapshot else None
        if device is not None:
            self.toggle(device, follow=False)

    async def on_key_line_pressed(self, message: KeyLine.Pressed) -> None:
        await self.run_action(BY_ID[message.action_id].call)

    def set_app_state(self, app_state: AppState) -> None:
        """Show another app state."""
        before, self.app_state = self.app_state, app_state
        if app_state is before:
            return
        if (app_state.selection, app_state.options) != (before.selection, before.options):
            # What Enter was pressed on is not what stands there now.
            self._drop_launch()
        if _same_sections(before, app_state):
            self._draw_box()
        else:
            self._draw()

    # What is painted

    def _draw(self) -> None:
        """Everything, and how much room each part gets."""
        width, height = self.size
        if not self.is_mounted or not width:
            return
        app_state = self.app_state
        launch_lines = launch(app_state, width, most=max(2, height - min(len(app_state.rows), 16) - 5))
        self._chosen.draw_all(chosen(app_state, width))
        self._launch.draw_all(launch_lines)
        room = height - 4 - len(launch_lines)
        wide = width >= WIDE
        rows = len(app_state.rows) + 1
        self._table.set_height(min(rows, room) if app_state.rows else room)
        self._aside.display = bool(app_state.rows) and (wide or room - rows >= _WORTH_A_LIST)
        gpus = len(matrix_rows(app_state))
        linked = app_state.snapshot is not None and bool(app_state.snapshot.links)
        self._beside = wide and linked and 1 < gpus <= _MOST_LINKED and room >= 2 * gpus + 8
        self._history.display = wide and room - rows >= _WORTH_A_LIST
        self._aside_drawn = 0.0
        self._draw_box()

    def _draw_box(self) -> None:
        """What changes with every reading. The lists beside the table follow at half the pace."""
        app_state, now = self.app_state, time.monotonic()
        aside = now - self._aside_drawn >= _ASIDE_EVERY
        psutil = sys.modules.get("psutil") if aside and not app_state.label else None
        if psutil is not None and hasattr(psutil, "cpu_percent"):
            self._cpu = psutil.cpu_percent(None)
        self._draw_header()
        self._table.draw_board(app_state)
        if not aside:
            return
        # The charts scroll, which repaints all of them: every other time is often enough.
        self._charts_due = not self._charts_due or not self._aside_drawn
        self._aside_drawn = now
        if self._aside.display:
            self._aside.draw(self._lists)
        if self._history.display and self._charts_due:
            self._history.draw(lambda width, height: [((" ", ""),), *history(app_state, width, height - 1)])

    def _lists(self, width: int, height: int) -> list[Line]:
        """The processes, and on a wide terminal the links below them."""
        if not self._beside:
            return processes(self.app_state, width, height)
        links = beside(self.app_state, width)
        above = processes(self.app_state, width, height - len(links))[: height - len(links)]
        blank: list[Line] = [(("", ""),)] * (height - len(links) - len(above))
        return [*above, *blank, *links]

    def _draw_header(self) -> None:
        sampler = self._sampler
        age = sampler.age if sampler else None
        late = age if sampler and age is not None and age > _STALE * sampler.pace else None
        line = header(self.app_state, self.size.width, late, self._cpu, self._clock())
        self._header.draw(lambda width, height: [line])

    def tick(self) -> None:
        """Every two seconds: what must be said though nothing has been read."""
        age = self._sampler.age if self._sampler else None
        if age is None or age > 1.5:
            self._draw_header()
        patience = max(_PATIENCE, 3 * self._sampler.took) if self._sampler else _PATIENCE
        if self._launching is not None and time.monotonic() - self._launching.since > patience:
            launching, self._launching = self._launching, None
            unread = "the selected devices could not be read again: the driver does not answer"
            self.clear_message()
            self._ask(launching, {}, unread)

    @property
    def message(self) -> str:
        """What the last line says in place of the keys, "" when it shows them."""
        return self._keys.message

    def say(self, text: str | None, tone: str = "") -> None:
        if text:
            self._keys.say(text, tone)

    def clear_message(self) -> None:
        """A message stands until the next key."""
        self._keys.say("")

    # What other keys do

    def action_theme(self) -> None:
        self.app.action_next_theme()  # type: ignore[attr-defined]

    def action_palette(self) -> None:
        self._drop_launch()
        self.app.action_command_palette()

    def action_stop(self) -> None:
        self.app.action_suspend_process()

    def action_quit(self) -> None:
        self.app.exit(Outcome(text=self._plain))


def _load_psutil() -> None:
    """Import psutil (20 ms) away from the thread that paints; its first figure is of no use anyway."""
    import psutil

    psutil.cpu_percent(None)


def _same_sections(before: AppState, app_state: AppState) -> bool:
    """Whether only facts about the devices differ, so that all but the table stands as it is."""
    return (
        (before.selection, before.options, before.limits, before.cursor, before.problem, before.cautions)
        == (
            app_state.selection,
            app_state.options,
            app_state.limits,
            app_state.cursor,
            app_state.problem,
            app_state.cautions,
        )
        and before.snapshot is not None
        and app_state.snapshot is not None
        and len(before.rows) == len(app_state.rows)
        and before.snapshot.links == app_state.snapshot.links
    )
