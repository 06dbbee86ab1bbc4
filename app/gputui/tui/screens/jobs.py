"""JobsScreen: which jobs run, on what, and the log of one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from textual.app import App

from gputui.jobs.job import Job, JobError
from gputui.jobs.log import Tail
from gputui.jobs.stop import GRACE, stop
from gputui.jobs.store import Stored, forget, stored
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, hidden, shown
from gputui.tui.views.jobs import broken, devices_of, headline, listed, log, unclaimed_uses_of
from gputui.tui.views.text import Line, title, wrap

_MOST_DEVICES = 4
_COLUMNS = 500
"""Of the terminal that a log is read with: a bar that rewrites its line must find it in one piece. Lines are
broken where the screen ends."""

_MOST_LOG = 96 * 1024
"""Bytes of a log that are read when one goes to its job: 50 ms of a slow machine."""


class JobsScreen(ListPage):
    """`copy_text` puts a text on the clipboard."""

    BINDINGS = [
        shown("escape,q,D", "dismiss", "back", "esc"),
        *cursor_bindings("job"),
        shown("pageup", "scroll_log(1)", "log", "pgup/pgdn"),
        hidden("pagedown", "scroll_log(-1)", "Later in the log"),
        shown("S", "stop", "stop"),
        shown("x,delete", "forget", "forget", "x"),
        shown("y", "copy", "copy its line"),
    ]

    def __init__(self, view: MainView, environ: Mapping[str, str], copy_text: Callable[[str], None]) -> None:
        super().__init__(view)
        self._environ, self._copy_text = environ, copy_text
        self._stored = Stored()
        self._trouble = ""
        self._jobs: tuple[Job, ...] = ()
        self._tail: tuple[str, Tail] | None = None
        self._back = 0
        """Pieces of the log below those that are shown."""
        self._pieces: int | None = None
        self._room = 1

    # What is painted

    def item_keys(self) -> Sequence[Hashable]:
        """The ids of the jobs, the last one first; those that run before those that have ended."""
        try:
            self._stored, self._trouble = stored(self._environ, self._stored), ""
        except JobError as error:
            self._stored, self._trouble = Stored(), str(error)
        newest = sorted(self._stored.jobs, key=lambda job: -job.created)
        self._jobs = tuple(sorted(newest, key=lambda job: job.over))
        return [job.id for job in self._jobs]

    @property
    def _job(self) -> Job | None:
        """The job under the cursor, as it was painted last."""
        return self._jobs[self.cursor] if self._jobs else None

    def lines(self, width: int, height: int) -> list[Line]:
        jobs, job = self._jobs, self._job
        head = headline(jobs, len(self._stored.unreadable), width)
        if self._trouble:
            return [head, *(((f" {piece}", "warn"),) for piece in wrap(self._trouble, width - 2))]
        listing = listed(jobs, self.cursor, width, time.time(), unclaimed_uses_of(self.view.app_state))
        room = max(1, min(len(listing), height // 3))
        lines = [head, *self.window(listing, range(len(jobs)), room, above=1)]
        if job is None:
            return lines
        devices = devices_of(job, self.view.app_state, width, _MOST_DEVICES)
        if devices and len(lines) + len(devices) + 4 <= height:
            lines += [title(f"devices of {job.id}", width), *devices]
        self._room = max(1, height - len(lines) - 1)
        pieces = broken(self._log(job), width)
        if self._back and self._pieces is not None:
            # What is being read stays where it is while the log grows.
            self._back += max(0, len(pieces) - self._pieces)
        self._pieces = len(pieces) if self._back else None
        visible, self._back = log(pieces, self._room, self._back)
        follows = "pgdn: to its end" if self._back else "" if job.over else "following"
        return [*lines, title(f"log of {job.id}", width, follows), *visible]

    def _log(self, job: Job) -> list[str]:
        if self._tail is None or self._tail[0] != job.id:
            # Another job, at the end of its log.
            self._tail = (job.id, Tail(job.log, _COLUMNS, _MOST_LOG))
            self._back, self._pieces = 0, None
        self._tail[1].feed()
        return self._tail[1].lines(None if self._back else self._room)

    # What keys do

    def action_scroll_log(self, pages: int) -> None:
        self._back = max(0, self._back + pages * max(1, self._room - 1))
        self._pieces = None
        self.draw()

    def action_stop(self) -> None:
        """Asked for twice: a job may have run for days."""
        job = self._job
        if job is None:
            return
        if job.over:
            self.show_message(f"job {job.id} has ended already")
        elif self.confirmed("stop") == job.id:
            self.show_message(f"stopping {job.id} …")
            app = self.app
            in_background("stop a job", lambda: self._stop(job, app))
        else:
            grace = f"SIGTERM, and SIGKILL after {GRACE:.0f} s"
            self.ask_again("stop", job.id, f"S again stops {job.id}: {grace}")

    def _stop(self, job: Job, app: App[object]) -> None:
        """In the background: it takes as long as the job takes to end, and we may be gone by then."""
        try:
            message = stop(job).message
        except JobError as error:
            message = str(error)
        app.call_later(self.show_message, message)

    def action_forget(self) -> None:
        """Asked for twice: the log goes with it."""
        job = self._job
        if job is None:
            return
        if job.over and self.confirmed("forget") != job.id:
            self.ask_again("forget", job.id, f"x again removes {job.id} and its log")
            return
        try:
            forget(job)
            self.show_message(f"job {job.id} and its log are removed")
        except JobError as error:
            self.show_message(str(error))

    def action_copy(self) -> None:
        if self._job is not None:
            self._copy_text(self._job.line)
            self.show_message(f"the launch line of {self._job.id} goes to the clipboard")
