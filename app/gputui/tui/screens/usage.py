"""UsageScreen: who held and used the devices over the last days, as bars by person, day, device or job."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

from gputui.inventory.formatting import duration, printable
from gputui.system.environment import Environ
from gputui.timeline.usage import BY, Figures, Names, Recorded, recorded
from gputui.timeline.usage_columns import MOST_ROWS, usage_columns
from gputui.tui.background import in_background
from gputui.tui.cycle import following
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import FILTER, ListPage, hidden, shown
from gputui.tui.views.text import ItemLines, Line, clip, table_lines, title, told_lines

_DAYS = (1, 7, 30, 365)
_NONE = "nothing is recorded: open screens, jobs and gputui record --daemon record it"


class UsageScreen(ListPage):
    """`demo` returns the usage of a simulated box; None: this machine's is read."""

    BINDINGS = [
        FILTER,
        shown("tab", "by", "sum by", about="Sum by person, device, job or day"),
        shown("right", "days(1)", "days", "←→", "More days: 1, 7, 30 or 365"),
        hidden("left", "days(-1)", "Fewer days"),
    ]

    def __init__(self, view: MainView, environ: Environ, demo: Callable[[], Recorded] | None) -> None:
        super().__init__(view)
        self._environ, self._demo = environ, demo
        self._by, self._days = "user", 7
        self._found: Recorded | None = None
        self._rows: list[tuple[Names, Figures]] = []

    def on_mount(self) -> None:
        self._read()

    def _read(self) -> None:
        """Read in the background: a year may take two tenths of a second."""
        now, days, app = time.time(), self._days - 1, self.app

        def read() -> None:
            found = self._demo() if self._demo else recorded(self._environ, now - days * 86_400, now)
            # The page may be closed by then, and without an app.
            app.call_later(self._show, found)

        in_background("read the usage", read)

    def _show(self, found: Recorded | None) -> None:
        """Show the sums of what was read, in the order of this page."""
        self._found = found
        self._rows = found.rows(self._by, MOST_ROWS) if found else []
        self.draw()

    def item_keys(self) -> Sequence[Hashable]:
        return [tuple(names.values()) for names, _ in self._rows]

    def head(self, width: int) -> Line:
        days = "today" if self._days == 1 else f"last {self._days} days"
        kept = f"{duration(self._found.total.recorded)} recorded" if self._found else ""
        first = f"first {MOST_ROWS}" if len(self._rows) == MOST_ROWS else ""
        return title(f"usage by {self._by}", width, days, first, kept, self.beyond)

    def listing(self, width: int) -> ItemLines:
        if not self._rows:
            # This page is for looking back: what is recorded, and how.
            none = "no usage can be read" if self._found and self._found.damaged else _NONE
            return told_lines(none if self._found else "reading …", "dim", width), [None]
        labels = self._found.total.labels if self._found else {}
        columns = usage_columns(self._by, self._rows, labels, width)
        lines = table_lines(columns, self._rows, heading=True)
        return [clip(line, width) for line in lines], [None, *range(len(self._rows))]

    def notes(self, width: int) -> list[Line]:
        if self._found is None:
            return []
        told = [
            f"usage of {day} cannot be read, at least in part: {why}"
            for day, why in self._found.damaged.items()
        ]
        return [clip(((f" {printable(each)}", "warn"),), width) for each in told]

    def action_by(self) -> None:
        self._by = following(BY, self._by)
        self._show(self._found)

    def action_days(self, step: int) -> None:
        place = _DAYS.index(self._days) + step
        self._days = _DAYS[min(max(place, 0), len(_DAYS) - 1)]
        self._read()
