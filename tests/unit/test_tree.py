"""The PCIe tree: MIG instances hang below their GPU, and a lost device stays at its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.choosing.best import describe_order
from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.state_times import Watch
from gputui.choosing.tree import lines, links_in_words
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.spec import uniform
from unit.builders import NOW

BUS = BOXES["lost"]


def drawn(snapshot: Snapshot, watch: Watch | None = None) -> list[str]:
    return [
        f"{before}{snapshot.label(thing)}" if isinstance(thing, Device) else before
        for before, thing in lines(snapshot, watch.pcie if watch else None)
    ]


def test_mig_instances_hang_below_their_gpu() -> None:
    assert drawn(at(BOXES["a100-mig"], 0.0, NOW)) == [
        "NUMA node 0",
        "├─ 0",
        "│  ├─ 0:0",
        "│  ├─ 0:1",
        "│  ├─ 0:2",
        "│  └─ 0:3",
        "└─ 1",
    ]


def test_a_lost_device_stays_at_its_numa_node() -> None:
    assert drawn(at(BUS, 5.0, NOW)) == [
        *("NUMA node 0", "├─ 0", "├─ 1", "├─ 2", "└─ 3"),
        *("NUMA node 1", "├─ 4", "├─ 5", "├─ 6", "└─ 7"),
    ]


def test_a_lost_device_stays_at_the_switch_where_it_was() -> None:
    switched = replace(
        BUS, links=tuple(tuple("PIX" if word == "NODE" else word for word in row) for row in BUS.links)
    )
    early, late = (at(switched, second, NOW) for second in (1.0, 5.0))
    watch = Watch().after(early, verdicts(early)).after(late, verdicts(late))
    assert late.devices[3].fault and not early.devices[3].fault
    before, after = drawn(early), drawn(late, watch)
    assert (
        after[:6]
        == before[:6]
        == ["NUMA node 0", "└─ PCIe switch", *(f"   ├─ {n}" for n in (0, 1, 2)), "   └─ 3"]
    )


@pytest.mark.parametrize(("a", "b"), [(2, 5), (5, 2)])
def test_a_link_that_only_one_side_tells_is_told(a: int, b: int) -> None:
    snapshot = at(BOXES["dgx-h100"], 0.0, NOW)
    links = [list(row) for row in snapshot.links]
    links[a][b] = "NV4"
    told = dict(links_in_words(replace(snapshot, links=tuple(map(tuple, links)))))
    assert any("2━5" in words for words in told.values())


def test_links_in_words_call_devices_as_everything_else_does() -> None:
    mixed, nvidia = at(BOXES["mixed-vendors"], 0.0, NOW), ("nvidia:0", "nvidia:1")
    links = [["X" if i == j else None for j in range(5)] for i in range(5)]
    links[0][1] = links[1][0] = "NV4"
    joined = replace(mixed, links=tuple(map(tuple, links)))
    assert links_in_words(joined) == (("NVLink", f"NV4 {'━'.join(nvidia)}"),)
    links[0][2] = links[2][0] = links[1][2] = links[2][1] = "NV4"
    own = tuple(replace(d, vendor="nvidia", index=i, apart=None) for i, d in enumerate(mixed.devices[:3]))
    rest = mixed.devices[3:]
    joined = replace(mixed, devices=own + rest, links=tuple(map(tuple, links)))
    assert links_in_words(joined) == (("NVLink", "NV4 between all of nvidia:0-2"),)


def test_devices_that_meet_above_their_nodes_are_counted_and_grouped_by_the_nodes_number() -> None:
    # Each GPU is at a host bridge of its own, which the driver reports as SYS: two sockets, four GPUs each.
    apart = replace(BOXES["rtx4090"], links=uniform(8, "SYS"))
    snapshot = at(apart, 0.0, NOW)
    assert drawn(snapshot) == [
        *("NUMA node 0", "├─ 0", "├─ 1", "├─ 2", "└─ 3"),
        *("NUMA node 1", "├─ 4", "├─ 5", "├─ 6", "└─ 7"),
    ]
    for chosen in ([0, 3, 4], [0, 3, 7]):
        devices = [snapshot.devices[i] for i in chosen]
        assert "NUMA nodes 0, 1" in describe_order(snapshot, devices, devices, ALL_REDUCE).reason
