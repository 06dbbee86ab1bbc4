"""BoxJobsController: follows and stops jobs of other boxes, by the calls of gputui that do it."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.inventory.job import Job
from gputui.jobs.of_boxes import JobsOfBoxes
from gputui.jobs.on_box import follow_words, line, stop_there
from gputui.jobs.queued import this_gputui
from gputui.launching.launch import Launch
from gputui.tui.background import in_background
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView


class BoxJobsController:
    """In a demo the boxes are simulated, and nothing is done."""

    def __init__(self, view: MainView, launch: LaunchController, environ: Mapping[str, str]) -> None:
        self._view, self._launch, self._environ = view, launch, environ

    def _simulated(self) -> bool:
        """Whether the boxes are a demo's; what is shown."""
        label = self._view.app_state.label
        if label:
            self._view.show_message(f"{label}: these jobs are simulated", "warn")
        return bool(label)

    def follow(self, job: Job) -> None:
        """Follow its log in this terminal."""
        if self._simulated():
            return
        words = follow_words(job.address)
        ended = self._launch.lend_terminal(Launch(this_gputui(words)), line(words))
        if ended is not None:
            # (It ends by Ctrl-C, mostly: that is no news.)
            self._view.show_message(None if ended.how else ended.text, "lost")

    def stop(self, job: Job, boxes: JobsOfBoxes) -> None:
        """Stop it, and ask its box again; what became of it is shown."""
        if self._simulated():
            return
        app = self._view.app
        self._view.show_message(f"stopping {job.address} …", passing=True)

        def told(text: str, good: bool) -> None:
            boxes.ask_now(job.box)
            self._view.show_message(text, "" if good else "lost")
            self._view.redraw_page()

        def work() -> None:
            app.call_later(told, *stop_there(job.address, self._environ))

        in_background("stop a job of another box", work)
