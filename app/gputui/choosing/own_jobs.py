"""The devices that the user's own jobs use, so that all views show them as the user's own. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.choosing.verdict import ClaimedBy, UsedBy, Verdict
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    from gputui.inventory.job import Job


def own_job_on(snapshot: Snapshot, verdict: Verdict, key: str) -> Job | None:
    """The user's own running job that fully explains a device's state; None where there is none.

    None also where the job runs on other devices than this one, or shares it with another user's process:
    that is more important to show.
    """
    job = next((job for job in snapshot.jobs if job.state == "running" and key in job.keys), None)
    if job is None or verdict.state in ("lost", "unknown"):
        return None
    claim, cause = snapshot.claimed.get(key), verdict.cause
    if isinstance(cause, UsedBy):
        strangers = claim is not None and any(p.user not in (None, claim.user) for p in cause.processes)
        return job if not strangers and cause.unclaimed_use is None else None
    return None if isinstance(cause, ClaimedBy) and cause.runs_on else job
