"""Finds the sets of devices that have a ring or a chain over good links. Pure.

A ring is a cycle through all devices of a set, as NCCL builds it for a collective; a chain is a path, as a
pipeline uses it. A set of devices is an int (bit i for device i). A family of sets is a long int (bit s for
the set s), so that one step of the search works on all 2^16 sets of 16 devices at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise

MAX_EXACT = 16
"""Devices up to which all sets are searched: 2^16 sets."""
_MAX_PACKED = 500
"""The most parts for which all packings are made before `partitions` begins."""
_MAX_STARTS = 8
"""The number of devices from which a ring is searched in a larger set."""

Rank = Sequence[Sequence[int]]
"""The rank of the link between two devices, by their places; larger is better."""


@cache
def _without(count: int) -> tuple[int, ...]:
    """For each device, the family of the sets that do not contain it."""
    every = (1 << (1 << count)) - 1
    # The bits of device d are runs of 2^d zeros and as many ones: 0101… for d = 0, 0011… for d = 1.
    return tuple(every // ((1 << (1 << device)) + 1) for device in range(count))


@cache
def _first_and_later(count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each device, two families: the sets whose first device it is, and the sets that have an earlier
    device but not this one."""
    first, later, earlier = list[int](), list[int](), 0
    rest = (1 << (1 << count)) - 1
    for without in _without(count):
        first.append(rest & ~without)
        later.append(earlier & without)
        earlier |= first[-1]
        rest &= without
    return tuple(first), tuple(later)


def _neighbours(rank: Rank, least: int) -> list[list[int]]:
    """For each device, the devices to which it has a link of rank `least` or better."""
    count = len(rank)
    return [[v for v in range(count) if v != u and rank[u][v] >= least] for u in range(count)]


def _longer(ends: Sequence[int], neighbours: Sequence[Sequence[int]], allowed: Sequence[int]) -> list[int]:
    """One step of the search: for each device, the family of the sets with a path that ends there, made from
    the paths with one device less. `allowed`: for each device, the sets to which it may be added."""
    return [(_union(ends[v] for v in near) & allowed[u]) << (1 << u) for u, near in enumerate(neighbours)]


def joined(rank: Rank, least: int, size: int, chain: bool) -> int:
    """The family of the sets of `size` devices that have a ring, or a `chain`, over links of rank `least` or
    better.

    A pair counts as a ring over its one link, and a single device as a ring without links.
    """
    count, neighbours = len(rank), _neighbours(rank, least)
    closed = size > 2 and not chain
    first, later = _first_and_later(count)
    ends = [1 << (1 << v) for v in range(count)]
    for _ in range(size - 1):
        # Paths of rings begin at the first device of their set, so each ring is found twice, once each way.
        ends = _longer(ends, neighbours, later if closed else _without(count))
    if closed:
        ends = [ends[v] & _union(first[s] for s in neighbours[v]) for v in range(count)]
    return _union(ends)


def packed(parts: int, count: int, size: int, times: int) -> int:
    """The family of the unions of `times` disjoint sets of `parts`, each of `size` out of `count` devices."""
    # Where the parts fill the box, unions of half of them are made, and the complement must be such a union
    # too. For two groups of eight this takes 20 ms instead of 460.
    fills = times % 2 == 0 and size * times == count
    found = packings(parts, count, times // 2 if fills else times)[-1]
    if not fills:
        return found
    # A family with its bits reversed is the family of the complements.
    return 1 << ((1 << count) - 1) if found & reversed_bits(found, 1 << count) else 0


def packings(parts: int, count: int, times: int) -> list[int]:
    """The families of the unions of one, two, … `times` disjoint sets of `parts`."""
    found, without = [parts], _without(count)
    each = bit_positions(parts)
    while len(found) < times:
        longer = 0
        for part in each:
            disjoint = found[-1]
            for device in _devices_of(part):
                disjoint &= without[device]
            longer |= disjoint << part
        found.append(longer)
    return found


def partitions(parts: int, count: int, times: int, score: Callable[[int], int]) -> Iterator[tuple[int, ...]]:
    """The partitions of all `count` devices into `times` of `parts`.

    The part with the first device comes first: of several parts the one with the highest score, then the one
    with the lowest numbers. The same holds for the remaining devices. A prior search shows whether these can
    be partitioned, so there are no dead ends; with thousands of parts, where that is costly, it covers the
    second half only.
    """
    each_part = bit_positions(parts)
    known = times - 1 if len(each_part) <= _MAX_PACKED else times // 2
    possible = [1, *packings(parts, count, max(1, known))]
    by_first: dict[int, list[int]] = {}
    for part in each_part:
        by_first.setdefault(part & -part, []).append(part)
    for each in by_first.values():
        each.sort(key=lambda part: (-score(part), -reversed_bits(part, count)))

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


def path_through(rank: Rank, least: int, closed: bool) -> tuple[int, ...] | None:
    """A path through all devices over links of rank `least` or better; None if there is none.

    `closed`: a ring, whose last device has a link to the first one. Where there are several
    paths, one that begins with low numbers. Works for up to 16 devices.
    """
    count, neighbours = len(rank), _neighbours(rank, least)
    # For one device, two, …: the families of the sets with a path that ends at each device. Rings begin at 0.
    ends = [[1 << (1 << v) if not closed or v == 0 else 0 for v in range(count)]]
    while len(ends) < count:
        ends.append(_longer(ends[-1], neighbours, _without(count)))
    path: list[int] = []
    rest = (1 << count) - 1
    for sets in reversed(ends):
        open_ = neighbours[path[-1]] if path else neighbours[0] if closed and count > 1 else range(count)
        found = next((v for v in open_ if rest >> v & 1 and sets[v] >> rest & 1), None)
        if found is None:
            return None
        path.append(found)
        rest &= ~(1 << found)
    # The walk found the ring from the device before the first one.
    return (path[-1], *path[:-1]) if closed else tuple(path)


def reversed_bits(number: int, width: int) -> int:
    """The number with its `width` bits reversed.

    Of two sets of the same size, the set with the lower devices has the larger reversed number.
    """
    return int(bin(number)[:1:-1].ljust(width, "0"), 2)


@lru_cache(maxsize=2048)
def _devices_of(part: int) -> list[int]:
    """Cache `bit_positions` of a part, which is in hundreds of packings: 16 devices have 1820 groups of 4."""
    return bit_positions(part)


def bit_positions(number: int) -> list[int]:
    """The indices of the bits that are set, ascending."""
    text = bin(number)[:1:-1]
    found, place = [], text.find("1")
    while place >= 0:
        found.append(place)
        place = text.find("1", place + 1)
    return found


def _union(sets: Iterable[int]) -> int:
    found = 0
    for each in sets:
        found |= each
    return found


def strongest(rank: Rank, devices: Sequence[int], chain: bool = False) -> int | None:
    """The rank of the weakest link of the best ring, or `chain`, through `devices`; None for fewer than two.

    Exact for up to 16 devices. For more devices, the result for a ring is a lower bound (a better ring may
    exist), and the result for a chain is that of the given order.
    """
    count = len(devices)
    if count < 2:
        return None
    if chain and count > MAX_EXACT:
        return min(rank[a][b] for a, b in pairwise(devices))
    table = [[rank[i][j] for j in devices] for i in devices]
    levels = sorted({table[i][j] for i in range(count) for j in range(i)}, reverse=True)
    if not chain and count > 2:
        # A ring uses two links of each device, so it is no better than any device's second best link.
        most = min(sorted(row[:i] + row[i + 1 :])[-2] for i, row in enumerate(table))
        levels = [level for level in levels if level <= most]
    if count > MAX_EXACT:
        return next((level for level in levels if _certainly_has_ring(table, level)), levels[-1])
    return next(level for level in levels if joined(table, level, count, chain) >> ((1 << count) - 1) & 1)


def _certainly_has_ring(table: Rank, least: int) -> bool:
    """Whether a ring over links of rank `least` or better is known to exist.

    It does if each device has such links to at least half of the others (Dirac, 1952), or if a greedy walk
    finds one (Warnsdorff's rule).
    """
    count, neighbours = len(table), [*map(set, _neighbours(table, least))]
    if all(len(each) * 2 >= count for each in neighbours):
        return True
    if any(len(each) < 2 for each in neighbours):
        return False
    return any(_greedy_walk_closes(neighbours, start) for start in range(min(count, _MAX_STARTS)))


def _greedy_walk_closes(neighbours: Sequence[set[int]], start: int) -> bool:
    """Whether a walk that always goes to the neighbour with the fewest free neighbours closes a ring."""
    at, rest = start, set(range(len(neighbours))) - {start}
    while rest:
        alternatives = neighbours[at] & rest
        if not alternatives:
            return False
        at = min(alternatives, key=lambda v: (len(neighbours[v] & rest), v))
        rest.discard(at)
    return start in neighbours[at]
