"""ExperimentsScreen: the results of the variants and tasks of a command, as a table and bars."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from functools import partial

from gputui.inventory.formatting import TextWriter
from gputui.inventory.job import JobError
from gputui.jobs.experiments import store
from gputui.jobs.experiments.record import Experiment
from gputui.jobs.experiments.runner import with_outcomes
from gputui.jobs.experiments.store import Kept
from gputui.jobs.experiments.table import lines as as_text
from gputui.jobs.store import Stored, stored
from gputui.system.environment import Environ
from gputui.tui.controllers.jobs import JobsController
from gputui.tui.main_view import MainView
from gputui.tui.screens.jobs import ask_to_stop, stop_by
from gputui.tui.screens.page import FILTER, ListPage, hidden, shown
from gputui.tui.views.experiments import NONE, details, headline, listed
from gputui.tui.views.text import Line, told_lines


class ExperimentsScreen(ListPage):
    """The experiments page. It is empty where the devices are not those of this machine.

    `copy_text` puts a text on the clipboard.
    """

    BINDINGS = [
        FILTER,
        shown("tab", "figure(1)", "next figure"),
        hidden("shift+tab", "figure(-1)", "Previous figure"),
        shown("S", "stop", "stop", about="Stop the job that runs the experiment; asks first"),
        shown("y", "copy", "copy", about="Copy the table and the bars"),
        shown("x,delete", "forget", "remove", "x"),
    ]
    OF_ITEM = frozenset({"cursor", "figure", "stop", "copy", "forget"})

    def __init__(
        self,
        view: MainView,
        controller: JobsController,
        environ: Environ,
        copy_text: TextWriter,
    ) -> None:
        super().__init__(view)
        self._controller, self._environ, self._copy_text = controller, environ, copy_text
        self._kept = Kept()
        self._jobs: Stored | None = None
        self._trouble = ""
        self._found: tuple[Experiment, ...] = ()
        self._figure = 0
        self._room = 1
        self._drawn: tuple[Experiment, tuple[int, int, int], list[Line]] | None = None

    def item_keys(self) -> Sequence[Hashable]:
        """The ids of the experiments, the newest first."""
        label = self.app_state.label
        try:
            self._kept = Kept() if label else store.kept(self._environ, self._kept)
            self._trouble = ""
            self._found = with_outcomes(self._kept.records[::-1], self._read_jobs)
        except JobError as error:
            self._kept, self._trouble, self._found = Kept(), str(error), ()
        return [each.id for each in self._found]

    def _read_jobs(self) -> Stored:
        self._jobs = stored(self._environ, self._jobs)
        return self._jobs

    @property
    def _current(self) -> Experiment | None:
        """The experiment under the cursor, as it was read last."""
        return self._found[self.cursor] if self._found and self.key is not None else None

    def lines(self, width: int, height: int) -> list[Line]:
        head = headline(self._found, len(self._kept.unreadable), width)
        if not self._found:
            tone = "warn" if self._trouble else "dim"
            return [head, *told_lines(self._trouble or NONE, tone, width)]
        heading, *listing = listed(self._found, width, time.time())
        room = max(1, min(len(listing), height // 4))
        above = [head, heading, *self.window(listing, range(len(listing)), room, above=2)]
        current = self._current
        assert current is not None
        self._room = max(1, height - len(above))
        return [*above, *self.text_below(self._details(current, width), self._room)]

    def _details(self, current: Experiment, width: int) -> list[Line]:
        """Cached until something changes, as a sweep has up to ten thousand tasks."""
        asked = (self._figure, width, self._room)
        if self._drawn is None or self._drawn[0] is not current or self._drawn[1] != asked:
            self._drawn = (current, asked, details(current, *asked))
        return self._drawn[2]

    # Handlers of keys

    def action_cursor(self, by: int) -> None:
        self.below = 0
        super().action_cursor(by)

    def action_figure(self, by: int) -> None:
        self._figure += by
        self.draw()

    def action_page(self, by: int) -> None:
        self.below = max(0, self.below + by * max(1, self._room - 1))
        self.draw()

    def action_copy(self) -> None:
        current = self._current
        if current is not None:
            self._copy_text("\n".join(as_text(current, None)) + "\n")

    def action_stop(self) -> None:
        """Stop the job that runs the experiment, once the user says yes: its runs end with it."""
        current = self._current
        if current is None:
            return
        what = f"{current.request.kind} {current.id}"
        job = next((job for job in self._read_jobs().jobs if job.id == current.job), None)
        if current.state != "running":
            self.show_message(f"{what} has ended already")
        elif job is None:
            self.show_message(f"{what} runs in a terminal: Ctrl-C there stops it")
        else:
            ask_to_stop(self, job, partial(stop_by, self, self._controller))

    def action_forget(self) -> None:
        """Remove the experiment once the user says yes; its jobs and their logs stay."""
        current = self._current
        if current is None:
            return
        if current.state == "running":
            self._forget(current)
        else:
            what = f"remove {current.request.kind} {current.id} (its jobs stay)"
            self.ask("forget", what, partial(self._forget, current))

    def _forget(self, current: Experiment) -> None:
        try:
            store.forget(current)
            self.show_message(f"{current.request.kind} {current.id} is removed")
        except JobError as error:
            self.show_message(str(error))
