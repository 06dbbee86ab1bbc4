"""Scores of the links between candidates, pair by pair, and their sums over sets of devices. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from itertools import combinations
from operator import or_

from gputui.choosing.links import on_one_node
from gputui.choosing.speed import memory_tiers, slowness_weights
from gputui.inventory.device import Device, has_display
from gputui.inventory.formatting import GIB
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.link import connected_components, direct_links, strength, worth
from gputui.inventory.snapshot import Snapshot

Facts = tuple[int, int, int, int, int, int, int]

_NO_PEER_ACCESS = 1000
_UNKNOWN = -10_000
_PCIE_SCORES: dict[str, int] = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}
_NVLINK_SCORE = 100
_ONE_HOP = 15
"""The score of a pair is the score of its PCIe class, and 100 for each NVLink (NVIDIA's go-gpuallocator)."""


@dataclass(frozen=True)
class PairScores:
    """Numbers of `devices`, which are in the box's order; the index in all tables is the place in that order.

    rank      how good a pair's link is, for comparisons only: first peer access, then the kind of
              the link, then the number of NVLinks; an unknown link ranks last
    score     what a pair adds to the sum over a set
    numa      a number of the device's NUMA node
    free_gib  its free memory in GiB, rounded
    display   whether a display is attached to the device, or programs draw on it
    memory_tier, slowness_weight
              how it compares in free memory and in speed (`speed.py`); all 0 if they are of one model
    """

    snapshot: Snapshot
    devices: tuple[Device, ...]
    rank: tuple[tuple[int, ...], ...]
    score: tuple[tuple[int, ...], ...]
    numa: tuple[int, ...]
    free_gib: tuple[int, ...]
    display: tuple[bool, ...]
    memory_tier: tuple[int, ...]
    slowness_weight: tuple[int, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, devices: Sequence[Device]) -> PairScores:
        """The scores of these devices of the snapshot."""
        # Rounded, because a few MiB that a driver keeps on one of two equal GPUs should not decide.
        free_gib = tuple(round((device.memory_free or 0) / GIB) for device in devices)
        return cls(
            snapshot=snapshot,
            devices=tuple(devices),
            rank=tuple(tuple(_rank(snapshot, one, other) for other in devices) for one in devices),
            score=tuple(tuple(_score(snapshot, one, other) for other in devices) for one in devices),
            numa=_numa_numbers(snapshot, devices),
            free_gib=free_gib,
            display=tuple(map(has_display, devices)),
            memory_tier=memory_tiers(devices, free_gib),
            slowness_weight=slowness_weights(devices),
        )

    def subset(self, places: Sequence[int]) -> PairScores:
        """The scores of the devices at these places only."""
        return PairScores.of(self.snapshot, [self.devices[i] for i in places])

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def unlike(self) -> bool:
        """Whether some devices are faster than others."""
        return len(set(self.slowness_weight)) > 1

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The distinct ranks of all pairs, the best first."""
        count = len(self)
        return tuple(sorted({self.rank[i][j] for i in range(count) for j in range(i)}, reverse=True))

    @cached_property
    def degree(self) -> tuple[int, ...]:
        """The sum of the scores of each device's pairs: the loss for the other devices when it is taken."""
        return tuple(sum(row) for row in self.score)

    @cached_property
    def total(self) -> int:
        """The sum of the scores of all pairs."""
        return sum(self.degree) // 2

    @cached_property
    def interchangeable(self) -> tuple[tuple[int, ...], ...]:
        """The places in classes of devices that are equivalent; a choice takes the first ones of a class."""
        classes: list[list[int]] = []
        for i in range(len(self)):
            for group in classes:
                if self._are_interchangeable(group[0], i):
                    group.append(i)
                    break
            else:
                classes.append([i])
        return tuple(map(tuple, classes))

    def _are_interchangeable(self, i: int, j: int) -> bool:
        facts = [(self.numa[k], self.free_gib[k], self.display[k], self.slowness_weight[k]) for k in (i, j)]
        if facts[0] != facts[1]:
            return False
        if (self.devices[i].parent is None) != (self.devices[j].parent is None):
            return False
        return all(
            self.rank[i][k] == self.rank[j][k] and self.score[i][k] == self.score[j][k]
            for k in range(len(self))
            if k not in (i, j)
        )

    def link(self, i: int, j: int) -> str | None:
        """The link between two places, by nvidia-smi's word."""
        return self.snapshot.link(self.devices[i], self.devices[j])

    def score_within(self, members: Sequence[int]) -> int:
        """The sum of the scores of the pairs among `members`."""
        return sum(self.score[i][j] for j, i in combinations(members, 2))

    def numa_count(self, members: Sequence[int]) -> int:
        """The number of NUMA nodes that `members` are on."""
        return len({self.numa[i] for i in members})

    def weakest(self, members: Sequence[int]) -> int | None:
        """The rank of the weakest pair among `members`, None for fewer than two."""
        return min((self.rank[i][j] for j, i in combinations(members, 2)), default=None)

    def link_of_rank(self, members: Sequence[int], rank: int | None) -> str | None:
        """A link of the given rank among `members`, None if there is none."""
        pairs = ((i, j) for j, i in combinations(members, 2) if self.rank[i][j] == rank)
        return next((self.link(*pair) for pair in pairs), None)

    def lacks_peer_access(self, members: Sequence[int], rank: int) -> bool:
        """Whether the driver reports that a pair of the given rank among `members` has no peer access."""
        return any(
            self.snapshot.peer(self.devices[i], self.devices[j]) not in (None, "OK", "U")
            for j, i in combinations(members, 2)
            if self.rank[i][j] == rank
        )


def _rank(snapshot: Snapshot, one: Device, other: Device) -> int:
    if one is other:
        return _UNKNOWN
    word = snapshot.link(one, other)
    if word is None:
        return _UNKNOWN
    return (
        strength(word)
        + _nearness(snapshot, one, other)
        - (0 if snapshot.peer(one, other) == "OK" else _NO_PEER_ACCESS)
    )


_FARTHEST = 99
_TIERS = 8


def _nearness(snapshot: Snapshot, one: Device, other: Device) -> int:
    """The order of links with the same word where the kernel measures them: shorter paths first, then wider
    links."""
    weight = snapshot.link_weight(one, other)
    if weight is None:
        return 0
    wide = (snapshot.link_bandwidth(one, other) or 0) // _MBS_A_TIER
    return (_FARTHEST - min(weight, _FARTHEST)) * _TIERS + min(wide, _TIERS - 1)


_MBS_A_TIER = 50_000
"""The approximate MB/s of one XGMI link."""


def _score(snapshot: Snapshot, one: Device, other: Device) -> int:
    if one is other:
        return 0
    word = snapshot.link(one, other)
    pcie = snapshot.pcie_class(one, other) or word
    weight = snapshot.link_weight(one, other) if direct_links(word) else None
    # A link over two hops is worth half.
    links = worth(word) if weight is None else _ONE_HOP / max(weight, 1)
    return _PCIE_SCORES.get(pcie or "", 0) + round(_NVLINK_SCORE * links)


def _numa_numbers(snapshot: Snapshot, devices: Sequence[Device]) -> tuple[int, ...]:
    """A number for each device's NUMA node; a device whose node is unknown gets a node of its own."""

    def near(i: int, j: int) -> bool:
        one, other = devices[i], devices[j]
        return on_one_node(one, other, snapshot.pcie_class(one, other) if snapshot.pcie else None)

    return connected_components(len(devices), near)


class SubsetSums:
    """Sums over thousands of subsets of up to 16 devices. A subset is an int with bit i for device i.

    Each half of the devices has a table of all its subsets (at most 2^8 entries), so a sum takes two lookups
    and, for the pairs across the halves, one lookup for each device of the upper half.
    """

    def __init__(self, pairs: PairScores) -> None:
        self._half = (len(pairs) + 1) // 2
        self._low = (1 << self._half) - 1
        ends = range(self._half), range(self._half, len(pairs))
        self._score = [_pairs_inside(pairs, end) for end in ends]
        self._facts = [_facts(pairs, end) for end in ends]
        # For each device of the upper half: the score of its pairs with each subset of the lower half.
        self._across = [_subset_sums(pairs.score[i][: self._half]) for i in ends[1]]

    def score(self, subset: int) -> int:
        """The sum of the scores of the pairs within a subset."""
        low, high = subset & self._low, subset >> self._half
        between = 0
        for place, row in enumerate(self._across):
            if high >> place & 1:
                between += row[low]
        return self._score[0][low] + self._score[1][high] + between

    def facts(self, subset: int) -> Facts:
        """The facts of a subset: `facts_of` its members."""
        return _united(self._facts[0][subset & self._low], self._facts[1][subset >> self._half])


def facts_of(pairs: PairScores, members: Sequence[int]) -> Facts:
    """The sum of degrees, the NUMA nodes as bits, the numbers of whole GPUs and of free GiB.

    Then the lowest memory tier, the sum of slowness weights, and the number of displays.
    """
    return (
        sum(pairs.degree[i] for i in members),
        reduce(or_, (1 << pairs.numa[i] for i in members), 0),
        sum(pairs.devices[i].parent is None for i in members),
        sum(pairs.free_gib[i] for i in members),
        min((pairs.memory_tier[i] for i in members), default=0),
        sum(pairs.slowness_weight[i] for i in members),
        sum(pairs.display[i] for i in members),
    )


def _united(one: Facts, other: Facts) -> Facts:
    """The facts of the union of two disjoint subsets."""
    return (
        one[0] + other[0],
        one[1] | other[1],
        one[2] + other[2],
        one[3] + other[3],
        min(one[4], other[4]),
        one[5] + other[5],
        one[6] + other[6],
    )


def _facts(pairs: PairScores, end: range) -> list[Facts]:
    """The table of facts for each subset of one half, as `SubsetSums.facts`."""
    table = [facts_of(pairs, ())]
    for i in end:
        of_one = facts_of(pairs, (i,))
        table += [_united(before, of_one) for before in table]
    return table


def _pairs_inside(pairs: PairScores, end: range) -> list[int]:
    """The table of the sums of the scores of the pairs in each subset of one half."""
    table = [0]
    for place, device in enumerate(end):
        row = _subset_sums([pairs.score[device][other] for other in end[:place]])
        table += [before + more for before, more in zip(table, row, strict=True)]
    return table


def _subset_sums(score: tuple[int, ...] | list[int]) -> list[int]:
    """The table of the sums of one device's scores with each subset of some devices."""
    table = [0]
    for value in score:
        table += [before + value for before in table]
    return table
