"""Which sets of devices to take, ranked: the search behind `best.py`. Pure.

A set is compared by: the weakest link over the rings or chains that the job runs (usable at all, then the
kind of link, then how many); the sum of its links; on how few NUMA nodes it is; what it leaves to others;
free memory; the lowest numbers. Exact for up to 16 devices, and for more as long as many of them are alike;
else the best of many sets that were grown device by device and then improved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gputui.choosing.grouping import Grouping
from gputui.choosing.pairs import Pairs
from gputui.choosing.rings import (
    MOST_EXACT,
    backwards,
    chains,
    members,
    packed,
    rings,
    strongest_chain,
    strongest_ring,
)
from gputui.choosing.sums import Sums

_MOST_NEAR = 3
"""Sets that are taken from each neighbourhood of a large box."""

MOST_WORK = 15_000
"""Sets of a large box, times the square of their size, that are all looked at; from there on they are
grown. It is some 50 ms."""


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
    def of(cls, job: Grouping, count: int) -> Shape | None:
        """None where the job uses no links."""
        if job.independent or count < 2:
            return None
        if job.tensor > 1:
            return cls(job.tensor, chain=False)
        return cls(job.pipeline, chain=True) if job.pipeline > 1 else cls(count, chain=False)


Key = tuple[int, ...]


def ranked(pairs: Pairs, count: int, job: Grouping, required: Iterable[int] = ()) -> Iterator[Found]:
    """Sets of `count` devices, the best first; of sets that differ only by devices that are alike, one.

    Every set has the `required` devices in it.
    """
    shape, needed = Shape.of(job, count), _number(set(required))
    if count > len(pairs):
        return
    different = _Different(pairs, count, needed)
    if len(pairs) <= MOST_EXACT:
        yield from _by_level(pairs, count, job, shape, different.all())
    elif (shape is None or shape.size == count) and different.how_many() * count**2 <= MOST_WORK:
        sets = map(tuple, map(members, different.all()))
        yield from _best_first(pairs, job, _judged(pairs, shape, sets, exact=count <= MOST_EXACT))
    else:
        yield from approximate(pairs, count, job, members(needed))


def approximate(pairs: Pairs, count: int, job: Grouping, needed: Sequence[int] = ()) -> Iterator[Found]:
    """As `ranked`, quick in any box, and not always the best: the best of sets that were grown device by
    device, and of those within neighbourhoods of 16 devices, in which every set is looked at.

    tests/bench prints how far from the best they are.
    """
    from gputui.choosing.large_sets import grown_sets, neighbourhoods

    shape = Shape.of(job, count)
    size, chain = (shape.size, shape.chain) if shape else (count, False)
    grown = grown_sets(pairs, count, size, chain, needed)
    found = _judged(pairs, shape, grown, exact=False)
    if count <= MOST_EXACT < len(pairs):
        for near in neighbourhoods(pairs, MOST_EXACT, needed):
            places = [near.index(i) for i in needed]
            for each in islice(ranked(pairs.among(near), count, job, places), _MOST_NEAR):
                found.append(Found(tuple(near[i] for i in each.members), each.weakest, False))
    yield from _best_first(pairs, job, found)


def _best_first(pairs: Pairs, job: Grouping, found: list[Found]) -> Iterator[Found]:
    """The sets in the order of the comparison, each once."""
    told: set[tuple[int, ...]] = set()
    for each in sorted(found, key=lambda each: _whole_key(pairs, job, each), reverse=True):
        if each.members not in told:
            told.add(each.members)
            yield each


def _whole_key(pairs: Pairs, job: Grouping, found: Found) -> Key:
    level = 0 if found.weakest is None else found.weakest
    return (level, *key_of(pairs, job, found.members), *(-i for i in found.members))


def key_of(pairs: Pairs, job: Grouping, chosen: Sequence[int]) -> Key:
    """What sets of one weakest link are compared by, larger is better; without the numbers themselves."""
    apart = job.independent
    return (
        sum(pairs.devices[i].parent is None for i in chosen),
        0 if apart else pairs.sum(chosen),
        0 if apart else -pairs.nodes(chosen),
        pairs.left(chosen),
        sum(pairs.memory[i] for i in chosen),
    )


class _Different:
    """Every set of `count` devices that is not another one with twins exchanged, with the needed in it."""

    def __init__(self, pairs: Pairs, count: int, needed: int) -> None:
        self._count = count
        # Those of a class that must be in it are not like those that need not; of these the first are taken.
        self._choices: list[list[tuple[int, int]]] = []
        for twins in pairs.twins:
            wanted = [i for i in twins if needed >> i & 1]
            if wanted:
                self._choices.append([(len(wanted), _number(wanted))])
            rest = [i for i in twins if not needed >> i & 1]
            if rest:
                self._choices.append([(many, _number(rest[:many])) for many in range(len(rest) + 1)])
        most = [choices[-1][0] for choices in self._choices]
        self._room = [sum(most[place + 1 :]) for place in range(len(most))]

    def how_many(self) -> int:
        """How many there are, without making them."""
        alternatives = {0: 1}
        for choices, room in zip(self._choices, self._room, strict=True):
            longer: dict[int, int] = {}
            for size, number in alternatives.items():
                for many, _ in choices:
                    if self._count - room <= size + many <= self._count:
                        longer[size + many] = longer.get(size + many, 0) + number
            alternatives = longer
        return alternatives.get(self._count, 0)

    def all(self) -> list[int]:
        """The sets, as numbers."""
        made: dict[int, list[int]] = {0: [0]}
        for choices, room in zip(self._choices, self._room, strict=True):
            longer: dict[int, list[int]] = {}
            for size, sets in made.items():
                for many, chosen in choices:
                    if self._count - room <= size + many <= self._count:
                        longer.setdefault(size + many, []).extend([each | chosen for each in sets])
            made = longer
        return made.get(self._count, [])


def _number(devices: Iterable[int]) -> int:
    return sum(1 << i for i in devices)


def _by_level(
    pairs: Pairs, count: int, job: Grouping, shape: Shape | None, sets: Sequence[int]
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
    """`key_of` for thousands of sets."""

    def __init__(self, pairs: Pairs, job: Grouping) -> None:
        self._pairs, self._apart, self._sums = pairs, job.independent, Sums(pairs)

    def of(self, chosen: int) -> Key:
        worth = self._sums.of(chosen)
        degrees, nodes, whole, memory = self._sums.facts(chosen)
        left = self._pairs.total - degrees + worth
        first = backwards(chosen, len(self._pairs))
        if self._apart:
            return (whole, 0, 0, left, memory, first)
        return (whole, worth, -nodes, left, memory, first)


def _judged(pairs: Pairs, shape: Shape | None, sets: Iterable[tuple[int, ...]], exact: bool) -> list[Found]:
    """Sets that were listed; each one's weakest link is looked for by itself."""
    found = []
    for chosen in dict.fromkeys(sets):
        # Grown sets of several parts come part by part.
        size = shape.size if shape else 1
        parts = tuple(chosen[at : at + size] for at in range(0, len(chosen), size))
        level = None if shape is None else min(_within(pairs, part, shape) for part in parts)
        several = parts if shape and size < len(chosen) else ()
        found.append(Found(tuple(sorted(chosen)), level, exact, several))
    return found


def _within(pairs: Pairs, part: Sequence[int], shape: Shape) -> int:
    """The rank of the weakest link of a part: of its ring, or along it."""
    if shape.chain:
        return strongest_chain(pairs.rank, part)
    found = strongest_ring(pairs.rank, part)
    assert found is not None
    return found
