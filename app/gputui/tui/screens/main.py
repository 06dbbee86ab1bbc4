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
from gputui.tui.board import Board
from gputui.tui.messages import Read
from gputui.tui.screens.pages import Pages
from gputui.tui.session import Outcome
from gputui.tui.views.chosen import chosen
from gputui.tui.views.header import header
from gputui.tui.views.history import history
from gputui.tui.views.launch import launch
from gputui.tui.views.matrix import beside, matrix_rows
from gputui.tui.views.processes import processes
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
    """Shows a `Board`; every key makes a new one."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    BINDINGS = [
        *(
            Binding(action.keys, action.call, action.title, id=action.id, tooltip=action.about, show=False)
            for action in ACTIONS
        ),
        *(Binding(str(n), f"number({n})", show=False, id=f"number-{n}") for n in range(10)),
    ]

    def __init__(
        self, board: Board, environ: Mapping[str, str], clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self.board = board
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
        if not self.board.label:
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
            self.set_board(self.board.troubled(str(news)))
        elif isinstance(news, Snapshot):
            chosen_before, launching = len(self.board.selection), self._launching
            self.set_board(self.board.seen(news))
            if launching is not None and message.reading.began >= launching.since:
                self._launching = None
                self._launch_or_ask(launching)
            elif len(self.board.selection) < chosen_before:
                self.say("a chosen device is not there any more and is taken out", "lost")
        else:
            raise news

    def on_device_table_clicked(self, message: DeviceTable.Clicked) -> None:
        device = self.board.snapshot.by_key.get(message.key) if self.board.snapshot else None
        if device is not None:
            self.toggle(device, follow=False)

    async def on_key_line_pressed(self, message: KeyLine.Pressed) -> None:
        await self.run_action(BY_ID[message.action_id].call)

    def set_board(self, board: Board) -> None:
        """Show another board."""
        before, self.board = self.board, board
        if board is before:
            return
        if (board.selection, board.plan) != (before.selection, before.plan):
            # What Enter was pressed on is not what stands there now.
            self._drop_launch()
        if _same_sections(before, board):
            self._draw_box()
        else:
            self._draw()

    # What is painted

    def _draw(self) -> None:
        """Everything, and how much room each part gets."""
        width, height = self.size
        if not self.is_mounted or not width:
            return
        board = self.board
        launch_lines = launch(board, width, most=max(2, height - min(len(board.rows), 16) - 5))
        self._chosen.draw_all(chosen(board, width))
        self._launch.draw_all(launch_lines)
        room = height - 4 - len(launch_lines)
        wide = width >= WIDE
        rows = len(board.rows) + 1
        self._table.set_height(min(rows, room) if board.rows else room)
        self._aside.display = bool(board.rows) and (wide or room - rows >= _WORTH_A_LIST)
        gpus = len(matrix_rows(board))
        linked = board.snapshot is not None and bool(board.snapshot.links)
        self._beside = wide and linked and 1 < gpus <= _MOST_LINKED and room >= 2 * gpus + 8
        self._history.display = wide and room - rows >= _WORTH_A_LIST
        self._aside_drawn = 0.0
        self._draw_box()

    def _draw_box(self) -> None:
        """What changes with every reading. The lists beside the table follow at half the pace."""
        board, now = self.board, time.monotonic()
        aside = now - self._aside_drawn >= _ASIDE_EVERY
        psutil = sys.modules.get("psutil") if aside and not board.label else None
        if psutil is not None and hasattr(psutil, "cpu_percent"):
            self._cpu = psutil.cpu_percent(None)
        self._draw_header()
        self._table.draw_board(board)
        if not aside:
            return
        # The charts scroll, which repaints all of them: every other time is often enough.
        self._charts_due = not self._charts_due or not self._aside_drawn
        self._aside_drawn = now
        if self._aside.display:
            self._aside.draw(self._lists)
        if self._history.display and self._charts_due:
            self._history.draw(lambda width, height: [((" ", ""),), *history(board, width, height - 1)])

    def _lists(self, width: int, height: int) -> list[Line]:
        """The processes, and on a wide terminal the links below them."""
        if not self._beside:
            return processes(self.board, width, height)
        links = beside(self.board, width)
        above = processes(self.board, width, height - len(links))[: height - len(links)]
        blank: list[Line] = [(("", ""),)] * (height - len(links) - len(above))
        return [*above, *blank, *links]

    def _draw_header(self) -> None:
        sampler = self._sampler
        age = sampler.age if sampler else None
        late = age if sampler and age is not None and age > _STALE * sampler.pace else None
        line = header(self.board, self.size.width, late, self._cpu, self._clock())
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
            self.hush()
            self._ask(launching, {}, unread)

    @property
    def message(self) -> str:
        """What the last line says in place of the keys, "" when it shows them."""
        return self._keys.message

    def say(self, text: str | None, tone: str = "") -> None:
        if text:
            self._keys.say(text, tone)

    def hush(self) -> None:
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


def _same_sections(before: Board, board: Board) -> bool:
    """Whether only facts about the devices differ, so that all but the table stands as it is."""
    return (
        (before.selection, before.plan, before.limits, before.cursor, before.problem, before.cautions)
        == (board.selection, board.plan, board.limits, board.cursor, board.problem, board.cautions)
        and before.snapshot is not None
        and board.snapshot is not None
        and len(before.rows) == len(board.rows)
        and before.snapshot.links == board.snapshot.links
    )
