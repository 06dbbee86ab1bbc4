"""RDMA network devices and their links to GPUs, from the kernel's PCI tree (`pci_tree.py`).

A network device without a PCI parent (a software device: rxe, siw) is left out; it makes nvidia-smi's whole
command fail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.inventory.link import SELF, LinkMatrix
from gputui.inventory.topology import Locality, Nic, Topology
from gputui.system.cpu import between_cpus
from gputui.system.pci_tree import PciPlace, numa_nodes, pci_class, place
from gputui.system.root import Root

_NICS = "/sys/class/infiniband"


def topology(root: Root, near: Sequence[Locality], bus_ids: Sequence[str | None]) -> Topology:
    """Return the topology of devices with these places on the bus, and with what is `near` each."""
    rdma = Rdma(root)
    return Topology(tuple(near), rdma.nics(), rdma.links(bus_ids), between_cpus(root))


class Rdma:
    """The RDMA devices of a machine. Unreadable ones are left out: a container may show no devices."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._found = [
            (name, hung)
            for name in sorted(root.names(_NICS), key=_natural)
            if (hung := self._hung(f"{_NICS}/{name}/device")) is not None
        ]
        # A container may mask parts of /sys.
        self._one_node = numa_nodes(root) <= 1

    def nics(self) -> tuple[Nic, ...]:
        """Return the network devices, in the order of the numbers in their names."""
        return tuple(Nic(name, hung.bus_id, hung.numa_node) for name, hung in self._found)

    def links(self, bus_ids: Sequence[str | None]) -> LinkMatrix:
        """Return a row for each of the GPUs and then each network device, a column for each
        network device."""
        if not self._found:
            return ()
        rows = [self._gpu(bus_id) if bus_id else None for bus_id in bus_ids]
        nics = [hung for _, hung in self._found]
        return tuple(tuple(self._word(row, nic) for nic in nics) for row in [*rows, *nics])

    def _gpu(self, bus_id: str) -> PciPlace | None:
        domain, _, rest = bus_id.lower().partition(":")
        return self._hung(f"/sys/bus/pci/devices/{int(domain, 16):04x}:{rest}")

    def _hung(self, link: str) -> PciPlace | None:
        real = self._root.real(link)
        node = self._root.number(f"{real}/numa_node")
        return place(real, node if node is not None and node >= 0 else None) if real else None

    def _word(self, one: PciPlace | None, other: PciPlace) -> str | None:
        if one is None:
            return None
        return SELF if one is other else pci_class(one, other, self._one_node)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts "mlx5_2" before "mlx5_10"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
