"""AMD's devices on a machine, from /sys and /proc: no library, no root rights, no subprocess.

Devices are numbered as HIP numbers them: the GPU nodes of the compute driver that can be opened, in node
order (libhsakmt, topology.c), which is not PCI order. Cards that the compute driver does not know, and
integrated GPUs, are listed but not offered; the former come last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gputui.inventory.device import Among, Apart, Device, Facts
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.snapshot import Host
from gputui.sources.source import Want
from gputui.system.drm import Card, Client, card_of, cards, clients, may_open
from gputui.system.pci_tree import PciPlace, long_bus_id, numa_nodes
from gputui.system.root import Root
from gputui.vendors.amd import kfd, names
from gputui.vendors.amd.card import AmdCard
from gputui.vendors.amd.kfd import Node
from gputui.vendors.machine_source import MachineSource, left_of

if TYPE_CHECKING:
    from gputui.inventory.topology import Topology

NO_DEVICES = (
    "no AMD GPU: the kernel has none with the driver amdgpu; load it (`sudo modprobe amdgpu`), or start the"
    " container with --device /dev/kfd --device /dev/dri"
)

_DRIVERS = ("amdgpu", "amdgpu_xcp", "amdgpu_xcp_drv")

_INTEGRATED = frozenset(
    {
        *(
            "gfx700",
            "gfx801",
            "gfx810",
            "gfx902",
            "gfx909",
            "gfx90c",
            "gfx1013",
            "gfx1033",
            "gfx1035",
            "gfx1036",
        ),
        *("gfx1037", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    }
)
"""Architectures of GPUs in processors (LLVM, "User Guide for AMDGPU Backend", processors of type APU). gfx940
to gfx942, which include MI300A, are for training."""


@dataclass
class _Gpu:
    """One GPU: its node of the compute driver, its card, and the facts of the last reading.

    shared_card  the GPU is a partition: the card and its facts are those of the whole GPU
    banks_used   whether its memory banks report the memory in use
    """

    device: Device
    node: Node | None = None
    card: AmdCard | None = None
    place: PciPlace | None = None
    shared_card: bool = False
    banks_used: bool = False

    @property
    def own_card(self) -> AmdCard | None:
        """The card, where its facts are those of this device alone."""
        return None if self.shared_card else self.card


class AmdSource(MachineSource):
    """AMD's devices."""

    def _forget(self) -> None:
        super()._forget()
        self._gpus: list[_Gpu] | None = None
        self._topology = kfd.Topology((), (), False, ())
        self._drawn: list[Client] = []

    def open(self) -> None:
        if self._gpus is not None:
            return
        self._topology = kfd.topology(self._root)
        gpus = self._found()
        if not gpus:
            raise self._nothing_found(NO_DEVICES)
        self._gpus = gpus
        for number in self._topology.broken:
            path = f"{kfd.NODES}/{number}/properties"
            self._troubles[path] = f"{path} is not readable"

    def _read(self, want: Want, among: Among) -> tuple[Device, ...]:
        gpus = self._gpus or []
        if Want.NAMES in want or Want.SPEED in want:
            self._read_names()
        for gpu in gpus:
            facts: Facts = {}
            if want & (Want.LOAD | Want.VERDICT):
                facts |= _memory(self._root, gpu) | (gpu.own_card.load() if gpu.own_card else {})
            if Want.SENSORS in want and gpu.own_card:
                facts |= gpu.own_card.readings(self._ticks())
            if facts:
                gpu.device = replace(gpu.device, **facts)
        if want & (Want.PROCESSES | Want.CHANGED_PROCESSES | Want.VERDICT):
            # Graphics use is in files of each of our processes: too much to read every two seconds.
            self._read_processes(drawn=Want.PROCESSES in want)
        self._read_details(want, among)
        return tuple(gpu.device for gpu in gpus)

    # Discovery.

    def _found(self) -> list[_Gpu]:
        nodes = [node for node in self._topology.gpus if node.render and may_open(self._root, node.render)]
        closed = not nodes and bool(self._topology.gpus)
        nodes = nodes or list(self._topology.gpus)
        by_function = {card.function: card for card in cards(self._root) if card.driver in _DRIVERS}
        # The installed version, "6.4.1-83" (ROCm's installation guide). A container may have another version.
        rocm = self._root.text("/opt/rocm/.info/version", 256)
        ids = Counter(node.unique_id for node in nodes)
        spots = Counter((node.location, node.partition) for node in nodes)
        gpus: list[_Gpu] = []
        for index, node in enumerate(nodes):
            card = self._card(node, by_function)
            divided = any(other.partition for other in nodes if other.location == node.location) or bool(
                card and card.partitioned
            )
            unique = node.unique_id or (card.unique_id if card and not divided else 0)
            architecture = node.architecture
            integrated = architecture in _INTEGRATED or bool(card and card.integrated)
            apart: Apart | None = "no access" if closed else "integrated" if integrated else None
            alone = spots[node.location, node.partition] == 1
            bus = long_bus_id(node.location)
            device = Device(
                index=-1 - index if closed else index,
                uuid=_uuid(unique),
                # Two nodes at one place cannot be told apart by their place, so the UUID has to do.
                uuid_usable=(unique != 0 and ids[unique] <= 1) or not alone,
                vendor="amd",
                pci_bus_id=bus,
                board=bus if divided else None,
                partition=node.partition if divided else None,
                apart=apart,
                render=node.render,
                pci_id=node.pci_id,
                compute_capability=architecture,
                runtime=printable(rocm)[:40] if rocm else None,
                cores=_cores(node),
                max_sm_clock=node.properties.get("max_engine_clk_fcompute") or None,
                numa_node=self._numa(node, card),
                unified=True if integrated else None,
                memory_total=node.memory,
            )
            gpus.append(_Gpu(device, node, card, shared_card=divided))
        known = {node.location for node in self._topology.gpus}
        rest = [card for function, card in by_function.items() if function not in known]
        for other in rest:
            gpus.append(self._without_node(other, len(gpus)))
        return gpus

    def _without_node(self, card: Card, place: int) -> _Gpu:
        """Return a card that the compute driver does not know: HIP gives it no number."""
        read = AmdCard(self._root, card)
        integrated = read.integrated
        device = Device(
            index=-1 - place,
            uuid=_uuid(read.unique_id),
            uuid_usable=read.unique_id != 0,
            vendor="amd",
            pci_bus_id=long_bus_id(card.function) if card.function else None,
            apart="integrated" if integrated else "no runtime",
            render=card.render,
            pci_id=card.pci_id,
            numa_node=read.number("numa_node"),
            unified=True if integrated else None,
        )
        return _Gpu(device, None, read)

    def _card(self, node: Node, by_function: Mapping[str | None, Card]) -> AmdCard | None:
        """Return the card of a node: that of its render node, which may be another vendor's
        in a recording."""
        card = card_of(self._root, node.render) if node.render else None
        if card is None or card.driver not in _DRIVERS or card.function not in (None, node.location):
            card = None
        if card is None or card.function is None:
            # A partition has a device of its own without facts: the whole GPU's device has the identity.
            card = by_function.get(node.location)
        return AmdCard(self._root, card) if card is not None else None

    def _numa(self, node: Node, card: AmdCard | None) -> int | None:
        if card is not None and card.has_numa_node:
            return card.number("numa_node")
        return self._topology.cpu_node(node)

    # Facts that change.

    def _read_names(self) -> None:
        if not self._is_due("names"):
            return
        for gpu in self._gpus or ():
            card, pci_id = gpu.card, gpu.device.pci_id or "1002:?"
            revision, product = (card.revision, card.text("product_name")) if card else (None, None)
            architecture = gpu.device.compute_capability
            name = names.name(self._root, pci_id, revision, product, architecture)
            limit: Facts = {}
            if gpu.device.max_sm_clock is None and card is not None:
                limit = {"max_sm_clock": card.max_clock()}
            gpu.device = replace(gpu.device, name=name, **limit)
        self._host = Host(self._host_name(), self._root.text("/sys/module/amdgpu/version", 256) or None, None)

    def _read_processes(self, drawn: bool) -> None:
        from gputui.vendors.amd.processes import computing, on_device

        jobs = computing(self._root)
        if drawn:
            self._drawn = clients(self._root)
        for gpu in self._gpus or ():
            node, total = gpu.node, gpu.device.memory_total
            compute = None
            if jobs is not None and node is not None and node.gpu_id is not None:
                compute = jobs.get(node.gpu_id, {})
            listed = on_device(compute, self._drawn, node.location if node and not gpu.shared_card else None)
            gpu.device = replace(gpu.device, processes=listed)
            if gpu.shared_card and not gpu.banks_used and listed is not None and total is not None:
                # All compute jobs of all users are listed: the sum of their memory is the
                # memory in use of a partition.
                used = min(total, sum(process.memory or 0 for process in listed))
                gpu.device = replace(gpu.device, memory_used=used, memory_free=total - used)

    def _read_details(self, want: Want, among: Among) -> None:
        if Want.DETAILS not in want:
            return
        # Imported here: most calls do not need it.
        from gputui.inventory.telemetry import Telemetry

        # Those of rocm-smi (rocm_smi_main.cc), which also counts the GPUs that we may not open.
        by_bus = sorted((node.location, node.partition) for node in self._topology.gpus)
        for gpu in self._gpus or ():
            telemetry, node = None, gpu.node
            if gpu.own_card and (among is None or gpu.device.key in among):
                number = by_bus.index((node.location, node.partition)) if node else None
                telemetry = Telemetry(**gpu.own_card.telemetry(), tool_index=number)
            gpu.device = replace(gpu.device, telemetry=telemetry)

    # Wiring.

    def _read_links(self) -> Facts:
        from gputui.vendors.amd.links import matrices

        gpus = self._gpus or []
        for gpu in gpus:
            if gpu.card is not None and gpu.card.card.function is not None:
                # Partitions of one GPU share one place, so the bus has no path between them.
                gpu.place = gpu.card.place(gpu.device.numa_node)
        one = numa_nodes(self._root) == 1
        rows = [gpu.node for gpu in gpus]
        return matrices(rows, [gpu.place for gpu in gpus], self._topology, one)

    def _read_topology(self) -> Topology:
        from gputui.system.rdma import topology

        gpus = self._gpus or ()
        near = [self._near(gpu.device.numa_node, gpu.card) for gpu in gpus]
        return topology(self._root, near, [gpu.device.pci_bus_id for gpu in gpus])


def _uuid(unique_id: int) -> str:
    """Return HIP's form of a unique id, padded to 16 digits; "" where there is none."""
    return f"GPU-{unique_id:016x}" if 0 < unique_id < 1 << 64 else ""


def _cores(node: Node) -> int | None:
    """Return the number of shader cores: the lanes of all SIMDs, 16 or 32 wide, as AMD counts stream
    processors (64 per compute unit)."""
    simds, a_unit = node.properties.get("simd_count", 0), node.properties.get("simd_per_cu", 0)
    return simds // a_unit * 64 if a_unit > 0 and simds > 0 else None


def _memory(root: Root, gpu: _Gpu) -> Facts:
    """Return the total, used and free bytes of the GPU or of the partition.

    An integrated GPU has the host's memory: the compute driver reports how much of it programs can have, and
    the host reports how much of it is free. A partitioned GPU reports the whole only; each partition has its
    own banks.
    """
    total, used = gpu.device.memory_total if gpu.node else None, None
    if gpu.own_card:
        in_all, used = gpu.own_card.memory()
        if not gpu.device.unified or total is None:
            total = in_all if in_all is not None else total
    if used is None:
        amounts = [root.number(f"{bank}/used_memory") for bank in (gpu.node.banks if gpu.node else ())]
        known = [amount for amount in amounts if amount is not None and amount >= 0]
        used = sum(known) if known else None
        gpu.banks_used = bool(known)
    free = None if gpu.device.unified else left_of(total, used)
    facts: Facts = {"memory_total": total}
    if used is not None or not gpu.shared_card:
        facts |= {"memory_used": used, "memory_free": free}
    return facts
