"""A claim: a lease on a device, held by the kernel for as long as a job's processes live."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """Who holds a device, as far as that can be believed.

    key       the device's UUID
    user      the owner of the record, as the system tells; all else is the holder's own words, untrusted
    since     seconds since the epoch
    command   its program and script: no option or argument, any of which may be a secret
    pid       of the process that took it, in its own pid namespace
    job       the id of the job, None where it is no job
    """

    key: str
    user: str
    since: float | None = None
    command: str | None = None
    pid: int | None = None
    job: str | None = None
