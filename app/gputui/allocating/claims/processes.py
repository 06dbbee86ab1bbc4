"""Finds the claim that each listed process belongs to, and therefore the devices on which a job really runs.

A process belongs to a claim if the process itself or one of its ancestors

- is a root of the claim: its command, or its job's supervisor,
- is in the session that a root has made (each job has a session of its own), or
- has inherited the claim's record, open; this can be seen for our own user's processes only.

Only the listed processes and their ancestors are looked up, so all others cost nothing, and only for a
limited time (lock_holders.py), our own user's first: then the processes of a user's claims are not known.
Nothing is guessed: pids of another namespace, and roots whose pid now belongs to another process, belong to
no claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import inf

from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.system.lock_holders import Look, opened
from gputui.system.namespaces import in_initial_namespace
from gputui.system.process_stat import ProcessStat, owner_of, process_stat
from gputui.system.users import user_name

_MOST_ANCESTORS = 64
_CLOCKS_DIFFER = 60.0
"""Seconds by which the start of a process may seem too early, because it is counted from the boot."""


_Holder = tuple[str, tuple[tuple[int, int], ...]]
"""A job that holds devices: the common content of all its records, its user and its roots."""


class System:
    """The queries to the operating system; a test gives other answers."""

    stat: Callable[[int], ProcessStat | None] = staticmethod(process_stat)
    owner: Callable[[int], int | None] = staticmethod(owner_of)

    opened: Callable[[int], Iterable[tuple[str, str]]] = staticmethod(opened)


class ClaimProcesses:
    """Looks up the claims that processes belong to.

    Each process is looked up once, and again when there are new claims. Results stay true: the ancestors of a
    process do not change, though they may have ended since.
    """

    def __init__(self, system: System | None = None) -> None:
        self._system = system or System()
        self._holders = set[_Holder]()
        self._known = dict[tuple[int, float | None], set[_Holder]]()
        self._found = dict[_Holder, tuple[int, ...]]()

    def last(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """Return the claims with the pids that were found last; asks nothing."""
        return tuple(replace(claim, pids=self._found.get(_holder(claim))) for claim in claims)

    def of(self, claims: Sequence[Claim], devices: Iterable[Device]) -> tuple[Claim, ...]:
        """Return the claims, each with the pids of its processes among those on the devices."""
        holders = {_holder(claim) for claim in claims if claim.roots}
        self._found = {}
        if holders and in_initial_namespace():
            self._find(claims, holders, devices)
        return self.last(claims)

    def _find(self, claims: Sequence[Claim], holders: set[_Holder], devices: Iterable[Device]) -> None:
        # Those that exist in our pid namespace, each once.
        processes = {(p.pid, p.started): p for d in devices for p in d.processes or () if p.note is None}
        # Processes that may belong to new claims are looked up again.
        new = holders - self._holders
        since = _first(claim for claim in claims if _holder(claim) in new) if new else inf
        way_up = _WayUp(self._system, claims)
        members: dict[_Holder, list[int]] = {holder: [] for holder in holders}
        known, unfinished = {}, set[str | None]()
        for key, process in sorted(processes.items(), key=lambda each: not each[1].own):
            if process.started is None:
                continue
            belongs = self._known.get(key) if process.started < since else None
            if belongs is None:
                belongs = way_up.holders_of(process.pid, process.started)
            if belongs is None:
                unfinished.add(process.user)
                continue
            known[key] = belongs
            for holder in belongs & holders:
                members[holder].append(process.pid)
        self._known, self._holders = known, holders
        for holder, pids in members.items():
            if holder[0] in unfinished:
                continue
            if pids or any(way_up.is_root(*root, holder) for root in holder[1]):
                self._found[holder] = tuple(sorted({*pids}))


def _holder(claim: Claim) -> _Holder:
    return claim.user, claim.roots


def _first(claims: Iterable[Claim]) -> float:
    """Return when the first of these claims began; no process that started before can belong to them."""
    return min(claim.since or 0.0 for claim in claims) - _CLOCKS_DIFFER


class _WayUp:
    """The ancestors of the processes of one reading, each looked up once."""

    def __init__(self, system: System, claims: Sequence[Claim]) -> None:
        self._system = system
        self._stat = cache(system.stat)
        self._look = Look(system.opened)
        self._seen = dict[int, set[_Holder]]()
        self._roots = defaultdict[int, list[tuple[int, _Holder]]](list)
        for claim in claims:
            for pid, ticks in claim.roots:
                self._roots[pid].append((ticks, _holder(claim)))
        # (Others may have files of the same name.)
        self._records: dict[tuple[str, str | None], Claim] = {
            (claim.record.rpartition("/")[2], claim.user): claim for claim in claims if claim.record
        }
        self._users = {claim.user for claim in claims}
        self._since = _first(claims)

    def _user(self, pid: int) -> str | None:
        owner = self._system.owner(pid)
        return None if owner is None else user_name(owner)

    def is_root(self, pid: int, ticks: int, holder: _Holder) -> bool:
        """Whether this process really belongs to the job, because any user may write any pid in a record.

        The user must own it, or have started it (sudo); otherwise a user could present another's jobs as
        their own.
        """
        stat = self._stat(pid)
        if stat is None or stat.ticks != ticks:
            return False
        return holder[0] in (self._user(pid), self._user(stat.parent))

    def holders_of(self, pid: int, started: float) -> set[_Holder] | None:
        """Return the jobs that a process belongs to; several, where one was started inside another.

        Return None where the look was at its limit before all were found.
        """
        found = set[_Holder]()
        for _ in range(_MOST_ANCESTORS):
            stat = self._stat(pid) if pid > 1 else None
            if stat is None or self._look.spent:
                break
            if pid not in self._seen:
                # A process cannot have inherited a file that was opened after its start.
                self._seen[pid] = self._belongs(pid, stat.session, started >= self._since)
            found |= self._seen[pid]
            pid = stat.parent
        return None if self._look.spent else found

    def _belongs(self, pid: int, session: int, inherits: bool) -> set[_Holder]:
        """Return the jobs that a process belongs to by itself."""
        found = {holder for ticks, holder in self._roots.get(pid, ()) if self.is_root(pid, ticks, holder)}
        # Those whose root is the leader of its session. (Process groups do not help: all processes of a
        # shell's pipeline share one, and only the first may be the job's.)
        if of_the_leader := self._roots.get(session):
            leader, user = self._stat(session), self._user(pid)
            found |= {
                holder
                for ticks, holder in of_the_leader
                if holder[0] == user and (leader is None or leader.ticks == ticks)
            }
        return found or (self._inherited(pid) if inherits else found)

    def _inherited(self, pid: int) -> set[_Holder]:
        """Return the jobs whose records it has open. Of several for one device, it belongs to the innermost
        step: a step inherits the record of the lease around it only to keep it locked."""
        user = self._user(pid)
        if user not in self._users:
            return set()
        innermost: dict[str, Claim] = {}
        for _, path in self._look.opened(pid):
            claim = self._records.get((path.rpartition("/")[2], user))
            if claim and claim.step >= innermost.get(claim.key, claim).step:
                innermost[claim.key] = claim
        return {_holder(claim) for claim in innermost.values()}
