"""The requests in line, the obstacles to each, and the users of the devices that are not free. Pure.

Nothing is guessed. Only a device that is cooling down, or whose job has a limit (`--time`), has a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType

from gputui.choosing.capacity import can_never_start, would_do
from gputui.choosing.idleness import is_long, unused_by
from gputui.choosing.pick import Refusals, unmet
from gputui.choosing.rules import DEFAULT_RULES
from gputui.choosing.verdict import Cooling, Divided, Prohibited, UsedBy, Verdict, Verdicts
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.process import earliest
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter


@frozen
class Turn:
    """One waiting request, and the obstacles to it.

    place   1 for the first in line
    ahead   the number of requests before it that could take the same devices; with none it is next. Nobody is
            before one that can never start
    could   the devices that would do if they were free; None inside a lease, where others cannot see it
    free    the devices of `could` that have been free for `ready`, and meet the conditions of the request
    ready   seconds for which as many of them as it needs are known to have been free while it waited
    lacking the other devices of `could` that are free now, each with the condition that it does not meet
    """

    waiter: Waiter
    place: int
    ahead: int = 0
    could: tuple[Device, ...] | None = None
    free: tuple[Device, ...] = ()
    lacking: Refusals = ()
    ready: float = 0.0


@frozen
class Occupied:
    """A device that is not free, and its user, as far as that can be seen.

    own     whether the user is our own
    since   the time of the claim, else of the oldest process, in epoch seconds
    unused  seconds for which the user has had it without using it; None where that is not known
    hoarded whether the user has had it for long without using it
    free_in seconds until it counts as free, where that is known
    """

    device: Device
    verdict: Verdict
    user: str | None = None
    own: bool = False
    claim: Claim | None = None
    since: float | None = None
    unused: float | None = None
    hoarded: bool = False
    free_in: float | None = None

    @property
    def until(self) -> float | None:
        """When its job ends at the latest, in epoch seconds, where the job says so."""
        return self.claim.until if self.claim is not None else None


@frozen
class Outlook:
    """The waiting requests, the first in line first, and the devices that are not free.

    Devices of jobs with a time limit come first, the soonest end first; then those that somebody has without
    using them, which may be asked for; then the others; each in the order of the box. A device that cools
    down keeps its place: no row moves while it is read.
    """

    turns: tuple[Turn, ...]
    occupied: tuple[Occupied, ...]

    @property
    def next(self) -> tuple[Turn, ...]:
        """The requests that have nobody ahead of them."""
        return tuple(turn for turn in self.turns if not turn.ahead)

    @property
    def in_the_way(self) -> tuple[Occupied, ...]:
        """The devices that are not free and that somebody in line could take."""
        wanted = {turn.waiter.devices for turn in self.turns}
        keys = frozenset[str]().union(*(each for each in wanted if each is not None))
        return tuple(each for each in self.occupied if None in wanted or each.device.key in keys)


def outlook(
    snapshot: Snapshot,
    judged: Verdicts,
    idle: Mapping[str, float] = MappingProxyType({}),
    after: float = DEFAULT_RULES.idle,
    free: Mapping[str, float] = MappingProxyType({}),
) -> Outlook:
    """The outlook; `judged` holds the verdicts, `idle` is from `idleness.idle_seconds`; `after` is the rule
    for idleness, `free` has the seconds for which devices have been free, by key."""
    usable = [device for device in snapshot.devices if not _never(judged[device.key])]
    turns = []
    in_vain = {
        asked: can_never_start(waiter, snapshot)
        for asked, waiter in {_asked(each): each for each in snapshot.waiters}.items()
    }
    line = sorted(snapshot.waiters, key=lambda each: each.silent or in_vain[_asked(each)])
    # (Requests that are alike are compared once: of hundreds, each with each other takes seconds.)
    alike = Counter[tuple[object, int]]()
    chances = dict[object, _Chances]()
    for place, waiter in enumerate(line, 1):
        ahead = 0
        if not in_vain[_asked(waiter)]:
            lease, wanted = waiter.step and (waiter.step, waiter.user), _wanted(waiter, snapshot)
            ahead = sum(each for (within, of), each in alike.items() if within == lease and of & wanted)
            alike[lease, wanted] += 1
        turn = Turn(waiter, place, ahead)
        if not waiter.step:
            asked = waiter.devices, waiter.count > 1, waiter.min_free, waiter.max_util
            if asked not in chances:
                chances[asked] = _chances(waiter, usable, snapshot, judged)
            could, good, lacking = chances[asked]
            longest = sorted((free.get(device.key, 0.0) for device in good), reverse=True)
            waited = 0.0 if waiter.since is None else snapshot.time - waiter.since
            ready = min(waited, longest[waiter.count - 1]) if len(good) >= waiter.count else 0.0
            good = tuple(device for device in good if free.get(device.key, 0.0) >= ready)
            turn = replace(turn, could=could, free=good, lacking=lacking, ready=ready)
        turns.append(turn)
    occupied = [
        _occupied(device, judged[device.key], snapshot, idle.get(device.key), after)
        for device in usable
        # What is not offered to programs will not be free for them, either.
        if not judged[device.key].free and device.apart is None
    ]
    return Outlook(
        tuple(turns), tuple(sorted(occupied, key=lambda each: (each.until or inf, not each.hoarded)))
    )


_Chances = tuple[tuple[Device, ...], tuple[Device, ...], Refusals]
"""`Turn.could`, `Turn.free` and `Turn.lacking`."""


def _chances(waiter: Waiter, usable: Sequence[Device], snapshot: Snapshot, judged: Verdicts) -> _Chances:
    could = tuple(device for device in usable if would_do(waiter, device))
    conditions = waiter.min_free, waiter.max_util
    free = [(device, unmet(snapshot, device, *conditions)) for device in could if judged[device.key].free]
    good = tuple(device for device, why in free if why is None)
    return could, good, tuple((device, why) for device, why in free if why is not None)


def _asked(waiter: Waiter) -> object:
    """The facts that decide whether a request can ever start."""
    return waiter.devices, waiter.count, waiter.min_free


def _wanted(waiter: Waiter, snapshot: Snapshot) -> int:
    """The devices that a request could take, a bit for each."""
    if waiter.devices is None or not snapshot.devices:
        return -1
    return sum(1 << place for place, device in enumerate(snapshot.devices) if device.key in waiter.devices)


def _never(verdict: Verdict) -> bool:
    """Whether a device could not be used even if it were idle."""
    return isinstance(verdict.cause, Divided | Prohibited | Fault)


def _occupied(
    device: Device, verdict: Verdict, snapshot: Snapshot, idle: float | None, after: float
) -> Occupied:
    cause, claim = verdict.cause, snapshot.claimed.get(device.key)
    processes = cause.processes if isinstance(cause, UsedBy) else ()
    since = earliest(process.started for process in processes)
    if claim and claim.since is not None and (not processes or processes[0].user == claim.user):
        since = claim.since
    user = processes[0].user if processes else claim.user if claim else None
    own = processes[0].own if processes else claim is not None and claim.own
    if isinstance(cause, Cooling):
        return Occupied(device, verdict, user, own, claim, free_in=cause.left(snapshot.time))
    # Whether or not somebody has watched, nothing runs on a device with only a claim.
    empty = verdict.state == "claimed" and device.processes == ()
    unused = unused_by(user, device, inf if empty else idle, snapshot)
    return Occupied(device, verdict, user, own, claim, since, unused, is_long(unused, after))
