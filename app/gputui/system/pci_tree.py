"""The place of PCI devices on the bus, and the class of a pair by the kernel's PCI tree.

Two devices that share a bridge are PIX when no second switch is between them, else PXB. Under one host bridge
they are PHB, on one NUMA node NODE, and otherwise SYS (`nvidia-smi topo -m`, legend).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gputui.inventory.light_dataclasses import frozen
from gputui.system.root import Root

FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_ONE_SWITCH = 2
"""The steps from a switch's port to the device in it, and from the switch's upstream port to that port."""


def numa_nodes(root: Root) -> int:
    """Return the number of NUMA nodes that a machine shows; 0 where that is hidden."""
    names = root.names("/sys/devices/system/node")
    return sum(name.startswith("node") and name[4:].isdigit() for name in names)


@frozen
class PciPlace:
    """The place of a PCI device: its host bridge, then every bridge, then the device itself."""

    path: tuple[str, ...]
    numa_node: int | None

    @property
    def bus_id(self) -> str:
        """NVML's 8-digit form."""
        return long_bus_id(self.path[-1])


def long_bus_id(function: str) -> str:
    """Return NVML's 8-digit form of the kernel's "0000:57:00.0"."""
    domain, rest = function.split(":", 1)
    return f"{domain:>08}:{rest}".upper()


def place(
    real: str, numa_node: int | None, is_own_bridge: Callable[[str], bool] | None = None
) -> PciPlace | None:
    """Return the place of the device whose folder in sysfs is `real`
    ("/sys/devices/pci0000:00/…/0000:57:00.0").

    None where that is not a PCI device, as in a recording without links. `is_own_bridge` returns whether the
    bridge of a folder is part of the card itself. Such bridges, nearest to the device, are left out: every
    card has them, and two cards share none.
    """
    words = real.split("/")
    starts = [n for n, word in enumerate(words) if FUNCTION.fullmatch(word) or _HOST_BRIDGE.fullmatch(word)]
    if not starts or starts[-1] != len(words) - 1 or not FUNCTION.fullmatch(words[-1]):
        return None
    if is_own_bridge is not None:
        while len(starts) > 2 and is_own_bridge("/".join(words[: starts[-2] + 1])):
            del starts[-2]
    return PciPlace(tuple(words[n] for n in starts), numa_node)


def outermost_bridge(real: str, is_own_bridge: Callable[[str], bool]) -> str | None:
    """Return the folder of the card's own bridge that is nearest to the slot, None where it has none."""
    found: str | None = None
    folder = real.rpartition("/")[0]
    while folder and is_own_bridge(folder):
        found, folder = folder, folder.rpartition("/")[0]
    return found


def pci_class(one: PciPlace, other: PciPlace, one_node: bool) -> str:
    """Return the class of two devices; `one_node`: whether the machine has only one NUMA node."""
    common = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a != b:
            break
        common += 1
    if common == 0:
        same = one.numa_node is not None and one.numa_node == other.numa_node
        return "NODE" if same or one_node else "SYS"
    if common == 1 and _HOST_BRIDGE.fullmatch(one.path[0]):
        return "PHB"
    # Each end's distance from the bridge that they share, which does not count itself.
    away = max(len(one.path), len(other.path)) - common
    return "PIX" if away <= _ONE_SWITCH else "PXB"
