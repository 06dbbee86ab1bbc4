"""JobsScreen: the running jobs, their devices, and the log of one job."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from textual import events

from gputui.inventory.formatting import TextWriter, counted, devices_text, duration, printable
from gputui.inventory.job import Job, JobError, place_in_list
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.log_screen import Tail
from gputui.jobs.source import was_started_on
from gputui.jobs.stop import GRACE
from gputui.jobs.store import Stored, forget, stored
from gputui.system.environment import Environ
from gputui.tui.background import in_background
from gputui.tui.controllers.jobs import JobsController
from gputui.tui.main_view import MainView
from gputui.tui.screens.confirm import Answer, ConfirmScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import FILTER, ListPage, hidden, shown
from gputui.tui.views.jobs import (
    devices_of,
    facts_of,
    headline,
    listed,
    log,
    pieces_of,
    unclaimed_uses_of,
)
from gputui.tui.views.text import ItemLines, Line, title, told_lines

_MOST_DEVICES = 4
_LEAST_LOG = 5
"""Lines for the log, with two rules, that the parts above it must leave."""
_COLUMNS = 500
"""Width of the virtual terminal for reading a log: a progress bar that rewrites its line must fit on one.
Lines are wrapped at the width of the screen."""

_WHEEL = 3
"""Lines of the log per notch of the mouse wheel."""

_MOST_LOG = 96 * 1024
"""Bytes of a log that are read when the cursor moves to its job: 50 ms on a slow machine."""


def ask_to_stop(page: ListPage, job: Job, stop: Callable[[Job], object]) -> None:
    """Stop a job, once the user says yes."""
    if job.over:
        page.show_message(f"job {job.address} has ended already")
    else:
        grace = f"SIGTERM, and SIGKILL after {GRACE:.0f} s"
        page.ask("stop", f"stop {job.address} ({grace})", partial(stop, job))


def stop_by(page: ListPage, controller: JobsController, job: Job) -> None:
    """Stop a job of this machine."""
    page.show_message(f"stopping {job.id} …", passing=True)
    app = page.app

    # This takes as long as the job takes to end, and the page may be closed by then.
    in_background("stop a job", lambda: app.call_later(page.show_message, controller.stop(job)))


class JobsPage(ListPage):
    """A list of jobs; below it the facts about the job at the cursor, and the end of its log."""

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        self._wraps = True
        self._back = 0
        """Pieces of the log below the displayed ones."""
        self._pieces: int | None = None
        self._room = 1
        self.reads = False
        """Whether the log has the whole page. The filter is then one of its lines."""

    @property
    def job(self) -> Job | None:
        """The job under the cursor, as it was last painted; None where there is none."""
        raise NotImplementedError

    def log_of(self, job: Job) -> Sequence[str]:
        """The last lines of the job's log."""
        raise NotImplementedError

    def stop(self, job: Job) -> None:
        """Stop the job, after the user has said yes: the job may have run for days."""
        raise NotImplementedError

    def actionable(self) -> Job | None:
        """The job that keys act on; None where it is not ours, and then a message is shown."""
        return self.job

    @property
    def now(self) -> float:
        """Seconds since the epoch; for the box of a demo or a recording, at the time of its snapshot."""
        app_state = self.app_state
        return app_state.snapshot.time if app_state.label and app_state.snapshot else time.time()

    def lines(self, width: int, height: int) -> list[Line]:
        (listing, items), job = self.listing(width), self.job
        if self.reads and job is not None:
            self.lay_out((), above=0)
            return self._log_lines(job, [], width, height)
        room = max(1, min(len(listing), height // 3 if job else height - 1))
        visible = self.window(listing, items, room, above=1)
        lines = [self.head(width), *visible]
        if job is None:
            return lines
        facts = [title(f"job {job.address}", width), *facts_of(job, self.now, width)]
        devices = devices_of(job, self.app_state, width, _MOST_DEVICES)
        if devices:
            devices.insert(0, title(f"devices of {job.id}", width))
        for block in (facts, devices):
            if len(lines) + len(block) + _LEAST_LOG <= height:
                lines += block
        return self._log_lines(job, lines, width, height)

    def _log_lines(self, job: Job, lines: list[Line], width: int, height: int) -> list[Line]:
        """These lines, and below them the end of the job's log, or what the user reads of it."""
        before, self._room = self._room, max(1, height - len(lines) - 1)
        found, words = self.log_of(job), self.filter.lower().split() if self.reads else ()
        if words:
            found = [line for line in found if all(word in line.lower() for word in words)]
        pieces = pieces_of(found, width, self._wraps)
        if self._back and self._pieces is not None:
            # The text that is being read stays below its rule while the log grows, or if it gets less room.
            self._back += max(0, len(pieces) - self._pieces) + before - self._room
        self._pieces = len(pieces) if self._back else None
        tail, self._back = log(pieces, self._room, self._back)
        if not pieces:
            none = "ended without output" if job.over else "no output yet"
            none = f"no line has “{self.filter}”: esc shows all" if words else none
            tail = told_lines(none, "dim", width)
        only = f"with “{self.filter}”" if words else ""
        follows = "f: follow" if self._back else "" if job.over else "following"
        return [*lines, title(f"log of {job.address}", width, only, follows), *tail]

    def stoppable(self) -> Job | None:
        """The job that can be stopped; as `actionable`."""
        return self.actionable()

    def action_stop(self) -> None:
        """Stop the job, once the user says yes: it may have run for days."""
        job = self.stoppable()
        if job is not None:
            ask_to_stop(self, job, self.stop)


class JobsScreen(JobsPage):
    """`copy_text` puts a text on the clipboard.

    On another box than this machine (a demo, a recording) the jobs are those of its snapshot, and those that
    were started there.
    """

    BINDINGS = [
        FILTER,
        shown("enter", "read_log(True)", "log", "⏎", "The log on the whole page"),
        shown("enter", "read_log(False)", "jobs", "⏎", "The jobs again"),
        hidden("f", "follow_log", "To the end of the log"),
        hidden("tab", "wrap_log", "Break long lines of the log, or cut them"),
        shown("S", "stop", "stop"),
        shown("R", "rerun", "rerun"),
        shown("c", "clone", "clone"),
        shown("v", "compare", "compare", about="Compare variants of the job's command"),
        shown("V", "perform('experiments')", "experiments"),
        shown("x,delete", "forget", "remove", "x"),
        shown("y", "copy", "copy"),
    ]
    OF_ITEM = frozenset(
        {
            "cursor",
            "read_log",
            "follow_log",
            "wrap_log",
            "stop",
            "rerun",
            "clone",
            "compare",
            "forget",
            "copy",
        }
    )

    def __init__(
        self,
        view: MainView,
        controller: JobsController,
        environ: Environ,
        copy_text: TextWriter,
    ) -> None:
        super().__init__(view)
        self._controller, self._environ, self._copy_text = controller, environ, copy_text
        self.key = controller.looked_at
        self._stored = Stored()
        self._trouble = ""
        self._filter_of_jobs = ""
        self._records: dict[str, Job] = {}
        self._known: set[str] = set()
        self._jobs: tuple[Job, ...] = ()
        self._tail: tuple[str, Tail] | None = None

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        """The ids of the jobs, the newest first; running jobs before those that wait or have ended."""
        try:
            self._stored, self._trouble = stored(self._environ, self._stored), ""
        except JobError as error:
            self._stored, self._trouble = Stored(), str(error)
        box, label = self.app_state.box, self.app_state.label
        seen = {job.id: job for job in box.jobs}
        mine = [job for job in self._stored.jobs if not label or was_started_on(box, job)]
        self._records = {job.id: job for job in mine}
        self._known |= self._records.keys()
        jobs = [
            replace(job, tail=seen[job.id].tail, peak_memory=seen[job.id].peak_memory)
            if job.id in seen
            else job
            for job in mine
        ]
        if label:
            # A job that was just removed is still in the last reading.
            jobs += [job for job in seen.values() if job.id not in self._known]
        self._jobs = tuple(sorted(jobs, key=place_in_list))
        return [job.id for job in self._jobs]

    def _set_cursor(self, place: int, keys: Sequence[Hashable]) -> None:
        super()._set_cursor(place, keys)
        self._controller.looked_at = self.key if self.cursor else None

    @property
    def job(self) -> Job | None:
        return self._jobs[self.cursor] if self._jobs and self.key is not None else None

    def actionable(self) -> Job | None:
        job = self.job
        if job is None or job.id in self._records:
            return job and self._records[job.id]
        self.show_message(self.app_state.not_of_this_machine("jobs"))
        return None

    def stoppable(self) -> Job | None:
        """A job of a demo's box can be cloned and stopped, too: neither starts anything."""
        return self.actionable() if self.app_state.demo is None else self.job

    def head(self, width: int) -> Line:
        unreadable = 0 if self.app_state.label else len(self._stored.unreadable)
        more = [f"{unreadable} cannot be read: gputui jobs"] if unreadable else []
        box = self.app_state.box
        yours = {each.job for each in box.waiters if each.ours} | {
            each.job for each in box.claims if each.own
        }
        elsewhere = yours - {None, *self._known, *(job.id for job in self._jobs)}
        if elsewhere:
            more.append(f"{len(elsewhere)} of yours in another HOME")
        return headline(self._jobs, width, more=more, end=self.beyond)

    def listing(self, width: int) -> ItemLines:
        if self._trouble and not self._jobs:
            return told_lines(self._trouble, "warn", width), range(0)
        app_state = self.app_state
        uses = unclaimed_uses_of(app_state)
        lines = listed(self._jobs, width, self.now, app_state.snapshot, uses)
        return lines, [None, *range(len(self._jobs))]

    def log_of(self, job: Job) -> Sequence[str]:
        record = self._records.get(job.id)
        if record is None:
            return job.tail
        if self._tail is None or self._tail[0] != job.id:
            # The page shows another job, from the end of its log.
            self._tail = (job.id, Tail(record.log, _COLUMNS, _MOST_LOG))
            self._back, self._pieces = 0, None
        self._tail[1].feed()
        return self._tail[1].lines(None if self._back or (self.reads and self.filter) else self._room)

    # Key actions

    def action_clone(self) -> None:
        """Put the job's command on the launch line, and return to the main screen."""
        job = self.stoppable()
        if job is not None:
            message = self._controller.clone(job, job.id not in self._records)
            self.dismiss()
            self.view.show_message(message)

    def action_rerun(self) -> None:
        """Ask once, with the devices that were found; yes uses that result."""
        job = self.actionable()
        if job is None:
            return
        found, text = self._controller.best_for(job)
        if found is None:
            self.show_message(text)
        else:
            self.ask(
                "rerun",
                f"start {job.id} as a new job on {text}",
                partial(self._controller.rerun, job, found),
            )

    def action_compare(self) -> None:
        """Ask what to vary in the job's command, and start the comparison as a job."""
        job = self.actionable()
        if job is None:
            return
        if self.app_state.label:
            self.show_message(f"{self.app_state.label}: nothing is compared")
            return
        why = self._controller.not_again(job)
        if why is not None:
            self.show_message(why)
            return

        def start(line: str) -> None:
            if line.strip():
                self._ask_to_compare(job, line)

        self.type_line(
            LineScreen(
                f"vary what in {job.id}?",
                placeholder="for example: --lr=1e-4,3e-4 launcher=python,torchrun --repeat 3",
                check=lambda line: self._controller.comparison(job, line),
                keys=(("⏎", "next"), ("esc", "cancel")),
            ),
            start,
        )

    def _ask_to_compare(self, job: Job, line: str) -> None:
        """Show what the comparison runs, and start it after a yes: it takes devices for a while."""
        request, made = self._controller.comparison(job, line)
        count = request.launch.devices.count
        devices = f"on {devices_text(count)}" if count else "without devices"
        times = f", {request.repeat} times each" if request.repeat > 1 else ""
        reasons = [printable(row.label) for row in made.rows]
        if job.began and job.ended:
            each = job.ended - job.began
            took = f"each takes {duration(each)}, as {job.id} did"
            reasons.append(f"about {duration(each * made.runs_in_all)} in all, if {took}")

        def answered(answer: Answer | None) -> None:
            if answer == "run":
                self.show_message(self._controller.compare(request, made))

        variants = counted(len(made.rows), "variant")
        question = f"Run {variants} of {job.id}{times}, one after another, {devices}?"
        self.view.open(ConfirmScreen(self.view, question, reasons), answered)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "read_log" and parameters[0] == self.reads:
            return False
        return super().check_action(action, parameters)

    def places_kept(self, count: int) -> Sequence[int]:
        return range(count) if self.reads else super().places_kept(count)

    def show_only(self, words: str) -> None:
        if self.reads:
            self._back, self._pieces = 0, None
        super().show_only(words)

    def action_read_log(self, whole: bool) -> None:
        """Give the log the whole page, or show the list again. Each has a filter of its own."""
        if self.reads and self.filter:
            self.show_only("")
        self.reads = whole
        self.filter, self._filter_of_jobs = self._filter_of_jobs, self.filter
        self.draw()

    def action_back(self) -> None:
        if self.reads and not self.filter:
            self.action_read_log(False)
        else:
            super().action_back()

    def action_cursor(self, by: int) -> None:
        """Move to another job; where the log has the page, scroll it."""
        if self.reads:
            self._scroll_log(-by)
        else:
            super().action_cursor(by)

    def action_follow_log(self) -> None:
        self._back, self._pieces = 0, None
        self.draw()

    def action_wrap_log(self) -> None:
        self._wraps = not self._wraps
        self.action_follow_log()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll(event, _WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll(event, -_WHEEL)

    def _scroll(self, event: events.MouseEvent, by: int) -> None:
        """Scroll the log below the pointer, or move the cursor in the list."""
        if event.y >= self.size.height - self._room - 2:
            self._scroll_log(by)
        else:
            self.action_cursor(-1 if by > 0 else 1)

    def action_page(self, by: int) -> None:
        self._scroll_log(-by * max(1, self._room - 1))

    def _scroll_log(self, by: int) -> None:
        self._back = max(0, self._back + by)
        self._pieces = None
        self.draw()

    def stop(self, job: Job) -> None:
        stop_by(self, self._controller, job)

    def action_forget(self) -> None:
        """Remove the job, once the user says yes: its log is removed too."""
        job = self.actionable()
        if job is None:
            return
        if job.over:
            self.ask("forget", f"remove {job.id} and its log", partial(self._forget, job))
        elif job.state == "elsewhere":
            self._forget(job)
        else:
            self.show_message(f"job {job.id} has not ended: S stops it")

    def _forget(self, job: Job) -> None:
        try:
            forget(job)
            self.show_message(f"job {job.id} and its log are removed")
        except JobError as error:
            self.show_message(str(error))

    def action_copy(self) -> None:
        job = self.actionable()
        if job is not None:
            self._copy_text(printable(job.line))
