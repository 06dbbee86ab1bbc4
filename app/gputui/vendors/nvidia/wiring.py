"""The wiring of NVIDIA's GPUs: NVML's answers about links, about pairs, and about what is near each GPU.

The rules that turn the answers into links are in `links.py`; network devices are in `system/rdma.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gputui.inventory.link import LinkMatrix, PeerMatrix, each_pair
from gputui.vendors.nvidia.gpu import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    GoneError,
    Gpu,
    bits_set,
    bus_id,
)
from gputui.vendors.nvidia.links import UNREADABLE_BUS_ID, NvLinks, matrix, pcie_word

if TYPE_CHECKING:
    from gputui.inventory.topology import Locality

_CPU_WORDS, _NODE_WORDS = 128, 4
"""The number of requested 64-bit words of CPUs (8192 CPUs, the most that Linux is built for)
and of NUMA nodes."""

_READ, _NVLINK = 0, 2
"""nvmlGpuP2PCapsIndex_t. Written out: nvidia-ml-py has a tuple for the first of them."""

_PEER_STATUS: dict[int, str] = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
"""nvmlGpuP2PStatus_t in the words of `nvidia-smi topo -p2p`."""

_MOST_LINKS: dict[str, int] = {
    "6.0": 4,
    "7.0": 6,
    "7.5": 2,
    "8.0": 12,
    "8.6": 4,
    "9.0": 18,
    "10.0": 18,
    "10.3": 18,
}
"""NVLinks by compute capability, for drivers that do not report the number; other capabilities have none."""

_NEWEST_KNOWN = (12, 1)

_NO_LINK = (INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND)
"""NVML's answers for a link that a GPU does not have, and for a function that it does not know."""

_DENIED = ("CNS", "GNS", "TNS", "NS")
"""Answers that mean there is no path. Links that the driver's settings switch off ("DR") stay links."""


class LeftBehindError(Exception):
    """The answers are no longer needed."""


class Wiring:
    """The pairs of some GPUs; each fact of a pair is read once.

    A GPU that is None is not read: it is a MIG instance, or a device whose links are not wanted.
    """

    def __init__(self, nvml: Any, gpus: Sequence[Gpu | None]) -> None:
        self._nvml, self._gpus = nvml, gpus
        self._asked, self._left_behind = 0, False
        self._buses: dict[Gpu, str] = {}
        self._levels: dict[tuple[int, int], int | None] = {}
        self._statuses: dict[tuple[int, int, int], str | None] = {}

    @property
    def progress(self) -> int:
        """The number of calls that have begun, as in `Gpu.progress`."""
        return self._asked + sum(gpu.progress for gpu in self._gpus if gpu)

    def leave(self) -> None:
        """Abandon the wiring: the thread that reads it stops when its call returns, and leaves the GPUs
        alone.

        May be called from any thread.
        """
        self._left_behind = True

    def unknown(self) -> LinkMatrix:
        """Return a matrix in which nothing is known, without a call."""
        return each_pair(len(self._gpus), lambda i, j: None)

    def _go_on(self) -> None:
        """Call this before each call and before a GPU is marked. Raise LeftBehindError."""
        if self._left_behind:
            raise LeftBehindError
        self._asked += 1

    @cached_property
    def _ends(self) -> list[NvLinks | None]:
        return [self._nvlinks(gpu) if gpu else None for gpu in self._gpus]

    def links(self) -> LinkMatrix:
        """Return the link of every pair."""
        return matrix(self._ends, self._level, self._by_nvlink)

    def peers(self, links: LinkMatrix, every: bool) -> PeerMatrix:
        """Return peer access of every pair. Unless `every` is set, NVLinks are taken to give access."""

        def peer(i: int, j: int) -> str | None:
            if not every and (links[i][j] or "").startswith("NV"):
                return "OK"
            return self._status(max(i, j), min(i, j), _READ)

        return self._each_pair(peer)

    def pcie(self) -> LinkMatrix:
        """Return the PCIe class of every pair, including pairs that NVLinks join."""
        return self._each_pair(lambda i, j: pcie_word(self._level(max(i, j), min(i, j))))

    def locality(self, place: int) -> Locality:
        """Return what is near the GPU in that row."""
        from gputui.inventory.topology import Locality

        gpu, ends = self._gpus[place], self._ends[place]
        if gpu is None or gpu.handle is None or gpu.device.fault:
            return Locality()
        self._go_on()
        nvml, ask = self._nvml, gpu.ask_in_passing
        scope = nvml.NVML_AFFINITY_SCOPE_NODE
        try:
            near = ask(nvml.nvmlDeviceGetCpuAffinityWithinScope, gpu.handle, _CPU_WORDS, scope)
            memory = ask(nvml.nvmlDeviceGetMemoryAffinity, gpu.handle, _NODE_WORDS, scope)
            return Locality(
                cpus=None if near is None else bits_set(near),
                memory_nodes=None if memory is None else bits_set(memory),
                own_node=_own_node(nvml, gpu),
                switched=None if ends is None else ends.switched,
                pcie_generation=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu.handle),
                pcie_width=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, gpu.handle),
            )
        except GoneError as gone:
            self._go_on()
            gpu.lose(gone)
            return Locality()

    def _each_pair(self, fact: Any) -> LinkMatrix:
        ends = self._ends
        return each_pair(len(ends), lambda i, j: None if ends[i] is None or ends[j] is None else fact(i, j))

    def _pair(self, function: Any, i: int, j: int, *more: Any) -> Any:
        self._go_on()
        one, other = self._gpus[i], self._gpus[j]
        assert one is not None and other is not None
        return one.pair(function, other, *more)

    def _level(self, i: int, j: int) -> int | None:
        if (i, j) not in self._levels:
            self._levels[i, j] = self._pair(self._nvml.nvmlDeviceGetTopologyCommonAncestor, i, j)
        return self._levels[i, j]

    def _status(self, i: int, j: int, capability: int) -> str | None:
        key = (i, j, capability)
        if key not in self._statuses:
            answer = self._pair(self._nvml.nvmlDeviceGetP2PStatus, i, j, capability)
            self._statuses[key] = _PEER_STATUS.get(answer)
        return self._statuses[key]

    def _by_nvlink(self, i: int, j: int) -> bool | None:
        word = self._status(i, j, _NVLINK)
        return True if word == "OK" else False if word in _DENIED else None

    def _nvlinks(self, gpu: Gpu) -> NvLinks | None:
        """Return one GPU's NVLinks, None when it cannot be read."""
        device = gpu.device
        if gpu.handle is None or device.fault or device.parent:
            return None
        try:
            return self._links_of(gpu)
        except GoneError as gone:
            self._go_on()
            gpu.lose(gone)
            return None

    def _bus_id(self, gpu: Gpu) -> str:
        """Return the bus id by which the other ends of its links name it; "" where it cannot be read."""
        if gpu not in self._buses:
            self._go_on()
            found = gpu.device.pci_bus_id
            try:
                found = gpu.fact("pci_bus_id") if gpu.handle is not None else found
            except GoneError as gone:
                # Mark this GPU: the links that are being read may be another GPU's.
                self._go_on()
                gpu.lose(gone)
            self._buses[gpu] = found or ""
        return self._buses[gpu]

    def _links_of(self, gpu: Gpu) -> NvLinks:
        self._go_on()
        nvml = self._nvml
        switches, total = self._fields(
            gpu,
            [nvml.NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, nvml.NVML_FI_DEV_NVLINK_LINK_COUNT],
        )
        if switches:
            # Every link of such a GPU ends at a switch; a query per link would cost 3 calls each.
            return NvLinks("", switches)
        most = self._most_links(gpu) if total is None else total
        up = self._states(gpu, most) if most else []
        if not any(up):
            return NvLinks("")
        return NvLinks(
            self._bus_id(gpu), None, tuple(self._remote(gpu, link) for link in range(most) if up[link])
        )

    def _most_links(self, gpu: Gpu) -> int:
        """Return the number of links to query where the driver does not report it: 40 vain
        calls are too many."""
        found = gpu.fact("compute_capability")
        if found is None or tuple(map(int, found.split("."))) > _NEWEST_KNOWN:
            return int(self._nvml.NVML_NVLINK_MAX_LINKS)
        return _MOST_LINKS.get(found, 0)

    def _fields(self, gpu: Gpu, fields: list[Any]) -> list[int | None]:
        self._go_on()
        values = gpu.ask_in_passing(self._nvml.nvmlDeviceGetFieldValues, gpu.handle, fields)
        if values is None:
            return [None] * len(fields)
        return [value.value.uiVal if value.nvmlReturn == 0 else None for value in values]

    def _states(self, gpu: Gpu, most: int) -> list[bool]:
        """Return which links are up: from Hopper on by the field, as NCCL reads it; before,
        by the function."""
        nvml = self._nvml
        asked = [(nvml.NVML_FI_DEV_NVLINK_GET_STATE, link) for link in range(most)]
        by_field = self._fields(gpu, asked)
        return [
            bool(self._told(gpu, nvml.nvmlDeviceGetNvLinkState, link) if state is None else state)
            for link, state in enumerate(by_field)
        ]

    def _told(self, gpu: Gpu, function: Any, link: int) -> Any:
        """Return an answer about a link, None for none. A link that does not exist has an answer; any other
        error may go away. No error is one of the device."""
        self._go_on()
        try:
            return function(gpu.handle, link)
        except self._nvml.NVMLError as error:
            gpu.missed += error.value not in _NO_LINK
            return None

    def _remote(self, gpu: Gpu, link: int) -> str | None:
        """Return where a link ends: a bus id, "switch", None where it cannot be read."""
        nvml = self._nvml
        pci = self._told(gpu, nvml.nvmlDeviceGetNvLinkRemotePciInfo, link)
        bus = UNREADABLE_BUS_ID if pci is None else bus_id(pci)
        if any(bus == self._bus_id(other) for other in self._gpus if other):
            # A known GPU is not a switch, so the type need not be queried.
            return bus
        # Drivers before R450 do not know the type.
        kind = self._told(gpu, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, link)
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return "switch"
        return None if bus == UNREADABLE_BUS_ID else bus


def _own_node(nvml: Any, gpu: Gpu) -> int | None:
    """Return the NUMA node that consists of the GPU's own memory. Few GPUs have one; a
    missing one is no error."""
    before = gpu.missed
    node: int | None = gpu.ask_in_passing(nvml.nvmlDeviceGetNumaNodeId, gpu.handle)
    gpu.missed = before
    return node
