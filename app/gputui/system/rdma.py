"""RDMA network devices and what joins them to GPUs, from the kernel's PCI tree (`pci_tree.py`).

A network device without a PCI parent (a software one: rxe, siw) is left out; it makes nvidia-smi's whole
command fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gputui.inventory.link import SELF, LinkMatrix
from gputui.inventory.topology import Nic
from gputui.system.pci_tree import PciPlace, pci_class, place


class Rdma:
    """The RDMA devices under `sysfs`. What cannot be read is left out: a container may show no devices."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._found = [
            (entry.name, hung)
            for entry in sorted(_entries(sysfs / "class" / "infiniband"), key=_natural)
            if (hung := self._hung(entry / "device")) is not None
        ]
        self._one_node = len(list(_entries(sysfs / "devices" / "system" / "node", "node[0-9]*"))) <= 1

    def nics(self) -> tuple[Nic, ...]:
        """The network devices, in the order of their names' numbers."""
        return tuple(Nic(name, hung.bus_id, hung.numa_node) for name, hung in self._found)

    def links(self, bus_ids: Sequence[str | None]) -> LinkMatrix:
        """A row for each of the GPUs and then each network device, a column for each network device."""
        if not self._found:
            return ()
        rows = [self._gpu(bus_id) if bus_id else None for bus_id in bus_ids]
        nics = [hung for _, hung in self._found]
        return tuple(tuple(self._word(row, nic) for nic in nics) for row in [*rows, *nics])

    def _gpu(self, bus_id: str) -> PciPlace | None:
        domain, _, rest = bus_id.lower().partition(":")
        return self._hung(self._sysfs / "bus" / "pci" / "devices" / f"{int(domain, 16):04x}:{rest}")

    def _hung(self, link: Path) -> PciPlace | None:
        try:
            real = link.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        try:
            node = int((real / "numa_node").read_text())
        except (OSError, ValueError):
            node = -1
        return place(str(real), node if node >= 0 else None)

    def _word(self, one: PciPlace | None, other: PciPlace) -> str | None:
        if one is None:
            return None
        return SELF if one is other else pci_class(one, other, self._one_node)


def _entries(folder: Path, pattern: str = "*") -> Iterable[Path]:
    try:
        return list(folder.glob(pattern)) if folder.is_dir() else ()
    except OSError:
        # A container may mask parts of /sys.
        return ()


def _natural(entry: Path) -> list[tuple[int, str]]:
    """ "mlx5_2" before "mlx5_10"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", entry.name)]
