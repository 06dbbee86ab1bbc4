"""The best sets of devices for a grouping, ranked, each in its best order and with its reason. Pure.

`sets.py` compares sets, `order.py` orders the devices of one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import arrange, weakest_in_order
from gputui.choosing.pair_scores import PairScores
from gputui.choosing.reasons import reason, why_behind
from gputui.choosing.sets import RankedSet, ranked
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot

MAX_ALTERNATIVES = 6
"""The number of sets that are returned: the best one, and others for the user to look through."""


@frozen
class Alternative:
    """One of several suitable sets: its devices in order, and the reason in words.

    `weakest` is the weakest link that the grouping uses, None where it uses none or the link is not known.
    """

    devices: tuple[Device, ...]
    weakest: str | None
    reason: str


def best(
    snapshot: Snapshot,
    candidates: Sequence[Device],
    count: int,
    grouping: Grouping = ALL_REDUCE,
    required: Collection[str] = (),
    limit: int = MAX_ALTERNATIVES,
) -> tuple[Alternative, ...]:
    """At most `limit` sets of `count` candidates, the best first; () where there are too few candidates.

    The candidates are in the box's order. Sets that differ only by interchangeable devices are returned once.
    Devices whose key is in `required` are in every set. `count` must fit the grouping
    (`Grouping.fits`).
    """
    pairs = PairScores.of(snapshot, candidates)
    places = [place for place, device in enumerate(candidates) if device.key in required]
    ranking = list(islice(ranked(pairs, count, grouping, places), limit))
    return tuple(_alternative(pairs, each, grouping, ranking[0]) for each in ranking)


def describe_order(
    snapshot: Snapshot,
    candidates: Sequence[Device],
    devices: Sequence[Device],
    grouping: Grouping,
    named: bool = False,
) -> Alternative:
    """Some of the candidates in an order that the caller gives, with its weakest link and reason.

    `named`: the user has named the devices individually, so the reason does not compare them with others.
    """
    pairs = PairScores.of(snapshot, candidates)
    keys = [device.key for device in candidates]
    order = [keys.index(device.key) for device in devices]
    weakest = weakest_in_order(pairs, order, grouping)
    found = RankedSet(tuple(sorted(order)), weakest)
    return Alternative(
        tuple(devices), pairs.link_of_rank(order, weakest), reason(pairs, found, grouping, named)
    )


def _alternative(pairs: PairScores, found: RankedSet, grouping: Grouping, first: RankedSet) -> Alternative:
    why = reason(pairs, found, grouping)
    if found is not first:
        why = f"{why}; {why_behind(pairs, grouping, first, found)}".removeprefix("; ")
    return Alternative(
        devices=tuple(pairs.devices[place] for place in arrange(pairs, found, grouping)),
        weakest=pairs.link_of_rank(found.members, found.weakest),
        reason=why,
    )
