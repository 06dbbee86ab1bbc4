"""Finds who keeps a lease when the command that it was taken for has ended.

A lease lives as long as the last process that has inherited it, which need not be the command: a tmux server
that was started in it may outlive the command, and so may whatever a script has left in the background.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gputui.allocating.claims.folder import Problems
from gputui.allocating.claims.read import records
from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import dataclass
from gputui.system.file_locks import File, holders, locked_by, name_of


@dataclass(frozen=True, slots=True)
class Keeper:
    """A process that keeps a lease, by pid and name."""

    pid: int
    name: str


def keepers(claims: Sequence[Claim], environ: Mapping[str, str]) -> dict[Claim, tuple[Keeper, ...]]:
    """Who keeps the claims whose command has ended; () where those processes are not ours to see.

    A claim whose command still has it is left out, and so is one whose command is in another pid namespace.
    """
    files = _records(claims, environ)
    ended = {claim: file for claim, file in files.items() if claim.pid is not None and not _has(claim, file)}
    if not ended:
        return {}
    paths = {file[0]: file[1] for file in ended.values()}
    found = holders(paths)
    return {
        claim: tuple(
            Keeper(pid, name)
            for pid, held in sorted(found.items())
            if file in held and (name := name_of(pid))
        )
        for claim, (file, _) in ended.items()
    }


def _has(claim: Claim, file: tuple[File, str]) -> bool:
    """Whether the process that a claim names still has it; where we may not see that, whether it exists."""
    pid = claim.pid or 0
    if locked_by(pid, {file[0]: file[1]}):
        return True
    try:
        os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except PermissionError:
        return True
    except OSError:
        # Without /proc nobody can tell.
        return not os.path.exists("/proc/self/fd")  # noqa: PTH110
    return False


def _records(claims: Sequence[Claim], environ: Mapping[str, str]) -> dict[Claim, tuple[File, str]]:
    """The file of each claim's record that is alive, and its path."""
    wanted = {(claim.key, claim.step, claim.user, claim.since): claim for claim in claims}
    found: dict[Claim, tuple[File, str]] = {}
    for record in records(environ, Problems(), {claim.key for claim in claims}):
        there = record.claim
        claim = wanted.get((there.key, there.step, there.user, there.since))
        if claim is not None:
            found[claim] = record.file, record.path
    return found
