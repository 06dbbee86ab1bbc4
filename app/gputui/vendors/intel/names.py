"""The names of Intel's GPUs: from pci.ids, or from our own short table, as containers have no pci.ids."""

from __future__ import annotations

from gputui.system import pci_ids
from gputui.system.root import Root

_MOST_NAME = 80

KNOWN: dict[str, str] = {
    "0b69": "Ponte Vecchio",
    "0bd5": "Ponte Vecchio XT (2 Tile) [Data Center GPU Max 1550]",
    "0bd6": "Ponte Vecchio XT (2 Tile) [Data Center GPU Max 1550]",
    "0bd9": "Ponte Vecchio XT (1 Tile) [Data Center GPU Max 1100]",
    "0bda": "Ponte Vecchio XT (1 Tile) [Data Center GPU Max 1100]",
    "0bdb": "Ponte Vecchio XT (1 Tile) [Data Center GPU Max 1100]",
    "56a0": "DG2 [Arc A770]",
    "56a1": "DG2 [Arc A750]",
    "56a2": "DG2 [Arc A580]",
    "56a5": "DG2 [Arc A380]",
    "56a6": "DG2 [Arc A310]",
    "56b1": "DG2 [Arc Pro A40/A50]",
    "56b3": "DG2 [Arc Pro A60]",
    "56c0": "ATS-M [Data Center GPU Flex 170]",
    "56c1": "ATS-M [Data Center GPU Flex 140]",
    "e20b": "Battlemage G21 [Arc B580]",
    "e20c": "Battlemage G21 [Arc B570]",
    "e211": "Battlemage G21 [Arc Pro B60]",
    "e212": "Battlemage G21 [Arc Pro B50]",
    "9a49": "TigerLake-LP GT2 [Iris Xe Graphics]",
    "9b41": "CometLake-U GT2 [UHD Graphics]",
    "4680": "AlderLake-S GT1",
    "46a6": "Alder Lake-P GT2 [Iris Xe Graphics]",
    "a780": "Raptor Lake-S GT1 [UHD Graphics 770]",
    "a7a0": "Raptor Lake-P [Iris Xe Graphics]",
    "7d55": "Meteor Lake-P [Intel Arc Graphics]",
    "64a0": "Lunar Lake [Intel Arc Graphics 130V / 140V]",
}
"""Names by device id, as in pci.ids (pci-ids.ucw.cz)."""

MAX = frozenset(f"0bd{digit}" for digit in "0456789ab") | {"0b69", "0b6e"}
"""Device ids of Data Center GPU Max (Ponte Vecchio; Linux, include/drm/intel/pciids.h)."""

ONE_TILE = frozenset(f"0bd{digit}" for digit in "789ab")
"""The devices of `MAX` that have one tile (pci.ids): FLAT and COMPOSITE are the same for them."""


def name(root: Root, pci_id: str | None) -> str:
    """Return a name for people, else its numbers: "Intel 8086:e20b"."""
    device = (pci_id or "").partition(":")[2]
    found = (pci_ids.name_of(root, "8086", device) if device else None) or KNOWN.get(device)
    return found[:_MOST_NAME] if found else f"Intel {pci_id or 'GPU'}"
