"""The order of chosen devices: the n-th is rank n of a job that starts a process a device. Pure.

Tensor-parallel groups are consecutive ranks, so that each group stands together; then come the neighbours of
a pipeline. Where an order gains nothing devices stay in the box's order, as on a box behind NVSwitches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Literal, get_args

from gputui.choosing.grouping import Grouping
from gputui.choosing.matching import bottleneck, matched
from gputui.choosing.pairs import Pairs
from gputui.choosing.rings import MOST_EXACT, chains, partings, rings, strongest_ring, way_through
from gputui.choosing.rings import members as places_of
from gputui.choosing.sets import Found
from gputui.choosing.sums import Sums
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB

Order = Literal["best", "given", "fastest", "emptiest"]
ORDERS: tuple[Order, ...] = get_args(Order)

_MOST_STEPS = 1_000
_MOST_PARTINGS, _MOST_OF_MANY = 105, 24
"""Steps of a search, and ways to part a set into groups, after which the best that was found is taken.
Eight devices have 105 ways to make pairs: up to there every one is looked at. Of more the first few, which
put together what is joined best; the weakest link of the groups is that of the best in any case."""

_Group = tuple[int, ...]


def slowness(device: Device) -> tuple[int, ...]:
    """By compute capability, then by cores times clock; less is faster, and what is not known is slowest."""
    major, minor = device.capability or (0, 0)
    return -major, -minor, -(device.cores or 0) * (device.max_sm_clock or 0)


def fullness(device: Device) -> tuple[int, ...]:
    """By free memory, then by load; less is emptier, and what is not known is fullest.

    To the nearest GiB: a few MiB are no reason for an order.
    """
    free = 1 if device.memory_free is None else -round(device.memory_free / GIB)
    return free, 101 if device.utilization is None else device.utilization


MEASURES: dict[Order, Callable[[Device], tuple[int, ...]]] = {"fastest": slowness, "emptiest": fullness}
"""Orders that go by the devices themselves, and what they sort by; `pick` also takes devices by them."""


def measured(order: Order, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices in one of the orders of `MEASURES`; of equal ones the first stay first."""
    return tuple(sorted(devices, key=MEASURES[order]))


def weakest_as_ordered(pairs: Pairs, order: Sequence[int], job: Grouping) -> int | None:
    """The rank of the weakest link that the job runs over on places in this very order; None for no links."""
    if job.independent or len(order) < 2 or not job.fits(len(order)):
        return None
    if job.tensor > 1:
        return min(strongest_ring(pairs.rank, part) or 0 for part in _batched(tuple(order), job.tensor))
    if job.pipeline > 1:
        abreast = len(order) // job.pipeline
        return min(pairs.rank[a][b] for a, b in zip(order, order[abreast:], strict=False))
    return strongest_ring(pairs.rank, order)


def arranged(pairs: Pairs, found: Found, job: Grouping) -> tuple[int, ...]:
    """The places of the set in the order that suits the job best; ascending where that gains nothing."""
    if found.weakest is None or len(found.members) < 3:
        return found.members
    if job.tensor > 1:
        return _groups(pairs, found, job)
    if job.pipeline > 1:
        return _stages(pairs, found, job)
    return _way(pairs, found.members, found.weakest, closed=True)


def _way(pairs: Pairs, members: _Group, least: int, closed: bool) -> _Group:
    """Through all members over links that are `least` or stronger: as they stand where that does."""
    ends = [*pairwise(members), *([(members[-1], members[0])] if closed else [])]
    if all(pairs.rank[a][b] >= least for a, b in ends):
        return members
    if len(members) > MOST_EXACT:
        return members
    way = way_through([[pairs.rank[i][j] for j in members] for i in members], least, closed)
    return members if way is None else tuple(members[place] for place in way)


def _stages(pairs: Pairs, found: Found, job: Grouping) -> _Group:
    """Chains side by side: stage by stage, the same chain at the same place of each."""
    assert found.weakest is not None
    members, least = found.members, found.weakest
    abreast = len(members) // job.pipeline
    if all(pairs.rank[a][b] >= least for a, b in zip(members, members[abreast:], strict=False)):
        return members
    parts = found.parts or next(_parted(pairs, members, job.pipeline, least, chain=True), ())
    lines = [_way(pairs, part, least, closed=False) for part in parts]
    return tuple(line[stage] for stage in range(job.pipeline) for line in lines) or members


def _parted(
    pairs: Pairs, members: _Group, size: int, least: int, chain: bool
) -> Iterator[tuple[_Group, ...]]:
    """The ways to part the members into rings or chains of `size` over links of `least` or stronger."""
    if len(members) > MOST_EXACT:
        return
    inside = pairs.among(members)
    parts = (chains if chain else rings)(inside.rank, least, size)
    for way in partings(parts, len(members), len(members) // size, Sums(inside).of):
        yield tuple(tuple(members[place] for place in places_of(part)) for part in way)


def _groups(pairs: Pairs, found: Found, job: Grouping) -> _Group:
    """Tensor-parallel groups one after another; the stages of a pipeline next to each other."""
    assert found.weakest is not None
    if found.parts:
        plain = tuple(_batched(found.members, job.tensor))
        good = all((strongest_ring(pairs.rank, part) or 0) >= found.weakest for part in plain)
        grown = tuple(sorted(tuple(sorted(part)) for part in found.parts))
        alternatives = iter([plain, grown] if good else [grown])
    else:
        alternatives = _parted(pairs, found.members, job.tensor, found.weakest, chain=False)
    most, piping = _most(pairs, found.members, job), _Piping(pairs, job.pipeline)
    best: tuple[tuple[int, int], _Group] | None = None
    for groups in islice(alternatives, _MOST_PARTINGS if len(found.members) <= 8 else _MOST_OF_MANY):
        weakest, order = piping.lay(groups)
        key = (weakest, sum(pairs.sum(group) for group in groups))
        if best is None or key > best[0]:
            best = (key, order)
        if key >= most:
            break
    return best[1] if best else found.members


def _batched(members: _Group, size: int) -> Iterator[_Group]:
    """The members by so many (itertools has it from Python 3.12 on)."""
    for at in range(0, len(members), size):
        yield members[at : at + size]


def _most(pairs: Pairs, members: _Group, job: Grouping) -> tuple[int, int]:
    """What no order of the members can surpass: every link that is used the best of all."""
    ranks = [pairs.rank[i][j] for place, i in enumerate(members) for j in members[:place]]
    worths = [pairs.worth[i][j] for place, i in enumerate(members) for j in members[:place]]
    inside = len(members) * (job.tensor - 1) // 2
    return (max(ranks) if job.pipeline > 1 else 0, max(worths) * inside)


class _Piping:
    """Lays groups out as a pipeline. Ranks go by group within a stage, then by stage; the i-th device of a
    group talks to the i-th of the same group of the next stage."""

    def __init__(self, pairs: Pairs, stages: int) -> None:
        self._pairs, self._stages = pairs, stages
        self._between: dict[tuple[_Group, _Group], int] = {}

    def lay(self, groups: tuple[_Group, ...]) -> tuple[int, _Group]:
        """The rank of the weakest link between neighbours, and the order."""
        if self._stages == 1:
            return 0, tuple(i for group in groups for i in group)
        between = {
            (a, b): self._joined(groups[min(a, b)], groups[max(a, b)])
            for a in range(len(groups))
            for b in range(len(groups))
            if a != b
        }
        least, lines = _lines(between, len(groups), self._stages)
        chains = [_aligned(self._pairs, [groups[place] for place in line]) for line in lines]
        return least, tuple(i for stage in range(self._stages) for chain in chains for i in chain[stage])

    def _joined(self, one: _Group, other: _Group) -> int:
        """The weakest link between two groups whose devices are paired best."""
        if (one, other) not in self._between:
            self._between[one, other] = bottleneck([[self._pairs.rank[i][j] for j in other] for i in one])
        return self._between[one, other]


def _lines(between: dict[tuple[int, int], int], count: int, stages: int) -> tuple[int, list[list[int]]]:
    """`count` groups as lines of `stages` groups, so that the weakest step along a line is strongest."""
    abreast = count // stages
    straight = [list(range(line, count, abreast)) for line in range(abreast)]
    reached = min(between[step] for line in straight for step in pairwise(line))
    for least in sorted(set(between.values()), reverse=True):
        if least == reached:
            break
        lines = _lined(between, list(range(count)), stages, least, [_MOST_STEPS])
        if lines is not None:
            return least, lines
    return reached, straight


def _lined(
    between: dict[tuple[int, int], int], rest: list[int], stages: int, least: int, steps: list[int]
) -> list[list[int]] | None:
    if not rest:
        return []

    def longer(line: list[int]) -> list[list[int]] | None:
        steps[0] -= 1
        if steps[0] < 0:
            return None
        if len(line) == stages:
            if rest[0] not in line:
                return None
            others = _lined(between, [g for g in rest if g not in line], stages, least, steps)
            return None if others is None else [line, *others]
        for group in rest:
            if group not in line and between[line[-1], group] >= least:
                found = longer([*line, group])
                if found is not None:
                    return found
        return None

    for start in rest:
        found = longer([start])
        if found is not None:
            return found
    return None


def _aligned(pairs: Pairs, chain: Sequence[_Group]) -> list[_Group]:
    """The groups of one line with their devices in such orders that neighbours are joined best."""
    aligned = [chain[0]]
    for group in chain[1:]:
        before = aligned[-1]
        table = [[pairs.rank[i][j] for j in group] for i in before]
        aligned.append(tuple(group[place] for place in matched(table, bottleneck(table))))
    return aligned
