"""Finds good sets in boxes with too many devices to compare every set: greedy growth. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from gputui.choosing.pair_scores import PairScores

_MAX_SEEDS = 6
"""The number of devices from which sets are grown: with 72 devices, a set takes some milliseconds."""
_MAX_NEIGHBOURHOODS = 3
_MAX_STARTS = 8
"""The number of devices from which a weak part is grown again."""


def greedy_sets(
    pairs: PairScores, count: int, size: int, chain: bool, required: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Sets of `count` devices as consecutive parts of `size`; each set is grown from another device.

    In a `chain` only the links between consecutive devices count. Every set contains the `required` places.
    """
    for seed in _seeds(pairs, required):
        members: list[int] = []
        rest = set(range(len(pairs)))
        strongest: int | None = None
        while len(members) < count:
            wanted = [i for i in required if i in rest]
            start = seed if seed in rest else wanted[0] if wanted else _next_start(pairs, rest, members)
            part = _grow(pairs, start, wanted, size, rest, chain)
            weakest = _weakest(pairs, part, chain)
            if strongest is not None and weakest < strongest and not wanted:
                # There may be too few good devices left around this start: try others.
                part = _best_part(pairs, part, size, rest, chain)
                weakest = _weakest(pairs, part, chain)
            strongest = weakest if strongest is None else max(strongest, weakest)
            members += part
            rest -= set(part)
        if set(required) <= set(members):
            yield tuple(members)


def neighbourhoods(pairs: PairScores, size: int, required: Sequence[int]) -> Iterator[list[int]]:
    """Some sets of `size` well-connected devices, ascending, each grown from another device."""
    seen: set[tuple[int, ...]] = set()
    for seed in _seeds(pairs, required):
        near = sorted(_grow(pairs, seed, required, size, set(range(len(pairs))), chain=False))
        if tuple(near) not in seen and len(seen) < _MAX_NEIGHBOURHOODS:
            seen.add(tuple(near))
            yield near


def _seeds(pairs: PairScores, required: Sequence[int]) -> list[int]:
    """Devices from which sets are grown: one of each class of interchangeable devices, or a required one."""
    seeds = list(required[:1]) or [alike[0] for alike in pairs.interchangeable]
    return seeds[:: max(1, len(seeds) // _MAX_SEEDS)][:_MAX_SEEDS]


def _grow(
    pairs: PairScores, start: int, required: Sequence[int], size: int, among: set[int], chain: bool
) -> list[int]:
    """A part of `size` devices of `among`, with `start` and the required devices.

    Each step adds the device whose weakest link to the part is best.
    """
    part = [start, *(i for i in required if i != start)][:size]
    ends = part[-1:] if chain else part
    open_ = among - set(part)
    weakest = {v: min(pairs.rank[v][i] for i in ends) for v in open_}
    score = {v: sum(pairs.score[v][i] for i in part) for v in open_}
    of_its_own = {
        v: (
            *(pairs.memory_tier[v], -pairs.slowness_weight[v], -pairs.degree[v]),
            *(-pairs.display[v], pairs.free_gib[v]),
        )
        for v in open_
    }
    while len(part) < size:
        nodes = {pairs.numa[i] for i in part}
        # The last number makes the lowest place win, and identifies that place.
        best = -max((weakest[v], score[v], pairs.numa[v] in nodes, *of_its_own[v], -v) for v in open_)[-1]
        part.append(best)
        open_.discard(best)
        for v in open_:
            weakest[v] = pairs.rank[v][best] if chain else min(weakest[v], pairs.rank[v][best])
            score[v] += pairs.score[v][best]
    return part


def _weakest(pairs: PairScores, part: Sequence[int], chain: bool) -> int:
    """The rank of the weakest link between any two devices, or between consecutive devices of a chain."""
    steps = pairwise(part) if chain else combinations(part, 2)
    return min((pairs.rank[i][j] for i, j in steps), default=0)


def _best_part(pairs: PairScores, part: list[int], size: int, rest: set[int], chain: bool) -> list[int]:
    """The best of `part` and the parts that are grown from other devices."""
    starts = [
        next(i for i in alike if i in rest) for alike in pairs.interchangeable if rest.intersection(alike)
    ]
    parts = [_grow(pairs, start, (), size, rest, chain) for start in starts[:_MAX_STARTS]]
    return max([part, *parts], key=lambda each: (_weakest(pairs, each, chain), pairs.score_within(each)))


def _next_start(pairs: PairScores, rest: set[int], members: Sequence[int]) -> int:
    """The device from which the next part grows.

    Its best link to a remaining device decides, then its scores to the parts before, then low other scores.
    """
    return max(
        rest,
        key=lambda v: (
            max((pairs.rank[v][w] for w in rest if w != v), default=0),
            sum(pairs.score[v][i] for i in members),
            -pairs.degree[v],
            -v,
        ),
    )
