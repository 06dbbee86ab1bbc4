"""A device: one accelerator that a program can be given, a GPU or a MIG instance of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

from gputui.inventory.formatting import is_digits
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.process import Process

if TYPE_CHECKING:
    # In a module of its own, because `pick`, which must be quick, reads none.
    from gputui.inventory.telemetry import Telemetry
    from gputui.inventory.typed_json import Celsius, Moment

Facts = dict[str, Any]
"""The values of some fields of a device, of its telemetry or of a snapshot, by name."""

Among = Collection[str] | None
"""The `Device.key`s of the devices that count; None: all do."""

FaultKind = Literal["lost", "reset", "error", "processes"]
"""lost: fallen off the bus (NVML 15); reset: needs a reset (NVML 16); processes: its process list
cannot be read, but nothing else is wrong; error: anything else."""


ComputeMode = Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]
"""The programs that may use a GPU (nvmlComputeMode_t, in NVML's order): any, none, or one at a time."""

COMPUTE_MODES: tuple[str, ...] = get_args(ComputeMode)


UUID = r"[0-9A-Za-z]{1,16}-[0-9A-Za-z/-]{1,120}"
"""A UUID of any vendor: not an index, and nothing in it ends an entry of a list or moves a cursor."""

Apart = Literal["integrated", "no runtime", "no access", "display"]
"""Why a device is listed but not offered to programs: a GPU that shares the processor's chip and memory; a
GPU that the vendor's runtime does not know (no compute driver); a GPU that we may not open; a
display-only adapter (as of a management controller)."""

_NO_UUID = "index "


def is_uuid(key: str) -> bool:
    """Whether a `Device.key` is the device's UUID, which identifies it beyond one reading."""
    return not key.startswith(_NO_UUID)


@frozen
class Fault:
    """Why a device, or one fact of it, could not be read. `since` is seconds since the epoch."""

    kind: FaultKind
    message: str
    since: Moment | None = None


@frozen(kw_only=True)
class Device:
    """The facts of one device at one time. None means "not known", never 0.

    index               the vendor's own (NVML's is PCI bus order); of a MIG instance: its place in its
                        parent; negative where it has none (see `apart`)
    uuid                "GPU-…", "MIG-…"; "" where the device was lost before it could be read, or has none
    uuid_usable         whether the UUID, or its lack, is the device's own: partitions of a GPU can share
                        theirs, and some GPUs never have one. Where it is not, the place on the bus
                        identifies the device
    vendor              the name of its vendor (`gputui.vendors`)
    ordinal             the number that the vendor's runtime gives it; the runtime itself is asked where it
                        does not count by `index` by default (CUDA)
    parent              the UUID of the GPU that a MIG instance is a part of
    board, partition    of a partition that is a device with an index of its own (CPX): the bus id of the GPU
                        that it is a part of, and its number there
    apart               why it is not offered to programs, None where it is offered
    render              the render node that opens it ("renderD128"), where the vendor's driver has those
    pci_id              "1002:74a1": the maker and the model, from the PCI bus
    runtime             the version of the vendor's runtime on the machine ("6.4.1"), where a file contains
                        it (ROCm)
    minor               the number of the device file that opens it ("/dev/nvidia4": 4), of an instance that
                        of its GPU; read with `Want.NODES` (NVIDIA)
    gpu_instance, compute_instance
                        the driver's numbers of a MIG instance; likewise
    module              the number that decides which devices work together: only aligned groups of 2, 4 or 8
                        do (Gaudi's module id); None where any devices can
    pci_bus_id          NVML's 8-digit form, "00000000:57:00.0"
    mig                 whether the GPU is divided into MIG instances (it then runs nothing as a whole)
    memory_*            bytes; `memory_used` without the driver's own reserve, where NVML reports it
    memory_idle         bytes in use without any user, where its vendor documents them. Such a device takes
                        one process at a time, and any further memory in use shows a process of some user
    utilization         percent of the driver's last sampling period in which a kernel ran (NVML)
    idle_since          since when that has been 0, in epoch seconds, where the time before is known
    memory_utilization  percent of that period in which device memory was read or written
    temperature         °C
    power, power_limit  W
    sm_clock            MHz
    throttled           why the clocks are lower than possible, () for no reason
    compute_capability  "9.0"; of AMD the architecture that programs are compiled for, "gfx942"
    cores, max_sm_clock the number of cores, and the highest MHz: these decide "fastest"
    compute_mode        how many programs may use it
    display             whether a monitor is attached to it
    unified             whether its memory is the host's (GB10, Jetson): the host reports its free part
    numa_node           of the host, never -1: None where the platform has none
    telemetry           None where it was not requested
    processes           None where the driver cannot list them (WSL2), () where there are none; while the list
                        cannot be read (`fault`), those of the last list that still run
    """

    index: int
    uuid: str
    uuid_usable: bool = True
    name: str | None = None
    vendor: str = "nvidia"
    ordinal: int | None = None
    pci_bus_id: str | None = None
    parent: str | None = None
    board: str | None = None
    partition: int | None = None
    apart: Apart | None = None
    render: str | None = None
    pci_id: str | None = None
    runtime: str | None = None
    minor: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    module: int | None = None
    mig: bool | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    memory_idle: int | None = None
    utilization: int | None = None
    idle_since: Moment | None = None
    memory_utilization: int | None = None
    temperature: Celsius | None = None
    power: float | None = None
    power_limit: float | None = None
    sm_clock: int | None = None
    throttled: tuple[str, ...] | None = None
    compute_capability: str | None = None
    cores: int | None = None
    max_sm_clock: int | None = None
    compute_mode: ComputeMode | None = None
    display: bool | None = None
    unified: bool | None = None
    numa_node: int | None = None
    telemetry: Telemetry | None = None
    processes: tuple[Process, ...] | None = None
    fault: Fault | None = None

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability as numbers, None where it is not known."""
        major, _, minor = (self.compute_capability or "").partition(".")
        numbers = all(is_digits(n) and len(n) <= 3 for n in (major, minor))
        return (int(major), int(minor)) if numbers else None

    @property
    def key(self) -> str:
        """The key that identifies this device in its box, even when its UUID could not be read."""
        if self.uuid_usable:
            return self.uuid if self.uuid else f"{_NO_UUID}{self.index}"
        if self.pci_bus_id is None:
            # On no bus: a processor has one GPU, and keeps it.
            return f"{self.vendor}-{self.index}"
        # In the form of a UUID: it stays the same while the card stays in its slot, and can be claimed.
        part = "" if self.partition is None else f"-{self.partition}"
        return f"{self.vendor}-{self.pci_bus_id.replace(':', '-').replace('.', '-')}{part}"

    @property
    def computing(self) -> list[Process]:
        """Its processes, without those that only draw. MIG instances have those of their GPU."""
        return [each for each in self.processes or () if each.kind != "graphics" and not self.mig]

    @property
    def name_by_uuid(self) -> str:
        """The UUID where it identifies this device alone, else ""."""
        return self.uuid if self.uuid_usable else ""


def has_display(device: Device) -> bool:
    """Whether a display is attached to the device; where that is not known, whether programs draw on it."""
    if device.display is not None:
        return device.display
    return any(process.kind == "graphics" for process in device.processes or ())


def has_instances(devices: Iterable[Device]) -> bool:
    """Whether an instance of a GPU is among the devices."""
    return any(device.parent for device in devices)


def one_model(devices: Iterable[Device]) -> bool:
    """Whether all whole GPUs have the same name; a GPU whose name was not read counts as different.

    A GPU that failed before its name was read is left out.
    """
    gpus = [device for device in devices if device.parent is None]
    names = {device.name for device in gpus if device.name or not device.fault}
    return len(gpus) < 2 or (len(names) < 2 and None not in names)


GROUP_SIZES = (2, 4, 8)
"""The sizes of groups of devices with a `module`; a group begins at a multiple of its size."""


def aligned(devices: Iterable[Device]) -> bool:
    """Whether these devices can work together.

    One device always can; several can where none has a `module`, or where their modules are an aligned group.
    """
    modules = sorted(device.module for device in devices if device.module is not None)
    size = len(modules)
    if size < 2:
        return True
    return size in GROUP_SIZES and modules == list(
        range(modules[0] // size * size, modules[0] // size * size + size)
    )
