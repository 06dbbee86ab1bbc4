"""Rings and chains: which sets of devices a collective or a pipeline can run around over good links. Pure.

A ring is a cycle through every device of a set, as NCCL builds it; a chain is a path. All sets of up to 16
devices are answered at once: a set is a number (bit i: device i is in it), a set of sets is a long number
(bit s: the set s is in it), and one step of the search works on all sets together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise

MOST_EXACT = 16
"""Devices up to which every set is looked at: 2^16 sets."""
_MOST_PACKED = 500
_MOST_STARTS = 8
"""Devices from which a ring is looked for in a larger set."""

Rank = Sequence[Sequence[int]]


@cache
def _without(count: int) -> tuple[int, ...]:
    """For each device all sets that it is not in."""
    return tuple(_pattern(count, device, 0) for device in range(count))


@cache
def _first(count: int) -> tuple[int, ...]:
    """For each device all sets of which it is the first."""
    without, found = _without(count), []
    rest = (1 << (1 << count)) - 1
    for device in range(count):
        found.append(rest & ~without[device])
        rest &= without[device]
    return tuple(found)


@cache
def _later(count: int) -> tuple[int, ...]:
    """For each device all sets that it is not in and that have an earlier device."""
    first, without = _first(count), _without(count)
    found, earlier = [], 0
    for device in range(count):
        found.append(earlier & without[device])
        earlier |= first[device]
    return tuple(found)


def _pattern(count: int, device: int, value: int) -> int:
    """All sets in which the device is (1) or is not (0)."""
    run = 1 << device
    pattern = ((1 << run) - 1) << (run if value else 0)
    width = 2 * run
    while width < 1 << count:
        pattern |= pattern << width
        width *= 2
    return pattern


def rings(rank: Rank, least: int, size: int) -> int:
    """All sets of `size` devices with a ring of links that are `least` or stronger.

    A pair is a ring over its one link, a single device a ring of none.
    """
    count = len(rank)
    near = [[v for v in range(count) if v != u and rank[u][v] >= least] for u in range(count)]
    ends = [1 << (1 << v) for v in range(count)]
    later, first = _later(count), _first(count)
    for _ in range(size - 1):
        # From the first device of each set: every ring is found once each way, and no other.
        ends = [(_any(ends[v] for v in near[u]) & later[u]) << (1 << u) for u in range(count)]
    if size <= 2:
        return _any(ends)
    return _any(ends[v] & _any(first[s] for s in near[v]) for v in range(count))


def chains(rank: Rank, least: int, size: int) -> int:
    """All sets of `size` devices with a chain of links that are `least` or stronger."""
    count = len(rank)
    near = [[v for v in range(count) if v != u and rank[u][v] >= least] for u in range(count)]
    ends = [1 << (1 << v) for v in range(count)]
    without = _without(count)
    for _ in range(size - 1):
        ends = [(_any(ends[v] for v in near[u]) & without[u]) << (1 << u) for u in range(count)]
    return _any(ends)


def packed(parts: int, count: int, times: int) -> int:
    """All sets that are `times` disjoint ones of `parts`, of `count` devices in all."""
    if not parts:
        return 0
    size = bin(parts.bit_length() - 1).count("1")
    # Of parts that fill the box only half are put together: then the other half must be there too.
    fills = times % 2 == 0 and size * times == count
    found = packings(parts, count, times // 2 if fills else times)[-1]
    if not fills:
        return found
    # A set of sets read backwards is that of their complements.
    return 1 << ((1 << count) - 1) if found & backwards(found, 1 << count) else 0


def packings(parts: int, count: int, times: int) -> list[int]:
    """All sets that are one, two, … `times` disjoint ones of `parts`."""
    found, without = [parts], _without(count)
    each = members(parts)
    while len(found) < times:
        longer = 0
        for part in each:
            apart = found[-1]
            for device in _devices(part):
                apart &= without[device]
            longer |= apart << part
        found.append(longer)
    return found


def partings(parts: int, count: int, times: int, worth: Callable[[int], int]) -> Iterator[tuple[int, ...]]:
    """The ways to part all `count` devices into `times` of `parts`: with the first device always goes what
    is worth most beside it, then the lowest numbers. What is left over is known to be a packing, so that
    there are no dead ends; of thousands of parts only from the middle on, as that is costly to know."""
    each_part = members(parts)
    known = times - 1 if len(each_part) <= _MOST_PACKED else times // 2
    possible = [1, *packings(parts, count, max(1, known))]
    by_first: dict[int, list[int]] = {}
    for part in each_part:
        by_first.setdefault(part & -part, []).append(part)
    for each in by_first.values():
        each.sort(key=lambda part: (-worth(part), -backwards(part, count)))

    def alternatives(rest: int, left: int) -> Iterator[tuple[int, ...]]:
        if not left:
            yield ()
            return
        for part in by_first.get(rest & -rest, ()):
            beside = rest & ~part
            if part & rest == part and (left > len(possible) or possible[left - 1] >> beside & 1):
                for others in alternatives(beside, left - 1):
                    yield (part, *others)

    yield from alternatives((1 << count) - 1, times)


def way_through(rank: Rank, least: int, closed: bool) -> tuple[int, ...] | None:
    """A way through all devices over links that are `least` or stronger, and, `closed`, back to the first
    one; None where there is none. Of several one with low numbers first. Up to 16 devices."""
    count = len(rank)
    whole = (1 << count) - 1
    near = [[v for v in range(count) if v != u and rank[u][v] >= least] for u in range(count)]
    without = _without(count)
    # Sets that have a way ending at each device, of one device, two, …; a ring begins with the first.
    ends = [[1 << (1 << v) if not closed or v == 0 else 0 for v in range(count)]]
    while len(ends) < count:
        before = ends[-1]
        ends.append([(_any(before[v] for v in near[u]) & without[u]) << (1 << u) for u in range(count)])
    way: list[int] = []
    rest = whole
    for sets in reversed(ends):
        open_ = near[way[-1]] if way else near[0] if closed and count > 1 else range(count)
        found = next((v for v in open_ if rest >> v & 1 and sets[v] >> rest & 1), None)
        if found is None:
            return None
        way.append(found)
        rest &= ~(1 << found)
    # Backwards it is as good; a ring was walked from the device before the first one.
    return (way[-1], *way[:-1]) if closed else tuple(way)


def backwards(number: int, width: int) -> int:
    """The number with its `width` bits in reverse. Of two sets of one size that with the lower devices is
    the larger one backwards."""
    return int(bin(number)[:1:-1].ljust(width, "0"), 2)


@lru_cache(maxsize=2048)
def _devices(part: int) -> tuple[int, ...]:
    """`members` of a part, which stands in hundreds of packings. (Groups of 4 of 16 are 1820.)"""
    return tuple(members(part))


def members(number: int) -> list[int]:
    """The places of the bits that are set."""
    text = bin(number)[:1:-1]
    found, place = [], text.find("1")
    while place >= 0:
        found.append(place)
        place = text.find("1", place + 1)
    return found


def _any(sets: Iterable[int]) -> int:
    found = 0
    for each in sets:
        found |= each
    return found


def strongest_ring(rank: Rank, devices: Sequence[int]) -> int | None:
    """The rank of the weakest link of the best ring through `devices`; None for fewer than two.

    Exact up to 16 devices. Beyond, a ring that is known to be there: the best may be stronger.
    """
    if len(devices) < 2:
        return None
    table = [[rank[i][j] for j in devices] for i in devices]
    count = len(devices)
    levels = _levels(table)
    if count > 2:
        # Every device needs two links of the ring: its second best is as strong as it gets.
        most = min(sorted(row[:i] + row[i + 1 :])[-2] for i, row in enumerate(table))
        levels = [level for level in levels if level <= most]
    if count > MOST_EXACT:
        return next((level for level in levels if _surely(table, level)), levels[-1])
    whole = (1 << count) - 1
    return next(level for level in levels if rings(table, level, count) >> whole & 1)


def strongest_chain(rank: Rank, devices: Sequence[int]) -> int:
    """The rank of the weakest link of the best chain through `devices`; beyond 16, as they stand."""
    if len(devices) > MOST_EXACT:
        return min(rank[a][b] for a, b in pairwise(devices))
    table = [[rank[i][j] for j in devices] for i in devices]
    whole = (1 << len(devices)) - 1
    return next(level for level in _levels(table) if chains(table, level, len(devices)) >> whole & 1)


def _levels(table: Rank) -> list[int]:
    """Every rank in a table, the strongest first."""
    return sorted({table[i][j] for i in range(len(table)) for j in range(i)}, reverse=True)


def _surely(table: Rank, least: int) -> bool:
    """Whether there is certainly a ring: each device reaches at least half of the others (Dirac, 1952), or
    one is found by going from each to the one with the fewest ways on."""
    count = len(table)
    near = [{v for v in range(count) if v != u and table[u][v] >= least} for u in range(count)]
    if all(len(each) * 2 >= count for each in near):
        return True
    if any(len(each) < 2 for each in near):
        return False
    return any(_walked(near, start) for start in range(min(count, _MOST_STARTS)))


def _walked(near: Sequence[set[int]], start: int) -> bool:
    """Whether going from each to the one with the fewest ways on leads around."""
    at, rest = start, set(range(len(near))) - {start}
    while rest:
        alternatives = near[at] & rest
        if not alternatives:
            return False
        at = min(alternatives, key=lambda v: (len(near[v] & rest), v))
        rest.discard(at)
    return start in near[at]
