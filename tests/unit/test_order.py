"""The order of the selected devices: groups together, pipeline neighbours joined, rings closed; otherwise
unchanged. And the other orders: fastest, emptiest, given."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.best import best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.links import permuted_behind_switches
from gputui.choosing.order import ORDERS, Order, sorted_by
from gputui.choosing.pick import Constraints, PickResult, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.spec import sockets, uniform
from table_tests import each_row
from unit.builders import GIB, box, busy, gpu
from unit.simulated_gpus import bridged
from unit.wired import (
    WORDS,
    Rank,
    best_chain,
    best_ring,
    boxes,
    indices,
    links,
    matrix,
    partitions,
    recorded,
    strong,
    weakest_of,
    wired,
)

fastest, emptiest = partial(sorted_by, "fastest"), partial(sorted_by, "emptiest")


def _order(snapshot: Snapshot, count: int, job: Grouping = ALL_REDUCE) -> list[int]:
    return indices(best(snapshot, snapshot.devices, count, job, limit=1)[0].devices)


def _rank(snapshot: Snapshot) -> Rank:
    return lambda a, b: strong(snapshot, a, b)


def _around(rank: Rank, order: Sequence[int]) -> Any:
    return min(rank(a, b) for a, b in zip(order, [*order[1:], order[0]], strict=True))


def _grouped(order: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(order[at : at + size]) for at in range(0, len(order), size)]


def _piped(rank: Rank, order: Sequence[int], stages: int) -> Any:
    """The weakest link between neighbours of a pipeline: rank r talks to rank r + n / stages."""
    return min(rank(a, b) for a, b in zip(order, order[len(order) // stages :], strict=False))


# Around a ring


@given(boxes(least=3), st.data())
@settings(max_examples=50, deadline=None)
def test_for_all_reduce_the_order_goes_around_the_best_ring(snapshot: Snapshot, data: st.DataObject) -> None:
    order = _order(snapshot, data.draw(st.integers(3, len(snapshot.devices))))
    rank = _rank(snapshot)
    assert _around(rank, order) == best_ring(rank, order)
    ascending = sorted(order)
    assert order[0] == ascending[0]
    assert order == ascending or _around(rank, ascending) < _around(rank, order)


def test_all_of_a_dgx_1_stand_in_a_ring_of_double_links() -> None:
    snapshot = recorded("v100_dgx1_hybrid_cube_mesh_mlx5")
    order = _order(snapshot, 8)
    words = {snapshot.links[a][b] for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    assert words == {"NV2"} and sorted(order) == list(range(8))


@each_row("seed", range(3))
def test_a_ring_that_is_there_is_found_among_sixteen(seed: int) -> None:
    chance = random.Random(seed)
    around = chance.sample(range(16), 16)
    near = {frozenset(pair) for pair in zip(around, [*around[1:], around[0]], strict=True)}
    near |= {frozenset(chance.sample(range(16), 2)) for _ in range(12)}
    cells = ["NV4" if {i, j} in near else "SYS" for i in range(16) for j in range(i)]
    snapshot = wired(matrix(16, cells))
    order = _order(snapshot, 16)
    assert {snapshot.links[a][b] for a, b in zip(order, [*order[1:], order[0]], strict=True)} == {"NV4"}


# Groups


@given(
    boxes(),
    st.sampled_from([Grouping(2), Grouping(3), Grouping(4), Grouping(2, 2), Grouping(3, 2), Grouping(2, 3)]),
    st.data(),
)
@settings(max_examples=50, deadline=None)
def test_consecutive_devices_are_groups_as_good_as_the_best_way_to_part_them(
    snapshot: Snapshot, job: Grouping, data: st.DataObject
) -> None:
    everyone = len(snapshot.devices)
    if everyone < job.unit:
        job = Grouping(2)
    order = _order(snapshot, job.unit * data.draw(st.integers(1, everyone // job.unit)), job)
    rank = _rank(snapshot)
    weakest = min(best_ring(rank, group) for group in _grouped(order, job.tensor))
    assert weakest == weakest_of(rank, order, job)


@given(boxes(), st.sampled_from([2, 3, 4]))
@settings(max_examples=30, deadline=None)
def test_groups_without_a_pipeline_and_their_devices_stand_as_in_the_box(
    snapshot: Snapshot, tensor: int
) -> None:
    tensor = min(tensor, len(snapshot.devices))
    order = _order(snapshot, len(snapshot.devices) // tensor * tensor, Grouping(tensor))
    groups = _grouped(order, tensor)
    assert all(group == tuple(sorted(group)) for group in groups) and groups == sorted(groups)


# Pipelines


@given(st.data(), st.sampled_from([Grouping(2, 2), Grouping(2, 3), Grouping(3, 2)]))
@settings(max_examples=25, deadline=None)
def test_neighbours_in_a_pipeline_of_groups_are_joined_as_in_the_best_of_all_orders(
    data: st.DataObject, job: Grouping
) -> None:
    snapshot = wired(data.draw(links(job.unit, WORDS)))
    order, rank = _order(snapshot, job.unit, job), _rank(snapshot)

    @cache
    def ring(group: frozenset[int]) -> Any:
        return best_ring(rank, sorted(group))

    def worth(way: Sequence[int]) -> Any:
        groups = min(ring(frozenset(group)) for group in _grouped(way, job.tensor))
        return groups, _piped(rank, way, job.pipeline)

    assert worth(order) == max(map(worth, permutations(range(job.unit))))


@given(st.data(), st.sampled_from([Grouping(2, 2), Grouping(2, 4), Grouping(4, 2)]))
@settings(max_examples=15, deadline=None)
def test_neighbours_among_eight_are_joined_as_in_the_best_way_to_part_them(
    data: st.DataObject, job: Grouping
) -> None:
    """Two groups are joined by the best pairing of their devices, whatever the neighbouring groups are."""
    snapshot = wired(data.draw(links(8, WORDS)))
    order, rank = _order(snapshot, 8, job), _rank(snapshot)
    stage = 8 // job.tensor // job.pipeline

    @cache
    def joined(one: tuple[int, ...], other: tuple[int, ...]) -> Any:
        return max(min(map(rank, one, way)) for way in permutations(other))

    def piped(groups: Sequence[tuple[int, ...]]) -> Any:
        return min(joined(a, b) for a, b in zip(groups, groups[stage:], strict=False))

    parted = [(min(best_ring(rank, group) for group in way), way) for way in partitions(range(8), job.tensor)]
    strongest = max(weakest for weakest, _ in parted)
    best_of_all = max(
        piped(way) for weakest, groups in parted if weakest == strongest for way in permutations(groups)
    )
    assert min(best_ring(rank, group) for group in _grouped(order, job.tensor)) == strongest
    assert _piped(rank, order, job.pipeline) == best_of_all


@given(boxes(), st.sampled_from([Grouping(1, 2), Grouping(1, 3), Grouping(1, 4)]), st.data())
@settings(max_examples=40, deadline=None)
def test_neighbours_in_a_pipeline_of_single_devices_are_joined_as_well_as_can_be(
    snapshot: Snapshot, job: Grouping, data: st.DataObject
) -> None:
    everyone = len(snapshot.devices)
    if everyone < job.unit:
        job = Grouping(1, 2)
    order = _order(snapshot, job.unit * data.draw(st.integers(1, everyone // job.unit)), job)
    rank = _rank(snapshot)
    assert _piped(rank, order, job.pipeline) == weakest_of(rank, order, job)


@given(boxes(least=3, most=6))
@settings(max_examples=30, deadline=None)
def test_a_chain_of_all_is_turned_around_only_where_that_gains(snapshot: Snapshot) -> None:
    count, rank = len(snapshot.devices), _rank(snapshot)
    order = _order(snapshot, count, Grouping(1, count))
    assert _piped(rank, order, count) == best_chain(rank, range(count))
    assert order == sorted(order) or _piped(rank, range(count), count) < _piped(rank, order, count)


def test_stages_stand_side_by_side_on_bridged_pairs() -> None:
    snapshot = wired(bridged(uniform(4, "PHB"), "NV4", (0, 1), (2, 3)))
    assert _order(snapshot, 4, Grouping(1, 2)) == [0, 2, 1, 3]
    assert _order(snapshot, 4, Grouping(2, 2)) == [0, 1, 2, 3]


# Nothing to gain


@each_row(
    "job",
    [
        ALL_REDUCE,
        Grouping(2),
        Grouping(4),
        Grouping(8),
        Grouping(1, 8),
        Grouping(2, 4),
        Grouping(4, 2),
        Grouping(independent=True),
    ],
    ids=str,
)
@each_row("word", ["NV18", "PHB", None])
def test_where_all_are_joined_alike_the_order_is_ascending(word: str | None, job: Grouping) -> None:
    assert _order(wired(uniform(8, "NV18")), 8, job) == list(range(8))
    cells: list[str | None] = [word] * 28
    assert _order(wired(matrix(8, cells)), 8, job) == list(range(8))


@each_row(
    ("count", "job"), [(4, Grouping(1, 2)), (8, Grouping(1, 2)), (8, Grouping(1, 4)), (8, Grouping(2, 2))]
)
def test_where_all_are_joined_alike_pipelines_side_by_side_are_ascending_too(
    count: int, job: Grouping
) -> None:
    """Behind NVSwitches another order can even be wrong (links.permuted_behind_switches)."""
    assert _order(wired(uniform(8, "NV18")), count, job) == list(range(count))


_ONE_CHAIN = (
    "0-5 0-7 0-8 0-9 1-2 1-3 1-4 1-7 1-8 2-8 3-10 3-11 4-5 4-7 5-6 6-8 7-10",
    Grouping(1, 12),
)
_THREE_CHAINS = (
    "0-4 0-5 0-6 0-7 0-8 0-10 1-3 1-4 1-5 1-7 2-3 2-7 3-6 4-9 5-9 7-9 10-11",
    Grouping(1, 4),
)


@pytest.mark.parametrize(("joined", "job"), [_ONE_CHAIN, _THREE_CHAINS], ids=["one", "three"])
def test_among_twelve_the_link_that_is_told_is_that_of_the_order(joined: str, job: Grouping) -> None:
    near = {tuple(map(int, pair.split("-"))) for pair in joined.split()}
    cells = ["NV4" if (j, i) in near else "SYS" for i in range(12) for j in range(i)]
    snapshot = wired(matrix(12, cells))
    (way,) = best(snapshot, snapshot.devices, 12, job)
    order = indices(way.devices)
    words = [snapshot.links[a][b] for a, b in zip(order, order[12 // job.pipeline :], strict=False)]
    assert way.weakest == ("SYS" if "SYS" in words else "NV4")


@pytest.mark.parametrize("job", [Grouping(4), Grouping(4, 2)], ids=str)
def test_in_a_large_box_groups_stand_as_in_the_box_where_another_order_gains_nothing(job: Grouping) -> None:
    """One NVLink domain of 18 trays, seven of which have one device fewer."""
    rack = replace(wired(uniform(72, "NV18")), pcie=sockets((4,) * 18, "NODE", "SYS"))
    free = [d for d in rack.devices if d.index not in (0, 5, 9, 13, 17, 21, 25)]
    chosen = best(rack, free, 8, job, limit=1)[0].devices
    assert not permuted_behind_switches(rack, chosen)


# The orders that are requested by name


def _indices(picked: PickResult) -> list[int]:
    return indices(picked.devices)


def _pick(snapshot: Snapshot, constraints: Constraints) -> PickResult:
    return pick(snapshot, verdicts(snapshot), constraints)


def test_the_orders_are_four() -> None:
    assert ORDERS == ("best", "given", "fastest", "emptiest")


def test_the_fastest_is_the_newest_then_the_one_with_the_most_cores_times_clock() -> None:
    devices = (
        gpu(0, compute_capability="8.9", cores=16384, max_sm_clock=3000),
        gpu(1, compute_capability="9.0", cores=14592, max_sm_clock=1785),
        gpu(2, compute_capability="10.0", cores=100, max_sm_clock=100),
        gpu(3, compute_capability="9.0", cores=16896, max_sm_clock=1980),
        gpu(4, compute_capability=None, cores=20000, max_sm_clock=3000),
        gpu(5, compute_capability="9.0", cores=None, max_sm_clock=1980),
        gpu(6, compute_capability="9.0", cores=14592, max_sm_clock=1785),
    )
    assert indices(fastest(devices)) == [2, 3, 1, 6, 5, 0, 4]


def test_the_emptiest_has_the_most_free_memory_then_the_least_load() -> None:
    devices = (
        gpu(0, memory_free=None, utilization=0),
        gpu(1, memory_free=40 * GIB, utilization=None),
        gpu(2, memory_free=40 * GIB, utilization=5),
        gpu(3, memory_free=40 * GIB, utilization=0),
        gpu(4, memory_free=80 * GIB, utilization=9),
        gpu(5, memory_free=0, utilization=0),
        gpu(6, memory_free=40 * GIB, utilization=0),
    )
    assert indices(emptiest(devices)) == [4, 3, 6, 2, 1, 5, 0]


@given(st.permutations(range(5)))
def test_of_equal_devices_each_order_leaves_the_first_first(order: list[int]) -> None:
    devices = tuple(gpu(i) for i in order)
    assert fastest(devices) == emptiest(devices) == devices


@each_row("capability", ["gfx90a", "9.x", "9."])
def test_a_compute_capability_that_is_no_number_is_not_known(capability: str) -> None:
    assert indices(fastest((gpu(0, compute_capability=capability), gpu(1)))) == [1, 0]


def _mixed() -> Snapshot:
    """A bridged pair of older GPUs, a single new one, and the emptiest one alone."""
    snapshot = wired(bridged(uniform(4, "PHB"), "NV4", (0, 1)))
    facts: list[dict[str, Any]] = [
        {"compute_capability": "8.6", "memory_free": 40 * GIB},
        {"compute_capability": "8.6", "memory_free": 40 * GIB},
        {"compute_capability": "9.0", "memory_free": 30 * GIB},
        {"compute_capability": "8.0", "memory_free": 80 * GIB},
    ]
    devices = tuple(replace(d, **more) for d, more in zip(snapshot.devices, facts, strict=True))
    return replace(snapshot, devices=devices)


@each_row(
    ("order", "expected"),
    [("best", [0, 1]), ("given", [0, 1]), ("fastest", [2, 0]), ("emptiest", [3, 0])],
)
def test_fastest_and_emptiest_also_decide_which(order: Order, expected: list[int]) -> None:
    picked = _pick(_mixed(), Constraints(2, order=order))
    assert _indices(picked) == expected
    assert picked.alternatives[0].devices == picked.devices


def test_the_fastest_that_is_busy_is_not_taken() -> None:
    snapshot = _mixed()
    devices = tuple(busy(d) if d.index == 2 else d for d in snapshot.devices)
    assert _indices(_pick(replace(snapshot, devices=devices), Constraints(2, order="fastest"))) == [0, 1]


def test_given_takes_the_best_and_leaves_them_in_the_order_of_the_box() -> None:
    snapshot = recorded("v100_dgx1_hybrid_cube_mesh_mlx5")
    as_best, as_given = (_pick(snapshot, Constraints(8, order=order)) for order in ("best", "given"))
    assert _indices(as_best) != list(range(8)) == _indices(as_given)
    assert (as_best.alternatives[0].weakest, as_given.alternatives[0].weakest) == ("NV2", "NV2")
    assert as_best.alternatives[1:] == as_given.alternatives[1:]


def test_the_job_decides_which_are_picked() -> None:
    """Two bridged pairs on two sockets, and two more devices next to the first pair."""
    cells = bridged(sockets((4, 2), "PHB", "SYS"), "NV4", (0, 1), (4, 5))
    snapshot = wired(cells)
    assert _indices(_pick(snapshot, Constraints(4))) == [0, 1, 2, 3]
    assert _indices(_pick(snapshot, Constraints(4, grouping=Grouping(2)))) == [0, 1, 4, 5]
    assert _indices(_pick(snapshot, Constraints(2, grouping=Grouping(independent=True)))) == [2, 3]


def test_a_picked_way_is_the_first_of_the_ways() -> None:
    snapshot = recorded("pcie_8gpu_pix_phb_sys_spaces")
    picked = _pick(snapshot, Constraints(2))
    assert picked.devices == picked.alternatives[0].devices and len(picked.alternatives) > 1


@pytest.mark.parametrize("order", ["best", "given"])
def test_what_is_required_is_taken_even_where_it_is_busy_or_not_ours(order: Order) -> None:
    snapshot = box(gpu(0), busy(gpu(1)), gpu(2), gpu(3))
    constraints = Constraints(2, order=order, required={gpu(1).key, gpu(3).key}, within={gpu(0).key})
    assert _indices(_pick(snapshot, constraints)) == [1, 3]


@pytest.mark.parametrize("order", ["fastest", "emptiest"])
def test_what_is_required_is_taken_whatever_the_order(order: Order) -> None:
    last = gpu(2, compute_capability="7.0", memory_free=GIB)
    picked = _pick(box(gpu(0), gpu(1), last), Constraints(2, order=order, required={last.key}))
    assert last in picked.devices


@given(boxes(), st.sampled_from(ORDERS), st.data())
@settings(max_examples=30, deadline=None)
def test_whatever_the_order_so_many_different_devices_are_picked(
    snapshot: Snapshot, order: Order, data: st.DataObject
) -> None:
    judged = verdicts(snapshot)
    free = [d.key for d in snapshot.devices if judged[d.key].free]
    constraints = Constraints(data.draw(st.integers(1, len(snapshot.devices))), order=order)
    picked = pick(snapshot, judged, constraints)
    keys = [d.key for d in picked.devices]
    assert set(keys) <= set(free) and len(set(keys)) == len(keys) == min(constraints.count, len(free))
    assert not picked.alternatives or picked.enough(constraints)
    if order == "given":
        assert _indices(picked) == sorted(_indices(picked))
