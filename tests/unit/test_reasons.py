"""The reason for these devices, word for word, on recorded boxes and on a few that nobody has recorded."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gputui.choosing.best import best
from gputui.choosing.grouping import parse
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.spec import sockets, uniform
from table_tests import each_row
from unit.builders import GIB, MIB, box, gpu, job
from unit.simulated_gpus import bridged
from unit.wired import indices, matrix, recorded, wired


def _told(snapshot: Snapshot, count: int, job: str, without: str = "") -> tuple[list[int], str]:
    """The best set and its reason, with some devices busy."""
    free = [d for d in snapshot.devices if str(d.index) not in without.split()]
    way = best(snapshot, free, count, parse(job), limit=1)[0]
    return sorted(indices(way.devices)), way.reason


def _links_in(reason: str) -> list[str]:
    """The kinds of links that a reason names."""
    return re.findall(r"NV\w+|PIX|PXB|PHB|NODE|SYS", reason)


@each_row(
    ("stem", "count", "job", "chosen", "why"),
    [
        (
            "a100_pcie_4gpu_nv12_pairs",
            2,
            "all",
            [0, 1],
            "NVLink pair, NUMA node 0; weakest link NV12; leaves the other pair intact",
        ),
        (
            "a100_pcie_4gpu_nv12_pairs",
            3,
            "all",
            [0, 1, 2],
            "NUMA nodes 0, 1; weakest link SYS",
        ),
        (
            "a100_pcie_4gpu_nv12_pairs",
            4,
            "tp=2,pp=2",
            [0, 1, 2, 3],
            "all 4 available, NUMA nodes 0, 1; weakest link within groups of 2: NV12",
        ),
        (
            "a100_pcie_4gpu_one_bridge_only",
            1,
            "all",
            [2],
            "no NVLink to any other available device, NUMA node 1; leaves the pair intact",
        ),
        (
            "a100_pcie_4gpu_one_bridge_only",
            2,
            "none",
            [2, 3],
            "on one CPU socket, NUMA node 1; independent processes; leaves the pair intact",
        ),
        (
            "p100_power8_nv2_pairs_soc",
            2,
            "tp=2",
            [0, 1],
            "NVLink pair, one NUMA node; weakest link within groups of 2: NV2; leaves the other pair intact",
        ),
        (
            "pcie_5gpu_hetero_numa",
            1,
            "all",
            [0],
            "SYS at most to the others, of which some have PHB, NUMA node 1",
        ),
        ("pcie_5gpu_hetero_numa", 2, "all", [1, 2], "on one host bridge, NUMA node 0; weakest link PHB"),
        (
            "pcie_5gpu_hetero_numa",
            4,
            "pp=2",
            [1, 2, 3, 4],
            "on one CPU socket, NUMA node 0; weakest link between stages: PHB",
        ),
        (
            "pcie_8gpu_pix_phb_sys_spaces",
            2,
            "all",
            [0, 1],
            "behind one PCIe switch, NUMA node 0; weakest link PIX",
        ),
        ("a100_dgx_nv12_mlx5_12", 2, "all", [0, 1], "both on NUMA node 3, NV12 between them"),
        (
            "a100_dgx_nv12_mlx5_12",
            4,
            "all",
            [0, 1, 2, 3],
            "NV12 between them, NUMA nodes 1, 3",
        ),
        (
            "v100_dgx1_hybrid_cube_mesh_mlx5",
            1,
            "all",
            [0],
            "all 8 available are alike in links and memory, NUMA node 0",
        ),
        (
            "v100_dgx1_hybrid_cube_mesh_mlx5",
            6,
            "all",
            [0, 1, 2, 3, 4, 6],
            "NUMA nodes 0, 1; weakest link in the ring: NV1",
        ),
        (
            "v100_dgx1_hybrid_cube_mesh_mlx5",
            8,
            "all",
            [0, 1, 2, 3, 4, 5, 6, 7],
            "all 8 available, NUMA nodes 0, 1; weakest link in the ring: NV2",
        ),
        ("h200_nvl_4gpu_nv6_annotated", 2, "all", [0, 1], "NV6 between them"),
        (
            "rtx3090_2gpu_sys_numa_na",
            2,
            "all",
            [0, 1],
            "the only two available; weakest link SYS",
        ),
    ],
)
def test_on_a_recorded_box(stem: str, count: int, job: str, chosen: list[int], why: str) -> None:
    assert _told(recorded(stem), count, job) == (chosen, why)


_PAIRS = wired(bridged(uniform(8, "PHB"), "NV4", (0, 1), (2, 3), (4, 5), (6, 7)), numa_node=None)


@each_row(
    ("count", "job", "without", "chosen", "why"),
    [
        (2, "all", "", [0, 1], "NVLink pair; weakest link NV4; leaves 3 pairs intact"),
        (
            4,
            "all",
            "",
            [0, 1, 2, 3],
            "2 NVLink pairs; weakest link PHB; leaves 2 pairs intact",
        ),
        (
            4,
            "tp=2",
            "6 7",
            [0, 1, 2, 3],
            "2 NVLink pairs; weakest link within groups of 2: NV4; leaves the other pair intact",
        ),
        (
            1,
            "all",
            "0 3",
            [1],
            "no NVLink to any other available device; leaves 2 pairs intact",
        ),
        (1, "all", "1 2 3 4 5 6 7", [0], "the only one available"),
    ],
)
def test_pairs_are_counted_among_those_that_can_be_had(
    count: int, job: str, without: str, chosen: list[int], why: str
) -> None:
    assert _told(_PAIRS, count, job, without) == (chosen, why)


def test_both_pairs_are_taken_where_there_are_two_and_more() -> None:
    snapshot = wired(bridged(uniform(5, "PHB"), "NV4", (0, 1), (3, 4)))
    chosen, reason = _told(snapshot, 4, "tp=2")
    assert chosen == [0, 1, 3, 4]
    what, weakest = reason.split("; ")
    assert what.startswith("both NVLink pairs") and what.endswith("NUMA node 0")
    assert weakest.startswith("weakest link ") and weakest.endswith(" 2: NV4")


@pytest.mark.parametrize("count", [1, 2])
def test_the_device_with_the_display_is_left_where_others_are_as_good(count: int) -> None:
    snapshot = wired(uniform(3, "PHB"))
    for shown in (
        {"display": True},
        {"display": None, "processes": (job(kind="graphics", memory=300 * MIB),)},
    ):
        devices = (gpu(0, **shown), *snapshot.devices[1:])
        chosen, reason = _told(replace(snapshot, devices=devices), count, "all")
        assert chosen == [1, 2][:count] and "; no display attached" in reason
    assert "display" not in _told(snapshot, count, "all")[1]


def test_a_better_link_is_worth_a_display() -> None:
    snapshot = wired(bridged(uniform(4, "SYS"), "NV4", (0, 1)))
    devices = (replace(snapshot.devices[0], display=True), *snapshot.devices[1:])
    chosen, reason = _told(replace(snapshot, devices=devices), 2, "all")
    assert chosen == [0, 1] and "display" not in reason


def test_what_is_left_to_others_is_told() -> None:
    snapshot = wired(sockets((4, 4, 2), "NV6", "PHB"))
    for count in (4, 2):
        what, *weakest, left = _told(snapshot, count, "all")[1].split("; ")
        assert what == (
            "NVLink pair, NUMA node 0" if count == 2 else "all 4 on NUMA node 0, NV6 between them"
        )
        assert weakest == ["weakest link NV6"] * (count == 2) and left == "leaves 2 connected groups intact"
    left = _told(snapshot, 4, "all", "8 9")[1].split("; ")[-1]
    assert left == "leaves a connected group of 4 intact"


def test_what_a_single_one_leaves_to_others_is_told_by_name() -> None:
    """Where all links are alike, none can be better linked than another."""
    snapshot = wired(sockets((4, 4), "NV18", "NV18"))
    devices = [replace(d, numa_node=d.index // 4) for d in snapshot.devices]
    pcie = sockets((4, 4), "NODE", "SYS")
    snapshot = replace(snapshot, devices=tuple(devices), pcie=tuple(tuple(row) for row in pcie))
    assert _told(snapshot, 1, "all", "0 1 2 6") == ([3], "keeps 4, 5 and 7 on NUMA node 1 together")
    assert _told(snapshot, 1, "all")[1] == "all 8 available are alike in links and memory, NUMA node 0"
    assert _told(snapshot, 2, "all")[1].startswith("both on NUMA node 0, NV18 between them")


def test_only_of_the_device_with_the_most_free_memory_it_is_said() -> None:
    snapshot = wired(uniform(3, "PHB"))
    devices = [replace(d, memory_free=(80 - 10 * d.index) * GIB) for d in snapshot.devices]
    ways = best(replace(snapshot, devices=tuple(devices)), devices, 1, parse("all"))
    assert [indices(way.devices) for way in ways] == [[0], [1], [2]]
    assert ["most free" in way.reason for way in ways] == [True, False, False]
    assert ["ranked lower: less free memory" in way.reason for way in ways] == [False, True, True]


def test_of_links_that_are_not_known_nothing_is_claimed() -> None:
    chosen, reason = _told(wired(matrix(3, [None] * 3)), 2, "all")
    assert chosen == [0, 1] and _links_in(reason) == [] and reason.count("unknown") == 1


def test_before_links_were_read_nothing_is_claimed() -> None:
    _, reason = _told(box(gpu(0), gpu(1), gpu(2)), 2, "all")
    assert _links_in(reason) == [] and reason.count("unknown") == 1


def test_peer_access_that_is_not_known_is_not_denied() -> None:
    snapshot = wired(uniform(3, "PHB"), peer=None)
    unknown = _told(snapshot, 2, "all")[1]
    assert "host bridge" in unknown and unknown.endswith("; weakest link PHB")
    denied = replace(snapshot, peers=matrix(3, ["CNS"] * 3))
    assert _told(denied, 2, "all")[1] == f"{unknown}, no peer access"


def test_a_link_of_a_large_box_is_told_as_in_a_small_one() -> None:
    snapshot = wired(sockets((4,) * 18, "NV18", "SYS"))
    chosen, reason = _told(snapshot, 4, "tp=4")
    assert chosen == [0, 1, 2, 3]
    what, left = reason.split("; ")
    assert what == "all 4 on NUMA node 0, NV18 between them"
    assert left == "leaves 17 connected groups intact"


@each_row(
    ("places", "count", "told"),
    [
        ((0, 1), 2, "no 2 of one model available"),
        ((0, 1, 2), 3, "no 3 of one model available"),
        ((1, 2), 2, ""),
        ((0, 1), 1, ""),
    ],
)
def test_a_set_of_several_models_says_so(places: tuple[int, ...], count: int, told: str) -> None:
    models = [
        gpu(0, name="T400", memory_total=4 * GIB, compute_capability="7.5"),
        *(gpu(n, name="RTX 4090", compute_capability="8.9") for n in (1, 2)),
    ]
    way = best(box(*models), [models[place] for place in places], count, parse("all"), limit=1)[0]
    assert [part for part in way.reason.split("; ") if "model" in part] == [told] * bool(told)
