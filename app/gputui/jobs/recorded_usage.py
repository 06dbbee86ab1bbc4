"""The recorded usage of jobs: what their devices did while they ran."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import replace
from gputui.system.environment import Environ
from gputui.timeline.usage import recorded


def with_usage(jobs: Sequence[Job], environ: Environ) -> list[Job]:
    """Return the jobs with what was recorded of the energy, utilization and memory of their devices."""
    began = [job.began or job.created for job in jobs if job.devices and job.box is None]
    if not began:
        return [*jobs]
    until = max(job.ended or time.time() for job in jobs)
    found = {names["job"]: each for names, each in recorded(environ, min(began), until, "job").rows("job")}
    return [
        replace(
            job, energy=each.joules, utilization=each.utilization, peak_memory=each.peak or job.peak_memory
        )
        if job.box is None and (each := found.get(job.id)) is not None and each.held
        else job
        for job in jobs
    ]
