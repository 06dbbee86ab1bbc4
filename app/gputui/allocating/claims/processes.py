"""Finds the claim that each listed process belongs to, and therefore the devices on which a job really runs.

A process belongs to a claim if the process itself or one of its ancestors

- is a root of the claim: its command, or its job's supervisor,
- is in the session that a root has made (each job has a session of its own), or
- has inherited the claim's record, open; this can be seen for our own user's processes only.

Only the listed processes and their ancestors are looked up, so all others cost nothing. Nothing is guessed:
pids of another namespace, and roots whose pid now belongs to another process, belong to no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.process import Identity, Process
from gputui.system.lock_holders import opened
from gputui.system.namespaces import in_initial_namespace
from gputui.system.process_stat import ProcessStat, owner_of, process_stat
from gputui.system.users import user_name

_MOST_ANCESTORS = 64
_CLOCKS_DIFFER = 60.0
"""Seconds by which the start of a process may seem too early, because it is counted from the boot."""


@frozen
class _Holder:
    """A job that holds devices: the common content of all its records."""

    user: str
    roots: tuple[Identity, ...]


@frozen
class _Node:
    """A process or an ancestor of one: its parent, and the jobs that it belongs to by itself.

    (It also belongs to the jobs of its ancestors.)
    """

    parent: int
    holders: frozenset[_Holder]


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
        self._holders: frozenset[_Holder] = frozenset()
        self._known: dict[tuple[int, float | None], frozenset[_Holder]] = {}
        self._found: dict[_Holder, tuple[int, ...] | None] = {}

    def last(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """Return the claims with the pids that were found last; asks nothing."""
        return tuple(replace(claim, pids=self._found.get(_holder(claim))) for claim in claims)

    def of(self, claims: Sequence[Claim], devices: Iterable[Device]) -> tuple[Claim, ...]:
        """Return the claims, each with the pids of its processes among those on the devices."""
        holders = frozenset(_holder(claim) for claim in claims if claim.roots)
        self._found = {}
        if holders and in_initial_namespace():
            self._forget(claims, holders)
            self._find(claims, holders, _listed(devices))
        return self.last(claims)

    def _forget(self, claims: Sequence[Claim], holders: frozenset[_Holder]) -> None:
        """Forget the processes that may belong to new claims."""
        new = holders - self._holders
        self._holders = holders
        if not new:
            return
        since = min((c.since or 0.0 for c in claims if _holder(c) in new), default=0.0) - _CLOCKS_DIFFER
        self._known = {key: found for key, found in self._known.items() if key[1] and key[1] < since}

    def _find(
        self, claims: Sequence[Claim], holders: frozenset[_Holder], processes: Collection[Process]
    ) -> None:
        way_up: _WayUp | None = None
        members: dict[_Holder, list[int]] = {holder: [] for holder in holders}
        known = {}
        for process in processes:
            key = process.pid, process.started
            belongs = self._known.get(key)
            if belongs is None:
                way_up = way_up or _WayUp(self._system, claims)
                belongs = way_up.holders_of(process)
            known[key] = belongs
            for holder in belongs & holders:
                members[holder].append(process.pid)
        self._known = known
        for holder, pids in members.items():
            if pids or any(_is_root(self._system, root, holder.user) for root in holder.roots):
                self._found[holder] = tuple(sorted(set(pids)))


def _holder(claim: Claim) -> _Holder:
    return _Holder(claim.user, claim.roots)


def _listed(devices: Iterable[Device]) -> Collection[Process]:
    """Return the processes that exist in our pid namespace, each once."""
    found = {p.pid: p for d in devices for p in d.processes or () if p.note is None and p.started is not None}
    return found.values()


def _user_of(system: System, pid: int) -> str | None:
    owner = system.owner(pid)
    return None if owner is None else user_name(owner)


def _is_root(system: System, root: Identity, user: str, known: ProcessStat | None = None) -> bool:
    """Whether the process with this pid really belongs to the claim, because any user may write any pid in a
    record.

    The user must own it, or have started it (sudo); otherwise a user could present another's jobs as their
    own.
    """
    stat = known or system.stat(root.pid)
    if stat is None or stat.ticks != root.ticks:
        return False
    return user in (_user_of(system, root.pid), _user_of(system, stat.parent))


class _WayUp:
    """The ancestors of the processes of one reading, each looked up once."""

    def __init__(self, system: System, claims: Sequence[Claim]) -> None:
        self._system = system
        self._nodes: dict[int, _Node | None] = {}
        self._roots: dict[int, list[tuple[Identity, _Holder]]] = {}
        for claim in claims:
            for root in claim.roots:
                self._roots.setdefault(root.pid, []).append((root, _holder(claim)))
        # (Others may have files of the same name.)
        self._records: dict[tuple[str, str | None], Claim] = {
            (claim.record.rpartition("/")[2], claim.user): claim for claim in claims if claim.record
        }
        self._users = {claim.user for claim in claims}
        self._since = min((claim.since or 0.0 for claim in claims), default=0.0) - _CLOCKS_DIFFER

    def holders_of(self, process: Process) -> frozenset[_Holder]:
        """Return the jobs that a process belongs to; several, where one was started inside another."""
        found: set[_Holder] = set()
        # A process cannot have inherited a file that was opened after its start.
        inherits = process.started is not None and process.started >= self._since
        pid = process.pid
        for _ in range(_MOST_ANCESTORS):
            node = self._node(pid, inherits)
            if node is None:
                break
            found |= node.holders
            pid = node.parent
        return frozenset(found)

    def _node(self, pid: int, inherits: bool) -> _Node | None:
        """Return the known facts about a process; None for init, the kernel, and a process that has ended."""
        if pid <= 1:
            return None
        if pid not in self._nodes:
            stat = self._system.stat(pid)
            self._nodes[pid] = stat and _Node(stat.parent, frozenset(self._seen(pid, stat, inherits)))
        return self._nodes[pid]

    def _seen(self, pid: int, stat: ProcessStat, inherits: bool) -> set[_Holder]:
        found = {
            holder
            for root, holder in self._roots.get(pid, ())
            if _is_root(self._system, root, holder.user, stat)
        }
        found |= self._made_session(pid, stat.session)
        if not found and inherits:
            found |= self._inherited(pid)
        return found

    def _made_session(self, pid: int, leader: int) -> set[_Holder]:
        """Return the jobs whose root is the leader of the process's session.

        (Process groups do not help: all processes of a shell's pipeline share one, and only the first may be
        the job's.)
        """
        at_its_pid = self._roots.get(leader)
        if not at_its_pid:
            return set()
        stat, user = self._system.stat(leader), _user_of(self._system, pid)
        return {
            holder
            for root, holder in at_its_pid
            if holder.user == user and (stat is None or stat.ticks == root.ticks)
        }

    def _inherited(self, pid: int) -> set[_Holder]:
        """Return the jobs whose records it has open. Of several for one device, it belongs to the innermost
        step: a step inherits the record of the lease around it only to keep it locked."""
        user = _user_of(self._system, pid)
        if user not in self._users:
            return set()
        innermost: dict[str, Claim] = {}
        for _, path in self._system.opened(pid):
            claim = self._records.get((path.rpartition("/")[2], user))
            if claim and claim.step >= innermost.get(claim.key, claim).step:
                innermost[claim.key] = claim
        return {_holder(claim) for claim in innermost.values()}
