"""RDMA network devices and what joins them to GPUs, from the kernel's PCI tree (sysfs).

Two devices that share a bridge are PIX when no second switch lies between them, else PXB; under one host
bridge PHB; on one NUMA node NODE; else SYS (`nvidia-smi topo -m`, legend). A network device without a PCI
parent (a software one: rxe, siw) is left out; it makes nvidia-smi's whole command fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.inventory.link import SELF, LinkMatrix
from gputui.inventory.topology import Nic

_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_ONE_SWITCH = 2
"""From a port of a switch to the device in it, and from the switch's upstream port to that one."""


@dataclass(frozen=True, slots=True)
class _Hung:
    """Where a PCI device hangs: its host bridge, then every bridge, then itself."""

    path: tuple[str, ...]
    numa_node: int | None

    @property
    def bus_id(self) -> str:
        """NVML's 8-digit form."""
        domain, rest = self.path[-1].split(":", 1)
        return f"{domain:>08}:{rest}".upper()


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

    def _gpu(self, bus_id: str) -> _Hung | None:
        domain, _, rest = bus_id.lower().partition(":")
        return self._hung(self._sysfs / "bus" / "pci" / "devices" / f"{int(domain, 16):04x}:{rest}")

    def _hung(self, link: Path) -> _Hung | None:
        try:
            real = link.resolve(strict=True)
        except OSError:
            return None
        try:
            node = int((real / "numa_node").read_text())
        except (OSError, ValueError):
            node = -1
        parts = [part for part in real.parts if _FUNCTION.fullmatch(part) or _HOST_BRIDGE.fullmatch(part)]
        if not parts or not _FUNCTION.fullmatch(real.name):
            return None
        return _Hung(tuple(parts), node if node >= 0 else None)

    def _word(self, one: _Hung | None, other: _Hung) -> str | None:
        if one is None:
            return None
        if one is other:
            return SELF
        common = 0
        for a, b in zip(one.path, other.path, strict=False):
            if a != b:
                break
            common += 1
        if common == 0:
            same = one.numa_node is not None and one.numa_node == other.numa_node
            return "NODE" if same or self._one_node else "SYS"
        if common == 1 and _HOST_BRIDGE.fullmatch(one.path[0]):
            return "PHB"
        # Each end's distance from the bridge that they share, itself not counted.
        away = max(len(one.path), len(other.path)) - common
        return "PIX" if away <= _ONE_SWITCH else "PXB"


def _entries(folder: Path, pattern: str = "*") -> Iterable[Path]:
    try:
        return list(folder.glob(pattern)) if folder.is_dir() else ()
    except OSError:
        # A container may mask parts of /sys.
        return ()


def _natural(entry: Path) -> list[tuple[int, str]]:
    """ "mlx5_2" before "mlx5_10"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", entry.name)]
