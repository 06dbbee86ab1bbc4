"""The links among selected devices: the weakest one, and orders that NCCL may get wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gputui.choosing.ring_search import strongest
from gputui.inventory.device import Device
from gputui.inventory.link import PCIE_CLASSES, direct_links, strength
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Nic

MAX_BRIDGED = 12
"""The most NVLinks that bridges give a pair of GPUs; a pair with more is behind NVSwitches."""


def weakest(snapshot: Snapshot, devices: Sequence[Device]) -> str | None:
    """The weakest link between any two of the devices, by nvidia-smi's word.

    None for fewer than two devices, and where a link is unknown, because that link could be the weakest.
    """
    if len(devices) < 2 or not snapshot.links:
        return None
    words = [snapshot.link(one, other) for one, other in combinations(devices, 2)]
    return min(words, key=strength)


def weakest_ring(snapshot: Snapshot, devices: Sequence[Device]) -> str | None:
    """The weakest link of the best ring through the devices, which limits a collective over all of them.

    The order does not matter, because NCCL builds its own rings. None as for `weakest`.
    """
    overall = weakest(snapshot, devices)
    if overall is None or len(devices) < 4:
        return overall
    rank = [[strength(snapshot.link(one, other)) for other in devices] for one in devices]
    found = strongest(rank, range(len(devices)))
    words = (snapshot.link(one, other) for one, other in combinations(devices, 2))
    return next((word for word in words if strength(word) == found), None)


def permuted_behind_switches(snapshot: Snapshot, devices: Sequence[Device]) -> bool:
    """Whether the devices are not in the box's order, where NVSwitches do the reduction (NVLS).

    NVSwitches do so from Hopper on. There a permuted list of visible devices can give the results of
    AllGather and ReduceScatter in a wrong order (nccl #1906, open). Where the topology does not report
    NVSwitches, more than `MAX_BRIDGED` NVLinks between every two GPUs imply them.
    """
    places = [snapshot.position[device.key] for device in devices]
    if len(devices) < 2 or places == sorted(places):
        return False
    hopper = all((device.capability or (0, 0)) >= (9, 0) for device in devices)
    counts = [direct_links(snapshot.link(one, other)) for one, other in combinations(devices, 2)]
    topology = snapshot.topology
    switched = [topology.localities[place].switched if topology else None for place in places]
    return hopper and all(counts) and (all(switched) or min(counts) > MAX_BRIDGED)


PERMUTED = "in this order NCCL can mix up results (bug 1906): {} is safe"
"""The warning about devices that `permuted_behind_switches` finds, for what names their ascending order. It
matters to several processes only."""


def on_one_node(one: Device | Nic, other: Device | Nic, word: str | None) -> bool:
    """Whether both are on one NUMA node.

    The nodes' numbers decide. Where one of them is unknown, the PCIe class between the two decides (None:
    unknown).
    """
    if one.numa_node is not None and other.numa_node is not None:
        return one.numa_node == other.numa_node
    return word in PCIE_CLASSES and word != "SYS"


def numa_nodes(devices: Sequence[Device]) -> tuple[int, ...]:
    """The host's NUMA nodes of the devices, ascending; () where the node of any device is unknown."""
    nodes = {device.numa_node for device in devices}
    return tuple(sorted(node for node in nodes if node is not None)) if None not in nodes else ()
