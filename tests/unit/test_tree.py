"""The PCIe tree: MIG instances hang below their GPU, and a lost device stays where it was."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.tree import lines, links_in_words
from gputui.choosing.verdict import verdicts
from gputui.choosing.watch import Watch
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
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


def test_a_link_that_only_one_of_two_gpus_tells_of_is_a_link_of_both() -> None:
    box = at(BOXES["idle"], 0.0, NOW)
    links = [list(row) for row in box.links]
    for row in links:
        row[:] = ["X" if word == "X" else "SYS" for word in row]
    for told in ((0, 1), (1, 0)):
        one_sided = [list(row) for row in links]
        one_sided[told[0]][told[1]] = "NV2"
        found = links_in_words(replace(box, links=tuple(map(tuple, one_sided))))
        assert found == (("NVLink", "NV2 0━1"),)
