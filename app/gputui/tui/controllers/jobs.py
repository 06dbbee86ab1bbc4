"""JobsController: reports how our jobs changed, and starts a job's command again: here or as a job."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from gputui.choosing.grouping import ALL_REDUCE
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import gpus
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.shell_words import split
from gputui.launching.start import missing_program
from gputui.launching.terminal_notification import terminal_notification
from gputui.tui.app_state import AppState
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView

if TYPE_CHECKING:
    from gputui.jobs.experiments.request import Comparisons


class JobsController:
    """Reports and starts jobs for the main screen `view`; `reruns` starts them again.

    `write` sends a sequence to the terminal; without it, only the message reports.
    """

    def __init__(
        self,
        view: MainView,
        reruns: LaunchController,
        comparisons: Comparisons,
        environ: Mapping[str, str],
        write: Callable[[str], None] | None,
    ) -> None:
        self._view, self._reruns, self._environ, self._write = view, reruns, environ, write
        self._comparisons = comparisons
        self.looked_at: Hashable | None = None
        """The job that the page last showed; None for the first job of the list at that time."""

    # Changes of jobs

    def after_reading(self, before: Snapshot | None, now: Snapshot) -> None:
        """Report changes after each reading that the view shows."""
        if before is not now and (now.jobs or (before is not None and before.jobs)):
            # Not imported where the user has no job.
            from gputui.tui.views.jobs import news

            found = news(before, now)
            if found:
                text = "; ".join(text for text, _ in found)
                self._view.show_message(text, "" if all(good for _, good in found) else "lost", lasting=True)
                if self._write is not None:
                    self._write(terminal_notification(text))

    # Starting a job again

    def clone(self, job: Job) -> str:
        """Put a job's command, options and directory on the launch line; return a message about it."""
        from gputui.jobs.again import again

        kept = again(job)
        # The next reading reads the command's request for devices.
        self._view.set_app_state(replace(self._view.app_state, options=kept.request.options))
        lacks = kept.lacks(self._environ)
        told = f"the command of job {job.id} is on the launch line"
        return f"{told}; {lacks}" if lacks else told

    def clone_example(self, job: Job) -> str:
        """Put the command of a demo's job on the launch line, from which it is not started either."""
        command = split(job.title)
        options = LaunchOptions(command)
        self._view.set_app_state(replace(self._view.app_state, options=options, example=command))
        return f"the command of the example job {job.id} is on the launch line"

    def best_for(self, job: Job) -> tuple[AppState | None, str]:
        """What a rerun of a job would start on the best devices that are free now, and the names of those
        devices; or None, and why it cannot be started."""
        from gputui.jobs.again import again
        from gputui.launching.environment_hints import THREADS, threads_near

        why = self.not_again(job)
        if why is not None:
            return None, why
        kept = again(job)
        options, asked = kept.request.options, kept.request.devices
        now = self._view.app_state
        none_selected = replace(now.clear(), options=options).with_rules(asked.rules(now.rules))
        if asked.count is None:
            return self._startable(none_selected.cpu_only(), "CPU only")
        selected, reason = none_selected.select_best(
            asked.count, asked.group or ALL_REDUCE, order=asked.order or "best"
        )
        snapshot = selected.snapshot
        if not selected.selection or snapshot is None:
            return None, f"{reason}; gputui jobs rerun {job.id} --wait waits for them"
        if kept.request.near:
            threads = threads_near(snapshot, selected.selected)
            near = () if threads is None else ((THREADS, str(threads)),)
            selected = replace(selected, options=replace(options, additions=(*options.additions, *near)))
        return self._startable(selected, gpus([*map(snapshot.label, selected.selected)]))

    def _startable(self, app_state: AppState, where: str) -> tuple[AppState | None, str]:
        launch = app_state.launch
        why = (
            launch.refusal
            or app_state.unclaimed
            or app_state.contradiction
            or missing_program(launch, self._environ)
        )
        return (None, why) if why else (app_state, where)

    # Variants of a job

    def not_again(self, job: Job) -> str | None:
        """Why a job's command and variants of it cannot be started here, None where they can."""
        from gputui.jobs.again import again
        from gputui.jobs.queued import experiment_of

        try:
            own = experiment_of(job)
        except JobError as error:
            return str(error)
        if own is not None:
            return f"a {own.experiment.kind}: gputui jobs rerun {job.id} starts it again"
        return again(job).lacks(self._environ)

    def problem_of(self, line: str) -> str | None:
        """The error in the words of a comparison, None where they are valid."""
        from gputui.jobs.experiments.axes import variants
        from gputui.requesting.launch_request import LaunchRequest

        try:
            variants(self._comparisons.typed(line, LaunchRequest(LaunchOptions())).axes)
        except GputuiError as error:
            return str(error)
        return None

    def explain_comparison(self, job: Job, line: str) -> str:
        """The effect of Enter with valid words of a comparison."""
        from gputui.jobs.again import again
        from gputui.jobs.experiments.axes import variants

        request = again(job).request
        count = request.devices.count
        devices = (
            "without devices" if not count else f"on the best {count} free" if count > 1 else "on one GPU"
        )
        number = len(variants(self._comparisons.typed(line, request).axes))
        return f"⏎ starts {number} variant{'s' if number > 1 else ''}, one after another, {devices}"

    def compare(self, job: Job, line: str) -> str:
        """Start a comparison of variants of a job's command as a job; return a message about it."""
        from gputui.jobs.again import again
        from gputui.jobs.experiments.store import begin
        from gputui.jobs.queued import experiment_job

        try:
            request = self._comparisons.typed(line, again(job).request)
            recorded = begin(self._comparisons.made(request), self._environ)
            started = experiment_job(recorded.id, request, self._environ)
        except GputuiError as error:
            return f"nothing is started: {error}"
        return f"job {started.id} compares: V shows how far it is"

    def rerun(self, job: Job, app_state: AppState) -> None:
        """Start a job again on the devices of `best_for`."""
        from gputui.jobs.again import again

        self._reruns.rerun(app_state, again(job).request)
