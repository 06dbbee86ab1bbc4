"""The jobs of simulated other boxes, for the demo: those of their snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.jobs.of_boxes import BoxJob, BoxJobs, JobsOfBoxes, LogEnd
from gputui.sources.hosts.channel import BoxState
from gputui.sources.hosts.ssh import Way


class JobsOfSimulatedBoxes(JobsOfBoxes):
    """Asks nobody. `boxes` gives the boxes as they are now."""

    def __init__(self, boxes: Callable[[], Sequence[BoxState]]) -> None:
        super().__init__((), Way(1))
        self._boxes = boxes
        self._of_now: BoxJob | None = None

    @property
    def states(self) -> tuple[BoxJobs, ...]:
        return tuple(map(_jobs_of, self._boxes()))

    def look_at(self, job: BoxJob | None) -> None:
        self._of_now = job

    @property
    def log(self) -> LogEnd | None:
        job = self._of_now
        return None if job is None else LogEnd(job.name, job.summary.tail)


def _jobs_of(state: BoxState) -> BoxJobs:
    snapshot = state.reading.snapshot if state.reading else None
    if snapshot is None:
        return BoxJobs(state.alias, error=state.error)
    by_key = snapshot.by_key
    jobs = tuple(
        BoxJob(
            state.alias,
            job,
            ",".join(snapshot.label(by_key[key]) for key in job.keys if key in by_key),
            job.title,
        )
        for job in snapshot.jobs
    )
    return BoxJobs(state.alias, jobs, error=state.error, since=snapshot.time)
