"""A claim: a lease on a device, held by the kernel for as long as a job's processes live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.inventory.light_dataclasses import field, frozen

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Moment


@frozen
class Claim:
    """The holder of a device, as far as the claim can be trusted.

    key       the device's UUID
    user      the owner of the record, from the system; all other facts are the holder's own, untrusted
    since     seconds since the epoch
    command   its program and script: no option or argument, any of which may be a secret
    pid       the process that took it, in its own pid namespace
    job       the id of the job, None for a launch that is not a job
    ended     whether the process with that pid has ended: a process that it left behind keeps the claim
    step      0 for a lease on its own, 1 for a step inside a lease, 2 for a step inside such a step …
    ours      whether this process runs inside it: it has inherited the lease, and may divide it into steps
    own       whether its holder is our own user, from the system
    roots     the processes whose descendants belong to the job, its command and its supervisor: their pids
              and starts (`Identity`)
    pids      its processes, of those that were seen on devices at the last look-up; None where that cannot be
              known
    until     when the job ends at the latest, in seconds since the epoch; None where it does not say
    client    the agent that asked for it, None for a person or a script
    record    the path of the file that describes it, None where the file is not on this box
    """

    key: str
    user: str
    since: Moment | None = None
    command: str | None = None
    pid: int | None = None
    job: str | None = None
    ended: bool = False
    step: int = 0
    ours: bool = False
    own: bool = field(default=False, compare=False)
    roots: tuple[tuple[int, int], ...] = ()
    pids: tuple[int, ...] | None = None
    until: Moment | None = None
    client: str | None = None
    record: str | None = field(default=None, compare=False)
