"""Topology: the surroundings of each device in the host, and its links to the others and the network."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import LinkMatrix


@frozen
class Locality:
    """The surroundings of one device: CPUs, memory, its slot. None: not known; () CPUs: none are visible.

    cpus             the CPUs near it, among those that we may use
    memory_nodes     the host NUMA nodes whose memory is near
    own_node         the NUMA node of the device's own memory, where it is one (GH200)
    switched         whether its NVLinks go to NVSwitches
    pcie_generation  1 to 6, the best that device and slot support together
    pcie_width       the number of lanes, likewise
    """

    cpus: tuple[int, ...] | None = None
    memory_nodes: tuple[int, ...] | None = None
    own_node: int | None = None
    switched: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@frozen
class Nic:
    """A network device with RDMA, by its kernel name ("mlx5_0")."""

    name: str
    pci_bus_id: str | None = None
    numa_node: int | None = None


@frozen
class Topology:
    """The wiring of the box, in addition to the matrices of the snapshot. Rows follow `Snapshot.devices`.

    localities    one for each device
    nic_links     a row for each device and then for each NIC; a column for each NIC
    between_cpus  GB/s between two CPU sockets of this host, by NCCL's model
    """

    localities: tuple[Locality, ...]
    nics: tuple[Nic, ...] = ()
    nic_links: LinkMatrix = ()
    between_cpus: float | None = None


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in the kernel's notation for CPUs and nodes: (0, 1, 2, 8) is "0-2,8"."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


_MOST = 1 << 16
"""The limit for CPU and node numbers of any believable machine (Linux: NR_CPUS is at most 8192)."""


def from_ranges(text: str) -> tuple[int, ...]:
    """Parse "0-2,8" to numbers; "0-0,8-8" (old drivers) is 0, 8. Raises ValueError."""
    spans: set[tuple[int, int]] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < _MOST:
            raise ValueError(f"{text[:40]!r} is not a list of numbers")
        spans.add((low, high))
    numbers: list[int] = []
    for low, high in sorted(spans):
        # Each number once, however often a hostile list repeats it.
        numbers.extend(range(max(low, numbers[-1] + 1) if numbers else low, high + 1))
    return tuple(numbers)
