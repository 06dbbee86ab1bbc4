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
from gputui.allocating.claims.read import open_files, range_of, records
from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.system.lock_holders import File, ancestors, file_of, locked_by
from gputui.system.record_locks import locked
from gputui.system.users import user_name
from gputui.vendors.visibility import Environ


@dataclass(frozen=True)
class OwnLease:
    """The lease inside which this process runs; without devices where it runs in none.

    steps        by device, which step this process is inside: 0 for the lease itself (`Claim.step`)
    owners       by device, the users whose records those are: records of others do not count inside
    locks        by device, the inherited descriptors of its records; none where only an ancestor has them
    descriptors  all inherited descriptors that belong to leases: records, folders
    """

    steps: Mapping[str, int]
    owners: Mapping[str, frozenset[str]]
    locks: Mapping[str, tuple[int, ...]]
    descriptors: tuple[int, ...] = ()

    def _counts(self, claim: Claim) -> bool:
        """Whether a claim counts here: another user's claim does not count inside our own lease."""
        owners = self.owners.get(claim.key)
        return owners is None or claim.own or claim.user in owners

    def _has(self, claim: Claim) -> bool:
        """Whether this process runs inside that claim."""
        return claim.step <= self.steps.get(claim.key, -1)

    def is_in_the_way(self, claim: Claim) -> bool:
        """Whether a launch from here cannot have the claim's device."""
        return self._counts(claim) and not self._has(claim)

    def next_step(self, key: str) -> int:
        """The step that a launch on this device is: 0, a lease of its own, for a device outside."""
        return self.steps.get(key, -1) + 1

    def marked(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """The claims that count here, each with whether it is ours."""
        counting = filter(self._counts, claims)
        return tuple(replace(claim, ours=True) if self._has(claim) else claim for claim in counting)


NO_LEASE = OwnLease({}, {}, {})


def own_lease(environ: Environ, found: Iterable[Claim] | None = None) -> OwnLease:
    """The lease inside which this process runs; `found` are the claims, where they have been read already."""
    locks = dict[File, Claim]()
    if found is None:
        found = (each.claim for each in records(seen(environ)))
    for claim in found:
        with contextlib.suppress(OSError):
            facts = os.lstat(claim.record or "")
            # (The owner of the folder of format 1 can move another user's record to a folder of their own.)
            if user_name(facts.st_uid) == claim.user:
                locks[file_of(facts)] = claim
    if not locks:
        return NO_LEASE
    # (Descriptors that we have opened ourselves are closed in the programs that we start.)
    opened = {number: file for number, file in open_files(inheritable=True).items() if number > 2}
    held = {
        descriptor: locks[file]
        for descriptor, file in opened.items()
        if file in locks and _has_locked(descriptor, locks[file])
    }
    paths = {file: claim.record or "" for file, claim in locks.items()}
    if held:
        folders = {file_of(os.lstat(os.path.dirname(paths[opened[number]]))) for number in held}  # noqa: PTH120
        all_descriptors = (number for number, file in opened.items() if file in folders or number in held)
        return _lease(held.values(), held, tuple(sorted(all_descriptors)))
    for pid in ancestors():
        inherited = locked_by(pid, paths, passed_on=True)
        if inherited:
            return _lease([locks[file] for file in inherited], {})
    return NO_LEASE


def _lease(found: Iterable[Claim], held: Mapping[int, Claim], descriptors: tuple[int, ...] = ()) -> OwnLease:
    steps: dict[str, int] = {}
    owners: dict[str, frozenset[str]] = {}
    for claim in found:
        # The innermost step, which is within all the others.
        steps[claim.key] = max(claim.step, steps.get(claim.key, 0))
        owners[claim.key] = owners.get(claim.key, frozenset()) | {claim.user}
    numbers = {key: tuple(sorted(n for n, claim in held.items() if claim.key == key)) for key in steps}
    return OwnLease(steps, owners, numbers, descriptors)


def _has_locked(descriptor: int, claim: Claim) -> bool:
    """Whether the descriptor's open file is the one that has the record of this device locked."""
    path, start = claim.record or "", range_of(claim.key)
    try:
        # A lock that is in everybody's way is not in our own. (It is asked first: a lock may end in between.)
        return locked(descriptor, start, 1) is None and held_file(path, start, 1) is not None
    except (UntrustedFileError, OSError):
        return False
