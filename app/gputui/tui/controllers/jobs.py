"""JobsController: reports how our jobs changed, and starts a job's command again: here or as a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.selection import Selection
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import gpus
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.shell_words import split
from gputui.launching.start import missing_program
from gputui.launching.terminal_notification import terminal_notification
from gputui.sources.sampler import Sampler
from gputui.tui.app_state import AppState
from gputui.tui.main_view import MainView

if TYPE_CHECKING:
    from gputui.allocating.allocation import Allocation
    from gputui.launching.launch import Launch
    from gputui.requesting.launch_request import LaunchRequest

_PATIENCE = 5.0
"""Seconds to wait for a new reading of a rerun's devices; or three readings, where those take longer."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A rerun whose devices are held and are being read again since `since` (`time.monotonic`).

    `request` goes into the new job's own record, for the next rerun."""

    app_state: AppState
    allocation: Allocation
    since: float
    request: LaunchRequest


class JobsController:
    """Reports and starts jobs for the main screen `view`.

    `write` sends a sequence to the terminal; without it, only the message reports.
    """

    def __init__(
        self,
        view: MainView,
        sampler: Sampler,
        environ: Mapping[str, str],
        write: Callable[[str], None] | None,
    ) -> None:
        self._view, self._sampler, self._environ, self._write = view, sampler, environ, write
        self._pending: _Pending | None = None
        self._confining: _Pending | None = None
        self.looked_at: Hashable | None = None
        """The job that the page last showed; None for the first job of the list at that time."""

    # Changes of jobs

    def after_reading(self, before: Snapshot | None, now: Snapshot, began: float) -> None:
        """Report changes after each reading that the view shows; `began` is its start (`time.monotonic`)."""
        if before is not now and (now.jobs or (before is not None and before.jobs)):
            # Not imported where the user has no job.
            from gputui.tui.views.jobs import news

            found = news(before, now)
            if found:
                text = "; ".join(text for text, _ in found)
                self._view.show_message(text, "" if all(good for _, good in found) else "lost", lasting=True)
                if self._write is not None:
                    self._write(terminal_notification(text))
        pending = self._pending
        if pending is not None and began >= pending.since:
            self._pending = None
            self._start(pending, now)

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
        none_selected = replace(
            self._view.app_state,
            options=options,
            rules=asked.rules(self._view.app_state.rules),
            selection=Selection(),
            verdicts_when_selected={},
            suggestion=None,
            order=None,
            command_choice=None,
        )
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
            selected = replace(
                selected, options=replace(options, additions=(*options.additions, *near)), command_choice=None
            )
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

    def explain_comparison(self, job: Job, line: str) -> str:
        """The effect of Enter with valid words of a comparison."""
        from gputui.cli.experiment_call import typed
        from gputui.jobs.again import again
        from gputui.jobs.experiments.axes import variants

        request = again(job).request
        count = request.devices.count
        devices = (
            "without devices" if not count else f"on the best {count} free" if count > 1 else "on one GPU"
        )
        number = len(variants(typed(line, request).axes))
        return f"⏎ starts {number} variant{'s' if number > 1 else ''}, one after another, {devices}"

    def compare(self, job: Job, line: str) -> str:
        """Start a comparison of variants of a job's command as a job; return a message about it."""
        from gputui.allocating.errors import RequestError
        from gputui.cli.common import WrongCallError
        from gputui.cli.experiment import new_experiment
        from gputui.cli.experiment_call import prepared, typed
        from gputui.jobs.again import again
        from gputui.jobs.experiments.store import begin
        from gputui.jobs.queued import experiment_job
        from gputui.launching.start import StartError

        try:
            request = typed(line, again(job).request)
            made = new_experiment(request, prepared(request, lambda text: None))
            started = experiment_job(begin(made, self._environ).id, request, self._environ)
        except (WrongCallError, RequestError, JobError, StartError) as error:
            return f"nothing is started: {error}"
        return f"job {started.id} compares: V shows how far it is"

    def rerun(self, job: Job, app_state: AppState) -> str:
        """Hold the devices of `best_for`, have them read again, and start the job; return a first message."""
        from gputui.jobs.again import again
        from gputui.tui import start_launch

        self.cancel()
        allocation, queue = start_launch.hold_selected(app_state, self._environ)
        reasons = [conflict.text(allocation.snapshot) for conflict in allocation.conflicts]
        reasons += [queue.text()] if queue else []
        if reasons:
            allocation.release()
            return f"nothing is started: {'; '.join(reasons)}"
        pending = _Pending(app_state, allocation, time.monotonic(), again(job).request)
        if not app_state.selected:
            # There is no device to read.
            return self._as_job(pending, app_state.launch)
        self._pending = pending
        self._sampler.ask()
        patience = max(_PATIENCE, 3 * self._sampler.took)
        self._view.app.set_timer(patience, lambda: self._give_up(pending))
        return "checking the selected devices …"

    def cancel(self) -> None:
        """Start no pending rerun, and release its devices."""
        for pending in (self._pending, self._confining):
            if pending is not None:
                pending.allocation.release()
        self._pending = self._confining = None

    def _give_up(self, pending: _Pending) -> None:
        if self._pending is pending:
            self.cancel()
            self._view.show_message("nothing is started: the driver does not answer", "lost")

    def _start(self, pending: _Pending, now: Snapshot) -> None:
        """Start the job unless one of its devices is no longer free."""
        allocation = pending.allocation
        # The rules of the job apply, which may ignore the user's own processes.
        judged = replace(self._view.app_state, rules=pending.app_state.rules).verdicts
        gone = allocation.recheck(now, judged, pending.app_state.verdicts)
        if gone:
            allocation.release()
            text = "; ".join(conflict.text(allocation.snapshot) for conflict in gone)
            self._view.show_message(f"nothing is started: {text}", "lost")
            return
        from gputui.tui import start_launch

        self._confining = pending
        found = partial(self._start_confined, pending)
        start_launch.when_confined(self._view, pending.app_state.with_snapshot(now), self._environ, found)

    def _start_confined(self, pending: _Pending, launch: Launch | GputuiError) -> None:
        if self._confining is not pending:
            return
        self._confining = None
        if isinstance(launch, GputuiError):
            pending.allocation.release()
            self._view.show_message(str(launch), "lost")
            return
        self._view.show_message(self._as_job(pending, launch))

    def _as_job(self, pending: _Pending, launch: Launch) -> str:
        from gputui.tui import start_launch

        text, _ = pending.allocation.start(
            lambda lease: start_launch.as_job(
                launch, self._environ, lease, pending.request, pending.allocation.labels
            )
        )
        warnings = "; ".join(notice.text for notice in pending.allocation.notices)
        return f"{text}; {warnings}" if warnings else text


def problem_of(line: str) -> str | None:
    """The error in the words of a comparison, None where they are valid."""
    from gputui.allocating.errors import RequestError
    from gputui.cli.common import WrongCallError
    from gputui.cli.experiment_call import typed
    from gputui.jobs.experiments.axes import variants
    from gputui.requesting.launch_request import LaunchRequest

    try:
        variants(typed(line, LaunchRequest(LaunchOptions())).axes)
    except (WrongCallError, RequestError) as error:
        return str(error)
    return None
