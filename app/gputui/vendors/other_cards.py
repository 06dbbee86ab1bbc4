"""Graphics devices that no vendor's source reads. They are listed apart, so that nobody searches for them.

Examples are the adapter of a management controller (ast, mgag200), a virtual machine's display, and a card
whose driver has no runtime for training (nouveau, radeon). The kernel reports only their identity, which does
not change.
"""

from __future__ import annotations

from collections.abc import Collection

from gputui.inventory.device import Device
from gputui.inventory.formatting import printable
from gputui.system.drm import Card, cards
from gputui.system.pci_ids import name_of
from gputui.system.pci_tree import long_bus_id
from gputui.system.root import Root

VENDOR = "other"
"""`Device.vendor` of such a device, which belongs to no vendor of gputui."""

_READ_BY_VENDORS = frozenset({"nvidia", "amdgpu", "amdgpu_xcp", "amdgpu_xcp_drv", "i915", "xe"})
"""Drivers whose devices a vendor's source lists."""


def other_cards(root: Root, known: Collection[str]) -> tuple[Device, ...]:
    """Return the cards of PCI functions that are not in `known` (long bus ids), in bus order."""
    found = [card for card in cards(root) if card.function and card.driver not in _READ_BY_VENDORS]
    there = {long_bus_id(card.function): card for card in found if card.function}
    left = sorted(there.keys() - known)
    return tuple(_device(root, there[bus], bus, place) for place, bus in enumerate(left))


def _device(root: Root, card: Card, bus: str, place: int) -> Device:
    name = name_of(root, card.vendor_id, card.device_id)
    return Device(
        index=-1 - place,
        uuid="",
        uuid_usable=False,
        vendor=VENDOR,
        name=f"{name or f'PCI {card.pci_id}'} ({printable(card.driver)})",
        pci_bus_id=bus,
        pci_id=card.pci_id,
        render=card.render,
        # A card that can render for a program has a render node.
        apart="no runtime" if card.render else "display",
    )
