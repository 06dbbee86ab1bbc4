"""The compute driver's topology: /sys/class/kfd/kfd/topology (Linux,
drivers/gpu/drm/amd/amdkfd/kfd_topology.c).

A node is a CPU or a GPU; its `properties` are lines of "key value" with decimal values. Old kernels lack many
keys. In a container whose device cgroup leaves a GPU out, that GPU's node cannot be read
(kfd_devcgroup_check_permission).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from gputui.inventory.light_dataclasses import dataclass, frozen
from gputui.system.root import Root, pairs, whole

TOPOLOGY = "/sys/class/kfd/kfd/topology"
NODES = f"{TOPOLOGY}/nodes"
PROCESSES = "/sys/class/kfd/kfd/proc"

PCIE, XGMI = 2, 11
"""CRAT's link types (include/uapi: kfd_crat.h, CRAT_IOLINK_TYPE_*)."""

_FRAME_BUFFER = (1, 2)
"""The heap types of device memory: public and private (kfd_topology.h)."""

MOST_NODES = 1024
_MOST_LINKS = 4096
_PARTITION_SHIFT = 28


@frozen
class IoLink:
    """A link from a node to another: its type, the kernel's weight, and MB/s where it is a direct link."""

    to: int
    type: int
    weight: int | None
    bandwidth: int | None


@dataclass(frozen=True)
class Node:
    """A GPU of the machine whose files `root` has.

    memory     its memory in bytes; `banks` are the folders of that memory
    location   the PCI function ("0000:05:00.0")
    partition  the number of a partition of the GPU at `location`; a GPU as a whole is 0, too
    """

    root: Root
    number: int
    properties: Mapping[str, int]
    gpu_id: int | None
    name: str
    memory: int | None
    banks: tuple[str, ...]

    @cached_property
    def links(self) -> tuple[IoLink, ...]:
        """Its links, read on first use: partitions have thousands."""
        folder = f"{NODES}/{self.number}"
        return (*_links(self.root, f"{folder}/io_links"), *_links(self.root, f"{folder}/p2p_links"))

    @property
    def pci_id(self) -> str:
        return f"{self.properties.get('vendor_id', 0):04x}:{self.properties.get('device_id', 0):04x}"

    @property
    def location(self) -> str:
        """The PCI function of the GPU.

        The bits of the function number, or the uppermost four, depending on the kernel, hold a partition
        number: such functions do not exist on the bus.
        """
        where = self.properties.get("location_id", 0)
        domain = self.properties.get("domain", 0)
        return f"{domain & 0xFFFFFFFF:04x}:{where >> 8 & 0xFF:02x}:{where >> 3 & 0x1F:02x}.0"

    @property
    def partition(self) -> int:
        where = self.properties.get("location_id", 0)
        return where >> _PARTITION_SHIFT & 0xF or where & 7

    @property
    def unique_id(self) -> int:
        return self.properties.get("unique_id", 0)

    @property
    def render(self) -> str | None:
        minor = self.properties.get("drm_render_minor", 0)
        return f"renderD{minor}" if minor > 0 else None

    @property
    def architecture(self) -> str | None:
        """The compiler's name for it: 90402 is gfx942, 90010 is gfx90a, 110003 is gfx1103."""
        version = self.properties.get("gfx_target_version", 0)
        return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}" if version > 0 else None


@frozen
class Topology:
    """The GPUs, by the numbers of their nodes, and the numbers of the CPU nodes.

    tells_peers  whether the kernel makes links for GPUs that reach each other over PCIe only
    broken       nodes that can be read but hold nothing; a node without read permission, as in a container,
                 does not count
    """

    gpus: tuple[Node, ...]
    cpus: tuple[int, ...]
    tells_peers: bool
    broken: tuple[int, ...]

    def cpu_node(self, gpu: Node) -> int | None:
        """Return the CPU node to which a GPU is attached, which is a NUMA node of the host."""
        near = [link for link in gpu.links if link.to in self.cpus]
        return min(near, key=lambda link: link.weight or 0).to if near else None


def topology(root: Root) -> Topology:
    """Return the driver's current topology, without the facts that change. Unreadable nodes are left out."""
    gpus: list[Node] = []
    cpus: list[int] = []
    tells_peers = False
    broken: list[int] = []
    numbers = sorted(n for name in root.names(NODES) if (n := whole(name)) is not None and n >= 0)
    for number in numbers[:MOST_NODES]:
        folder = f"{NODES}/{number}"
        found = properties(root, f"{folder}/properties")
        if not found:
            if root.text(f"{folder}/properties") is not None:
                broken.append(number)
            continue
        if found.get("simd_count", 0) <= 0:
            cpus.append(number)
            continue
        if found.get("cpu_cores_count", 0) > 0:
            # An old APU: its CPU and its GPU are one node.
            cpus.append(number)
        banks, memory = _banks(root, folder)
        tells_peers = tells_peers or "p2p_links_count" in found
        gpus.append(
            Node(
                root=root,
                number=number,
                properties=found,
                gpu_id=root.number(f"{folder}/gpu_id"),
                name=root.text(f"{folder}/name", 256) or "",
                memory=memory,
                banks=banks,
            )
        )
    return Topology(tuple(gpus), tuple(cpus), tells_peers, tuple(broken))


def properties(root: Root, path: str) -> dict[str, int]:
    """Parse lines of "key value"; values that are not numbers are left out. {} where there is
    no such file."""
    found = {key: whole(text) for key, text in pairs(root.text(path), " ").items()}
    return {key: number for key, number in found.items() if number is not None}


def _banks(root: Root, folder: str) -> tuple[tuple[str, ...], int | None]:
    """Return the folders of a node's memory that belong to the device, and their bytes; None
    where unknown."""
    found: list[str] = []
    total = 0
    for name in sorted(root.names(f"{folder}/mem_banks"))[:MOST_NODES]:
        bank = f"{folder}/mem_banks/{name}"
        facts = properties(root, f"{bank}/properties") if name.isdigit() else {}
        if facts.get("heap_type") in _FRAME_BUFFER:
            found.append(bank)
            total += max(0, facts.get("size_in_bytes", 0))
    return tuple(found), total or None


def _links(root: Root, folder: str) -> list[IoLink]:
    found: list[IoLink] = []
    for name in root.names(folder)[:_MOST_LINKS]:
        link = properties(root, f"{folder}/{name}/properties") if name.isdigit() else {}
        if "node_to" in link and "type" in link:
            # The folder names the origin of the link; the file of a copied node may name another.
            bandwidth = link.get("max_bandwidth", 0)
            found.append(
                IoLink(
                    link["node_to"], link["type"], link.get("weight"), bandwidth if bandwidth > 0 else None
                )
            )
    return found
