"""Which sets of devices to take, ranked: the search behind `best.py`. Pure.

A set is compared by: the weakest link over the rings or chains that the job runs (usable at all, then the
kind of link, then how many); the sum of its links; on how few NUMA nodes it is; what it leaves to others;
free memory; the lowest numbers. Exact for up to 16 devices, and for more as long as many of them are alike;
else the best of many sets that were grown device by device and then improved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from gputui.choosing.growing import grown_sets
from gputui.choosing.job import Job
from gputui.choosing.pairs import Pairs
from gputui.choosing.rings import MOST_EXACT, chains, members, packed, rings, strongest_ring

MOST_SETS = 3000
"""Sets of a large box that are all looked at; from there on they are grown."""


@dataclass(frozen=True, slots=True)
class Found:
    """A set by places in `Pairs`, ascending. `weakest`: its rank, None where no links are used.

    `parts` are the groups or chains that it was made of where the search knows them; `exact`: no better set
    exists.
    """

    members: tuple[int, ...]
    weakest: int | None
    exact: bool = True
    parts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What the weakest link is looked for in: disjoint rings or chains of `size` devices each."""

    size: int
    chain: bool

    @classmethod
    def of(cls, job: Job, count: int) -> Shape | None:
        """None where the job uses no links."""
        if job.independent or count < 2:
            return None
        if job.tensor > 1:
            return cls(job.tensor, chain=False)
        return cls(job.pipeline, chain=True) if job.pipeline > 1 else cls(count, chain=False)


Key = tuple[int, ...]


def ranked(pairs: Pairs, count: int, job: Job, required: Iterable[int] = ()) -> Iterator[Found]:
    """Sets of `count` devices, the best first; of sets that differ only by devices that are alike, one.

    Every set has the `required` devices in it.
    """
    shape, needed = Shape.of(job, count), sum(1 << i for i in set(required))
    if count > len(pairs):
        return
    sets = list(islice(_different(pairs, count, needed), MOST_SETS + 1 if len(pairs) > MOST_EXACT else None))
    if len(pairs) <= MOST_EXACT:
        yield from _by_level(pairs, count, job, shape, sets)
    elif len(sets) <= MOST_SETS and (shape is None or shape.size == count):
        yield from _one_by_one(pairs, job, shape, map(tuple, map(members, sets)), exact=True)
    else:
        grown = grown_sets(
            pairs, count, shape.size if shape else count, bool(shape and shape.chain), members(needed)
        )
        yield from _one_by_one(pairs, job, shape, grown, exact=False)


def key_of(pairs: Pairs, job: Job, chosen: Sequence[int]) -> Key:
    """What sets of one weakest link are compared by, larger is better; without the numbers themselves."""
    apart = job.independent
    return (
        sum(pairs.devices[i].parent is None for i in chosen),
        0 if apart else pairs.sum(chosen),
        0 if apart else -pairs.nodes(chosen),
        pairs.left(chosen),
        sum(pairs.memory[i] for i in chosen),
    )


def _different(pairs: Pairs, count: int, needed: int) -> Iterator[int]:
    """Every set that is not another one with twins exchanged, as a number; the first in order first."""
    classes = []
    for twins in pairs.twins:
        # Those that must be in it are not like those that need not.
        classes += [
            [i for i in twins if needed >> i & 1],
            [i for i in twins if not needed >> i & 1],
        ]
    classes = [each for each in classes if each]
    room = [sum(map(len, classes[place:])) for place in range(len(classes) + 1)]

    def sets(place: int, chosen: int, missing: int) -> Iterator[int]:
        if place == len(classes):
            yield chosen
            return
        each = classes[place]
        least = max(0, missing - room[place + 1], len(each) if needed >> each[0] & 1 else 0)
        for many in range(min(len(each), missing), least - 1, -1):
            yield from sets(place + 1, chosen | sum(1 << i for i in each[:many]), missing - many)

    if count <= room[0] and bin(needed).count("1") <= count:
        yield from sets(0, 0, count)


def _by_level(
    pairs: Pairs, count: int, job: Job, shape: Shape | None, sets: Sequence[int]
) -> Iterator[Found]:
    """All sets, from the strongest weakest link down; within a level by the rest of the comparison."""
    keys = _Keys(pairs, job)
    if shape is None:
        for each in sorted(sets, key=keys.of, reverse=True):
            yield Found(tuple(members(each)), None)
        return
    rest = list(sets)
    for level in pairs.levels:
        search = chains if shape.chain else rings
        parts = search(pairs.rank, level, shape.size)
        good = parts if shape.size == count else packed(parts, len(pairs), count // shape.size)
        table = good.to_bytes(max(1, (1 << len(pairs)) + 7 >> 3), "little")
        here = [each for each in rest if table[each >> 3] >> (each & 7) & 1]
        if not here:
            continue
        taken = set(here)
        rest = [each for each in rest if each not in taken]
        for each in sorted(here, key=keys.of, reverse=True):
            yield Found(tuple(members(each)), level)


class _Keys:
    """`key_of` for thousands of sets: sums are looked up by half sets."""

    def __init__(self, pairs: Pairs, job: Job) -> None:
        self._pairs, self._apart = pairs, job.independent
        self._half = (len(pairs) + 1) // 2
        self._low = (1 << self._half) - 1
        ends = range(self._half), range(self._half, len(pairs))
        self._plain = [self._table(end, self._sums(end)) for end in ends]
        # Between the halves: for each device of the high one, what its pairs with a low set are worth.
        self._across = [
            self._row_table([pairs.worth[i][j] for j in range(self._half)])
            for i in range(self._half, len(pairs))
        ]

    def of(self, chosen: int) -> Key:
        pairs, low, high = self._pairs, chosen & self._low, chosen >> self._half
        one, other = self._plain[0][low], self._plain[1][high]
        between = 0
        for place, row in enumerate(self._across):
            if high >> place & 1:
                between += row[low]
        worth = one[0] + other[0] + between
        left = pairs.total - one[1] - other[1] + worth
        nodes = bin(one[2] | other[2]).count("1")
        whole, memory = one[3] + other[3], one[4] + other[4]
        first = _backwards(chosen, len(pairs))
        if self._apart:
            return (whole, 0, 0, left, memory, first)
        return (whole, worth, -nodes, left, memory, first)

    def _sums(self, end: range) -> list[list[int]]:
        return [[self._pairs.worth[i][j] for j in end] for i in end]

    def _table(self, end: range, worth: list[list[int]]) -> list[tuple[int, int, int, int, int]]:
        """For each set within a half: sum, degrees, NUMA nodes as bits, whole GPUs, memory."""
        pairs, bits = self._pairs, {node: n for n, node in enumerate(sorted(set(self._pairs.node)))}
        table = [(0, 0, 0, 0, 0)]
        for chosen in range(1, 1 << len(end)):
            last = chosen.bit_length() - 1
            before, device = table[chosen & ~(1 << last)], end[last]
            row = worth[last]
            table.append(
                (
                    before[0] + sum(row[j] for j in range(last) if chosen >> j & 1),
                    before[1] + pairs.degree[device],
                    before[2] | 1 << bits[pairs.node[device]],
                    before[3] + (pairs.devices[device].parent is None),
                    before[4] + pairs.memory[device],
                )
            )
        return table

    def _row_table(self, row: list[int]) -> list[int]:
        table = [0]
        for value in row:
            table += [before + value for before in table]
        return table


def _backwards(chosen: int, count: int) -> int:
    """Of two sets of one size the larger number has the lower devices."""
    return int(bin(chosen)[:1:-1].ljust(count, "0"), 2)


def _one_by_one(
    pairs: Pairs, job: Job, shape: Shape | None, sets: Iterable[tuple[int, ...]], exact: bool
) -> Iterator[Found]:
    """Sets that were listed, sorted; each one's weakest link is looked for by itself."""
    found = []
    for chosen in dict.fromkeys(tuple(each) for each in sets):
        # Grown sets of several parts come part by part.
        size = shape.size if shape else 1
        parts = tuple(chosen[at : at + size] for at in range(0, len(chosen), size))
        level = None if shape is None else min(_within(pairs, part, shape) for part in parts)
        whole = tuple(sorted(chosen))
        several = parts if shape and size < len(chosen) else ()
        key = (0 if level is None else level, *key_of(pairs, job, whole), *(-i for i in whole))
        found.append((key, Found(whole, level, exact, several)))
    for _, each in sorted(found, key=lambda pair: pair[0], reverse=True):
        yield each


def _within(pairs: Pairs, part: Sequence[int], shape: Shape) -> int:
    """The rank of the weakest link of a part: of its ring, or along it as it stands."""
    if shape.chain:
        return min(pairs.rank[a][b] for a, b in pairwise(part))
    found = strongest_ring(pairs.rank, part)
    assert found is not None
    return found
