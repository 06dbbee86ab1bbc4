"""A snapshot: all known facts of the box at one time. Immutable; every screen and command reads it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from gputui.inventory.device import Device
from gputui.inventory.formatting import short_name
from gputui.inventory.light_dataclasses import dataclass, field, frozen, replace
from gputui.inventory.link import LinkMatrix, NumberMatrix, PeerMatrix
from gputui.inventory.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    # `pick`, which must be quick, reads no topology, and mostly finds no claim.
    from gputui.inventory.claim import Claim
    from gputui.inventory.job import Job
    from gputui.inventory.topology import Topology
    from gputui.inventory.typed_json import Moment
    from gputui.inventory.waiter import Waiters

T = TypeVar("T")


ProcessGroup = tuple[tuple[Device, Process | None], ...]
"""The devices that a user's processes of one command run on, each with its process; None: it has none."""


_TOGETHER = 10.0
"""Seconds within which a launcher starts its workers."""


def _kinship(process: Process) -> tuple[Sequence[object], Sequence[object]]:
    """The marks of a process, and the marks of those that are in one job with it: of the same user and
    command, they are the same process, one has started the other, or one process has started both within
    some seconds. A user may start the same command again in the same shell."""
    if not process.user or not process.command:
        return (), ()
    what, above = (process.user, process.command, process.container), [each.pid for each in process.ancestors]
    time = int((process.started or 0.0) // _TOGETHER)
    start, *around = ((what, "with", *above[:1], "in", time + n) for n in (0, -1, 1))
    itself = (what, process.pid), *((what, "above", pid) for pid in above), start
    related = (what, process.pid), (what, "above", process.pid), *((what, pid) for pid in above), start
    return itself, (*related, *around)


@frozen
class HostLoad:
    """The load of the machine itself. None means "not known".

    cpu           percent of all CPUs since the last reading
    load          the load average of the last minute (getloadavg(3))
    cpus          the number of CPUs to compare `load` with
    memory_used, memory_total   bytes of RAM
    """

    cpu: float | None = None
    load: float | None = None
    cpus: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None


@frozen
class Host:
    """The machine: its name, the driver's version, and the newest CUDA that the driver supports.

    `load` is None where it was not requested.
    """

    name: str | None = None
    driver: str | None = None
    cuda: str | None = None
    load: HostLoad | None = None

    @property
    def memory_free(self) -> int | None:
        """Bytes of RAM that are not in use; None where that is not known."""
        load = self.load
        if load is None or load.memory_total is None or load.memory_used is None:
            return None
        return max(0, load.memory_total - load.memory_used)


@dataclass(frozen=True)
class Snapshot:
    """The box at `time` (seconds since the epoch): devices in bus order, each parent before its instances.

    Three matrices have a row and a column for every device, and are empty until they have been read:
    `links`; `pcie`, the PCIe class of every pair, including pairs with NVLinks; and `peers`, peer access
    of every pair (reads), one of `PEER_WORDS`. Two more exist where the kernel reports them: `link_weights`,
    the kernel's distance over a link, which compares links of one word (AMD: XGMI 15 per hop), and
    `link_bandwidths` in MB/s.

    `errors` concern the box as a whole; a device's own fault is in `Device.fault`. `claims` are those that
    are alive. `waiters` are in line for devices, the first in line first; `jobs` are the user's own.
    `missing` is one of the errors: why a vendor's devices cannot be read, where no other vendor's are
    offered. `ticks` is the time of the monotonic clock (`time.monotonic`); None where it was not read here
    and now.
    """

    host: Host
    time: Moment
    devices: tuple[Device, ...]
    links: LinkMatrix = ()
    errors: tuple[str, ...] = field(default=())
    pcie: LinkMatrix = ()
    peers: PeerMatrix = ()
    link_weights: NumberMatrix = ()
    link_bandwidths: NumberMatrix = ()
    topology: Topology | None = None
    claims: tuple[Claim, ...] = ()
    waiters: Waiters = ()
    jobs: tuple[Job, ...] = ()
    missing: str | None = None
    ticks: float | None = field(default=None, compare=False)

    @cached_property
    def claimed(self) -> dict[str, Claim]:
        """The claim on each device that has one, by `Device.key`; the first where there are several.

        A lease in which this process runs does not block it; another step inside that lease does.
        """
        return {claim.key: claim for claim in reversed(self.claims) if not claim.ours}

    @cached_property
    def own_lease(self) -> frozenset[str]:
        """The keys of the devices of the lease around this process: its launches are steps of that lease."""
        return frozenset(claim.key for claim in self.claims if claim.ours)

    @cached_property
    def by_key(self) -> dict[str, Device]:
        """Devices by `Device.key`, which is the UUID where that could be read and is the device's own."""
        return {device.key: device for device in self.devices}

    @cached_property
    def position(self) -> dict[str, int]:
        """The row of each device in the matrices, by `Device.key`."""
        return {device.key: place for place, device in enumerate(self.devices)}

    @cached_property
    def process_groups(self) -> tuple[ProcessGroup, ...]:
        """The processes with their devices; a user's processes of one command on several devices are grouped
        where one start made them.

        A device without processes is included alone, with None.
        """
        found: list[list[tuple[Device, Process | None]]] = []
        known: dict[object, list[tuple[Device, Process | None]]] = {}
        for device in self.devices:
            for process in device.processes or (None,):
                itself, related = _kinship(process) if process else ((), ())
                group = next((known[mark] for mark in related if mark in known), None)
                if group is None:
                    group = []
                    found.append(group)
                group.append((device, process))
                known.update((mark, group) for mark in itself if mark not in known)
        one_each: list[ProcessGroup] = []
        for those in found:
            if those[0][0] is those[-1][0]:
                one_each += [(each,) for each in those]
            else:
                one_each.append(tuple(those))
        return tuple(one_each)

    @cached_property
    def models(self) -> str:
        """The GPUs by model, "8× H100 80GB HBM3": a short description of the box."""
        offered = [d for d in self.devices if d.parent is None and d.apart is None] or self.devices
        counted = Counter(short_name(d.name or "unknown GPU") for d in offered if d.parent is None)
        return " + ".join(f"{count}× {name}" for name, count in counted.items()) or "no devices"

    @cached_property
    def numbered(self) -> tuple[Device, ...]:
        """The whole devices that a number can mean: those that are offered, or all where none is offered."""
        numbered = tuple(device for device in self.devices if device.parent is None and device.index >= 0)
        # The GPU in a processor must not make the number of a workstation's only card ambiguous.
        return tuple(device for device in numbered if device.apart is None) or numbered

    @cached_property
    def mixed(self) -> bool:
        """Whether devices of several vendors have indices, which could be confused."""
        return len({device.vendor for device in self.numbered}) > 1

    def label(self, device: Device) -> str:
        """The number for display: the vendor's index, "0:1" for instance 1 of GPU 0 (as in nvidia-smi).

        In a box of several vendors with indices of their own, it is "nvidia:0".
        """
        if device.index < 0:
            return "–"
        if device.parent is None:
            named = self.mixed or (device.apart is not None and self._offers_others(device.vendor))
            return f"{device.vendor}:{device.index}" if named else str(device.index)
        parent = self.by_key.get(device.parent)
        return f"{parent.index if parent else '?'}:{device.index}"

    def labels(self, devices: Iterable[Device]) -> str:
        """Devices by their numbers for display, in ascending order: "0-3,6".

        In a box of several vendors "amd:0-3,6 intel:0"; instances of one GPU are "0:1-3".
        """
        # Imported here, because `pick` names no devices this way when it finds enough.
        from gputui.inventory.topology import ranges

        numbers: dict[str, list[int]] = {}
        for device in devices:
            named, colon, _ = self.label(device).rpartition(":")
            numbers.setdefault(named + colon, []).append(device.index)
        return " ".join(named + ranges(indices) for named, indices in numbers.items())

    def _offers_others(self, vendor: str) -> bool:
        return any(device.apart is None and device.vendor != vendor for device in self.devices)

    def instances(self, device: Device) -> tuple[Device, ...]:
        """The MIG instances that `device` is divided into."""
        return tuple(other for other in self.devices if other.parent == device.uuid and device.uuid)

    def memory(self, device: Device) -> tuple[int | None, int | None]:
        """The bytes in use and in all of the memory for programs on the device.

        For unified memory whose size the driver does not report, these are those of the host's RAM.
        """
        load = self.host.load
        if not device.unified or device.memory_total is not None or load is None:
            return device.memory_used, device.memory_total
        return load.memory_used, load.memory_total

    def with_memory(self, device: Device) -> Device:
        """The device with that memory, and with what is free of it."""
        used, total = self.memory(device)
        if total == device.memory_total:
            return device
        return replace(device, memory_used=used, memory_total=total, memory_free=self.memory_free(device))

    def memory_free(self, device: Device) -> int | None:
        """The bytes of memory that a program can get on the device; None where that is not known.

        For unified memory whose size the driver does not report, this is the host's free memory.
        """
        if device.memory_free is not None or not device.unified:
            return device.memory_free
        return self.host.memory_free

    def link(self, one: Device, other: Device) -> str | None:
        """The link between two devices of this snapshot, None where it is not known."""
        return self._cell(self.links, one, other)

    def pcie_class(self, one: Device, other: Device) -> str | None:
        """The PCIe class of two devices, None where it is not known."""
        return self._cell(self.pcie, one, other)

    def peer(self, one: Device, other: Device) -> str | None:
        """Whether one device reads the other's memory directly, None where it is not known."""
        return self._cell(self.peers, one, other)

    def link_weight(self, one: Device, other: Device) -> int | None:
        """The kernel's distance over the link of two devices, None where the kernel does not report it."""
        return self._cell(self.link_weights, one, other)

    def link_bandwidth(self, one: Device, other: Device) -> int | None:
        """The kernel's bandwidth of the link of two devices in MB/s, None where the kernel does not report
        it."""
        return self._cell(self.link_bandwidths, one, other)

    def _cell(self, matrix: tuple[tuple[T, ...], ...], one: Device, other: Device) -> T | None:
        return matrix[self.position[one.key]][self.position[other.key]] if matrix else None
