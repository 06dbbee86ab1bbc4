"""The output of nvidia-smi on real boxes and the matrix that gputui computes on the same box agree cell by
cell.

Each recording becomes a box on the simulated libnvidia-ml (NVLinks with their ends, switches, common
ancestors, affinities) and a simulated /sys; gputui receives no part of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import sysfs
from gputui.inventory.link import LinkMatrix
from gputui.inventory.matrix_text import Printed, read, write
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import sockets, uniform
from gputui.sources.source import Want
from gputui.system.root import Root
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from unit.simulated_gpus import bridged

FILES = sorted((Path(__file__).parents[1] / "data" / "topologies").glob("*.txt"))


def printed(links: LinkMatrix) -> Printed:
    """A box with these links; GPUs share a NUMA node unless SYS is between them."""
    nodes = [next(j for j, word in enumerate(row) if word != "SYS") for row in links]
    places = tuple(Locality((node,), (node,)) for node in nodes)
    return Printed(tuple(f"GPU{n}" for n in range(len(links))), links, places)


@pytest.fixture
def computed(nvml_here: SimulatedNvml, tmp_path: Path) -> Iterator[Computing]:
    yield Computing(nvml_here, tmp_path / "sys")


class Computing:
    """Shows a box to NVML and lets gputui read it."""

    def __init__(self, driver: SimulatedNvml, root: Path) -> None:
        self.driver, self.root = driver, root

    def __call__(self, shown: Printed, *, unreadable: bool = False) -> Snapshot:
        box = box_of(shown, "recorded")
        snapshot = self.driver.show_box(box, unreadable_links=unreadable)
        assert len(snapshot.devices) == len(shown.gpus)
        return self.look(sysfs.make(self.root, box))

    def look(self, root: Path) -> Snapshot:
        source = NvmlSource(root=Root(str(root.parent)))
        try:
            return source.read(Want.NAMES | Want.TOPOLOGY)
        finally:
            source.close()


def known(place: Locality) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """The affinities of a GPU, in a form in which blank and N/A are equal."""
    return place.cpus or (), place.memory_nodes or (), place.own_node


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_gputui_computes_is_what_nvidia_smi_printed(computed: Computing, file: Path) -> None:
    truth = read(file.read_text())
    seen = computed(truth)
    assert seen.links == truth.links
    assert seen.topology is not None
    assert list(map(known, seen.topology.localities)) == list(map(known, truth.localities))
    assert tuple(nic.name for nic in seen.topology.nics) == truth.nics
    assert seen.topology.nic_links == truth.nic_links


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_gputui_prints_reads_as_what_nvidia_smi_printed(computed: Computing, file: Path) -> None:
    truth = read(file.read_text())
    again = read(write(computed(truth)))
    assert (again.gpus, again.links, again.nics, again.nic_links) == (
        truth.gpus,
        truth.links,
        truth.nics,
        truth.nic_links,
    )
    assert list(map(known, again.localities)) == list(map(known, truth.localities))


@pytest.mark.parametrize("count", range(2, 17))
@pytest.mark.parametrize("word", ["NV6", "NV12", "NV18"])
def test_nvswitch_joins_all_with_all(computed: Computing, count: int, word: str) -> None:
    truth = printed(uniform(count, word))
    assert computed(truth).links == truth.links


@pytest.mark.parametrize("count", [2, 4, 8])
def test_ends_that_cannot_be_read_are_counted_where_peer_access_is_granted(
    computed: Computing, count: int
) -> None:
    truth = printed(uniform(count, "NV18"))
    assert computed(truth, unreadable=True).links == truth.links


def test_unreadable_ends_of_unlike_numbers_join_with_the_smaller(computed: Computing) -> None:
    cells = [list(row) for row in uniform(4, "NV18")]
    for other in range(3):
        cells[3][other] = cells[other][3] = "NV16"
    truth = printed(tuple(map(tuple, cells)))
    assert computed(truth, unreadable=True).links == truth.links


@pytest.mark.parametrize("down", [1, 5, 17])
def test_links_that_are_down_do_not_count(computed: Computing, down: int) -> None:
    truth = printed(uniform(4, "NV18"))
    computed(truth)
    text = computed.driver.box.read_text()
    head, tail = text.split("gpu 2 ", 1)
    up = "link switch 00000000:FE:00.0"
    computed.driver.rewrite(head + "gpu 2 " + tail.replace(up, "link down", down))
    seen = computed.look(computed.root)
    left = f"NV{18 - down}"
    assert seen.links[2] == (left, left, "X", left)
    assert seen.links[0] == ("X", "NV18", left, "NV18")


def test_with_every_link_of_a_gpu_down_the_pcie_letters_are_left(computed: Computing) -> None:
    truth = printed(bridged(sockets((2, 2), "NODE", "SYS"), "NV4", (0, 1), (2, 3)))
    computed(truth)
    text = computed.driver.box.read_text()
    head, tail = text.split("gpu 2 ", 1)
    lines = ["link down" if line.startswith("link") else line for line in tail.splitlines()]
    computed.driver.rewrite(head + "gpu 2 " + "\n".join(lines) + "\n")
    seen = computed.look(computed.root)
    assert seen.links == bridged(sockets((2, 2), "NODE", "SYS"), "NV4", (0, 1))


def test_of_two_bridges_one_is_missing(computed: Computing) -> None:
    truth = printed(bridged(sockets((2, 2), "PHB", "SYS"), "NV12", (0, 1)))
    seen = computed(truth)
    assert seen.links == truth.links
    assert seen.pcie[0][1] == "NODE", "the letters under the bridge are still told"


def test_two_islands_behind_switches_are_two(computed: Computing) -> None:
    cells = [list(row) for row in sockets((4, 4), "NV18", "SYS")]
    truth = printed(tuple(map(tuple, cells)))
    assert computed(truth).links == truth.links


def test_a_fabric_that_is_not_up_gives_no_nvlink(computed: Computing) -> None:
    """NVSwitches without a running fabric manager: the links are there, peer access is denied."""
    computed(printed(uniform(4, "NV18")))
    computed.driver.p2p_denied()
    assert computed.look(computed.root).links == uniform(4, "NODE")


def test_a_lost_gpu_in_the_middle_leaves_the_others_links(computed: Computing) -> None:
    truth = printed(uniform(4, "NV18"))
    computed(truth)
    computed.driver.error("*", 15, device=1)
    seen = computed.look(computed.root)
    assert seen.links == (
        ("X", None, "NV18", "NV18"),
        (None, "X", None, None),
        ("NV18", None, "X", "NV18"),
        ("NV18", None, "NV18", "X"),
    )
    cells = read(write(seen)).links
    assert cells == seen.links


def test_with_mig_on_the_links_of_the_gpu_are_down_and_its_instances_have_none(computed: Computing) -> None:
    snapshot = computed.driver.show_box(BOXES["a100-mig"])
    text = computed.driver.box.read_text()
    head, tail = text.split("gpu 1 ", 1)
    computed.driver.rewrite(head.replace("link switch 00000000:FE:00.0", "link down") + "gpu 1 " + tail)
    seen = computed.look(computed.root)
    labels = [seen.label(device) for device in seen.devices]
    assert labels == [snapshot.label(device) for device in snapshot.devices]
    whole = [labels.index("0"), labels.index("1")]
    assert seen.links[whole[0]][whole[1]] == "NODE"
    for place, row in enumerate(seen.links):
        if place not in whole:
            assert set(row) == {None, "X"}
    assert read(write(seen)).links == (("X", "NODE"), ("NODE", "X"))


def test_seventy_two_devices(computed: Computing) -> None:
    truth = printed(uniform(72, "NV18"))
    seen = computed(truth)
    assert seen.links == truth.links
    assert read(write(seen)).links == truth.links


def test_a_software_nic_is_left_out(computed: Computing) -> None:
    truth = read(FILES[0].read_text())
    box = box_of(truth, "recorded")
    computed.driver.show_box(box)
    root = sysfs.make(computed.root, box)
    sysfs.add_software_nic(root, "rxe0")
    topology = computed.look(root).topology
    assert topology is not None
    assert tuple(nic.name for nic in topology.nics) == truth.nics


def test_nics_are_in_the_order_of_their_numbers(computed: Computing) -> None:
    names = tuple(f"mlx5_{n}" for n in range(12))
    links = (("PIX",) * 12, *(tuple("X" if i == j else "PIX" for j in range(12)) for i in range(12)))
    truth = replace(printed(uniform(1, "X")), nics=names, nic_links=links)
    topology = computed(truth).topology
    assert topology is not None
    assert tuple(nic.name for nic in topology.nics) == names


def test_a_machine_without_sysfs_has_no_nics(computed: Computing) -> None:
    computed.driver.show_box(box_of(printed(uniform(2, "PHB")), "recorded"))
    topology = computed.look(computed.root / "nowhere").topology
    assert topology is not None
    assert (topology.nics, topology.nic_links) == ((), ())
