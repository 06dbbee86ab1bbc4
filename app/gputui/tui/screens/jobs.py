"""The jobs on the whole screen: which run, on what, with the log of one of them following below."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from textual import events
from textual.app import App

from gputui.jobs.job import Job, JobError
from gputui.jobs.log import Tail
from gputui.jobs.stop import GRACE, stop
from gputui.jobs.store import Stored, forget, stored
from gputui.tui.app_state import AppState
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.jobs import broken, devices_of, headline, listed, log
from gputui.tui.views.text import Line, clip, title, wrap

_MOST_DEVICES = 4
_COLUMNS = 500
"""Of the terminal that a log is read with: a bar that rewrites its line must find it in one piece. Lines are
broken where the screen ends."""

_MOST_LOG = 96 * 1024
"""Bytes of a log that are read when one goes to its job: 50 ms of a slow machine."""
_KEYS = " esc back  ↑↓ job  pgup/pgdn log  S stop  x forget  y copy its line"


class JobsScreen(PartsScreen):
    """`app_state` is asked for the app state of the screen below, `copy` puts a text on the clipboard."""

    BINDINGS = [
        ("escape,q,D", "dismiss", "Back"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("home,g", "cursor(-1000)", "First"),
        ("end,G", "cursor(1000)", "Last"),
        ("pageup", "back(1)", "Earlier in the log"),
        ("pagedown", "back(-1)", "Later in the log"),
        ("S", "stop", "Stop"),
        ("x,delete", "forget", "Forget"),
        ("y", "copy", "Copy"),
    ]

    def __init__(
        self, app_state: Callable[[], AppState], environ: Mapping[str, str], copy: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._app_state, self._environ, self._copy = app_state, environ, copy
        self._stored = Stored()
        self._cursor: str | None = None
        self._top = self._back = 0
        self._pieces: int | None = None
        self._tail: tuple[str, Tail] | None = None
        self._asked_to_stop: str | None = None
        self._asked_to_forget: str | None = None
        self._message = ""
        self._trouble = ""
        self._room = self._listed = 1

    def on_key(self, event: events.Key) -> None:
        self._message = ""
        if event.key != "S":
            self._asked_to_stop = None
        if event.key not in ("x", "delete"):
            self._asked_to_forget = None

    # What is painted

    def draw(self) -> None:
        """Show the jobs as they are now."""
        if not self.size.width:
            return
        place = self._place
        try:
            self._stored, self._trouble = stored(self._environ, self._stored), ""
        except JobError as error:
            self._stored, self._trouble = Stored(), str(error)
        jobs = self._jobs
        if jobs and self._job is None:
            # The one there was has been removed: the next one.
            self._look_at(jobs[min(place, len(jobs) - 1)].id)
        line = ((" ▌ ", "key"), (self._message, "")) if self._message else ((_KEYS, "dim"),)
        self.paint(self._drawn, [clip(line, self.size.width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        jobs, job = self._jobs, self._job
        lines = [headline(jobs, len(self._stored.unreadable), width)]
        if self._trouble:
            return [*lines, *(((f" {piece}", "warn"),) for piece in wrap(self._trouble, width - 2))]
        place = self._place
        self._listed = max(1, min(len(jobs) or 1, height // 3))
        self._top = window(self._top, place, self._listed, len(jobs) or 1)
        lines += listed(jobs, place, width, time.time())[self._top : self._top + self._listed]
        self.picture.lit = place - self._top + 1 if jobs else None
        if job is None:
            return lines
        devices = devices_of(job, self._app_state(), width, _MOST_DEVICES)
        if devices and len(lines) + len(devices) + 4 <= height:
            lines += [title(f"devices of {job.id}", width), *devices]
        self._room = max(1, height - len(lines) - 1)
        pieces = broken(self._log(job), width)
        if self._back and self._pieces is not None:
            # What is being read stays where it is while the log grows.
            self._back += max(0, len(pieces) - self._pieces)
        self._pieces = len(pieces) if self._back else None
        shown, self._back = log(pieces, self._room, self._back)
        follows = "pgdn: to its end" if self._back else "" if job.over else "following"
        return [*lines, title(f"log of {job.id}", width, follows), *shown]

    def _log(self, job: Job) -> list[str]:
        if self._tail is None or self._tail[0] != job.id:
            self._tail = (job.id, Tail(job.log, _COLUMNS, _MOST_LOG))
        self._tail[1].feed()
        return self._tail[1].lines(None if self._back else self._room)

    def _look_at(self, id: str) -> None:
        """Another job, at the end of its log."""
        if id != self._cursor:
            self._cursor, self._back, self._pieces = id, 0, None

    @property
    def _jobs(self) -> tuple[Job, ...]:
        """The last one first; those that run before those that have ended."""
        newest = sorted(self._stored.jobs, key=lambda job: -job.created)
        return tuple(sorted(newest, key=lambda job: job.over))

    @property
    def _job(self) -> Job | None:
        return next((job for job in self._jobs if job.id == self._cursor), None)

    @property
    def _place(self) -> int:
        return next((place for place, job in enumerate(self._jobs) if job.id == self._cursor), 0)

    # What keys do

    def action_cursor(self, by: int) -> None:
        jobs = self._jobs
        if jobs:
            self._look_at(jobs[min(max(0, self._place + by), len(jobs) - 1)].id)
        self.draw()

    def action_back(self, pages: int) -> None:
        self._back = max(0, self._back + pages * max(1, self._room - 1))
        self._pieces = None
        self.draw()

    def action_stop(self) -> None:
        """Asked for twice: a job may have run for days."""
        job = self._job
        if job is None:
            return
        if job.over:
            self._message = f"job {job.id} has ended already"
        elif self._asked_to_stop != job.id:
            self._asked_to_stop = job.id
            self._message = f"S again stops {job.id}: SIGTERM, and SIGKILL after {GRACE:.0f} s"
        else:
            self._asked_to_stop = None
            self._message = f"stopping {job.id} …"
            threading.Thread(target=self._stop, args=(job, self.app), daemon=True).start()
        self.draw()

    def _stop(self, job: Job, app: App[object]) -> None:
        """On a thread of its own: it takes as long as the job takes to end, and we may be gone by then."""
        try:
            told = stop(job).message
        except JobError as error:
            told = str(error)
        app.call_later(self._stopped, told)

    def _stopped(self, told: str) -> None:
        self._message = told
        if self.is_attached:
            self.draw()

    def action_forget(self) -> None:
        """Asked for twice: the log goes with it."""
        job = self._job
        if job is None:
            return
        if job.over and self._asked_to_forget != job.id:
            self._asked_to_forget = job.id
            self._message = f"x again removes {job.id} and its log"
            self.draw()
            return
        self._asked_to_forget = None
        try:
            forget(job)
            self._message = f"job {job.id} and its log are removed"
        except JobError as error:
            self._message = str(error)
        self.draw()

    def action_copy(self) -> None:
        if self._job is not None:
            self._copy(self._job.line)
            self._message = f"the launch line of {self._job.id} goes to the clipboard"
        self.draw()

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.picture and 1 <= event.y <= min(self._listed, len(self._jobs)):
            self._look_at(self._jobs[event.y - 1 + self._top].id)
            self.draw()
