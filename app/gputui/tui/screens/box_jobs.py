"""BoxJobsScreen: the jobs of other boxes, and the end of the log of one job."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

from gputui.inventory.job import Job
from gputui.jobs.box_jobs import BoxJobs, JobsOfBoxes
from gputui.tui.controllers.box_nodes import BoxNodes
from gputui.tui.main_view import MainView
from gputui.tui.screens.jobs import JobsPage
from gputui.tui.screens.page import FILTER, shown, worded
from gputui.tui.views.box_jobs import box_lines, headline_of_boxes, job_rows, row_keys
from gputui.tui.views.text import ItemLines, Line


class BoxJobsScreen(JobsPage):
    """Queries the boxes from its opening until it closes."""

    BINDINGS = [
        FILTER,
        shown("enter", "follow", "follow log", "⏎", "Follow the job's log in this terminal"),
        shown("S", "stop", "stop", about="Stop the job; asks first"),
        worded("refresh", "ask_now", "refresh", "Ask the boxes again now"),
    ]

    def __init__(self, view: MainView, boxes: JobsOfBoxes, calls: BoxNodes) -> None:
        super().__init__(view)
        self._boxes, self._calls = boxes, calls
        self._states: tuple[BoxJobs, ...] = ()

    def on_mount(self) -> None:
        self._boxes.start()

    def on_unmount(self) -> None:
        threading.Thread(target=self._boxes.stop, daemon=True).start()

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        self._states = self._boxes.states
        if not self._pressed:
            # The cursor should be on the first job, not on a box that has not answered yet.
            self.key, self.cursor = None, 0
        return row_keys(self._states)

    def head(self, width: int) -> Line:
        return headline_of_boxes(self._states, self.beyond, width)

    def listing(self, width: int) -> ItemLines:
        self._boxes.look_at(self.job)
        rows, count = job_rows(self._states, self.now, width), len(row_keys(self._states))
        return rows, [*[None] * (len(rows) - count), *range(count)]

    def log_of(self, job: Job) -> Sequence[str]:
        end = self._boxes.log
        if end is None:
            return ["reading …"]
        if end.error is not None:
            return [f"cannot be read: {end.error}"]
        return end.lines

    def notes(self, width: int) -> list[Line]:
        box = self._box
        return box_lines(box, width) if box is not None and self.job is None else []

    # The row at the cursor, as it was last painted: keys act on that row

    @property
    def job(self) -> Job | None:
        box = self._box
        id = self.key[1] if isinstance(self.key, tuple) else ""
        return next((job for job in (box.jobs or ()) if job.id == id), None) if box else None

    @property
    def _box(self) -> BoxJobs | None:
        alias = self.key[0] if isinstance(self.key, tuple) else None
        return next((box for box in self._states if box.alias == alias), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("follow", "stop"):
            return self.job is not None
        return super().check_action(action, parameters)

    # Key actions

    def action_ask_now(self) -> None:
        self._boxes.ask_now(self._box.alias if self._box is not None and self.job is None else None)
        self.draw()

    def action_follow(self) -> None:
        if self.job is not None:
            self._calls.follow_log(self.job)
            self.draw()

    def stop(self, job: Job) -> None:
        self._calls.stop_job(job, self._boxes)
