"""The best sets: never worse than any other set, nor than NVIDIA's allocator, whatever the box.

The comparison is that of `choosing/sets.py`; `every_set` applies it to every possible set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.best import MAX_ALTERNATIVES, best
from gputui.choosing.grouping import ALL_REDUCE
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.spec import sockets, uniform
from table_tests import each_row
from unit.builders import box, gpu
from unit.wired import (
    JOBS,
    Key,
    best_of,
    boxes,
    every_set,
    indices,
    jobs_and_counts,
    keys_of,
    matrix,
    recorded,
    renumbered,
    sets_of,
    strong,
    weakest_of,
    wired,
    worth_of,
)


@given(boxes(), st.data())
@settings(max_examples=50, deadline=None)
def test_no_set_is_better_and_the_alternatives_are_the_next_best(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    everyone = range(len(snapshot.devices))
    out = data.draw(st.sets(st.sampled_from(everyone), max_size=len(everyone) - 2))
    candidates = [i for i in everyone if i not in out]
    job, count = data.draw(jobs_and_counts(JOBS, len(candidates)))
    required = data.draw(st.one_of(st.just(set()), st.sets(st.sampled_from(candidates), max_size=count)))
    keys = {snapshot.devices[i].key for i in required}
    alternatives = best(snapshot, [snapshot.devices[i] for i in candidates], count, job, keys)
    every = every_set(snapshot, candidates, count, job, required)
    key_of = {chosen: key for key, chosen in every}

    found = sets_of(alternatives)
    assert found[0] == every[0][1]
    assert len(set(found)) == len(found) <= MAX_ALTERNATIVES
    assert [key_of[each] for each in found] == sorted((key_of[each] for each in found), reverse=True)
    for key, _ in every:
        # A set is left out only if it is no better than the last one found.
        assert key in map(key_of.get, found) or (len(found) == MAX_ALTERNATIVES and key <= key_of[found[-1]])
    for way, each in zip(alternatives, found, strict=True):
        assert _told_as(snapshot, each, way.weakest, key_of[each][0])


def _told_as(snapshot: Snapshot, chosen: Sequence[int], word: str | None, weakest: Any) -> bool:
    """Whether the reported word names the weakest link of the set."""
    if weakest is None or weakest == (0,):
        return word is None
    return any(
        strong(snapshot, *pair) == weakest and snapshot.links[pair[0]][pair[1]] == word
        for pair in combinations(chosen, 2)
    )


# NVIDIA's allocator


def _allocator(snapshot: Snapshot, size: int) -> tuple[tuple[int, ...], int]:
    """The set that go-gpuallocator's best-effort policy allocates out of all devices, and its score."""

    def score(part: Sequence[int | None]) -> int:
        real = [i for i in part if i is not None]
        return sum(worth_of(snapshot, *pair) for pair in combinations(real, 2))

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
    """Partitions in the allocator's order; all padding is in one set."""
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
    ours = sets_of(best_of(snapshot, size))[0]

    def rank(a: int, b: int) -> tuple[int, ...]:
        return strong(snapshot, a, b)

    weakest = [weakest_of(rank, chosen, ALL_REDUCE) for chosen in (ours, theirs)]
    assert weakest[0] >= weakest[1]
    if weakest[0] == weakest[1]:
        assert sum(worth_of(snapshot, *pair) for pair in combinations(ours, 2)) >= score


@given(boxes(known=True), st.data())
@settings(max_examples=50, deadline=None)
def test_never_worse_than_the_allocator_of_nvidia_by_its_own_score(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    _compare_with_the_allocator(snapshot, data.draw(st.integers(2, len(snapshot.devices))))


@each_row("size", range(2, 9))
def test_on_a_dgx_1_never_worse_than_the_allocator_of_nvidia(size: int) -> None:
    snapshot = recorded("v100_dgx1_hybrid_cube_mesh_mlx5")
    usable = replace(snapshot, peers=matrix(8, ["OK"] * 28))
    _compare_with_the_allocator(usable, size)


# Indices are only names


@given(boxes(), st.data())
@settings(max_examples=40, deadline=None)
def test_under_other_numbers_the_sets_are_as_good(snapshot: Snapshot, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(snapshot.devices))))
    job, count = data.draw(jobs_and_counts(JOBS, len(order)))
    other = renumbered(snapshot, order)

    def keys(of: Snapshot) -> list[Key]:
        return list(map(keys_of(of, range(len(order)), job), sets_of(best_of(of, count, job))))

    assert keys(snapshot) == keys(other)
    told = [{way.weakest for way in best_of(of, count, job)} for of in (snapshot, other)]
    assert told[0] == told[1]


@given(boxes(), st.data())
@settings(max_examples=25, deadline=None)
def test_the_same_box_gets_the_same_answer(snapshot: Snapshot, data: st.DataObject) -> None:
    job, count = data.draw(jobs_and_counts(JOBS, len(snapshot.devices)))
    assert best_of(snapshot, count, job) == best_of(replace(snapshot), count, job)


# Unknown facts


def test_a_link_that_is_not_known_is_not_preferred_to_the_weakest_that_is() -> None:
    snapshot = wired(matrix(3, [None, "SYS", None]))
    assert sets_of(best_of(snapshot, 2))[0] == (0, 2)
    assert best_of(snapshot, 2)[0].weakest == "SYS"


def test_a_link_that_cannot_be_used_is_still_preferred_to_one_that_is_not_known() -> None:
    snapshot = replace(wired(matrix(3, [None, "SYS", None])), peers=matrix(3, ["OK", "CNS", "OK"]))
    assert sets_of(best_of(snapshot, 2))[0] == (0, 2)


@each_row("peer", ["CNS", "GNS", "TNS", "DR", "NS", "U", None])
def test_peer_access_that_is_not_known_to_be_there_is_not_preferred_to_one_that_is(peer: str | None) -> None:
    snapshot = replace(wired(matrix(3, ["PIX", "SYS", "PIX"])), peers=matrix(3, [peer, "OK", peer]))
    assert sets_of(best_of(snapshot, 2))[0] == (0, 2)


@given(boxes(least=3), st.data())
@settings(max_examples=30, deadline=None)
def test_links_and_peer_access_that_one_side_tells_otherwise_are_judged_all_the_same(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    # Somebody's recording may report the two directions of a link differently.
    count = len(snapshot.devices)
    links, peers = ([list(row) for row in table] for table in (snapshot.links, snapshot.peers))
    for i in range(count):
        for j in range(i):
            links[i][j] = data.draw(st.sampled_from([links[i][j], "SYS", "NV4", None]))
            if peers:
                peers[i][j] = data.draw(st.sampled_from([peers[i][j], "OK", "CNS", None]))
    told = replace(snapshot, links=tuple(map(tuple, links)), peers=tuple(map(tuple, peers)))
    job, wanted = data.draw(jobs_and_counts(JOBS, count))
    assert all(len(each) == wanted for each in sets_of(best_of(told, wanted, job)))


@given(boxes(least=3))
@settings(max_examples=30, deadline=None)
def test_a_pair_is_usable_if_any_is_and_known_if_any_is(snapshot: Snapshot) -> None:
    pairs = list(combinations(range(len(snapshot.devices)), 2))
    known = [(i, j) for i, j in pairs if snapshot.links[i][j] is not None]
    usable = [(i, j) for i, j in known if snapshot.peers[i][j] == "OK"]
    assert sets_of(best_of(snapshot, 2))[0] in (usable or known or pairs)


@given(boxes(known=True), st.data())
@settings(max_examples=30, deadline=None)
def test_a_box_of_which_less_is_known_is_never_promised_a_stronger_link(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    count = len(snapshot.devices)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    hidden = data.draw(st.sets(st.sampled_from(pairs)))
    cells = [None if pair in hidden else snapshot.links[pair[0]][pair[1]] for pair in pairs]
    job, many = data.draw(jobs_and_counts(JOBS[:5], count))
    less = replace(snapshot, links=matrix(count, cells))
    chosen = sets_of(best_of(less, many, job))[0]
    promised = weakest_of(lambda a, b: strong(less, a, b), chosen, job)
    true = weakest_of(lambda a, b: strong(snapshot, a, b), sets_of(best_of(snapshot, many, job))[0], job)
    assert promised is None or promised <= true


def test_without_any_links_read_numa_nodes_and_memory_decide() -> None:
    snapshot = box(gpu(0, numa_node=0), gpu(1, numa_node=1), gpu(2, numa_node=0), gpu(3, numa_node=None))
    assert sets_of(best_of(snapshot, 2))[0] == (0, 2)
    assert best_of(snapshot, 2)[0].weakest is None


# The request


@each_row("count", [3, 4, 100])
def test_of_too_few_there_is_no_set(count: int) -> None:
    assert best_of(wired(uniform(2, "NV4")), count) == []


def test_more_required_than_asked_for_has_no_set() -> None:
    assert best_of(wired(uniform(4, "NV4")), 2, required=(0, 1, 2)) == []


@given(boxes(least=3), st.data())
@settings(max_examples=25, deadline=None)
def test_what_is_required_is_in_every_set(snapshot: Snapshot, data: st.DataObject) -> None:
    job, count = data.draw(jobs_and_counts(JOBS, len(snapshot.devices)))
    required = data.draw(st.sets(st.sampled_from(range(len(snapshot.devices))), min_size=1, max_size=count))
    alternatives = sets_of(best_of(snapshot, count, job, required))
    assert alternatives and all(required <= set(way) for way in alternatives)


def test_of_devices_that_are_alike_one_set_is_told() -> None:
    assert sets_of(best_of(wired(uniform(8, "NV18")), 4)) == [(0, 1, 2, 3)]


def test_as_many_are_told_as_are_asked_for() -> None:
    snapshot = wired(sockets((2, 2, 2), "NV4", "SYS"))
    assert sets_of(best(snapshot, snapshot.devices, 2, limit=1)) == [(0, 1)]
    assert sets_of(best_of(snapshot, 2))[:3] == [(0, 1), (2, 3), (4, 5)]


def test_only_candidates_are_taken_and_only_they_are_left_to_others() -> None:
    snapshot = wired(sockets((2, 2), "NV4", "SYS"))
    free = [snapshot.devices[i] for i in (0, 2, 3)]
    assert sets_of(best(snapshot, free, 1))[0] == (0,), "its partner is busy: a pair is left whole"
    assert sets_of(best(snapshot, free, 2))[0] == (2, 3)


def test_links_left_to_others_count_before_a_display() -> None:
    snapshot = wired(matrix(3, ["NV12", "SYS", "SYS"]))
    with_display = replace(snapshot.devices[2], display=True)
    snapshot = replace(snapshot, devices=(*snapshot.devices[:2], with_display))
    assert indices(best(snapshot, snapshot.devices, 1)[0].devices) == [2]
    # Where both leave the same links, the device without a display is taken.
    first = replace(snapshot.devices[0], display=True)
    alike = replace(wired(matrix(2, ["NV12"])), devices=(first, snapshot.devices[1]))
    assert indices(best(alike, alike.devices, 1)[0].devices) == [1]
