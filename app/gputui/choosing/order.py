"""Orders the devices of a set: the n-th is rank n of a launch with one process per device. Pure.

Tensor-parallel groups have consecutive ranks, so the devices of a group are adjacent; then the stages of a
pipeline are placed next to each other. Where no order is better, as behind NVSwitches, the box's order stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, pairwise
from typing import Literal, get_args

from gputui.choosing.grouping import Grouping
from gputui.choosing.pair_scores import PairScores, SubsetSums
from gputui.choosing.ring_search import (
    MAX_EXACT,
    Rank,
    bit_positions,
    joined,
    partitions,
    path_through,
    strongest,
)
from gputui.choosing.sets import RankedSet
from gputui.choosing.speed import slowness
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB

Order = Literal["best", "given", "fastest", "emptiest"]
ORDERS: tuple[Order, ...] = get_args(Order)

_MAX_PARTITIONS, _MAX_PARTITIONS_OF_MANY = 105, 24
"""The most partitions into groups that are compared; then the best one so far is used.

Eight devices can be parted into pairs in 105 ways, so all partitions of up to eight devices are compared. Of
larger sets only the first partitions are compared, which have the best-connected groups; every partition has
groups whose weakest link is the best possible."""

_Group = tuple[int, ...]


def fullness(device: Device) -> tuple[int, ...]:
    """A sort key, emptiest first: free memory, then utilization. Unknown counts as fullest.

    Memory is rounded to GiB, as a few MiB should not decide.
    """
    free = 1 if device.memory_free is None else -round(device.memory_free / GIB)
    return free, 101 if device.utilization is None else device.utilization


SORT_KEYS: dict[Order, Callable[[Device], tuple[int, ...]]] = {"fastest": slowness, "emptiest": fullness}
"""The orders that compare single devices, with their sort keys; `pick` also selects devices with them."""


def sorted_by(order: Order, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices in one of the orders of `SORT_KEYS`; equal ones keep their order."""
    return tuple(sorted(devices, key=SORT_KEYS[order]))


def weakest_in_order(pairs: PairScores, order: Sequence[int], grouping: Grouping) -> int | None:
    """The rank of the weakest link that the grouping uses in this order of places; None for no links."""
    if grouping.independent or len(order) < 2 or not grouping.fits(len(order)):
        return None
    if grouping.tensor > 1:
        return min(strongest(pairs.rank, part) or 0 for part in _batched(tuple(order), grouping.tensor))
    if grouping.pipeline > 1:
        abreast = len(order) // grouping.pipeline
        return min(pairs.rank[a][b] for a, b in zip(order, order[abreast:], strict=False))
    return strongest(pairs.rank, order)


def arrange(pairs: PairScores, found: RankedSet, grouping: Grouping) -> tuple[int, ...]:
    """The places of a set in the best order for the grouping; ascending where no order is better."""
    if found.weakest is None or len(found.members) < 3:
        return found.members
    if grouping.tensor > 1:
        return _groups(pairs, found, grouping)
    if grouping.pipeline > 1:
        return _stages(pairs, found, grouping)
    return _path(pairs.rank, found.members, found.weakest, closed=True)


def _path(rank: Rank, members: _Group, least: int, closed: bool) -> _Group:
    """The members as a path (`closed`: a ring) of links of rank `least` or better; as given if possible."""
    ends = [*pairwise(members), *([(members[-1], members[0])] if closed else [])]
    if len(members) > MAX_EXACT or all(rank[a][b] >= least for a, b in ends):
        return members
    path = path_through([[rank[i][j] for j in members] for i in members], least, closed)
    return members if path is None else tuple(members[place] for place in path)


def _stages(pairs: PairScores, found: RankedSet, grouping: Grouping) -> _Group:
    """The members stage by stage; the n-th devices of all stages form a chain."""
    assert found.weakest is not None
    members, least = found.members, found.weakest
    abreast = len(members) // grouping.pipeline
    if all(pairs.rank[a][b] >= least for a, b in zip(members, members[abreast:], strict=False)):
        return members
    parts = found.parts or next(_partitions(pairs, members, grouping.pipeline, least, chain=True), ())
    lines = [_path(pairs.rank, part, least, closed=False) for part in parts]
    return tuple(line[stage] for stage in range(grouping.pipeline) for line in lines) or members


def _partitions(
    pairs: PairScores, members: _Group, size: int, least: int, chain: bool
) -> Iterator[tuple[_Group, ...]]:
    """The partitions of the members into rings or chains of `size` over links of rank `least` or better."""
    if len(members) > MAX_EXACT:
        return
    inside = pairs.subset(members)
    parts = joined(inside.rank, least, size, chain)
    for path in partitions(parts, len(members), len(members) // size, SubsetSums(inside).score):
        yield tuple(tuple(members[place] for place in bit_positions(part)) for part in path)


def _groups(pairs: PairScores, found: RankedSet, grouping: Grouping) -> _Group:
    """The members by tensor-parallel group, with the best links between neighbouring pipeline stages."""
    assert found.weakest is not None
    if found.parts:
        plain = tuple(_batched(found.members, grouping.tensor))
        good = all((strongest(pairs.rank, part) or 0) >= found.weakest for part in plain)
        grown = tuple(sorted(tuple(sorted(part)) for part in found.parts))
        partitions_to_try = iter([plain, grown] if good else [grown])
    else:
        partitions_to_try = _partitions(pairs, found.members, grouping.tensor, found.weakest, chain=False)
    most = _MAX_PARTITIONS if len(found.members) <= 8 else _MAX_PARTITIONS_OF_MANY
    ways = [
        (*_laid_out(pairs, groups, grouping.pipeline), sum(map(pairs.score_within, groups)))
        for groups in islice(partitions_to_try, most)
    ]
    # The weakest link between stages decides, then the sum of the scores; the first of equal ones wins.
    return max(ways, key=lambda way: (way[0], way[2]))[1] if ways else found.members


def _batched(members: _Group, size: int) -> Iterator[_Group]:
    """The members in consecutive groups of `size`. itertools.batched exists only since Python 3.12."""
    for at in range(0, len(members), size):
        yield members[at : at + size]


def _laid_out(pairs: PairScores, groups: tuple[_Group, ...], stages: int) -> tuple[int, _Group]:
    """Groups as a pipeline: the rank of the weakest link between stages (0 with one stage), and the order.

    Ranks go by group within a stage, then by stage. The i-th device of a group sends to the i-th device of
    the group at the same place in the next stage.
    """
    if stages == 1:
        return 0, tuple(i for group in groups for i in group)
    between: dict[tuple[int, int], int] = {}
    for a, b in combinations(range(len(groups)), 2):
        # The weakest link between two groups when their devices are paired best.
        between[a, b] = between[b, a] = paired(_ranks_between(pairs, groups[a], groups[b]))[0]
    places = range(len(groups))
    least, lines = _lines([[between.get((a, b), 0) for b in places] for a in places], stages)
    chains = [_align(pairs, [groups[place] for place in line]) for line in lines]
    return least, tuple(i for stage in range(stages) for chain in chains for i in chain[stage])


def _lines(rank: Rank, stages: int) -> tuple[int, Sequence[Sequence[int]]]:
    """Groups as lines of `stages` groups whose weakest step is as strong as possible: that step's rank, and
    the lines. `rank` has the ranks of the links between groups. More than 16 groups stay in their order."""
    count, abreast = len(rank), len(rank) // stages
    straight = [range(line, count, abreast) for line in range(abreast)]
    reached = min(rank[a][b] for line in straight for a, b in pairwise(line))
    better = {value for row in rank for value in row if value > reached}
    for least in sorted(better, reverse=True) if count <= MAX_EXACT else ():
        for parts in partitions(joined(rank, least, stages, chain=True), count, abreast, lambda part: 0):
            return least, [_path(rank, tuple(bit_positions(part)), least, closed=False) for part in parts]
    return reached, straight


def _align(pairs: PairScores, chain: Sequence[_Group]) -> list[_Group]:
    """The groups of one line, each with its devices in the order with the best links to the group before."""
    aligned = [chain[0]]
    for group in chain[1:]:
        _, places = paired(_ranks_between(pairs, aligned[-1], group))
        aligned.append(tuple(group[place] for place in places))
    return aligned


def _ranks_between(pairs: PairScores, one: _Group, other: _Group) -> list[list[int]]:
    return [[pairs.rank[i][j] for j in other] for i in one]


def paired(table: Sequence[Sequence[int]]) -> tuple[int, tuple[int, ...]]:
    """Pair two groups so that the weakest pair is as strong as possible: its rank, and each row's column.

    Row i, column j of the square table has the rank of the link from the i-th device of one group to the j-th
    of the other. Where every device can stay in its place, it does.
    """
    straight = tuple(range(len(table)))
    for least in sorted({value for row in table for value in row}, reverse=True):
        if all(table[place][place] >= least for place in straight):
            return least, straight
        found = _perfect_matching(table, least)
        if found is not None:
            return least, found
    raise ValueError("nothing to pair")


def _perfect_matching(table: Sequence[Sequence[int]], least: int) -> tuple[int, ...] | None:
    """A perfect matching by augmenting paths (Kuhn), None if there is none. A row may displace another."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, value in enumerate(table[row]):
            if value >= least and column not in tried:
                tried.add(column)
                if column not in owner or place(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    if not all(place(row, set()) for row in range(len(table))):
        return None
    return tuple(sorted(owner, key=owner.__getitem__))
