"""Finds the lease inside which this process runs: inherited by its command, or by an ancestor of the command.

Inside its own lease a launch takes a *step*, as in an allocation of Slurm: a second record of a device that
the lease holds already, which only one step has at a time. Its file is `<device>@<uid>.step1.<token>.claim`;
that of a step inside a step is `step2`, and so on. The end of a step unlocks its own record only.

The proof of the lease is not a variable, which anybody can set, but the lock itself: an inherited descriptor
whose open file is the one that has the lock. A process that merely opens the same file gets another open
file, without the lock: the lock is in the way of that open file, and not in its holder's. Some programs close
all descriptors that they have not opened (Python's subprocess, sudo, tmux for its panes), so that their
children inherit none: then the nearest ancestor counts that has such descriptors and passes them on, as /proc
reports. A process without such an ancestor (a daemon, a pane of an older tmux server) is outside the lease.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping

from gputui.allocating.claims.files import UntrustedFileError, held_file, seen
from gputui.allocating.claims.read import open_files, range_of
from gputui.allocating.claims.read import records as alive
from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.system.environment import Environ
from gputui.system.lock_holders import File, ancestors, file_of, locked_by
from gputui.system.record_locks import locked
from gputui.system.users import user_name


@dataclass(frozen=True)
class OwnLease:
    """The lease inside which this process runs; without claims where it runs in none.

    claims       those inside which it runs: the lease, and its steps
    locks        the device of each inherited descriptor of a record; none where only an ancestor has them
    descriptors  all inherited descriptors that belong to leases: records, folders
    """

    claims: tuple[Claim, ...] = ()
    locks: Mapping[int, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()

    def _counts(self, claim: Claim) -> bool:
        """Whether a claim counts here: another user's claim does not count inside our own lease."""
        owners = {each.user for each in self.claims if each.key == claim.key}
        return not owners or claim.own or claim.user in owners

    def next_step(self, key: str) -> int:
        """The step that a launch on this device is: 0, a lease of its own, for a device outside."""
        return 1 + max((each.step for each in self.claims if each.key == key), default=-1)

    def _has(self, claim: Claim) -> bool:
        """Whether this process runs inside that claim."""
        return claim.step < self.next_step(claim.key)

    def is_in_the_way(self, claim: Claim) -> bool:
        """Whether a launch from here cannot have the claim's device."""
        return self._counts(claim) and not self._has(claim)

    def marked(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """The claims that count here, each with whether it is ours."""
        counting = filter(self._counts, claims)
        return tuple(replace(claim, ours=True) if self._has(claim) else claim for claim in counting)


NO_LEASE = OwnLease()


def own_lease(environ: Environ, found: Iterable[Claim] | None = None) -> OwnLease:
    """The lease inside which this process runs; `found` are the claims, where they have been read already."""
    records = dict[File, Claim]()
    for claim in (each.claim for each in alive(seen(environ))) if found is None else found:
        with contextlib.suppress(OSError):
            facts = os.lstat(claim.record or "")
            # (The owner of the folder of format 1 can move another user's record to a folder of their own.)
            if user_name(facts.st_uid) == claim.user:
                records[file_of(facts)] = claim
    if not records:
        return NO_LEASE
    # (Descriptors that we have opened ourselves are closed in the programs that we start.)
    opened = {number: file for number, file in open_files(inheritable=True).items() if number > 2}
    held = {
        number: record
        for number, file in opened.items()
        if (record := records.get(file)) and _has_locked(number, record)
    }
    if held:
        folders = {file_of(os.lstat(os.path.dirname(claim.record or ""))) for claim in held.values()}  # noqa: PTH120
        descriptors = sorted(number for number, file in opened.items() if file in folders or number in held)
        locks = {number: claim.key for number, claim in sorted(held.items())}
        return OwnLease((*held.values(),), locks, (*descriptors,))
    paths = {file: claim.record or "" for file, claim in records.items()}
    for pid in ancestors():
        if inherited := locked_by(pid, paths, passed_on=True):
            return OwnLease((*map(records.__getitem__, inherited),))
    return NO_LEASE


def _has_locked(descriptor: int, claim: Claim) -> bool:
    """Whether the descriptor's open file is the one that has the record of this device locked."""
    path, start = claim.record or "", range_of(claim.key)
    try:
        # A lock that is in everybody's way is not in our own. (It is asked first: a lock may end in between.)
        return locked(descriptor, start, 1) is None and held_file(path, start, 1) is not None
    except (UntrustedFileError, OSError):
        return False
