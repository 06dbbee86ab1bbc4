"""The description of a simulated box: its GPUs, its links, and the tasks that come and go on it.

The same description feeds `SimulatedSource` and the simulated libnvidia-ml of the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from gputui.inventory.device import Apart, Device, FaultKind
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import SELF, LinkMatrix, NumberMatrix, each_pair
from gputui.inventory.process import Kind
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality

Choose = Callable[[Snapshot, Collection[str]], Sequence[str]]
"""Which of the devices with these keys somebody in line takes, by their keys."""


@frozen
class Mig:
    """A MIG instance: its profile ("1g.10gb") and memory in MiB."""

    profile: str
    memory: int


@frozen(kw_only=True)
class Gpu:
    """A GPU when idle. Memory in MiB, power in W, clock in MHz.

    memory_clock  the highest clock of its memory
    rests         the memory clock and the PCIe link go down while nobody uses the GPU
    generation    the generation of PCIe, on 16 lanes; `lanes`: the number of lanes in use now
    locality      what is near it, where that does not follow from `numa` (32 CPUs per NUMA node, its memory)
    reserve       MiB in use on the idle GPU (a desktop, the driver)
    partition     the part of a GPU that is divided into devices with indices of their own (CPX)
    render        the number of its render node, where its driver has render nodes
    pci_id        its model on the bus
    vendor        its vendor, where that is not the box's
    apart         why it is not offered
    has_uuid      whether it has a UUID of its own; otherwise its place on the bus identifies it
    module        as in `Device`
    idle_memory   `Device.memory_idle` in MiB
    unified       whether its memory is the host's, where that does not follow from `unsupported`
    unsupported   the attributes of `Device` and `Telemetry` that its driver answers with "not supported";
                  "telemetry" for all of `Telemetry`
    fails_after   seconds after the box was opened at which `fault` strikes
    """

    name: str
    memory: int
    bus: str
    clock: int
    capability: str = ""
    power_limit: float | None = None
    numa: int | None = None
    cores: int | None = None
    memory_clock: int | None = None
    rests: bool = False
    generation: int = 4
    lanes: int = 16
    locality: Locality | None = None
    idle_power: float = 20.0
    reserve: int = 0
    mig: tuple[Mig, ...] = ()
    partition: int | None = None
    render: int | None = None
    pci_id: str | None = None
    vendor: str | None = None
    apart: Apart | None = None
    has_uuid: bool = True
    module: int | None = None
    idle_memory: int | None = None
    unified: bool | None = None
    unsupported: frozenset[str] = frozenset()
    fault: FaultKind = "lost"
    fails_after: float = float("inf")


@frozen(kw_only=True)
class Task:
    """A program on some devices (labels: "3", or "0:1" for a MIG instance).

    memory     MiB on each device; None where the driver does not report it
    load       mean percent of utilization that it causes; `swing` is its amplitude around the mean
    age        seconds it has been running when the box is opened
    starts, ends, every   seconds after opening between which it lives, and the period of its repetition
    hidden     the operating system does not show the process: no visible process holds its memory
    starter    the command of the process that started it (a launcher), whose pid is one less
    container  the container in which it runs
    claims     seconds before its start at which it claimed its devices, None where it claims none
    job        the id of its job, which the claims have, too
    """

    devices: tuple[str, ...]
    user: str
    command: str
    pid: int
    load: int
    memory: int | None = None
    swing: int = 6
    age: float = 3600.0
    kind: Kind = "compute"
    starts: float = float("-inf")
    ends: float = float("inf")
    every: float | None = None
    hidden: bool = False
    starter: str | None = None
    container: str | None = None
    claims: float | None = None
    job: str | None = None


@frozen(kw_only=True)
class Waiting:
    """A waiter in line, for any devices or for these. `age`, `starts`, `ends`, `every`: as in `Task`.

    choose   which of the devices with these keys it takes, too few: none yet; None: the first ones
    """

    user: str
    count: int
    command: str
    devices: tuple[str, ...] | None = None
    job: str | None = None
    age: float = 0.0
    starts: float = float("-inf")
    ends: float = float("inf")
    every: float | None = None
    choose: Choose | None = None


@frozen(kw_only=True)
class OwnJob:
    """One of the person's own jobs: in line (`Waiting.job`), on its task's devices (`Task.job`), or ended.

    Moments are in seconds after opening.

    log      the text of a line of its log: a line is added every three seconds, with its `step` and `loss`
    lines    the most lines of it
    peak     MiB on a device
    ram      MiB of its largest process, known at its end
    created  when it was started
    waits    the number of devices that it waits or has waited for, None where it had its devices at once
    taken    when it got the devices that it waited for; None: not yet
    ended    when it ended; None: not yet
    status   its exit status; of a job that has ended, None where the person stopped it
    """

    id: str
    title: str
    created: float
    log: str = "step {step}  loss {loss:.4f}"
    lines: int = 1_000_000
    peak: int | None = None
    devices: tuple[str, ...] = ()
    waits: int | None = None
    taken: float | None = None
    ended: float | None = None
    status: int | None = None
    ram: int | None = None

    @property
    def began(self) -> float | None:
        """When its command began, None while it is in line."""
        return self.created if self.waits is None else self.taken


@frozen(kw_only=True, eq=False)
class Box:
    """A named box, the same as itself only.

    vendor       the name of the vendor of its GPUs
    uuid_digits  the number of digits in a UUID, behind `uuid_prefix`, where a UUID has no groups
    weights      the distance over the link of each pair in the kernel's measure, where the kernel has one
    switched     whether all its NVLinks go to NVSwitches, and none from GPU to GPU
    pcie         the PCIe class of every pair; None: that of `links`, and for two GPUs that NVLinks join, NODE
                 on one NUMA node, else SYS
    peers        peer access over PCIe: whether GPUs read each other's memory where no NVLink joins them;
                 None: the driver does not report it
    ram          MiB of the machine's memory, where its GPUs have none of their own
    line         the waiters in line for devices, in this order
    jobs         the person's own jobs
    nics         names of the RDMA network devices
    nic_links    a row for each GPU and NIC, a column for each NIC
    """

    name: str
    about: str
    host: str
    driver: str
    gpus: tuple[Gpu, ...]
    links: LinkMatrix
    cuda: str | None = None
    tasks: tuple[Task, ...] = ()
    vendor: str = "nvidia"
    uuid_digits: int | None = None
    uuid_prefix: str = "GPU-"
    weights: NumberMatrix = ()
    switched: bool = False
    pcie: LinkMatrix | None = None
    peers: bool | None = True
    ram: int | None = None
    nics: tuple[str, ...] = ()
    nic_links: LinkMatrix = ()
    line: tuple[Waiting, ...] = ()
    jobs: tuple[OwnJob, ...] = ()

    def uuid(self, label: str) -> str:
        """Return the UUID of a device of this box, always the same one; partitions have that of their GPU."""
        gpu = self.gpus[int(label)] if ":" not in label else None
        of = label if gpu is None or gpu.partition is None else gpu.bus
        digits = hashlib.sha256(f"{self.name} {of}".encode()).hexdigest()
        if gpu is not None and not gpu.has_uuid:
            return ""
        if self.uuid_digits is not None:
            return f"{self.uuid_prefix}{digits[: self.uuid_digits]}"
        groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
        return ("MIG-" if ":" in label else "GPU-") + "-".join(groups)

    def key(self, label: str) -> str:
        """Return `Device.key` of a device of this box."""
        gpu = self.gpus[int(label)] if ":" not in label else None
        if gpu is None or (gpu.has_uuid and gpu.partition is None):
            return self.uuid(label)
        return Device(
            index=self.index(int(label)),
            uuid="",
            uuid_usable=False,
            vendor=gpu.vendor or self.vendor,
            pci_bus_id=f"00000000:{gpu.bus}" if gpu.bus else None,
            partition=gpu.partition,
        ).key

    @property
    def labels(self) -> Iterator[str]:
        """The labels of the devices that programs can use."""
        for place, gpu in enumerate(self.gpus):
            if gpu.apart is None:
                yield from (f"{place}:{part}" for part in range(len(gpu.mig))) if gpu.mig else (str(place),)

    def fails_after(self, label: str) -> float:
        """Return `Gpu.fails_after` of the GPU that a device is, or is part of."""
        return self.gpus[int(label.partition(":")[0])].fails_after

    def index(self, place: int) -> int:
        """Return the index of the GPU at that place: each vendor counts its own GPUs."""
        vendor = self.gpus[place].vendor
        return sum(gpu.vendor == vendor for gpu in self.gpus[:place])

    def place(self, device: Device) -> int:
        """Return the place of a GPU."""
        vendor = None if device.vendor == self.vendor else device.vendor
        own = [place for place, gpu in enumerate(self.gpus) if gpu.vendor == vendor]
        return own[device.index]


def uniform(count: int, word: str | None) -> LinkMatrix:
    """Return a matrix in which every pair is joined in the same way."""
    return sockets((count,), word)


def sockets(
    groups: Iterable[int], inside: Any, across: Any = None, own: Any = SELF
) -> tuple[tuple[Any, ...], ...]:
    """Return a matrix of consecutive groups of these sizes, joined `inside` a group and `across` groups.

    The joins are words, or the kernel's weights. `own` is the diagonal.
    """
    group = [place for place, size in enumerate(groups) for _ in range(size)]
    return each_pair(len(group), lambda i, j: inside if group[i] == group[j] else across, own)
