"""The links between AMD's GPUs: the compute driver's links, and the PCI tree where it has none. Pure.

A link is XGMI where the driver calls it XGMI, even through another GPU; its weight is the distance (15 per
hop; between partitions 13 within a package, 41 to another package). Over PCIe a weight reports only whether
two GPUs have the same CPU node: four cards behind one switch report 40, and so do two cards at two host
bridges. So PIX to NODE come from the PCI tree, or are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.inventory.link import XGMI as XGMI_WORD
from gputui.inventory.link import LinkMatrix, NumberMatrix, each_pair
from gputui.system.pci_tree import PciPlace, pci_class
from gputui.vendors.amd.kfd import PCIE, XGMI, IoLink, Node, Topology


def matrices(
    nodes: Sequence[Node | None],
    places: Sequence[PciPlace | None],
    topology: Topology,
    one_numa_node: bool,
) -> dict[str, LinkMatrix | NumberMatrix]:
    """Return links, PCIe classes, peer access, weights and bandwidths (MB/s) of every pair, by fields of
    `Snapshot`.

    A row is a GPU of the compute driver and its place on the bus; either may be None, not known.
    """
    between = [[_between(one, other) for other in nodes] for one in nodes]

    def pcie(i: int, j: int) -> str | None:
        here, there = places[i], places[j]
        if here is not None and there is not None and here.path != there.path:
            return pci_class(here, there, one_numa_node)
        one, other = nodes[i], nodes[j]
        if one is None or other is None:
            return None
        near, far = topology.cpu_node(one), topology.cpu_node(other)
        return "SYS" if near is not None and far is not None and near != far else None

    def word(i: int, j: int) -> str | None:
        link = between[i][j]
        return XGMI_WORD if link is not None and link.type == XGMI else pcie(i, j)

    def peer(i: int, j: int) -> str | None:
        link = between[i][j]
        if link is not None and link.type in (XGMI, PCIE):
            return "OK"
        known = nodes[i] is not None and nodes[j] is not None and topology.tells_peers
        # ROCm lets a GPU read another GPU's memory where the kernel has made a link between them.
        return "NS" if known else None

    def told(name: str) -> Callable[[int, int], int | None]:
        return lambda i, j: getattr(between[i][j], name, None)

    count = len(nodes)
    return {
        "links": each_pair(count, word),
        "pcie": each_pair(count, pcie),
        "peers": each_pair(count, peer),
        "link_weights": each_pair(count, told("weight"), own=0),
        "link_bandwidths": each_pair(count, told("bandwidth"), own=None),
    }


def _between(one: Node | None, other: Node | None) -> IoLink | None:
    """Return the link of two GPUs as reported by either; XGMI takes precedence over PCIe."""
    if one is None or other is None or one is other:
        return None
    found = [link for link in one.links if link.to == other.number]
    found += [link for link in other.links if link.to == one.number]
    return min(
        found, key=lambda link: (link.type != XGMI, link.weight or 0, -(link.bandwidth or 0)), default=None
    )
