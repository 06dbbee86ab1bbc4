"""Finds the processes that keep a lease after the command that it was taken for has ended.

A lease lives as long as the last process that has inherited it, which need not be the command: a tmux server
that was started by the command may outlive it, and so may anything that a script has left in the background.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import frozen
from gputui.system.lock_holders import File, Look, file_of, holders, locked_by, name_of
from gputui.system.process_stat import exists


@frozen
class Keeper:
    """A process that keeps a lease, by pid and name."""

    pid: int
    name: str


def keepers(claims: Sequence[Claim]) -> dict[Claim, tuple[Keeper, ...]]:
    """Return the processes that keep claims whose command has ended; () where we may not see them, or where
    they are another user's than the claim's.

    A claim whose command still has it is left out, and so is one whose command is in another pid namespace,
    and one of which nothing was found before the look was at its limit.
    """
    ended, files, uids, look = dict[Claim, File](), dict[File, str](), set[int](), Look()
    for claim in claims:
        with contextlib.suppress(OSError):
            if claim.record is not None and claim.pid is not None:
                facts = os.lstat(claim.record)
                file = file_of(facts)
                if not _has(claim.pid, {file: claim.record}, look):
                    ended[claim], files[file] = file, claim.record
                    uids.add(facts.st_uid)
    found = sorted(holders(files, uids, look).items()) if files else []
    kept = {
        claim: tuple(Keeper(pid, name) for pid, held in found if file in held and (name := name_of(pid)))
        for claim, file in ended.items()
    }
    return {claim: by for claim, by in kept.items() if by} if look.spent else kept


def _has(pid: int, record: Mapping[File, str], look: Look) -> bool:
    """Whether the process that a claim names still has it; where we may not see that, whether it exists."""
    has = bool(locked_by(pid, record, look=look))
    return has or (not os.access(f"/proc/{pid}/fd", os.R_OK) and exists(pid))
