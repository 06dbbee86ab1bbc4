"""ProcessListPage: a page with a list of processes, which can be sent signals."""

from __future__ import annotations

import signal
from collections.abc import Hashable, Sequence
from functools import partial

from gputui.inventory.formatting import UNKNOWN, printable, program
from gputui.inventory.process import Process
from gputui.system.signals import SignalError, send
from gputui.tui.main_view import MainView
from gputui.tui.process_rows import Row
from gputui.tui.screens.page import ListPage, shown
from gputui.tui.views.processes import Listing
from gputui.tui.views.text import Line

END = shown("X", "signal", "end", about="End the process: SIGTERM, the next time SIGKILL; asks first")


class ProcessListPage(ListPage):
    """While the page is open, the devices of `looked_at` are read in full.

    A subclass defines the rows in `process_rows`.
    """

    OF_ITEM = frozenset({"cursor", "signal", "sort", "user"})

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        self.rows: tuple[Row, ...] = ()
        self._terminated: set[tuple[int, float | None]] = set()

    def process_rows(self) -> tuple[Row, ...]:
        """The present rows."""
        raise NotImplementedError

    def looked_at(self) -> tuple[str, ...]:
        """The keys of the devices that are on this page."""
        raise NotImplementedError

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        self.rows = self.process_rows()
        return [row.identity for row in self.rows]

    @property
    def row(self) -> Row | None:
        """The row under the cursor, as it was last painted."""
        return self.rows[self.cursor] if self.rows else None

    def part(self, listing: Listing, room: int, above: int) -> list[Line]:
        """The lines around the cursor; see `ListPage.window`."""
        blank: Line = ()
        self.window([blank] * len(listing.items), listing.items, room, above)
        return self.pointed(listing.lines(self.top, self.top + room), above)

    def draw(self) -> None:
        super().draw()
        if self.is_current:
            self.view.look_at(self.looked_at())

    def on_unmount(self) -> None:
        self.view.look_at(())

    # Signals

    def action_signal(self) -> None:
        """Send a signal, once the user says yes; first SIGTERM, then SIGKILL to the same process.

        Yes acts on the process that the question names, wherever it is in the list by then.
        """
        row = self.row
        if self.app_state.label:
            self.show_message(self.app_state.not_of_this_machine("processes"))
        elif row is None or row.process is None:
            self.show_message("no process is at the cursor")
        elif self._sends(row.process, 0):
            again = (row.process.pid, row.process.started) in self._terminated
            number = signal.SIGKILL if again else signal.SIGTERM
            what = _what(row, row.process, number)
            self.ask("signal", f"send {what}", partial(self._send, what, row.process, number))

    def _send(self, what: str, process: Process, number: int) -> None:
        """Send the signal, and show the outcome."""
        if self._sends(process, number):
            self._terminated.add((process.pid, process.started))
            self.show_message(f"{what} was sent")

    def _sends(self, process: Process, number: int) -> bool:
        """Whether the signal was sent (0: whether one can be); else the reason is shown."""
        try:
            send(process, number)
        except SignalError as error:
            self.show_message(printable(str(error)))
            return False
        return True


def _what(row: Row, process: Process, number: int) -> str:
    """ "SIGTERM to serve.py (pid 4186, GPU 6, 37.9G)"."""
    about = f", GPU {row.label}, {row.memory}" if row.label else ""
    name = program(process.command or UNKNOWN)
    return f"{signal.Signals(number).name} to {name} (pid {process.pid}{about})"
