"""The links between Intel's GPUs and their tiles: Xe links from xpu-smi, and the PCI tree. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import SELF, TILES, LinkMatrix, direct_links, each_pair, strength
from gputui.system.pci_tree import PciPlace, pci_class
from gputui.vendors.intel.xpu_smi import Wires


@frozen
class End:
    """A device: its place on the bus, its card's number in xpu-smi's list, and its tile (None: all tiles)."""

    place: PciPlace | None
    number: int | None
    tile: int | None
    card: int


def matrices(ends: Sequence[End], wires: Wires | None, one_numa_node: bool) -> dict[str, LinkMatrix]:
    """Return links and PCIe classes of every pair of devices, by fields of `Snapshot`.

    Xe links are between tiles: two cards get the strongest word of their tiles.
    """
    rows = {label: place for place, label in enumerate(wires.labels)} if wires else {}

    def told(one: End, other: End) -> str | None:
        if wires is None or one.number is None or other.number is None:
            return None
        words = [
            wires.words[rows[a]][rows[b]]
            for a in _labels(one, wires)
            for b in _labels(other, wires)
            if a in rows and b in rows
        ]
        return max((word for word in words if word not in (None, SELF)), key=strength, default=None)

    def pcie(one: End, other: End) -> str | None:
        if one.card == other.card:
            return None
        if one.place is not None and other.place is not None and one.place.path != other.place.path:
            return pci_class(one.place, other.place, one_numa_node)
        word = told(one, other)
        return word if word is not None and not direct_links(word) else None

    def link(one: End, other: End) -> str | None:
        word = told(one, other)
        if direct_links(word):
            return word
        # Tiles of one card are joined inside it, whatever xpu-smi reports.
        return TILES if one.card == other.card else pcie(one, other) or word

    count = len(ends)
    return {
        "links": each_pair(count, lambda i, j: link(ends[i], ends[j])),
        "pcie": each_pair(count, lambda i, j: pcie(ends[i], ends[j])),
    }


def _labels(end: End, wires: Wires) -> list[tuple[int, int | None]]:
    assert end.number is not None
    of_card = [label for label in wires.labels if label[0] == end.number]
    if end.tile is None:
        return of_card
    return [label for label in of_card if label[1] in (None, end.tile)]
