"""Good sets of devices in a box too large to look at every set: grown one by one, then improved. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from gputui.choosing.pairs import Pairs

_MOST_SEEDS = 6
"""Sets that are grown: each costs some milliseconds with 72 devices."""
_MOST_SWAPS = 4
_MOST_NEIGHBOURHOODS = 3
_MOST_STARTS = 8


def grown_sets(
    pairs: Pairs, count: int, size: int, chain: bool, needed: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Sets of `count` devices, part by part of `size`: each grown from another device, and then improved.

    In a `chain` only the links from each to the next count. Every set has the `needed` devices in it.
    """
    for seed in _seeds(pairs, needed):
        if size == count:
            grown = _grow(pairs, [seed], needed, count, set(range(len(pairs))), chain)
            yield tuple(grown)
            if not chain:
                yield tuple(_improved(pairs, grown, needed))
            continue
        chosen: list[int] = []
        rest = set(range(len(pairs)))
        strongest: int | None = None
        for _ in range(count // size):
            wanted = [i for i in needed if i in rest]
            start = seed if seed in rest else wanted[0] if wanted else _loneliest(pairs, rest, chosen)
            part = _grow(pairs, [start], wanted, size, rest, chain)
            weakest = _weakest(pairs, part, chain)
            if strongest is not None and weakest < strongest and not wanted:
                # Begun in the wrong place: perhaps too few are left around it.
                part = _best_part(pairs, part, size, rest, chain)
                weakest = _weakest(pairs, part, chain)
            strongest = weakest if strongest is None else max(strongest, weakest)
            chosen += part
            rest -= set(part)
        if set(needed) <= set(chosen):
            yield tuple(chosen)


def neighbourhoods(pairs: Pairs, size: int, needed: Sequence[int]) -> Iterator[list[int]]:
    """Some sets of `size` devices that are joined well, ascending, each grown from another device."""
    told: set[tuple[int, ...]] = set()
    for seed in _seeds(pairs, needed):
        near = sorted(_grow(pairs, [seed], needed, size, set(range(len(pairs))), chain=False))
        if tuple(near) not in told and len(told) < _MOST_NEIGHBOURHOODS:
            told.add(tuple(near))
            yield near


def _seeds(pairs: Pairs, needed: Sequence[int]) -> list[int]:
    """Devices to begin with, not two that are alike."""
    seeds = list(needed[:1]) or [twins[0] for twins in pairs.twins]
    return seeds[:: max(1, len(seeds) // _MOST_SEEDS)][:_MOST_SEEDS]


def _grow(
    pairs: Pairs, part: list[int], needed: Sequence[int], size: int, among: set[int], chain: bool
) -> list[int]:
    """The part, made larger by the device with the strongest weakest link to it, until it has `size`."""
    part = [*part, *(i for i in needed if i not in part and len(part) < size)][:size]
    ends = part[-1:] if chain else part
    open_ = among - set(part)
    weakest = {v: min(pairs.rank[v][i] for i in ends) for v in open_}
    worth = {v: sum(pairs.worth[v][i] for i in part) for v in open_}
    while len(part) < size:
        nodes = {pairs.node[i] for i in part}
        # (Bound now: the functions below are used within this round only.)
        best = max(
            open_,
            key=lambda v, nodes=nodes: (  # type: ignore[misc]
                weakest[v],
                worth[v],
                pairs.node[v] in nodes,
                -pairs.degree[v],
                pairs.memory[v],
                -v,
            ),
        )
        part.append(best)
        open_.discard(best)
        for v in open_:
            weakest[v] = pairs.rank[v][best] if chain else min(weakest[v], pairs.rank[v][best])
            worth[v] += pairs.worth[v][best]
    return part


def _weakest(pairs: Pairs, part: Sequence[int], chain: bool) -> int:
    steps = pairwise(part) if chain else combinations(part, 2)
    return min((pairs.rank[i][j] for i, j in steps), default=0)


def _best_part(pairs: Pairs, part: list[int], size: int, rest: set[int], chain: bool) -> list[int]:
    """The strongest of `part` and of those that begin elsewhere."""
    starts = [next(i for i in twins if i in rest) for twins in pairs.twins if rest.intersection(twins)]
    parts = [_grow(pairs, [start], (), size, rest, chain) for start in starts[:_MOST_STARTS]]
    return max([part, *parts], key=lambda each: (_weakest(pairs, each, chain), pairs.sum(each)))


def _loneliest(pairs: Pairs, rest: set[int], chosen: Sequence[int]) -> int:
    """Where to begin the next part: near to those before, and whoever has the fewest good partners."""
    return max(
        rest,
        key=lambda v: (
            max((pairs.rank[v][w] for w in rest if w != v), default=0),
            sum(pairs.worth[v][i] for i in chosen),
            -pairs.degree[v],
            -v,
        ),
    )


def _improved(pairs: Pairs, chosen: Sequence[int], needed: Sequence[int]) -> list[int]:
    """The set after exchanging devices one by one, as long as the sum of its links grows and no link in it
    becomes weaker than the weakest was."""
    now = list(chosen)
    for _ in range(_MOST_SWAPS):
        inside = {v: sum(pairs.worth[v][i] for i in now) for v in range(len(pairs))}
        weakest = min(pairs.rank[i][j] for i in now for j in now if i != j)
        best: tuple[int, int, int] | None = None
        for out in now:
            if out in needed:
                continue
            for other in range(len(pairs)):
                if other in now:
                    continue
                gain = inside[other] - pairs.worth[other][out] - inside[out]
                if gain > 0 and (best is None or gain > best[0]):
                    ranks = (pairs.rank[other][i] for i in now if i != out)
                    if min(ranks, default=weakest) >= weakest:
                        best = (gain, out, other)
        if best is None:
            break
        now[now.index(best[1])] = best[2]
    return now
