"""The devices that the user's own jobs use, so that all views show them as the user's own. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.choosing.verdict import Cause, ClaimedBy, MemoryHeld, UsedBy, Utilized, Verdict
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    from gputui.inventory.job import Job


def own_job_on(snapshot: Snapshot, verdict: Verdict, key: str, shared: bool = False) -> Job | None:
    """The user's own running job that fully explains a device's state; None where there is none.

    None also where the job runs on other devices than this one. Where anybody else is on the device, or may
    be, that is more important to show: the job is returned only if `shared`.
    """
    job = next((job for job in snapshot.jobs if job.state == "running" and key in job.keys), None)
    cause = verdict.cause
    if job is None or verdict.state in ("lost", "unknown"):
        return None
    if isinstance(cause, ClaimedBy) and cause.runs_on:
        return None
    return job if shared or _explains(job, cause, snapshot, key) else None


def _explains(job: Job, cause: Cause, snapshot: Snapshot, key: str) -> bool:
    """Whether nobody but the job is on the device, as far as can be seen."""
    if isinstance(cause, ClaimedBy):
        return cause.claim.own or cause.claim.job == job.id
    if not isinstance(cause, UsedBy):
        # The processes of one's own job can be seen.
        return not isinstance(cause, MemoryHeld | Utilized)
    own = next((claim for claim in snapshot.claims if claim.key == key and claim.job == job.id), None)
    if own is not None and own.pids is not None:
        return cause.unclaimed_use is None and all(each.pid in own.pids for each in cause.processes)
    claim = own or snapshot.claimed.get(key)
    # A user without a note has not been looked up yet.
    strangers = claim and any(p.user != claim.user and (p.user or p.note) for p in cause.processes)
    return cause.unclaimed_use is None and not strangers
