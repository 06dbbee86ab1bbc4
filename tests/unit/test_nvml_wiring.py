"""The wiring of GPUs, through the real nvidia-ml-py on the simulated library: the questions, their costs, and
the isolation of the faults of one pair or one GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gputui.inventory.link import LinkMatrix
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box, sockets, uniform
from gputui.sources.source import Want
from gputui.system.processes import ProcessTable
from gputui.system.root import Root
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from simnvml.rendering import Facts
from unit.simulated_gpus import bridged

NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, UNKNOWN = 3, 4, 15, 999
LEVEL, PEER = "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus"
FIELDS, STATE = "nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkState"
REMOTE_KIND, REMOTE_BUS = "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"
PLACE = (
    "nvmlDeviceGetCpuAffinityWithinScope",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
)


def wired(links: LinkMatrix, name: str = "rtx4090", **facts: Any) -> Box:
    """A box with these links; its GPUs are those of a demo box."""
    model = BOXES[name].gpus[0]
    gpus = tuple(replace(model, bus=f"{0x10 + n:02X}:00.0", numa=0) for n in range(len(links)))
    return replace(BOXES[name], gpus=gpus, links=links, pcie=None, tasks=(), switched=False, **facts)


class Driver:
    """A simulated driver with a source that has read the devices' identities."""

    def __init__(self, simulated: SimulatedNvml, sysfs: Path) -> None:
        self.simulated, self._sysfs = simulated, sysfs
        self._sources: list[NvmlSource] = []

    def source(self, box: Box, **shown: Any) -> NvmlSource:
        self.simulated.show_box(box, **shown)
        source = NvmlSource(ProcessTable(host_pids=False), root=Root(str(self._sysfs.parent)))
        self._sources.append(source)
        source.read(Want.NAMES)
        self.simulated.reset_counts()
        return source

    def links(self, box: Box, **shown: Any) -> LinkMatrix:
        return self.source(box, **shown).read(Want.LINKS).links

    def count(self, *names: str) -> int:
        return sum(n for name, n in self.simulated.counts().items() if name.startswith(names))

    def cost_at_most(self, **most: int) -> bool:
        """Assert that since the source was made only these functions were called, each at most that often."""
        found: dict[str, int] = {}
        for name, count in self.simulated.counts().items():
            stem = name.partition("_v")[0]
            found[stem] = found.get(stem, 0) + count
        too_many = {name: count for name, count in found.items() if count > most.get(name, 0)}
        assert not too_many, too_many
        return True

    def labels(self) -> set[str]:
        """The labels of the devices with any call."""
        return {label for (_, label), n in self.simulated.counts_by_device().items() if n and label}

    def close(self) -> None:
        for source in self._sources:
            source.close()


@pytest.fixture
def driver(nvml_here: SimulatedNvml, tmp_path: Path) -> Iterator[Driver]:
    made = Driver(nvml_here, tmp_path / "sys")
    yield made
    made.close()


# Costs.


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_a_box_behind_switches_costs_one_question_a_gpu_and_one_a_pair(driver: Driver, count: int) -> None:
    box = replace(wired(uniform(count, "NV18"), "dgx-h100"), switched=True)
    assert driver.links(box) == box.links
    pairs = count * (count - 1) // 2
    assert driver.cost_at_most(**{FIELDS: count, PEER: count - 1, LEVEL: pairs})


@pytest.mark.parametrize("count", [1, 2, 8])
def test_gpus_without_nvlink_cost_one_question_each_and_two_a_pair(driver: Driver, count: int) -> None:
    box = wired(uniform(count, "PHB"))
    assert driver.links(box) == box.links
    pairs = count * (count - 1) // 2
    assert driver.cost_at_most(**{FIELDS: count, LEVEL: pairs, PEER: pairs})


@pytest.mark.parametrize("name", ["rtx4090", "mixed", "gb10", "laptop"])
def test_a_driver_without_fields_is_not_asked_about_links_that_no_such_gpu_has(
    driver: Driver, name: str
) -> None:
    """36 useless questions for each GPU, on every start, are too many."""
    source = driver.source(BOXES[name])
    driver.simulated.error(FIELDS, NOT_SUPPORTED)
    found = source.read(Want.LINKS)
    assert found.links == BOXES[name].links
    assert driver.count(STATE, REMOTE_KIND, REMOTE_BUS) == 0
    assert driver.count(FIELDS) == len(BOXES[name].gpus)


def test_a_driver_that_has_no_fields_is_asked_for_them_once_a_gpu(driver: Driver) -> None:
    source = driver.source(BOXES["rtx3090"])
    driver.simulated.error(FIELDS, NOT_SUPPORTED)
    for _ in range(3):
        source.read(Want.LINKS)
    assert driver.count(FIELDS) == 4


@pytest.mark.parametrize(("name", "most"), [("dgx-1", 6), ("rtx3090", 4)])
def test_a_driver_without_fields_is_asked_for_as_many_links_as_the_gpu_can_have(
    driver: Driver, name: str, most: int
) -> None:
    source = driver.source(BOXES[name])
    driver.simulated.error(FIELDS, NOT_SUPPORTED)
    assert source.read(Want.LINKS).links == BOXES[name].links
    assert driver.count(STATE) == most * len(BOXES[name].gpus)


def test_of_a_gpu_newer_than_we_know_every_link_is_asked_about(driver: Driver) -> None:
    box = wired(uniform(2, "NV24"))
    future = replace(box, gpus=tuple(replace(gpu, capability="13.0") for gpu in box.gpus))
    source = driver.source(future)
    driver.simulated.error(FIELDS, NOT_SUPPORTED)
    assert source.read(Want.LINKS).links == box.links
    assert driver.count(STATE) == 2 * pynvml.NVML_NVLINK_MAX_LINKS


def test_the_compute_capability_is_asked_for_where_nobody_has_yet(driver: Driver) -> None:
    driver.simulated.show_box(BOXES["rtx3090"])
    driver.simulated.error(FIELDS, NOT_SUPPORTED)
    source = NvmlSource(ProcessTable(host_pids=False))
    source.read(Want.VERDICT)
    driver.simulated.reset_counts()
    assert source.read(Want.LINKS).links == BOXES["rtx3090"].links
    assert driver.count("nvmlDeviceGetCudaComputeCapability") == 4
    source.close()


def test_the_whole_topology_asks_for_each_fact_of_a_gpu_once(driver: Driver) -> None:
    box = replace(wired(uniform(8, "NV18"), "dgx-h100"), switched=True)
    driver.source(box).read(Want.TOPOLOGY)
    assert driver.cost_at_most(**{FIELDS: 8, LEVEL: 28, PEER: 7 + 28, **dict.fromkeys(PLACE, 8)})


def test_watching_asks_nothing_of_the_wiring_again(driver: Driver) -> None:
    source = driver.source(BOXES["dgx-1"])
    first = source.read(Want.ALL)
    driver.simulated.reset_counts()
    for want in (Want.MONITOR, Want.LOAD, Want.VERDICT):
        again = source.read(want)
        assert (again.links, again.pcie, again.peers) == (first.links, first.pcie, first.peers)
        assert again.topology == first.topology
    assert driver.count(FIELDS, LEVEL, PEER, STATE, REMOTE_KIND, REMOTE_BUS, *PLACE) == 0


# Which links.


@pytest.mark.parametrize("count", [1, 4, 12, 13, 18, 36])
def test_every_link_counts_however_many_there_are(driver: Driver, count: int) -> None:
    box = wired(uniform(2, f"NV{count}"), "dgx-h100")
    assert driver.links(box) == box.links
    assert driver.cost_at_most(**{FIELDS: 4, REMOTE_KIND: 2 * count, REMOTE_BUS: 2 * count, LEVEL: 1})


def test_links_in_a_mesh_are_counted_for_each_peer(driver: Driver) -> None:
    assert driver.links(BOXES["dgx-1"]) == BOXES["dgx-1"].links
    mesh = wired(uniform(4, "NV6"), "dgx-h100")
    assert driver.links(mesh) == mesh.links


def test_the_field_tells_which_links_are_up_and_not_the_function(driver: Driver) -> None:
    """This applies from Hopper on; NCCL reads the field too."""
    box = wired(uniform(2, "NV18"), "dgx-h100")
    source = driver.source(box)
    driver.simulated.error(STATE, UNKNOWN)
    assert source.read(Want.LINKS).links == box.links
    assert driver.count(STATE) == 0


Fields = Callable[..., Any]


@pytest.fixture
def without_state_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver with fields, but without NVLINK_GET_STATE: before Hopper."""
    known: Fields = pynvml.nvmlDeviceGetFieldValues

    @functools.wraps(known)
    def older(handle: Any, fields: list[Any]) -> Any:
        values = known(handle, fields)
        for value in values:
            if value.fieldId == pynvml.NVML_FI_DEV_NVLINK_GET_STATE:
                value.nvmlReturn, value.value.uiVal = NOT_SUPPORTED, 1
        return values

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", older)


@pytest.mark.usefixtures("without_state_field")
def test_without_the_field_the_function_tells_which_links_are_up(driver: Driver) -> None:
    source = driver.source(BOXES["rtx3090"])
    text = driver.simulated.box.read_text()
    driver.simulated.rewrite(text.replace("link gpu 00000000:21:00.0", "link down", 1))
    found = source.read(Want.LINKS)
    assert found.links[2][3] == "NV4"
    assert found.links[0][1] == "NV4", "the other end still has four"
    assert driver.count(STATE) == 16
    assert driver.count(REMOTE_BUS) == 15, "of a link that is down the other end is not asked for"


@pytest.mark.usefixtures("without_state_field")
def test_a_link_whose_state_fails_is_down_and_its_gpu_is_well(driver: Driver) -> None:
    source = driver.source(BOXES["rtx3090"])
    driver.simulated.error(STATE, GPU_IS_LOST, device=0)
    driver.simulated.error(STATE, UNKNOWN, device=1)
    found = source.read(Want.LINKS | Want.LOAD)
    assert (found.links[0][1], found.links[2][3]) == ("PHB", "NV4")
    assert [device.fault for device in found.devices] == [None] * 4


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
def test_a_driver_that_does_not_know_what_is_at_the_other_end_still_tells_its_bus_id(
    driver: Driver, code: int
) -> None:
    source = driver.source(BOXES["dgx-1"])
    driver.simulated.error(REMOTE_KIND, code)
    assert source.read(Want.LINKS).links == BOXES["dgx-1"].links


def test_where_no_end_can_be_read_peer_access_decides(driver: Driver) -> None:
    box = wired(bridged(sockets((2, 2), "PHB", "SYS"), "NV4", (0, 1)), "rtx3090")
    source = driver.source(box)
    driver.simulated.error(REMOTE_BUS, NO_PERMISSION)
    assert source.read(Want.LINKS).links == box.links
    driver.simulated.error(PEER, NO_PERMISSION)
    assert source.read(Want.LINKS).links[0][1] == "NODE"


def test_ends_on_one_side_are_enough(driver: Driver) -> None:
    source = driver.source(BOXES["rtx3090"])
    driver.simulated.error(REMOTE_BUS, UNKNOWN, device=0)
    assert source.read(Want.LINKS).links == BOXES["rtx3090"].links


def test_peer_access_that_is_denied_takes_switched_links_away_and_leaves_direct_ones(driver: Driver) -> None:
    behind = replace(wired(sockets((2, 2), "NV18", "NV18"), "dgx-h100"), switched=True)
    source = driver.source(behind)
    assert source.read(Want.LINKS).links == behind.links
    driver.simulated.p2p_denied()
    assert source.read(Want.LINKS).links == uniform(4, "NODE")
    direct = wired(uniform(2, "NV4"), "rtx3090")
    source = driver.source(direct)
    driver.simulated.error(PEER, NOT_SUPPORTED)
    assert source.read(Want.LINKS).links == direct.links


# The faults of one pair, and of one GPU.


@pytest.mark.parametrize("code", [NOT_SUPPORTED, 13, NO_PERMISSION, GPU_IS_LOST, UNKNOWN])
@pytest.mark.parametrize("function", [LEVEL, PEER])
def test_what_one_pair_does_not_support_others_do(driver: Driver, function: str, code: int) -> None:
    """An error of GPU 1 as the first of a pair concerns only the pair of 1 and 0."""
    source = driver.source(wired(sockets((2, 2), "PIX", "SYS")))
    healthy = source.read(Want.TOPOLOGY)
    driver.simulated.error(function, code, device=1)
    found = source.read(Want.TOPOLOGY | Want.LOAD)
    lost = found.links if function == LEVEL else found.peers
    whole = healthy.links if function == LEVEL else healthy.peers
    for i in range(4):
        for j in range(4):
            assert lost[i][j] == (None if {i, j} == {0, 1} else whole[i][j])
    assert [device.fault for device in found.devices] == [None] * 4


def test_a_pair_that_has_no_common_ancestor_hides_no_other(driver: Driver) -> None:
    cells = [list(row) for row in uniform(4, "PHB")]
    cells[2][1] = cells[1][2] = None
    box = wired(tuple(map(tuple, cells)))
    for _ in range(2):
        found = driver.source(box).read(Want.TOPOLOGY)
        assert found.links == box.links
        assert found.pcie == box.links


def test_a_pair_with_nvlink_and_no_pcie_class_keeps_its_link(driver: Driver) -> None:
    source = driver.source(BOXES["rtx3090"])
    driver.simulated.error(LEVEL, NOT_SUPPORTED)
    found = source.read(Want.TOPOLOGY)
    assert found.links[0] == ("X", "NV4", None, None)
    assert found.pcie == tuple(tuple("X" if i == j else None for j in range(4)) for i in range(4))


@pytest.mark.parametrize("function", [FIELDS, *PLACE])
def test_a_gpu_that_is_lost_while_it_is_asked_is_lost_and_the_others_are_whole(
    driver: Driver, function: str
) -> None:
    # Each GPU's memory is a node here, as on GH200: an unsupported question would not be asked again.
    facts: dict[str, Facts] = {str(n): {"gpu_numa_node": 4 + n} for n in range(8)}
    source = driver.source(BOXES["dgx-h100"], facts=facts)
    healthy = source.read(Want.TOPOLOGY)
    driver.simulated.error(function, GPU_IS_LOST, device=2)
    found = source.read(Want.TOPOLOGY)
    assert [device.fault.kind if device.fault else None for device in found.devices] == [
        "lost" if n == 2 else None for n in range(8)
    ]
    others = [n for n in range(8) if n != 2]
    for matrix in ("links", "pcie", "peers"):
        before, after = getattr(healthy, matrix), getattr(found, matrix)
        assert [[after[i][j] for j in others] for i in others] == [
            [before[i][j] for j in others] for i in others
        ]
    assert found.topology is not None and healthy.topology is not None
    assert found.topology.localities[2] == Locality()
    assert [found.topology.localities[n] for n in others] == [healthy.topology.localities[n] for n in others]


def test_a_gpu_that_is_lost_while_another_asks_for_its_bus_id_is_the_one_that_is_lost(driver: Driver) -> None:
    """As in a reading of `pick`, the devices' identities have not been read."""
    driver.simulated.show_box(BOXES["dgx-1"])
    source = NvmlSource(ProcessTable(host_pids=False))
    source.read(Want.VERDICT)
    driver.simulated.error("nvmlDeviceGetPciInfo", GPU_IS_LOST, device=1)
    found = source.read(Want.LINKS)
    source.close()
    assert [device.index for device in found.devices if device.fault] == [1]
    assert found.links[0][2] == "NV2"


def test_a_divided_gpu_that_is_lost_over_its_links_takes_its_instances_with_it(driver: Driver) -> None:
    source = driver.source(BOXES["a100-mig"])
    healthy = source.read(Want.ALL)
    assert len(healthy.links) == len(healthy.devices) == 6
    driver.simulated.error(FIELDS, GPU_IS_LOST, device=0)
    found = source.read(Want.LINKS | Want.TOPOLOGY)
    assert [found.label(device) for device in found.devices] == ["0", "1"]
    assert found.links == found.pcie == found.peers == (("X", None), (None, "X"))
    assert found.topology is not None and len(found.topology.localities) == 2


def test_instances_have_no_links_and_hang_where_their_gpu_does(driver: Driver) -> None:
    found = driver.source(BOXES["a100-mig"]).read(Want.TOPOLOGY)
    assert found.links[0] == ("X", None, None, None, None, "NV12")
    assert found.links[2] == found.peers[2] == (None, None, "X", None, None, None)
    assert found.topology is not None
    assert len(set(found.topology.localities[:5])) == 1


def test_a_fact_of_a_place_that_is_not_supported_hides_no_other(driver: Driver) -> None:
    source = driver.source(BOXES["dgx-h100"])
    whole = source.read(Want.TOPOLOGY).topology
    driver.simulated.error(PLACE[0], NOT_SUPPORTED)
    found = source.read(Want.TOPOLOGY).topology
    assert whole is not None and found is not None
    assert found.localities == tuple(replace(place, cpus=None) for place in whole.localities)


def test_places_are_what_the_driver_says(driver: Driver) -> None:
    place = Locality(tuple(range(64, 136)), (1, 13, 19), own_node=12)
    box = wired(uniform(2, "NV6"), "dgx-h100")
    box = replace(box, gpus=tuple(replace(gpu, locality=place) for gpu in box.gpus))
    facts = {"0": {"pcie_generation": 5, "pcie_width": 16}, "1": {"pcie_generation": 4, "pcie_width": 8}}
    found = driver.source(box, facts=facts).read(Want.TOPOLOGY).topology
    assert found is not None
    assert found.localities == (
        replace(place, switched=False, pcie_generation=5, pcie_width=16),
        replace(place, switched=False, pcie_generation=4, pcie_width=8),
    )


@pytest.mark.parametrize(
    ("name", "switched"), [("dgx-h100", True), ("dgx-1", False), ("rtx4090", False), ("gb10", False)]
)
def test_it_is_told_whether_links_go_to_switches(driver: Driver, name: str, switched: bool) -> None:
    topology = driver.source(BOXES[name]).read(Want.TOPOLOGY).topology
    assert topology is not None
    assert {place.switched for place in topology.localities} == {switched}


# Some of the devices.


def _among(source: NvmlSource, *indices: int) -> Snapshot:
    """The reading of `pick`: verdicts of all devices, and links among the free ones."""
    judged = source.read(Want.VERDICT)
    return source.read(Want.LINKS, among={judged.devices[n].key for n in indices})


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1", "rtx4090"])
@pytest.mark.parametrize("indices", [(0, 3, 5), (2, 7), (4,), ()])
def test_links_among_some_devices_ask_nothing_of_the_others(
    driver: Driver, name: str, indices: tuple[int, ...]
) -> None:
    source = driver.source(BOXES[name])
    judged = source.read(Want.VERDICT)
    driver.simulated.reset_counts()
    found = source.read(Want.LINKS, among={judged.devices[n].key for n in indices})
    assert driver.labels() == {str(n) for n in indices}
    assert driver.count(LEVEL) == len(indices) * (len(indices) - 1) // 2
    for i, row in enumerate(found.links):
        for j, word in enumerate(row):
            known = i == j or {i, j} <= set(indices)
            assert word == (BOXES[name].links[i][j] if known else None)
    assert len(found.pcie) == len(found.peers) == 8


def test_links_among_some_devices_stay_known_while_it_watches(driver: Driver) -> None:
    source = driver.source(BOXES["dgx-h100"])
    found = _among(source, 1, 2)
    driver.simulated.reset_counts()
    assert source.read(Want.MONITOR).links == found.links
    assert driver.count(FIELDS, LEVEL, PEER) == 0
    assert source.read(Want.LINKS).links == BOXES["dgx-h100"].links


def test_peer_access_is_asked_about_where_no_nvlink_gives_it(driver: Driver) -> None:
    source = driver.source(BOXES["rtx3090"])
    found = source.read(Want.LINKS)
    assert driver.count(PEER) == 4
    assert {word for row in found.peers for word in row} == {"X", "OK"}
    driver.simulated.reset_counts()
    source.read(Want.TOPOLOGY)
    assert driver.count(PEER) == 6


@pytest.mark.parametrize(
    ("status", "word"), list(enumerate(["OK", "CNS", "GNS", "TNS", "DR", "NS", "U", None, None]))
)
def test_peer_access_is_told_in_the_words_of_nvidia_smi(
    driver: Driver, status: int, word: str | None
) -> None:
    source = driver.source(wired(uniform(2, "PHB")))
    text = driver.simulated.box.read_text()
    lines = [f"peers {status} {status}" if line.startswith("peers ") else line for line in text.splitlines()]
    driver.simulated.rewrite("\n".join(lines) + "\n")
    assert source.read(Want.TOPOLOGY).peers == (("X", word), (word, "X"))
