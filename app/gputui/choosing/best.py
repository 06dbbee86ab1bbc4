"""The best devices for a job, and their order: ranked, each with its reason in words. Pure.

How sets are compared is said in `sets.py`, how they are ordered in `order.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import arranged, weakest_as_ordered
from gputui.choosing.pairs import Pairs
from gputui.choosing.reasons import behind, reason
from gputui.choosing.sets import Found, ranked
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

MOST = 6
"""Sets that are told: the best, and alternatives to walk through."""


@dataclass(frozen=True, slots=True)
class Best:
    """Devices in the order in which they serve the job best.

    `weakest` is the weakest link that the job runs over, None where there is none or it is not known.
    `exact`: there is no better set; else a good one, in a box too large to look at every set.
    """

    devices: tuple[Device, ...]
    weakest: str | None
    reason: str
    exact: bool


def best(
    snapshot: Snapshot,
    candidates: Sequence[Device],
    count: int,
    job: Grouping = ALL_REDUCE,
    required: Collection[str] = (),
    most: int = MOST,
) -> tuple[Best, ...]:
    """The best sets of `count` of the candidates, which are in the box's order; () where there are too few.

    Sets that differ only by devices that are all the same to the comparison count as one. `required`
    (`Device.key`s) are in every set. `count` must fit the job (`Grouping.fits`).
    """
    pairs = Pairs.of(snapshot, candidates)
    places = [place for place, device in enumerate(candidates) if device.key in required]
    ranking = list(islice(ranked(pairs, count, job, places), most))
    return tuple(_told(pairs, each, job, ranking[0]) for each in ranking)


def as_ordered(
    snapshot: Snapshot,
    candidates: Sequence[Device],
    devices: Sequence[Device],
    job: Grouping,
    named: bool = False,
) -> Best:
    """What there is to say of some of the candidates in an order that is not ours."""
    pairs = Pairs.of(snapshot, candidates)
    keys = [device.key for device in candidates]
    order = [keys.index(device.key) for device in devices]
    weakest = weakest_as_ordered(pairs, order, job)
    found = Found(tuple(sorted(order)), weakest, exact=False)
    return Best(tuple(devices), pairs.word_of(order, weakest), reason(pairs, found, job, named), exact=False)


def _told(pairs: Pairs, found: Found, job: Grouping, first: Found) -> Best:
    why = reason(pairs, found, job)
    return Best(
        devices=tuple(pairs.devices[place] for place in arranged(pairs, found, job)),
        weakest=pairs.word_of(found.members, found.weakest),
        reason=why if found is first else f"{why}; {behind(pairs, job, first, found)}".removeprefix("; "),
        exact=found.exact,
    )
