"""The jobs of simulated other boxes, for the demo, taken from the boxes' snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.box_jobs import BoxJobs, JobsOfBoxes, LogEnd
from gputui.sources.hosts.channel import BoxState
from gputui.sources.hosts.ssh import Way


class JobsOfSimulatedBoxes(JobsOfBoxes):
    """Reads the jobs from the simulated boxes and asks no box. `boxes` returns the boxes as they are now."""

    def __init__(self, boxes: Callable[[], Sequence[BoxState]]) -> None:
        super().__init__((), Way(1))
        self._boxes = boxes
        self._of_now: Job | None = None

    @property
    def states(self) -> tuple[BoxJobs, ...]:
        return tuple(map(_jobs_of, self._boxes()))

    def look_at(self, job: Job | None) -> None:
        self._of_now = job

    @property
    def log(self) -> LogEnd | None:
        job = self._of_now
        return None if job is None else LogEnd(job.address, job.tail)


def _jobs_of(state: BoxState) -> BoxJobs:
    snapshot = state.snapshot
    if snapshot is None:
        return BoxJobs(state.alias, error=state.error)
    jobs = tuple(replace(job, box=state.alias) for job in snapshot.jobs)
    return BoxJobs(state.alias, jobs, error=state.error, since=snapshot.time)
