"""JobsScreen: the jobs and experiments, and the devices and the log of one job, or the results of one
experiment."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Sequence
from functools import partial
from itertools import chain

from textual import events

from gputui.inventory.formatting import TextWriter, counted, devices_text, duration, printable
from gputui.inventory.job import Job, JobError, grouped
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.experiments import store
from gputui.jobs.experiments.record import Experiment
from gputui.jobs.experiments.runner import with_outcomes
from gputui.jobs.experiments.table import lines as as_text
from gputui.jobs.log_screen import Tail
from gputui.jobs.rerun import runs_experiment
from gputui.jobs.source import was_started_on
from gputui.jobs.stop import GRACE
from gputui.jobs.store import Stored, forget, stored
from gputui.system.environment import Environ
from gputui.tui.controllers.jobs import JobsController
from gputui.tui.main_view import MainView
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import FILTER, ListPage, hidden, shown
from gputui.tui.views.experiments import details, row_of
from gputui.tui.views.jobs import (
    devices_of,
    facts_of,
    listed,
    log,
    numbers,
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
            return self.of_job(job, [], width, height)
        room = max(1, min(len(listing), height // 3 if job else height - 1))
        visible = self.window(listing, items, room, above=1)
        lines = [self.head(width), *visible]
        return lines if job is None else self.of_job(job, lines, width, height)

    def of_job(self, job: Job, lines: list[Line], width: int, height: int) -> list[Line]:
        """These lines, and below them the job at the cursor: its facts, unless the log has the whole page,
        and the end of its log, or what the user reads of it."""
        facts = [title(f"job {job.address}", width), *facts_of(job, self.now, width)]
        devices = devices_of(job, self.app_state, width, _MOST_DEVICES)
        if devices:
            devices.insert(0, title(f"devices of {job.id}", width))
        for block in () if self.reads else (facts, devices):
            if len(lines) + len(block) + _LEAST_LOG <= height:
                lines += block
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
        if job is None:
            return
        if job.over:
            self.show_message(f"job {job.address} has ended already")
        else:
            what = f"stop {self.what(job)}: SIGTERM, and SIGKILL after {GRACE:.0f} s"
            self.ask("stop", what, partial(self.stop, job))

    def what(self, job: Job) -> str:
        """What a stop of the job ends, and what goes on."""
        return job.address


class JobsScreen(JobsPage):
    """`copy_text` puts a text on the clipboard. An experiment has a row, and its runs are below it.

    On another box than this machine (a demo, a recording) the jobs are those of its snapshot, and those that
    were started there.
    """

    BINDINGS = [
        FILTER,
        shown("enter", "read_log(True)", "open", "⏎", "The log, or the results, on the whole page"),
        shown("enter", "read_log(False)", "jobs", "⏎", "The jobs again"),
        hidden("f", "follow_log", "To the end of the log"),
        hidden("tab", "wrap_log", "Break long lines of the log, or cut them"),
        shown("S", "stop", "stop"),
        shown("R", "rerun", "rerun"),
        shown("e", "edit_job", "edit", about="Put the job's command on the launch line, to edit it"),
        hidden("v", "compare", "Compare variants of the job's command"),
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
            "edit_job",
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
        self._stored, self._kept = Stored(), store.Kept()
        self._experiments: dict[str, Experiment] = {}
        """By the id of the job in their row."""
        self._outcomes: tuple[Experiment, ...] = ()
        self._read: object = None
        """From what the outcomes were read."""
        self._drawn: tuple[Experiment, int, list[Line]] | None = None
        self._trouble = ""
        self._filter_of_jobs = ""
        self._records: dict[str, Job] = {}
        self._known: set[str] = set()
        self._jobs: tuple[Job, ...] = ()
        self._tail: tuple[str, Tail] | None = None
        self.key = controller.opens_at(self.item_keys())

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        """The ids of the jobs, the newest first; running jobs before those that wait or have ended."""
        box, label = self.app_state.box, self.app_state.label
        try:
            self._stored, self._trouble = stored(self._environ, self._stored), ""
            self._kept = store.Kept() if label else store.kept(self._environ, self._kept)
        except JobError as error:
            self._stored, self._kept, self._trouble = Stored(), store.Kept(), str(error)
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
        self._jobs = tuple(chain(*grouped(self._with_experiments(jobs))))
        self.key = self._controller.take_started() or self.key
        return [job.id for job in self._jobs]

    def _with_experiments(self, jobs: Sequence[Job]) -> Collection[Job]:
        """These jobs, and a row for each experiment: the job that runs it, or ran it last; a row of its own
        where that was in a terminal."""
        rows = {job.id: job for job in jobs}
        runners = {job.part.experiment: job for job in jobs if job.part is not None and job.part.whole}
        self._experiments = {}
        read = (self._kept.records, self._stored.jobs)
        if read != self._read:
            # This takes long for an experiment of ten thousand tasks.
            self._outcomes, self._read = with_outcomes(self._kept.records, lambda: self._stored), read
        for each in self._outcomes:
            runner = rows.get(each.job) or runners.get(each.id)
            if runner is None or (runner.over and each.state == "running"):
                runner = row_of(each)
            rows[runner.id] = replace(runner, part=each.part)
            # Its own record says that it was stopped until the first run begins.
            self._experiments[runner.id] = each if runner.over else replace(each, state="running")
        return rows.values()

    def _set_cursor(self, place: int, keys: Sequence[Hashable]) -> None:
        before = self.key
        super()._set_cursor(place, keys)
        self.below = self.below if self.key == before else 0
        self._controller.looked_at = self.key if self.cursor else None

    @property
    def _experiment(self) -> Experiment | None:
        """The experiment under the cursor, as it was read last."""
        return self._experiments.get(str(self.key))

    @property
    def job(self) -> Job | None:
        return self._jobs[self.cursor] if self._jobs and self.key is not None else None

    def actionable(self) -> Job | None:
        job = self.job
        if job is None or job.id in self._records or self._experiment is not None:
            return job and self._records.get(job.id, job)
        self.show_message(self.app_state.not_of_this_machine("jobs"))
        return None

    def stoppable(self) -> Job | None:
        """A job of a demo's box can be edited and stopped, too: neither starts anything."""
        return self.actionable() if self.app_state.demo is None else self.job

    def what(self, job: Job) -> str:
        if job.part is None:
            return job.id
        if job.part.whole:
            return f"{printable(job.part.title)} with all its runs"
        parts = {each.id: each.part for each in self._jobs if each.part and not each.over}
        for id, whole in parts.items():
            left = (
                whole.of - job.part.number if whole.whole and whole.experiment == job.part.experiment else 0
            )
            if left:
                return f"{job.id}; {left} of {whole.of} runs still follow, S on {id} stops all"
        return job.id

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
        if self._kept.unreadable:
            more.append(f"{len(self._kept.unreadable)} experiments cannot be read: gputui compare --list")
        return title("jobs", width, numbers(self._jobs), *more, self.beyond)

    def listing(self, width: int) -> ItemLines:
        if self._trouble and not self._jobs:
            return told_lines(self._trouble, "warn", width), range(0)
        app_state = self.app_state
        uses = unclaimed_uses_of(app_state)
        lines = listed(self._jobs, width, self.now, app_state.snapshot, uses)
        return lines, [None, *range(len(self._jobs))]

    def of_job(self, job: Job, lines: list[Line], width: int, height: int) -> list[Line]:
        found = self._experiment
        if found is None:
            return super().of_job(job, lines, width, height)
        self._room = max(1, height - len(lines))
        # Cached until something changes, as an experiment has up to ten thousand tasks.
        if self._drawn is None or self._drawn[0] is not found or self._drawn[1] != width:
            self._drawn = (found, width, details(found, width))
        head, *results = self._drawn[2]
        text, log_lines = [head, *facts_of(job, self.now, width), *results], self.log_of(job)
        if log_lines:
            text.append(title(f"log of {job.id}", width))
            text += [((f" {piece}", ""),) for piece in pieces_of(log_lines, width)]
        return [*lines, *self.text_below(text, self._room)]

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

    def action_edit_job(self) -> None:
        """Put the job's command on the launch line, and return to the main screen."""
        job = self.stoppable()
        if job is not None:
            example = job.id not in self._records and self._experiment is None
            message = self._controller.on_launch_line(job, example)
            self.dismiss()
            self.view.show_message(message)

    def action_rerun(self) -> None:
        """Ask once, with the devices that were found; yes uses that result."""
        job = self.actionable()
        if job is None:
            return
        again, what = partial(self._controller.repeat, job), f"start {self.what(job)} again, as a new job"
        if self._experiment is None and not runs_experiment(job):
            devices, where = self._controller.best_for(job)
            if devices is None:
                self.show_message(where)
                return
            what = f"start {job.id} as a new job on {where}"
            again = partial(self._controller.rerun, job, devices, where)
        elif job.id not in self._records:
            self.show_message("it ran in a terminal: e puts its call on the launch line")
            return
        self.ask("rerun", what, partial(self.work, f"starting {job.id} again", again))

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
                f"compare {job.id} in which variants?",
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
        labels = ", ".join(printable(row.label) for row in made.rows)
        took = ""
        if job.began and job.ended:
            each = job.ended - job.began
            took = (
                f", about {duration(each * made.runs_in_all)} if each takes {duration(each)}, as {job.id} did"
            )
        variants = f"{counted(len(made.rows), 'variant')} of {job.id}{times}, one after another, {devices}"

        def compare() -> None:
            self.show_message(self._controller.compare(request, made))

        self.ask("compare", f"run {variants}{took}: {labels}", compare)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "read_log" and parameters[0] == self.reads:
            return False
        not_of_results = ("compare", "wrap_log", "follow_log", *(["filter"] if self.reads else []))
        if self._experiment is not None and action in not_of_results:
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
        self.below = max(0, self.below - by)
        self._back = max(0, self._back + by)
        self._pieces = None
        self.draw()

    def action_stop(self) -> None:
        job = self.job
        if job is None or job.over or job.id in self._records or self._experiment is None:
            super().action_stop()
        else:
            self.show_message(f"{self._experiment.name} runs in a terminal: Ctrl-C there stops it")

    def stop(self, job: Job) -> None:
        # This takes as long as the job takes to end.
        self.work(f"stopping {job.id}", partial(self._controller.stop, job))

    def action_forget(self) -> None:
        """Remove the job, once the user says yes: its log is removed too. The runs of an experiment stay."""
        job = self.actionable()
        if job is None:
            return
        if job.over and self._experiment is not None:
            self.ask("forget", f"remove {self._experiment.name} (its runs stay)", partial(self._forget, job))
        elif job.over:
            self.ask("forget", f"remove {job.id} and its log", partial(self._forget, job))
        elif job.state == "elsewhere":
            self._forget(job)
        else:
            self.show_message(f"job {job.id} has not ended: S stops it")

    def _forget(self, job: Job) -> None:
        try:
            found = self._experiments.get(job.id)
            if found is not None:
                store.forget(found)
            if job.id in self._records:
                forget(job)
            self.show_message(f"{found.name if found else f'job {job.id} and its log'} removed")
        except JobError as error:
            self.show_message(str(error))

    def action_copy(self) -> None:
        job = self.actionable()
        if job is not None and self._experiment is not None:
            self._copy_text("\n".join(as_text(self._experiment, None)) + "\n")
        elif job is not None:
            self._copy_text(printable(job.line))
