"""Compares the devices that jobs have claimed with the devices on which they are seen to run. Pure.

A claim says which devices a job was given. A script that sets its own devices, or a launcher that ignores
the given ones, runs on other devices: its claim holds devices for nothing, and it uses devices that nobody
has claimed. This module changes no verdict's state: a claimed device stays claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Json


@frozen
class ClaimedUse:
    """One job's claims and use, as keys of devices: first those of the box, in its order.

    pids      its processes, as far as they are seen on devices
    claimed   all devices that it holds
    used      the devices on which its processes are seen; None where that cannot be known
    outside   the devices of `used` that it has not claimed
    own       whether the job is our own user's
    """

    user: str
    job: str | None
    pid: int | None
    pids: frozenset[int]
    claimed: tuple[str, ...]
    used: tuple[str, ...] | None
    outside: tuple[str, ...] = ()
    own: bool = False

    @property
    def differs(self) -> bool:
        """Whether the job uses a device that it has not claimed.

        A claimed device that is not used is no difference: the job may still be loading its data, or some
        of its ranks have ended.
        """
        return bool(self.outside)

    def has(self, claim: Claim) -> bool:
        """Whether the claim belongs to this job."""
        return (claim.user, claim.job, claim.pid) == (self.user, self.job, self.pid) and (
            claim.key in self.claimed
        )


class UnclaimedUse(NamedTuple):
    """A job that runs on a device which it has not claimed, and the labels of the devices it has claimed.

    `main`: the first process on the device belongs to the job. `own`: the job is our own user's.
    """

    user: str
    job: str | None
    claimed: tuple[str, ...]
    main: bool
    own: bool = False


def claimed_uses(snapshot: Snapshot) -> tuple[ClaimedUse, ...]:
    """Every job that holds devices, in the order of their claims."""
    jobs: dict[object, list[Claim]] = {}
    for claim in snapshot.claims:
        # All claims of a job have its pid. Without a pid that is valid here, the job's id joins its claims;
        # without an id, each claim is a job of its own.
        same = claim.roots or claim.pid or claim.job or claim.key
        jobs.setdefault((claim.user, claim.job, same), []).append(claim)
    seen: dict[int, set[str]] = {}
    for device in snapshot.devices:
        for process in device.computing:
            seen.setdefault(process.pid, set()).add(device.key)
    return tuple(_use(snapshot, claims, [*jobs.values()], seen) for claims in jobs.values())


def differing(snapshot: Snapshot) -> tuple[ClaimedUse, ...]:
    """The jobs that run on devices which they have not claimed."""
    return tuple(use for use in claimed_uses(snapshot) if use.differs)


def _use(
    snapshot: Snapshot,
    claims: Sequence[Claim],
    jobs: Sequence[Sequence[Claim]],
    seen: Mapping[int, AbstractSet[str]],
) -> ClaimedUse:
    """The use of the job with these claims; `seen` has the devices on which each process is seen."""
    main, keys = claims[0], {claim.key for claim in claims}
    pids, used, outside = frozenset(main.pids or ()), set[str](), set[str]()
    for pid in pids & seen.keys():
        used |= seen[pid]
        for key in seen[pid] - keys:
            # A later job inside this one (`gputui run` in its script) may have claimed it.
            inside = (
                other[0].pids or ()
                for other in jobs
                if any(claim.key == key for claim in other) and _since(other) >= _since(claims)
            )
            if not any(pid in other for other in inside):
                outside.add(key)
    return ClaimedUse(
        main.user,
        main.job,
        main.pid,
        pids,
        _keys(snapshot, keys),
        None if main.pids is None else _keys(snapshot, used & (keys | outside)),
        _keys(snapshot, outside),
        main.own,
    )


def _since(claims: Sequence[Claim]) -> float:
    """The time of a job's latest claim, 0 where that is not known."""
    return max(claim.since or 0.0 for claim in claims)


USE_KEYS = "claimed runs_on outside"
USE_KINDS: dict[str, Any] = dict.fromkeys(USE_KEYS.split(), tuple[str, ...] | None)


def use_document(use: ClaimedUse | None) -> Json:
    """The values of `USE_KEYS`: the devices that a job claimed, those it runs on, and those of them that it
    has not claimed.

    Devices are UUIDs; null means "not known".
    """
    if use is None:
        return dict.fromkeys(USE_KEYS.split())
    known = use.used is not None
    return {
        "claimed": list(use.claimed),
        "runs_on": list(use.used or ()) if known else None,
        "outside": list(use.outside) if known else None,
    }


def labels(snapshot: Snapshot, keys: Iterable[str]) -> tuple[str, ...]:
    """The names of devices on this box; a device that the box does not have is named by its key."""
    return tuple(snapshot.label(snapshot.by_key[key]) if key in snapshot.by_key else key for key in keys)


def _keys(snapshot: Snapshot, keys: AbstractSet[str]) -> tuple[str, ...]:
    """The keys in the box's order, then those of other boxes."""
    place = snapshot.position
    return tuple(sorted(keys, key=lambda key: (place.get(key, len(place)), key)))
