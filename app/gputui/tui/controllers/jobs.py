"""JobsController: reports how our jobs changed, and starts a job's command again: here or as a job."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.named_devices import NONE, short_names
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import TextWriter, printable
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch import Launch
from gputui.launching.terminal_notification import terminal_notification
from gputui.tui.main_view import MainView

if TYPE_CHECKING:
    from gputui.jobs.experiments.record import Experiment
    from gputui.jobs.experiments.request import Comparisons, ExperimentRequest
    from gputui.sources.simulated.source import SimulatedSource
    from gputui.system.environment import Environ
    from gputui.tui.message_log import Message


class JobsController:
    """Reports and starts jobs for the main screen `view`.

    `write` sends a sequence to the terminal; without it, only the message reports. `simulated` is the box of
    a demo, whose own jobs are only rehearsed.
    """

    def __init__(
        self,
        view: MainView,
        comparisons: Comparisons,
        environ: Environ,
        write: TextWriter | None,
        simulated: SimulatedSource | None = None,
    ) -> None:
        self._view, self._environ, self._write = view, environ, write
        self._comparisons, self._simulated = comparisons, simulated
        self.looked_at: Hashable | None = None
        """The job that the page last showed; None for the first job of the list at that time."""
        self._told: Message | None = None
        """The last message that has decided where the page opens."""
        self._started: str | None = None
        """The id of the job that was started last, until the page has taken it."""

    # Changes of jobs

    def after_reading(self, before: Snapshot | None, now: Snapshot) -> None:
        """Report changes after each reading that the view shows."""
        if before is not now and (now.jobs or (before is not None and before.jobs)):
            # Not imported where the user has no job.
            from gputui.tui.views.jobs import news

            found = news(before, now)
            if found:
                text, shown = "; ".join(text for text, _ in found), self._view.message
                # That a job has started is no longer worth reading once it has ended.
                same = any(shown.startswith(" ".join(text.split(" ")[:2]) + " ") for text, _ in found)
                style = "" if all(good for _, good in found) else "lost"
                self._view.show_message(text, style, "lasting" if same else "news")
                if self._write is not None:
                    self._write(terminal_notification(text))

    def opens_at(self, ids: Sequence[Hashable]) -> Hashable | None:
        """The one of these jobs that the last message about a job names; where there has been none since the
        page was opened, the job that the page last showed."""
        for message in reversed(self._view.messages):
            if message is self._told:
                break
            words = re.findall(r"\w+", message.text)
            named = [each for each in ids if each in words]
            if named:
                self._told = message
                return named[0]
        return self.looked_at

    # Stopping a job

    def stop(self, job: Job) -> str:
        """Stop a job, which takes as long as it takes to end; return a message, "" where the next reading
        tells it."""
        from gputui.jobs.stop import stop

        if self._simulated is not None and self._simulated.stop(job.id):
            return ""
        try:
            stopped = stop(job)
        except JobError as error:
            return str(error)
        said = stopped.job.over and not stopped.job.killed and not self._view.app_state.label
        return "" if said else stopped.message

    def leave_line(self, job_id: str) -> str:
        """Stop a job that waits for devices; return a message. A job that has got its devices goes on."""
        from gputui.jobs.store import all_jobs

        try:
            # What was stored just now is newer than the last reading.
            known = {job.id: job for job in (*self._view.app_state.box.jobs, *all_jobs(self._environ))}
        except JobError as error:
            return str(error)
        job = known.get(job_id)
        if job is None:
            return f"job {printable(job_id)} is not one of this machine's jobs"
        if job.state not in ("starting", "waiting"):
            return f"job {job_id} no longer waits: D shows it"
        return self.stop(job) or f"job {job_id} has left the queue"

    # Starting a job again

    def on_launch_line(self, job: Job, example: bool) -> str:
        """Put a job's command, options and directory on the launch line; return a message about it. An
        `example` is a job of a demo, which is only rehearsed from there, too."""
        from gputui.jobs.rerun import rerun_of

        kept = rerun_of(job)
        now = replace(self._view.app_state, options=kept.request.options)
        # The next reading reads the command's request for devices.
        self._view.set_app_state(replace(now, example=now.options.command) if example else now)
        lacks = kept.lacks(self._environ)
        told = f"the command of job {job.id} is on the launch line"
        return f"{told}; {lacks}" if lacks else told

    def best_for(self, job: Job) -> tuple[str | None, str]:
        """The best devices that are free now for a rerun of a job: as `--gpus` has them, and in words; or
        None, and why it cannot be started."""
        from gputui.jobs.rerun import rerun_of

        why = self.not_again(job)
        if why is not None:
            return None, why
        kept = rerun_of(job)
        asked = kept.request.devices
        now = self._view.app_state
        none_selected = replace(now.clear(), options=kept.request.options).with_rules(asked.rules(now.rules))
        if asked.count is None:
            return NONE, "CPU only"
        limits = {name: getattr(asked, name) for name in ("min_free", "max_util", "vendor")}
        selected, reason = none_selected.select_best(
            asked.count, asked.group or ALL_REDUCE, order=asked.order or "best", **limits
        )
        if not selected.selection:
            return None, f"{reason}; gputui jobs rerun {job.id} --wait waits for them"
        return ",".join(short_names(selected.selection.keys, selected.box)), selected.selected_in_words

    # Variants of a job

    def not_again(self, job: Job) -> str | None:
        """Why a job's command and variants of it cannot be started here, None where they can."""
        from gputui.jobs.rerun import rerun_of, runs_experiment

        if runs_experiment(job):
            return f"job {job.id} runs variants or tasks already: v is for one of them"
        kept = rerun_of(job)
        if kept.request.devices.demo != self._view.app_state.demo:
            return f"job {job.id} runs on a demo: gputui jobs rerun {job.id} starts it there again"
        return kept.lacks(self._environ)

    def comparison(self, job: Job, line: str) -> tuple[ExperimentRequest, Experiment]:
        """The comparison of variants of a job's command, which is not recorded yet. Raises GputuiError."""
        from gputui.jobs.rerun import rerun_of

        return self._comparisons(line, rerun_of(job).request)

    def compare(self, request: ExperimentRequest, made: Experiment) -> str:
        """Start a comparison as a job; return a message about it."""
        from gputui.jobs.experiments.store import begin
        from gputui.jobs.queued import experiment_job

        try:
            started = experiment_job(begin(made, self._environ), request, self._environ)
        except GputuiError as error:
            return f"nothing is started: {error}"
        self._started = started.id
        return f"job {started.id} compares: ⏎ shows the results so far"

    def rerun(self, job: Job, devices: str, where: str) -> str:
        """Start a job again on the devices of `best_for`, if all are still free; return a message."""
        told, started = self._start_again(job, "--quiet", "--if-free", "--gpus", devices)
        return "; ".join(filter(None, (f"job {started} started on {where}", told))) if started else told

    def repeat(self, job: Job) -> str:
        """Start the experiment of a job again; return a message about it."""
        return self._start_again(job)[0]

    def _start_again(self, job: Job, *options: str) -> tuple[str, str | None]:
        """Call `gputui jobs rerun`, which takes a moment; return its last message, and the id of the new job,
        None where there is none."""
        from gputui.jobs.box_calls import called
        from gputui.jobs.own_call import this_gputui

        good, started, told = called(Launch(this_gputui(("jobs", "rerun", job.id, *options))), self._environ)
        if good:
            self._started = started
        return told, started if good else None

    def take_started(self) -> str | None:
        """The job that a key of the page has started, once."""
        started, self._started = self._started, None
        return started
