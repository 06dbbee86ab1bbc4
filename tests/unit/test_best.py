"""The best sets: never worse than any other set, never worse than NVIDIA's allocator, whatever the box.

The comparison is that of `choosing/sets.py`; `_exhaustive` makes it for every set there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.choosing.best import MOST, Best, best
from gputui.choosing.job import ALL_REDUCE, Job
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.spec import sockets, uniform
from unit.builders import GIB, box, gpu
from unit.wired import PCIE, boxes, indices, matrix, recorded, renumbered, strong, weakest_of, wired

INDEPENDENT = Job(independent=True)
JOBS = (ALL_REDUCE, Job(2), Job(4), Job(1, 2), Job(1, 4), INDEPENDENT, Job(3), Job(1, 3), Job(2, 2))


def _best(
    snapshot: Snapshot, count: int, job: Job = ALL_REDUCE, required: Collection[int] = ()
) -> list[Best]:
    keys = {snapshot.devices[i].key for i in required}
    return list(best(snapshot, snapshot.devices, count, job, keys))


def _sets(ways: Sequence[Best]) -> list[tuple[int, ...]]:
    return [tuple(sorted(indices(way.devices))) for way in ways]


# Every set there is


def _worth(snapshot: Snapshot, one: int, other: int) -> int:
    """NVIDIA's go-gpuallocator: the PCIe class, and 100 for each NVLink."""
    word = snapshot.links[one][other] or ""
    under = snapshot.pcie[one][other] if snapshot.pcie else None
    nvlinks = int(word[2:]) if word.startswith("NV") else 0
    classes = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}
    return classes.get(under or word, 0) + 100 * nvlinks


def _nodes(snapshot: Snapshot, candidates: Sequence[int]) -> dict[int, Any]:
    """The NUMA node of each: by what is nearer than SYS where that has been read; not known is apart."""
    if not snapshot.pcie:
        told = {i: snapshot.devices[i].numa_node for i in candidates}
        return {i: ("alone", i) if node is None else node for i, node in told.items()}
    node: dict[int, Any] = {}
    for start in candidates:
        ways = [] if start in node else [start]
        while ways:
            here = ways.pop()
            node[here] = start
            ways += [i for i in candidates if i not in node and snapshot.pcie[here][i] in PCIE[1:]]
    return node


Key = tuple[Any, ...]


def _keys(snapshot: Snapshot, candidates: Sequence[int], job: Job) -> Callable[[Sequence[int]], Key]:
    """What sets are compared by, larger is better; all but the lowest numbers."""
    nodes = _nodes(snapshot, candidates)
    worth = {pair: _worth(snapshot, *pair) for pair in combinations(candidates, 2)}

    def total(some: Sequence[int]) -> int:
        return sum(worth[pair] for pair in combinations(some, 2))

    def key(chosen: Sequence[int]) -> Key:
        weakest = weakest_of(lambda a, b: strong(snapshot, a, b), chosen, job)
        left = total([i for i in candidates if i not in chosen])
        memory = sum(round((snapshot.devices[i].memory_free or 0) / GIB) for i in chosen)
        if job.independent:
            return (weakest, left, memory)
        return (weakest, total(chosen), -len({nodes[i] for i in chosen}), left, memory)

    return key


def _exhaustive(
    snapshot: Snapshot, candidates: Sequence[int], count: int, job: Job, required: Collection[int] = ()
) -> list[tuple[Key, tuple[int, ...]]]:
    """Every set with its key, the best first; of equal ones the one with the lowest numbers."""
    key = _keys(snapshot, candidates, job)
    every = [
        (key(chosen), tuple(-i for i in chosen))
        for chosen in combinations(candidates, count)
        if set(required) <= set(chosen)
    ]
    return [(key, tuple(-i for i in chosen)) for key, chosen in sorted(every, reverse=True)]


@st.composite
def _asked(draw: st.DrawFn, jobs: Sequence[Job], most: int) -> tuple[Job, int]:
    job = draw(st.sampled_from([job for job in jobs if job.unit <= most]))
    return job, job.unit * draw(st.integers(1, most // job.unit))


@given(boxes(), st.data())
@settings(max_examples=250, deadline=None)
def test_no_set_is_better_and_the_alternatives_are_the_next_best(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    everyone = range(len(snapshot.devices))
    out = data.draw(st.sets(st.sampled_from(everyone), max_size=len(everyone) - 2))
    candidates = [i for i in everyone if i not in out]
    job, count = data.draw(_asked(JOBS, len(candidates)))
    required = data.draw(st.one_of(st.just(set()), st.sets(st.sampled_from(candidates), max_size=count)))
    keys = {snapshot.devices[i].key for i in required}
    ways = best(snapshot, [snapshot.devices[i] for i in candidates], count, job, keys)
    every = _exhaustive(snapshot, candidates, count, job, required)
    key_of = {chosen: key for key, chosen in every}

    assert all(way.exact for way in ways)
    found = _sets(ways)
    assert found[0] == every[0][1]
    assert len(set(found)) == len(found) <= MOST
    assert [key_of[each] for each in found] == sorted((key_of[each] for each in found), reverse=True)
    for key, _ in every:
        # Left out is only what is worse than the last, or one of equals.
        assert key in map(key_of.get, found) or (len(found) == MOST and key <= key_of[found[-1]])
    for way, each in zip(ways, found, strict=True):
        assert _told_as(snapshot, each, way.weakest, key_of[each][0])


def _told_as(snapshot: Snapshot, chosen: Sequence[int], word: str | None, weakest: Any) -> bool:
    """Whether the word that is told is the weakest link that was found."""
    if weakest is None or weakest == (0,):
        return word is None
    return any(
        strong(snapshot, *pair) == weakest and snapshot.links[pair[0]][pair[1]] == word
        for pair in combinations(chosen, 2)
    )


# NVIDIA's allocator


def _allocator(snapshot: Snapshot, size: int) -> tuple[tuple[int, ...], int]:
    """The set that go-gpuallocator's best-effort policy allocates of all devices, and its score."""

    def score(part: Sequence[int | None]) -> int:
        real = [i for i in part if i is not None]
        return sum(_worth(snapshot, *pair) for pair in combinations(real, 2))

    everyone: list[int | None] = list(range(len(snapshot.devices)))
    padding = -len(everyone) % size
    most, kept = -1, ()
    for partition in _padded(everyone + [None] * padding, size, padding):
        total = sum(map(score, partition))
        if total > most:
            most, kept = total, partition
    whole = [part for part in kept if None not in part]
    chosen = max(whole, key=score)
    return chosen, score(chosen)


def _padded(
    devices: list[int | None], size: int, padding: int
) -> Iterator[tuple[tuple[int | None, ...], ...]]:
    """Partitions in its order; the padding is in one set."""
    if len(devices) == size:
        yield (tuple(devices),)
        return
    for places in combinations(range(1, len(devices)), size - 1):
        part = (devices[0], *(devices[place] for place in places))
        if part.count(None) in (0, padding):
            left = [each for place, each in enumerate(devices) if place and place not in places]
            for others in _padded(left, size, padding):
                yield (part, *others)


def _compare_with_the_allocator(snapshot: Snapshot, size: int) -> None:
    theirs, score = _allocator(snapshot, size)
    ours = _sets(_best(snapshot, size))[0]

    def rank(a: int, b: int) -> tuple[int, ...]:
        return strong(snapshot, a, b)

    weakest = [weakest_of(rank, chosen, ALL_REDUCE) for chosen in (ours, theirs)]
    assert weakest[0] >= weakest[1]
    if weakest[0] == weakest[1]:
        assert sum(_worth(snapshot, *pair) for pair in combinations(ours, 2)) >= score


@given(boxes(known=True), st.data())
@settings(max_examples=150, deadline=None)
def test_never_worse_than_the_allocator_of_nvidia_by_its_own_score(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    _compare_with_the_allocator(snapshot, data.draw(st.integers(2, len(snapshot.devices))))


@pytest.mark.parametrize("size", range(2, 9))
def test_on_a_dgx_1_never_worse_than_the_allocator_of_nvidia(size: int) -> None:
    snapshot = recorded("v100_dgx1_hybrid_cube_mesh_mlx5")
    usable = replace(snapshot, peers=matrix(8, ["OK"] * 28))
    _compare_with_the_allocator(usable, size)


# Numbers are names


@given(boxes(), st.data())
@settings(max_examples=120, deadline=None)
def test_under_other_numbers_the_sets_are_as_good(snapshot: Snapshot, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(snapshot.devices))))
    job, count = data.draw(_asked(JOBS, len(order)))
    other = renumbered(snapshot, order)

    def keys(of: Snapshot) -> list[Key]:
        return list(map(_keys(of, range(len(order)), job), _sets(_best(of, count, job))))

    assert keys(snapshot) == keys(other)
    told = [{way.weakest for way in _best(of, count, job)} for of in (snapshot, other)]
    assert told[0] == told[1]


@given(boxes(), st.data())
@settings(max_examples=50, deadline=None)
def test_the_same_box_gets_the_same_answer(snapshot: Snapshot, data: st.DataObject) -> None:
    job, count = data.draw(_asked(JOBS, len(snapshot.devices)))
    assert _best(snapshot, count, job) == _best(replace(snapshot), count, job)


# What is not known


def test_a_link_that_is_not_known_is_not_preferred_to_the_weakest_that_is() -> None:
    snapshot = wired(matrix(3, [None, "SYS", None]))
    assert _sets(_best(snapshot, 2))[0] == (0, 2)
    assert _best(snapshot, 2)[0].weakest == "SYS"


def test_a_link_that_cannot_be_used_is_still_preferred_to_one_that_is_not_known() -> None:
    snapshot = replace(wired(matrix(3, [None, "SYS", None])), peers=matrix(3, ["OK", "CNS", "OK"]))
    assert _sets(_best(snapshot, 2))[0] == (0, 2)


@pytest.mark.parametrize("peer", ["CNS", "GNS", "TNS", "DR", "NS", "U", None])
def test_peer_access_that_is_not_known_to_be_there_is_not_preferred_to_one_that_is(peer: str | None) -> None:
    snapshot = replace(wired(matrix(3, ["PIX", "SYS", "PIX"])), peers=matrix(3, [peer, "OK", peer]))
    assert _sets(_best(snapshot, 2))[0] == (0, 2)


@given(boxes(least=3))
@settings(max_examples=80, deadline=None)
def test_a_pair_is_usable_if_any_is_and_known_if_any_is(snapshot: Snapshot) -> None:
    pairs = list(combinations(range(len(snapshot.devices)), 2))
    known = [(i, j) for i, j in pairs if snapshot.links[i][j] is not None]
    usable = [(i, j) for i, j in known if snapshot.peers[i][j] == "OK"]
    assert _sets(_best(snapshot, 2))[0] in (usable or known or pairs)


@given(boxes(known=True), st.data())
@settings(max_examples=80, deadline=None)
def test_a_box_of_which_less_is_known_is_never_promised_a_stronger_link(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    count = len(snapshot.devices)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    hidden = data.draw(st.sets(st.sampled_from(pairs)))
    cells = [None if pair in hidden else snapshot.links[pair[0]][pair[1]] for pair in pairs]
    job, many = data.draw(_asked(JOBS[:5], count))
    less = replace(snapshot, links=matrix(count, cells))
    chosen = _sets(_best(less, many, job))[0]
    promised = weakest_of(lambda a, b: strong(less, a, b), chosen, job)
    true = weakest_of(lambda a, b: strong(snapshot, a, b), _sets(_best(snapshot, many, job))[0], job)
    assert promised is None or promised <= true


def test_without_any_links_read_numa_nodes_and_memory_decide() -> None:
    snapshot = box(gpu(0, numa_node=0), gpu(1, numa_node=1), gpu(2, numa_node=0), gpu(3, numa_node=None))
    assert _sets(_best(snapshot, 2))[0] == (0, 2)
    assert _best(snapshot, 2)[0].weakest is None


# What is asked for


@pytest.mark.parametrize("count", [3, 4, 100])
def test_of_too_few_there_is_no_set(count: int) -> None:
    assert _best(wired(uniform(2, "NV4")), count) == []


def test_more_required_than_asked_for_has_no_set() -> None:
    assert _best(wired(uniform(4, "NV4")), 2, required=(0, 1, 2)) == []


@given(boxes(least=3), st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_required_is_in_every_set(snapshot: Snapshot, data: st.DataObject) -> None:
    job, count = data.draw(_asked(JOBS, len(snapshot.devices)))
    required = data.draw(st.sets(st.sampled_from(range(len(snapshot.devices))), min_size=1, max_size=count))
    ways = _sets(_best(snapshot, count, job, required))
    assert ways and all(required <= set(way) for way in ways)


def test_of_devices_that_are_alike_one_set_is_told() -> None:
    assert _sets(_best(wired(uniform(8, "NV18")), 4)) == [(0, 1, 2, 3)]


def test_as_many_are_told_as_are_asked_for() -> None:
    snapshot = wired(sockets((2, 2, 2), "NV4", "SYS"))
    assert _sets(best(snapshot, snapshot.devices, 2, most=1)) == [(0, 1)]
    assert _sets(_best(snapshot, 2))[:3] == [(0, 1), (2, 3), (4, 5)]


def test_only_candidates_are_taken_and_only_they_are_left_to_others() -> None:
    snapshot = wired(sockets((2, 2), "NV4", "SYS"))
    free = [snapshot.devices[i] for i in (0, 2, 3)]
    assert _sets(best(snapshot, free, 1))[0] == (0,), "its partner is busy: a pair is left whole"
    assert _sets(best(snapshot, free, 2))[0] == (2, 3)


# Large boxes


TRAYS = sockets((4,) * 18, "NV18", "SYS")
RACK = replace(wired(uniform(72, "NV18")), pcie=sockets((4,) * 18, "NODE", "SYS"))
"""One NVLink domain of 18 trays with four GPUs each."""


def _trays(chosen: Sequence[int]) -> bool:
    """Whether these are whole trays."""
    return all(chosen[at] % 4 == 0 and chosen[at + 3] == chosen[at] + 3 for at in range(0, len(chosen), 4))


@pytest.mark.parametrize("snapshot", [wired(TRAYS), RACK], ids=["islands", "rack"])
@pytest.mark.parametrize(
    ("count", "job"), [(4, ALL_REDUCE), (8, ALL_REDUCE), (8, Job(4)), (16, Job(4, 4)), (16, Job(1, 4))]
)
def test_of_seventy_two_in_trays_whole_trays_are_taken(snapshot: Snapshot, count: int, job: Job) -> None:
    ways = _best(snapshot, count, job)
    assert _trays(_sets(ways)[0]) and len(_sets(ways)[0]) == count
    assert ways[0].weakest == ("NV18" if snapshot is RACK or job.unit > 1 or count == 4 else "SYS")
    assert not ways[0].exact, "it was grown"
    assert ways == _best(snapshot, count, job)


@pytest.mark.parametrize("count", [1, 2, 7, 16, 17, 71, 72])
def test_of_seventy_two_that_are_alike_the_first_are_taken(count: int) -> None:
    (way,) = _best(wired(uniform(72, "NV18")), count)
    assert indices(way.devices) == list(range(count))
    assert way.exact or count > 16, "there is but one set, but rings of more than 16 are not all looked at"
    assert way.weakest == (None if count == 1 else "NV18")


@pytest.mark.parametrize(
    ("count", "job"), [(8, Job(4)), (72, Job(2, 36)), (72, Job(8)), (64, Job(1, 8)), (72, Job(1, 72))]
)
def test_of_seventy_two_that_are_alike_groups_and_stages_are_as_good_as_any(count: int, job: Job) -> None:
    way = _best(wired(uniform(72, "NV18")), count, job)[0]
    assert sorted(indices(way.devices)) == list(range(count)) and way.weakest == "NV18"


@given(st.integers(17, 24), st.data())
@settings(max_examples=25, deadline=None)
def test_in_a_large_box_every_answer_is_a_set_of_the_right_size_with_what_is_required(
    count: int, data: st.DataObject
) -> None:
    pairs = count * (count - 1) // 2
    words = st.lists(st.sampled_from(("SYS", "PHB", "NV2", "NV4")), min_size=pairs, max_size=pairs)
    snapshot = wired(matrix(count, data.draw(words)))
    job, many = data.draw(_asked(JOBS, count))
    required = data.draw(st.sets(st.sampled_from(range(count)), max_size=min(many, 3)))
    ways = _best(snapshot, many, job, required)
    assert ways and ways == _best(snapshot, many, job, required)
    assert len(set(_sets(ways))) == len(ways)
    for way, chosen in zip(ways, _sets(ways), strict=True):
        assert len(set(chosen)) == many and required <= set(chosen)
        if job is INDEPENDENT or many == 1:
            continue
        # What is promised is there: it may be more than the weakest that is used.
        assert way.weakest in {snapshot.links[i][j] for i, j in combinations(chosen, 2)}


@given(boxes(least=17, most=18), st.sampled_from([ALL_REDUCE, INDEPENDENT, Job(2), Job(1, 2)]), st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_in_a_large_box_a_set_that_is_called_exact_is_the_best(
    snapshot: Snapshot, job: Job, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 3)) if job.unit == 1 else 2
    ways = _best(snapshot, count, job)
    assert all(way.exact for way in ways), "there are few such sets"
    assert _sets(ways)[0] == _exhaustive(snapshot, range(len(snapshot.devices)), count, job)[0][1]


def test_in_a_large_box_a_ring_that_is_hard_to_find_is_not_denied() -> None:
    """Around 17 of 18 over NVLinks: going from each to the one with the fewest ways on does not get there."""
    around = (14, 6, 11, 1, 9, 16, 13, 15, 7, 5, 12, 8, 0, 3, 4, 2, 10)
    cells = [["PHB" if 17 in (i, j) else "SYS" for j in range(18)] for i in range(18)]
    for one, other in [*zip(around, (*around[1:], around[0]), strict=True), (0, 1), (7, 3), (4, 9)]:
        cells[one][other] = cells[other][one] = "NV4"
    snapshot = wired(matrix(18, [cells[i][j] for i in range(18) for j in range(i)]))
    way = _best(snapshot, 17)[0]
    assert way.weakest == "NV4" or not way.exact


@pytest.mark.parametrize("job", [Job(4), Job(2)], ids=str)
def test_in_a_large_box_the_alternatives_differ(job: Job) -> None:
    found = _sets(_best(wired(sockets((1, 4, 4, 4, 4), "NV18", "SYS")), 8, job))
    assert found and len(set(found)) == len(found)


def test_in_a_large_box_two_whole_trays_are_found_where_another_is_short() -> None:
    way = _best(wired(sockets((2, 4, 4, 4, 4), "NV18", "SYS")), 8, Job(4))[0]
    assert way.weakest == "NV18"


@pytest.mark.parametrize("job", [Job(4), Job(1, 4)], ids=str)
def test_in_a_large_box_three_whole_trays_are_found_where_two_others_are_short(job: Job) -> None:
    way = _best(wired(sockets((2, 3, 4, 4, 4), "NV18", "SYS")), 12, job)[0]
    assert way.weakest == "NV18"


@pytest.mark.parametrize("job", [Job(4), Job(1, 4)], ids=str)
def test_in_a_large_box_what_is_required_in_two_trays_gets_both_trays(job: Job) -> None:
    way = _best(wired(sockets((4,) * 5, "NV18", "SYS")), 8, job, required=(0, 16))[0]
    assert way.weakest == "NV18"


def test_in_a_large_box_a_chain_that_is_called_exact_is_the_best() -> None:
    """Two sides of nine: a chain of four goes from side to side."""
    way = _best(wired(sockets((9, 9), "PHB", "NV4")), 4, Job(1, 4))[0]
    assert way.weakest == "NV4" or not way.exact
