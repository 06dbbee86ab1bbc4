"""AMD's devices on a machine, out of /sys and /proc: no library, no root rights, no subprocess.

Devices are numbered as HIP numbers them: the GPU nodes of the compute driver that can be opened, in the order
of their nodes (libhsakmt, topology.c), which is not PCI order. Cards that the compute driver does not know,
and integrated GPUs, are listed behind them and not offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import Apart, Device
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import Want
from gputui.system.drm import Card, Client, card_of, cards
from gputui.system.pci_tree import PciPlace, long_bus_id, numa_nodes
from gputui.system.root import Root
from gputui.vendors.amd import kfd
from gputui.vendors.amd.card import AmdCard
from gputui.vendors.amd.kfd import IoLink, Node
from gputui.vendors.amd.names import Names
from gputui.vendors.machine_source import MachineSource

if TYPE_CHECKING:
    from gputui.inventory.topology import Locality
    from gputui.vendors.amd.links import AnyMatrix

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
"""Architectures of GPUs in processors (LLVM, "User Guide for AMDGPU Backend", processors of type APU); gfx940
to gfx942, of which MI300A is one, are for training."""


@dataclass
class _Gpu:
    """One GPU: its node of the compute driver, its card, and what was last read of it.

    shared_card  it is a partition: the card is the whole GPU's, and so are the card's sensors
    banks_used   its banks of memory tell what is in use
    """

    device: Device
    node: Node | None = None
    card: AmdCard | None = None
    place: PciPlace | None = None
    shared_card: bool = False
    banks_used: bool = False


class AmdSource(MachineSource):
    """AMD's devices."""

    def _forget(self) -> None:
        self._gpus: list[_Gpu] | None = None
        self._topology = kfd.Topology((), (), False, ())
        self._links: dict[int, tuple[IoLink, ...]] = {}
        self._names = Names(self._root)
        self._named = False
        self._host = Host()
        self._matrices: AnyMatrix = ((), (), (), (), ())
        self._localities: tuple[Locality, ...] | None = None
        self._nics: tuple[Any, Any] = ((), ())
        self._looked_at: frozenset[str] = frozenset()
        self._drawn: list[Client] = []

    def open(self) -> None:
        """Find the devices. Raises NoSourceError where there are none."""
        if self._gpus is not None:
            return
        self._topology = kfd.topology(self._root) if kfd.present(self._root) else self._topology
        gpus = self._found()
        if not gpus:
            raise self._nothing_found(NO_DEVICES)
        self._gpus = gpus

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.open()
        assert self._gpus is not None
        if Want.NAMES in want or Want.SPEED in want:
            self._read_names()
        for gpu in self._gpus:
            facts: dict[str, Any] = {}
            if want & (Want.LOAD | Want.VERDICT):
                facts |= _memory(self._root, gpu) | self._load(gpu)
            if Want.SENSORS in want and gpu.card is not None and not gpu.shared_card:
                facts |= gpu.card.readings(self._ticks())
            if facts:
                gpu.device = replace(gpu.device, **facts)
        if want & (Want.PROCESSES | Want.CHANGED_PROCESSES | Want.VERDICT):
            # (What is drawn stands in files of each of our processes: too much for every two seconds.)
            self._read_processes(drawn=Want.PROCESSES in want)
        if want & (Want.LINKS | Want.TOPOLOGY):
            self._read_links()
        if Want.TOPOLOGY in want:
            self._read_localities()
        self._read_details(want, among)
        # (What the processes that were looked at use of the host is told until others are.)
        details = want | Want.DETAILS if self._looked_at else want & ~Want.DETAILS
        links, pcie, peers, weights, bandwidths = self._matrices
        return Snapshot(
            self._host,
            self._clock(),
            self._owned(tuple(gpu.device for gpu in self._gpus), details, self._looked_at),
            links,
            errors=tuple(
                f"{kfd.NODES}/{number}/properties is not readable" for number in self._topology.broken
            ),
            pcie=pcie,
            peers=peers,
            link_weights=weights,
            link_bandwidths=bandwidths,
            topology=self._wiring(),
        )

    # Which devices there are.

    def _found(self) -> list[_Gpu]:
        nodes = [node for node in self._topology.gpus if self._may_open(node.render)]
        closed = not nodes and bool(self._topology.gpus)
        nodes = nodes or list(self._topology.gpus)
        by_function = {card.function: card for card in cards(self._root) if _is_ours(card)}
        # (What is installed, "6.4.1-83": ROCm's installation guide. A container may have another one.)
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
                # (Two nodes at one place cannot be told apart by it.)
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
        """A card that the compute driver does not know: HIP gives it no number."""
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

    def _may_open(self, render: str | None) -> bool:
        """Whether HIP can open the device. (It is not opened here: that would wake a sleeping card.)

        A recorded machine has the render nodes that could be opened as files, or none at all.
        """
        if render is None:
            return False
        return self._root.may_open(f"/dev/dri/{render}") or (
            # (Of most recorded machines nobody knows.)
            self._root.recorded and not self._root.has("/dev/dri")
        )

    def _card(self, node: Node, by_function: Mapping[str | None, Card]) -> AmdCard | None:
        """The card behind a node: that of its render node, which may be another vendor's in a recording."""
        card = card_of(self._root, node.render) if node.render else None
        if card is None or not _is_ours(card) or card.function not in (None, node.location):
            card = None
        if card is None or card.function is None:
            # (A partition has a device of its own, which tells nothing: the whole GPU's tells who it is.)
            card = by_function.get(node.location)
        return AmdCard(self._root, card) if card is not None else None

    def _numa(self, node: Node, card: AmdCard | None) -> int | None:
        if card is not None and card.has_numa_node:
            return card.number("numa_node")
        from gputui.vendors.amd.links import cpu_node

        return cpu_node(node, self._topology, {node.number: self._links_of(node)})

    def _links_of(self, node: Node) -> tuple[IoLink, ...]:
        if node.number not in self._links:
            self._links[node.number] = kfd.links(self._root, node.number)
        return self._links[node.number]

    # What changes.

    def _read_names(self) -> None:
        if self._named:
            return
        self._named = True
        for gpu in self._gpus or ():
            card, pci_id = gpu.card, gpu.device.pci_id or "1002:?"
            revision, product = (card.revision, card.text("product_name")) if card else (None, None)
            name = self._names.name(pci_id, revision, product, gpu.device.compute_capability)
            limit: dict[str, Any] = {}
            if gpu.device.max_sm_clock is None and card is not None:
                limit = {"max_sm_clock": card.max_clock()}
            gpu.device = replace(gpu.device, name=name, **limit)
        self._host = Host(self._host_name(), self._root.text("/sys/module/amdgpu/version", 256) or None, None)

    def _load(self, gpu: _Gpu) -> dict[str, Any]:
        # (What the card tells of the whole GPU is no partition's.)
        return {} if gpu.card is None or gpu.shared_card else gpu.card.load()

    def _read_processes(self, drawn: bool) -> None:
        from gputui.vendors.amd.processes import computing, drawing, on_device

        jobs = computing(self._root)
        if drawn:
            self._drawn = drawing(self._root)
        for gpu in self._gpus or ():
            node = gpu.node
            if jobs is None or node is None or node.gpu_id is None:
                listed = on_device(None, (), None)
            else:
                function = None if gpu.shared_card else node.location
                listed = on_device(jobs.get(node.gpu_id, {}), self._drawn, function)
            device = gpu.device
            facts: dict[str, Any] = {"processes": listed}
            if (
                gpu.shared_card
                and not gpu.banks_used
                and listed is not None
                and device.memory_total is not None
            ):
                # All compute jobs of all users are listed: what they have is what is in use of a partition.
                used = min(device.memory_total, sum(process.memory or 0 for process in listed))
                facts |= {"memory_used": used, "memory_free": device.memory_total - used}
            gpu.device = replace(device, **facts)

    def _read_details(self, want: Want, among: Collection[str] | None) -> None:
        if Want.DETAILS not in want:
            return
        # (Imported here: most calls do not ask.)
        from gputui.inventory.telemetry import Telemetry

        gpus = self._gpus or ()
        self._looked_at = frozenset(g.device.key for g in gpus if among is None or g.device.key in among)
        for gpu in gpus:
            seen = gpu.device.key in self._looked_at and gpu.card is not None and not gpu.shared_card
            facts = gpu.card.telemetry() if seen and gpu.card is not None else None
            gpu.device = replace(gpu.device, telemetry=None if facts is None else Telemetry(**facts))

    # How they are wired.

    def _read_links(self) -> None:
        if self._matrices[0]:
            return
        from gputui.vendors.amd.links import matrices

        gpus = self._gpus or []
        for gpu in gpus:
            if gpu.card is not None and gpu.card.card.function is not None:
                # (Partitions of one GPU have one place, of which the bus tells nothing.)
                gpu.place = gpu.card.place(gpu.device.numa_node)
        one = numa_nodes(self._root) == 1
        rows = [gpu.node for gpu in gpus]
        links = {node.number: self._links_of(node) for node in rows if node is not None}
        self._matrices = matrices(rows, [gpu.place for gpu in gpus], self._topology, links, one)

    def _read_localities(self) -> None:
        if self._localities is not None:
            return
        from gputui.system.rdma import Rdma

        self._localities = tuple(self._near(gpu.device.numa_node, gpu.card) for gpu in self._gpus or ())
        rdma = Rdma(self._root)
        self._nics = rdma.nics(), rdma.links([gpu.device.pci_bus_id for gpu in self._gpus or ()])

    def _wiring(self) -> Any:
        if self._localities is None:
            return None
        from gputui.inventory.topology import Topology
        from gputui.system.cpu import between_cpus

        return Topology(self._localities, *self._nics, between_cpus=between_cpus(self._root))


def _is_ours(card: Card) -> bool:
    return card.driver in _DRIVERS or (not card.driver and card.vendor_id == "1002")


def _uuid(unique_id: int) -> str:
    """HIP's form of a unique id, padded to 16 digits; "" where there is none."""
    return f"GPU-{unique_id:016x}" if 0 < unique_id < 1 << 64 else ""


def _cores(node: Node) -> int | None:
    """Shader cores: the lanes of all SIMDs, 16 or 32 wide, as AMD counts stream processors (64 a compute
    unit)."""
    simds, a_unit = node.properties.get("simd_count", 0), node.properties.get("simd_per_cu", 0)
    return simds // a_unit * 64 if a_unit > 0 and simds > 0 else None


def _memory(root: Root, gpu: _Gpu) -> dict[str, Any]:
    """Bytes in all, in use and free, of the GPU or of the partition.

    An integrated GPU has the host's memory: the compute driver tells how much of it programs can have, and
    what is
    free of it tells the host. A GPU in partitions tells of the whole only; each partition has its own banks.
    """
    total, used = gpu.device.memory_total if gpu.node else None, None
    if gpu.card is not None and not gpu.shared_card:
        in_all, used = gpu.card.memory()
        if not gpu.device.unified or total is None:
            total = in_all if in_all is not None else total
    if used is None:
        amounts = [root.number(f"{bank}/used_memory") for bank in (gpu.node.banks if gpu.node else ())]
        known = [amount for amount in amounts if amount is not None and amount >= 0]
        used = sum(known) if known else None
        gpu.banks_used = bool(known)
    free = None if gpu.device.unified or total is None or used is None else max(0, total - used)
    facts: dict[str, Any] = {"memory_total": total}
    if used is not None or not gpu.shared_card:
        facts |= {"memory_used": used, "memory_free": free}
    return facts
