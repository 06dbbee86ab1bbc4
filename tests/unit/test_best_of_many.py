"""The best sets of boxes that are too large to look at every set.

They have the right size, take whole trays where there are any, and promise no link that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.spec import sockets, uniform
from table_tests import each_row
from unit.wired import (
    INDEPENDENT,
    JOBS,
    best_of,
    boxes,
    every_set,
    indices,
    jobs_and_counts,
    matrix,
    sets_of,
    wired,
)

TRAYS = sockets((4,) * 18, "NV18", "SYS")
RACK = replace(wired(uniform(72, "NV18")), pcie=sockets((4,) * 18, "NODE", "SYS"))
"""One NVLink domain of 18 trays with four GPUs each."""


def _trays(chosen: Sequence[int]) -> bool:
    """Whether these devices form whole trays."""
    return all(chosen[at] % 4 == 0 and chosen[at + 3] == chosen[at] + 3 for at in range(0, len(chosen), 4))


@pytest.mark.thorough
@pytest.mark.parametrize("snapshot", [wired(TRAYS), RACK], ids=["islands", "rack"])
@pytest.mark.parametrize(
    ("count", "job"),
    [(4, ALL_REDUCE), (8, ALL_REDUCE), (8, Grouping(4)), (16, Grouping(4, 4)), (16, Grouping(1, 4))],
)
def test_of_seventy_two_in_trays_whole_trays_are_taken(snapshot: Snapshot, count: int, job: Grouping) -> None:
    alternatives = best_of(snapshot, count, job)
    assert _trays(sets_of(alternatives)[0]) and len(sets_of(alternatives)[0]) == count
    assert alternatives[0].weakest == ("NV18" if snapshot is RACK or job.unit > 1 or count == 4 else "SYS")
    assert alternatives == best_of(snapshot, count, job)


@each_row("count", [1, 2, 7, 16, 17, 71, 72])
def test_of_seventy_two_that_are_alike_the_first_are_taken(count: int) -> None:
    (way,) = best_of(wired(uniform(72, "NV18")), count)
    assert indices(way.devices) == list(range(count))
    assert way.weakest == (None if count == 1 else "NV18")


@each_row(
    ("count", "job"),
    [(8, Grouping(4)), (72, Grouping(2, 36)), (72, Grouping(8)), (64, Grouping(1, 8)), (72, Grouping(1, 72))],
)
def test_of_seventy_two_that_are_alike_groups_and_stages_are_as_good_as_any(
    count: int, job: Grouping
) -> None:
    way = best_of(wired(uniform(72, "NV18")), count, job)[0]
    assert sorted(indices(way.devices)) == list(range(count)) and way.weakest == "NV18"


@given(st.integers(17, 24), st.data())
@settings(max_examples=12, deadline=None)
def test_in_a_large_box_every_answer_is_a_set_of_the_right_size_with_what_is_required(
    count: int, data: st.DataObject
) -> None:
    pairs = count * (count - 1) // 2
    words = st.lists(st.sampled_from(("SYS", "PHB", "NV2", "NV4")), min_size=pairs, max_size=pairs)
    snapshot = wired(matrix(count, data.draw(words)))
    job, many = data.draw(jobs_and_counts(JOBS, count))
    required = data.draw(st.sets(st.sampled_from(range(count)), max_size=min(many, 3)))
    alternatives = best_of(snapshot, many, job, required)
    assert alternatives and alternatives == best_of(snapshot, many, job, required)
    assert len(set(sets_of(alternatives))) == len(alternatives)
    for way, chosen in zip(alternatives, sets_of(alternatives), strict=True):
        assert len(set(chosen)) == many and required <= set(chosen)
        if job is INDEPENDENT or many == 1:
            continue
        # The promised link exists; it may be better than the weakest link in use.
        assert way.weakest in {snapshot.links[i][j] for i, j in combinations(chosen, 2)}


@given(
    boxes(least=17, most=18),
    st.sampled_from([ALL_REDUCE, INDEPENDENT, Grouping(2), Grouping(1, 2)]),
    st.data(),
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_in_a_large_box_a_set_that_is_called_exact_is_the_best(
    snapshot: Snapshot, job: Grouping, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 3)) if job.unit == 1 else 2
    alternatives = best_of(snapshot, count, job)
    assert sets_of(alternatives)[0] == every_set(snapshot, range(len(snapshot.devices)), count, job)[0][1]


def test_in_a_large_box_of_sets_that_are_joined_alike_the_one_on_fewer_numa_nodes_is_taken() -> None:
    snapshot = wired(uniform(18, "NV4"))
    devices = tuple(replace(device, numa_node=device.index % 3) for device in snapshot.devices)
    assert sets_of(best_of(replace(snapshot, devices=devices), 3))[0] == (0, 3, 6)


def test_in_a_large_box_a_ring_that_is_hard_to_find_is_not_denied() -> None:
    """A ring over 17 of 18 GPUs by NVLink; always taking the device with the fewest ways on misses it."""
    around = (14, 6, 11, 1, 9, 16, 13, 15, 7, 5, 12, 8, 0, 3, 4, 2, 10)
    cells = [["PHB" if 17 in (i, j) else "SYS" for j in range(18)] for i in range(18)]
    for one, other in [*zip(around, (*around[1:], around[0]), strict=True), (0, 1), (7, 3), (4, 9)]:
        cells[one][other] = cells[other][one] = "NV4"
    snapshot = wired(matrix(18, [cells[i][j] for i in range(18) for j in range(i)]))
    way = best_of(snapshot, 17)[0]
    assert way.weakest == "NV4"


@pytest.mark.parametrize("job", [Grouping(4), Grouping(2)], ids=str)
def test_in_a_large_box_the_alternatives_differ(job: Grouping) -> None:
    found = sets_of(best_of(wired(sockets((1, 4, 4, 4, 4), "NV18", "SYS")), 8, job))
    assert found and len(set(found)) == len(found)


def test_in_a_large_box_two_whole_trays_are_found_where_another_is_short() -> None:
    way = best_of(wired(sockets((2, 4, 4, 4, 4), "NV18", "SYS")), 8, Grouping(4))[0]
    assert way.weakest == "NV18"


@pytest.mark.parametrize("job", [Grouping(4), Grouping(1, 4)], ids=str)
def test_in_a_large_box_three_whole_trays_are_found_where_two_others_are_short(job: Grouping) -> None:
    way = best_of(wired(sockets((2, 3, 4, 4, 4), "NV18", "SYS")), 12, job)[0]
    assert way.weakest == "NV18"


@pytest.mark.parametrize("job", [Grouping(4), Grouping(1, 4)], ids=str)
def test_in_a_large_box_what_is_required_in_two_trays_gets_both_trays(job: Grouping) -> None:
    way = best_of(wired(sockets((4,) * 5, "NV18", "SYS")), 8, job, required=(0, 16))[0]
    assert way.weakest == "NV18"


def test_in_a_large_box_a_chain_that_is_called_exact_is_the_best() -> None:
    """Two sides of nine devices: a chain of four alternates between the sides."""
    way = best_of(wired(sockets((9, 9), "PHB", "NV4")), 4, Grouping(1, 4))[0]
    assert way.weakest == "NV4"
