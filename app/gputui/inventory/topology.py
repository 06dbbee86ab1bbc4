"""Topology: what is near each device in the host, and what joins it to the others and to the network."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.link import LinkMatrix


@dataclass(frozen=True, slots=True)
class Locality:
    """What is near one device: CPUs, memory, its slot. None: not known; () CPUs: the container shows none.

    cpus             the CPUs near it, of those that we may use
    memory_nodes     the host NUMA nodes whose memory is near
    own_node         the NUMA node that the device's own memory is, where it is one (GH200)
    switched         whether its NVLinks go to NVSwitches
    pcie_generation  1 to 6, the best that device and slot can do together; pcie_width: lanes
    """

    cpus: tuple[int, ...] | None = None
    memory_nodes: tuple[int, ...] | None = None
    own_node: int | None = None
    switched: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True, slots=True)
class Nic:
    """A network device with RDMA, as the kernel calls it ("mlx5_0")."""

    name: str
    pci_bus_id: str | None = None
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """How the box is wired, beside the matrices of the snapshot. Rows follow `Snapshot.devices`.

    localities    one for each device
    nic_links     a row for each device and then for each NIC; a column for each NIC
    between_cpus  GB/s between two CPU sockets of this host, as NCCL models it
    """

    localities: tuple[Locality, ...]
    nics: tuple[Nic, ...] = ()
    nic_links: LinkMatrix = ()
    between_cpus: float | None = None


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as the kernel lists CPUs and nodes: (0, 1, 2, 8) is "0-2,8"."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


_MOST = 1 << 16
"""CPUs or nodes of the largest machine that is believed (Linux: NR_CPUS is 8192 at most)."""


def from_ranges(text: str) -> tuple[int, ...]:
    """The numbers of "0-2,8"; "0-0,8-8" (old drivers) is 0, 8. Raises ValueError."""
    spans: set[tuple[int, int]] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < _MOST:
            raise ValueError(f"{text[:40]!r} is not a list of numbers")
        spans.add((low, high))
    numbers: list[int] = []
    for low, high in sorted(spans):
        # Each number once, however often a hostile list has it.
        numbers.extend(range(max(low, numbers[-1] + 1) if numbers else low, high + 1))
    return tuple(numbers)
