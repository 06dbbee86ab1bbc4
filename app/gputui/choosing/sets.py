"""Ranks the sets of devices that a grouping could use, the best first. Pure.

Sets are compared by these criteria, in this order: the weakest link of the rings or chains that the grouping
runs over (peer access, then the kind of link, then the number of NVLinks); whole GPUs before MIG instances;
the sum of the scores of their links; few NUMA nodes; with several models, the most memory on the smallest
device, then speed; the links that are left to others; no display attached; free memory; low numbers.

The ranking is exact for up to 16 devices, and for more devices where so many are interchangeable that few
different sets remain. Otherwise it contains the best of many sets that were grown greedily, and of all sets
in some neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf

from gputui.choosing.grouping import Grouping
from gputui.choosing.pair_scores import Facts, PairScores, SubsetSums, facts_of
from gputui.choosing.ring_search import (
    MAX_EXACT,
    bit_positions,
    joined,
    packed,
    reversed_bits,
    strongest,
)
from gputui.inventory.light_dataclasses import frozen

_MAX_PER_NEIGHBOURHOOD = 3
"""The number of best sets of each neighbourhood of a large box that are compared."""

MAX_EXACT_WORK = 15_000
"""The work up to which all different sets of a large box are compared: their number times the square of their
size. This takes about 50 ms."""


@frozen
class RankedSet:
    """A set of devices by their places in `PairScores`, ascending.

    weakest  the rank of the weakest link that the grouping uses, None where it uses none
    parts    the groups or chains that make up the set, where the search knows them
    """

    members: tuple[int, ...]
    weakest: int | None
    parts: tuple[tuple[int, ...], ...] = ()


@frozen
class Shape:
    """The links that a grouping uses: the links of disjoint rings or chains of `size` devices each."""

    size: int
    chain: bool

    @classmethod
    def of(cls, grouping: Grouping, count: int) -> Shape | None:
        """The shape for `count` devices, None where the grouping uses no links."""
        if grouping.independent or count < 2:
            return None
        if grouping.tensor > 1:
            return cls(grouping.tensor, chain=False)
        return cls(grouping.pipeline, chain=True) if grouping.pipeline > 1 else cls(count, chain=False)


Key = tuple[int, ...]


def ranked(
    pairs: PairScores, count: int, grouping: Grouping, required: Iterable[int] = ()
) -> Iterator[RankedSet]:
    """Sets of `count` devices, the best first. Sets that differ only by interchangeable devices appear once.

    Every set contains the devices at the `required` places.
    """
    shape, required_bits = Shape.of(grouping, count), _bits(set(required))
    if count > len(pairs):
        return
    if len(pairs) <= MAX_EXACT:
        yield from _by_level(pairs, count, grouping, shape, _different(pairs, count, required_bits) or ())
        return
    few = None
    if shape is None or shape.size == count:
        few = _different(pairs, count, required_bits, MAX_EXACT_WORK // max(1, count**2))
    if few is not None:
        yield from _best_first(pairs, grouping, _evaluated(pairs, shape, map(tuple, map(bit_positions, few))))
    else:
        yield from approximate(pairs, count, grouping, bit_positions(required_bits))


def approximate(
    pairs: PairScores, count: int, grouping: Grouping, required: Sequence[int] = ()
) -> Iterator[RankedSet]:
    """Like `ranked`, but fast in any box; the first set need not be the best one.

    The compared sets are those grown greedily, and all sets within some neighbourhoods of 16 devices.
    tests/bench prints how far the first set is from the best set.
    """
    from gputui.choosing.large_sets import greedy_sets, neighbourhoods

    shape = Shape.of(grouping, count)
    size, chain = (shape.size, shape.chain) if shape else (count, False)
    grown = greedy_sets(pairs, count, size, chain, required)
    found = _evaluated(pairs, shape, grown)
    if count <= MAX_EXACT < len(pairs):
        for near in neighbourhoods(pairs, MAX_EXACT, required):
            places = [near.index(i) for i in required]
            for each in islice(ranked(pairs.subset(near), count, grouping, places), _MAX_PER_NEIGHBOURHOOD):
                found.append(RankedSet(tuple(near[i] for i in each.members), each.weakest))
    yield from _best_first(pairs, grouping, found)


def _best_first(pairs: PairScores, grouping: Grouping, found: list[RankedSet]) -> Iterator[RankedSet]:
    """The sets in the order of the comparison, each once."""

    def key(each: RankedSet) -> Key:
        return (
            each.weakest or 0,
            *comparison_key(pairs, grouping, each.members),
            *(-i for i in each.members),
        )

    seen: set[tuple[int, ...]] = set()
    for each in sorted(found, key=key, reverse=True):
        if each.members not in seen:
            seen.add(each.members)
            yield each


def comparison_key(pairs: PairScores, grouping: Grouping, members: Sequence[int]) -> Key:
    """The comparison of sets with equally weak links, as a tuple: larger is better. Indices are left out."""
    return _key(pairs, grouping, pairs.score_within(members), facts_of(pairs, members))


def _key(pairs: PairScores, grouping: Grouping, score: int, facts: Facts) -> Key:
    degrees, nodes, whole, memory, tier, slowness, shown = facts
    among = (0, 0) if grouping.independent else (score, -bin(nodes).count("1"))
    left_to_others = pairs.total - degrees + score
    return (whole, *among, tier, -slowness, left_to_others, -shown, memory)


def _different(pairs: PairScores, count: int, required_bits: int, most: float = inf) -> list[int] | None:
    """All sets of `count` devices with the required ones, one for each choice of interchangeable devices, as
    ints with bit i for device i. None for more than `most` sets, which are not made."""
    # For each class of interchangeable devices: how many of them are in the set, and which ones. The required
    # devices come first, as a class of their own; of the others, the first ones are taken.
    classes = [[(bin(required_bits).count("1"), required_bits)]]
    for alike in pairs.interchangeable:
        rest = [i for i in alike if not required_bits >> i & 1]
        classes.append([(many, _bits(rest[:many])) for many in range(len(rest) + 1)])
    made, room = {0: [0]}, len(pairs)
    for choices in classes:
        # The most devices that the classes after this one can add.
        room -= choices[-1][0]
        longer: dict[int, list[int]] = {}
        for size, sets in made.items():
            for many, members in choices:
                if count - room <= size + many <= count:
                    longer.setdefault(size + many, []).extend([each | members for each in sets])
        made = longer
        # Whatever has begun can be completed: there are no more beginnings than sets.
        if sum(map(len, made.values())) > most:
            return None
    return made.get(count, [])


def _bits(devices: Iterable[int]) -> int:
    return sum(1 << i for i in devices)


def _by_level(
    pairs: PairScores, count: int, grouping: Grouping, shape: Shape | None, sets: Sequence[int]
) -> Iterator[RankedSet]:
    """All sets by their weakest link, the strongest first; the rest of the comparison orders equal ones."""
    key = _fast_key(pairs, grouping)
    if shape is None:
        for each in sorted(sets, key=key, reverse=True):
            yield RankedSet(tuple(bit_positions(each)), None)
        return
    rest = list(sets)
    for level in pairs.ranks:
        parts = joined(pairs.rank, level, shape.size, shape.chain)
        good = packed(parts, len(pairs), shape.size, count // shape.size)
        table = good.to_bytes(max(1, (1 << len(pairs)) + 7 >> 3), "little")
        here = [each for each in rest if table[each >> 3] >> (each & 7) & 1]
        if not here:
            continue
        taken = set(here)
        rest = [each for each in rest if each not in taken]
        for each in sorted(here, key=key, reverse=True):
            yield RankedSet(tuple(bit_positions(each)), level)


def _fast_key(pairs: PairScores, grouping: Grouping) -> Callable[[int], Key]:
    """`comparison_key` for thousands of sets, given as ints, with indices added: low ones first."""
    sums = SubsetSums(pairs)

    def key(members: int) -> Key:
        known = _key(pairs, grouping, sums.score(members), sums.facts(members))
        return (*known, reversed_bits(members, len(pairs)))

    return key


def _evaluated(pairs: PairScores, shape: Shape | None, sets: Iterable[tuple[int, ...]]) -> list[RankedSet]:
    """The given sets with their weakest links. A set of several parts lists its devices part by part."""
    found = []
    for members in dict.fromkeys(sets):
        size = shape.size if shape else 1
        parts = tuple(members[at : at + size] for at in range(0, len(members), size))
        levels = (strongest(pairs.rank, part, shape.chain) or 0 for part in parts) if shape else ()
        level = min(levels, default=None)
        several = parts if shape and size < len(members) else ()
        found.append(RankedSet(tuple(sorted(members)), level, several))
    return found
