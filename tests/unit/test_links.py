"""The strength of the links of a selection, and the warning about an order behind NVSwitches."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.links import permuted_behind_switches, weakest, weakest_ring
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, Topology
from gputui.sources.simulated.spec import sockets, uniform
from table_tests import each_row
from unit.builders import box, gpu
from unit.simulated_gpus import bridged
from unit.wired import Rank, best_ring, boxes, matrix, recorded, wired


def _strength(snapshot: Snapshot) -> Rank:
    """The rank of a link by its kind alone, whether peer access works or not."""
    order = ("SYS", "NODE", "PHB", "PXB", "PIX", *(f"NV{n}" for n in range(1, 19)))
    return lambda a, b: order.index(snapshot.links[a][b])


@given(boxes(), st.data())
@settings(max_examples=40, deadline=None)
def test_the_ring_is_the_best_there_is_and_claimed_only_where_every_link_is_known(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(snapshot.devices))))
    chosen = order[: data.draw(st.integers(0, len(order)))]
    found = weakest_ring(snapshot, [snapshot.devices[i] for i in chosen])
    words = [snapshot.links[i][j] for i, j in combinations(chosen, 2)]
    if not words or None in words:
        assert found is None
        return
    rank = _strength(snapshot)
    ends = next((i, j) for i, j in combinations(chosen, 2) if snapshot.links[i][j] == found)
    assert rank(*ends) == best_ring(rank, chosen)


@given(boxes(least=3))
@settings(max_examples=25, deadline=None)
def test_the_ring_does_not_depend_on_the_order(snapshot: Snapshot) -> None:
    assert weakest_ring(snapshot, snapshot.devices) == weakest_ring(snapshot, snapshot.devices[::-1])


def test_the_ring_of_a_dgx_1_leaves_out_what_the_weakest_of_all_links_is() -> None:
    snapshot = recorded("v100_dgx1_hybrid_cube_mesh_mlx5")
    assert weakest(snapshot, snapshot.devices) == "SYS"
    assert weakest_ring(snapshot, snapshot.devices) == "NV2"


@pytest.mark.parametrize("links", [bridged(uniform(3, "PHB"), "NV4", (0, 1)), sockets((1, 2), "NV4", "PHB")])
def test_three_devices_are_a_ring_of_all_their_links(links: tuple[tuple[str, ...], ...]) -> None:
    snapshot = wired(links)
    assert weakest_ring(snapshot, snapshot.devices) == "PHB"


def test_without_links_read_nothing_is_claimed() -> None:
    snapshot = box(gpu(0), gpu(1))
    assert weakest_ring(snapshot, snapshot.devices) is None
    assert weakest(snapshot, snapshot.devices) is None


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_have_no_ring(count: int) -> None:
    snapshot = wired(uniform(2, "NV4"))
    assert weakest_ring(snapshot, snapshot.devices[:count]) is None


def test_seventy_two_that_are_alike_have_a_ring_of_their_word() -> None:
    snapshot = wired(uniform(72, "NV18"))
    assert weakest_ring(snapshot, snapshot.devices) == "NV18"


# An order behind NVSwitches


def _permuted(snapshot: Snapshot, order: str = "1 0 2 3") -> bool:
    return permuted_behind_switches(snapshot, [snapshot.devices[int(i)] for i in order.split()])


def _hopper(word: str | None = "NV18", switched: bool | None = None, **facts: object) -> Snapshot:
    snapshot = wired(matrix(4, [word] * 6), **facts)
    if switched is None:
        return snapshot
    return replace(snapshot, topology=Topology((Locality(switched=switched),) * 4))


def test_another_order_behind_nvswitches_is_warned_about() -> None:
    assert _permuted(_hopper())
    assert _permuted(_hopper(compute_capability="10.0"))
    assert _permuted(_hopper(), "3 0")


@each_row("order", ["0 1 2 3", "0 2", "3", "0 3"])
def test_ascending_is_not_warned_about(order: str) -> None:
    assert not _permuted(_hopper(), order)


@each_row("capability", ["8.0", "7.0", "8.9", None])
def test_before_hopper_switches_do_not_reduce(capability: str | None) -> None:
    assert not _permuted(_hopper(compute_capability=capability))


def test_one_device_before_hopper_is_enough_for_switches_not_to_reduce() -> None:
    snapshot = _hopper()
    devices = (replace(snapshot.devices[0], compute_capability="8.0"), *snapshot.devices[1:])
    mixed = replace(snapshot, devices=devices)
    assert not _permuted(mixed) and _permuted(mixed, "3 2 1")


def test_few_links_are_a_bridge_unless_they_are_known_to_go_to_switches() -> None:
    assert not _permuted(_hopper("NV6"))
    assert not _permuted(_hopper("NV12", switched=False))
    assert _permuted(_hopper("NV6", switched=True))


@each_row("word", ["PIX", "SYS", None])
def test_without_nvlinks_there_are_no_switches(word: str | None) -> None:
    assert not _permuted(_hopper(word))
    assert not _permuted(_hopper(word, switched=True))


def test_a_compute_capability_that_is_no_number_is_no_hopper() -> None:
    assert not _permuted(_hopper(compute_capability="gfx90a"))
