"""BoxJobsScreen: the jobs of other boxes, and the end of the log of one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence

from gputui.inventory.job import Job
from gputui.jobs.of_boxes import BoxJobs, JobsOfBoxes
from gputui.jobs.stop import GRACE
from gputui.tui.controllers.box_jobs import BoxJobsController
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.box_jobs import Row, box_lines, facts_lines, headline_of_boxes, job_rows, log_lines
from gputui.tui.views.text import Line

_LEAST_LOG = 4
"""Lines that what stands above the log leaves to it, with its rule."""


class BoxJobsScreen(ListPage):
    """The boxes are asked when the page opens, and again and again until it ends."""

    BINDINGS = [
        shown("escape,q,O", "dismiss", "boxes", "esc", "Back to the boxes"),
        *cursor_bindings("job"),
        shown("enter", "follow", "follow log", "⏎", "Follow the job's log in this terminal"),
        shown("S", "stop", "stop", about="Stop the job (press it twice)"),
        shown("r", "ask_now", "ask now", about="Ask the boxes again now"),
    ]

    def __init__(self, view: MainView, boxes: JobsOfBoxes, controller: BoxJobsController) -> None:
        super().__init__(view)
        self._boxes, self._controller = boxes, controller
        self._states: tuple[BoxJobs, ...] = ()
        self._rows: list[Row] = []
        self._made_of: tuple[tuple[BoxJobs, ...], int, int] | None = None

    def on_mount(self) -> None:
        self._boxes.start()

    def on_unmount(self) -> None:
        threading.Thread(target=self._boxes.stop, daemon=True).start()

    # What is painted

    def item_keys(self) -> Sequence[Hashable]:
        self._states = self._boxes.states
        # (A key changes nothing of what the rows say.)
        made_of = self._states, int(self._now), self.size.width
        if made_of != self._made_of:
            self._made_of = made_of
            self._rows = job_rows(self._states, self._now, max(1, self.size.width))
        if not self._presses:
            # (The first job is to be at the cursor, and not a box that had not answered yet.)
            self.key, self.cursor = None, 0
        return [row.key for row in self._rows]

    @property
    def _now(self) -> float:
        snapshot, label = self.view.app_state.snapshot, self.view.app_state.label
        return snapshot.time if label and snapshot else time.time()

    def lines(self, width: int, height: int) -> list[Line]:
        job = self._job
        self._boxes.look_at(job)
        about = facts_lines(job, self._now, width) if job else []
        room = max(1, min(len(self._rows), height // 2 if job else height - 1))
        about = about[: max(0, height - 1 - room - _LEAST_LOG)]
        listing = self.window([row.line for row in self._rows], range(len(self._rows)), room, above=1)
        lines = [headline_of_boxes(self._states, self.beyond, width), *listing, *about]
        left = height - len(lines)
        if job is None or left < 2:
            return lines
        return [*lines, *log_lines(job, self._boxes.log, width, left)]

    def notes(self, width: int) -> list[Line]:
        box = self._box
        return box_lines(box, width) if box is not None and self._job is None else []

    # The row at the cursor, as it was painted last: that is what a key was meant for

    @property
    def _job(self) -> Job | None:
        box = self._box
        id = self.key[1] if isinstance(self.key, tuple) else ""
        return next((job for job in (box.jobs or ()) if job.id == id), None) if box else None

    @property
    def _box(self) -> BoxJobs | None:
        alias = self.key[0] if isinstance(self.key, tuple) else None
        return next((box for box in self._states if box.alias == alias), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("follow", "stop"):
            return self._job is not None
        return super().check_action(action, parameters)

    # What keys do

    def action_ask_now(self) -> None:
        self._boxes.ask_now(self._box.alias if self._box is not None and self._job is None else None)
        self.draw()

    def action_follow(self) -> None:
        if self._job is not None:
            self._controller.follow(self._job)
            self.draw()

    def action_stop(self) -> None:
        """Asked for twice: a job may have run for days."""
        job = self._job
        if job is None:
            return
        if job.over:
            self.show_message(f"job {job.address} has ended already")
        elif self.confirmed("stop") == job.address:
            self._controller.stop(job, self._boxes)
            self.draw()
        else:
            grace = f"SIGTERM, and SIGKILL after {GRACE:.0f} s"
            self.ask_again("stop", job.address, f"press S again to stop {job.address}: {grace}")
