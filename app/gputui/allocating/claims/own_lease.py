"""Finds the lease inside which this process runs: its command inherited it, or one that started the command.

Inside its own lease a launch takes a *step*, as in an allocation of Slurm: a second record of a device that
the lease holds already, which only one step has at once. Its file is `<device>@<uid>.step1.<token>.claim`; of
a step inside a step it is `step2`, and so on. The end of a step unlocks its own record only.

What proves the lease is no variable, which anybody can set, but the lock itself: a descriptor that we have
inherited, and whose open file is the one that has the lock. A process that merely opens the same file gets
another open file, without the lock: then the lock is in its way, and it is not in its holder's. Some programs
close all descriptors that they have not opened (Python's subprocess, sudo, tmux for its panes), so that what
they start inherits none: then the nearest ancestor counts that has such descriptors and passes them on, as
/proc tells. A process without such an ancestor (a daemon, a pane of a tmux server that was there before) is
outside the lease.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping

from gputui.allocating.claims.files import Found, UntrustedFileError, held_file, owner_of, seen
from gputui.allocating.claims.folder import Problems
from gputui.allocating.claims.read import open_files, range_of
from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.system.lock_holders import File, ancestors, file_of, locked_by
from gputui.system.record_locks import locked
from gputui.system.users import user_name


@dataclass(frozen=True)
class OwnLease:
    """The lease inside which this process runs; without devices where it runs in none.

    steps        by device, which step this process is inside: 0 for the lease itself (`Claim.step`)
    owners       by device, the users whose records those are: nobody else has a say in what is inside
    locks        by device, the inherited descriptors of its records; none where only an ancestor has them
    descriptors  all inherited descriptors that belong to leases: records, folders
    """

    steps: Mapping[str, int]
    owners: Mapping[str, frozenset[str]]
    locks: Mapping[str, tuple[int, ...]]
    descriptors: tuple[int, ...] = ()

    def _counts(self, claim: Claim) -> bool:
        """Whether a claim says anything here: one of another user does not inside our own lease."""
        owners = self.owners.get(claim.key)
        return owners is None or claim.own or claim.user in owners

    def _has(self, claim: Claim) -> bool:
        """Whether this process runs inside that claim."""
        return claim.step <= self.steps.get(claim.key, -1)

    def is_in_the_way(self, claim: Claim) -> bool:
        """Whether a launch from here cannot have the claim's device."""
        return self._counts(claim) and not self._has(claim)

    def next_step(self, key: str) -> int:
        """The step that a launch on this device is: 0, a lease of its own, on one outside."""
        return self.steps.get(key, -1) + 1

    def marked(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """The claims that count here, and of each whether it is ours."""
        counting = filter(self._counts, claims)
        return tuple(replace(claim, ours=True) if self._has(claim) else claim for claim in counting)


NO_LEASE = OwnLease({}, {}, {})


def own_lease(environ: Mapping[str, str]) -> OwnLease:
    """The lease inside which this process runs."""
    locks = _files_of_claims(environ)
    if not locks:
        return NO_LEASE
    # (What we have opened ourselves is closed in the programs that we start.)
    opened = {number: file for number, file in open_files(inheritable=True).items() if number > 2}
    held = {
        descriptor: locks[file]
        for descriptor, file in opened.items()
        if file in locks and _has_locked(descriptor, locks[file])
    }
    if held:
        folders = {file_of(os.lstat(each.place.folder)) for each in held.values()}
        all_descriptors = (number for number, file in opened.items() if file in folders or number in held)
        return _lease(held.values(), held, tuple(sorted(all_descriptors)))
    paths = {file: lock.path for file, lock in locks.items()}
    for pid in ancestors():
        found = locked_by(pid, paths, passed_on=True)
        if found:
            return _lease([locks[file] for file in found], {})
    return NO_LEASE


def _lease(found: Iterable[Found], held: Mapping[int, Found], descriptors: tuple[int, ...] = ()) -> OwnLease:
    steps: dict[str, int] = {}
    owners: dict[str, frozenset[str]] = {}
    for lock in found:
        # The innermost step: it is within all the others.
        steps[lock.key] = max(lock.step or 0, steps.get(lock.key, 0))
        uid = owner_of(lock)
        owners[lock.key] = owners.get(lock.key, frozenset()) | (
            {user_name(uid)} if uid is not None else set()
        )
    numbers = {key: tuple(sorted(n for n, lock in held.items() if lock.key == key)) for key in steps}
    return OwnLease(steps, owners, numbers, descriptors)


def _files_of_claims(environ: Mapping[str, str]) -> dict[File, Found]:
    locks: dict[File, Found] = {}
    for found in seen(environ, Problems()).records:
        with contextlib.suppress(OSError):
            if found.step is not None:
                locks[file_of(os.lstat(found.path))] = found
    return locks


def _has_locked(descriptor: int, record: Found) -> bool:
    """Whether the descriptor's open file is the one that has the record of this device locked."""
    start = range_of(record.key)
    try:
        # What is in everybody's way is not in our own. Asked again, as it may have ended between the two.
        return (
            held_file(record.path, start, 1) is not None
            and locked(descriptor, start, 1) is None
            and held_file(record.path, start, 1) is not None
        )
    except (UntrustedFileError, OSError):
        return False
