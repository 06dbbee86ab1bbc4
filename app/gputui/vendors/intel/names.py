"""The names of Intel's GPUs, and the models with tiles."""

from __future__ import annotations

from gputui.system import pci_ids
from gputui.system.root import Root

_MOST_NAME = 80

MAX = frozenset(f"0bd{digit}" for digit in "0456789ab") | {"0b69", "0b6e"}
"""Device ids of Data Center GPU Max (Ponte Vecchio; Linux, include/drm/intel/pciids.h)."""

ONE_TILE = frozenset(f"0bd{digit}" for digit in "789ab")
"""The devices of `MAX` that have one tile (pci.ids): FLAT and COMPOSITE are the same for them."""


def name(root: Root, pci_id: str | None) -> str:
    """Return a name for people, else its numbers: "Intel 8086:e20b"."""
    device = (pci_id or "").partition(":")[2]
    found = pci_ids.name_of(root, "8086", device) if device else None
    return found[:_MOST_NAME] if found else f"Intel {pci_id or 'GPU'}"
