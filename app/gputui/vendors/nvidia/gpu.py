"""One NVIDIA GPU with its MIG instances, read through NVML's functions (which `source.py` passes in).

Facts that never change are read once; what a device does not support becomes None and is not asked again;
one device's trouble stays on that device and is tried again later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import COMPUTE_MODES, Device, Fault, FaultKind
from gputui.inventory.process import Kind, Process
from gputui.sources.source import Want
from gputui.system.memory import host_memory
from gputui.vendors.nvidia.clock_reasons import clock_reasons

if TYPE_CHECKING:
    from gputui.vendors.nvidia.telemetry import TelemetryReader

# nvmlReturn_t, nvml.h.
NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 3, 13, 15, 16

_MOST_PID = 2**22
"""Linux's PID_MAX_LIMIT: a pid above it comes from a driver whose struct has other fields (gpustat #161)."""

_LONGEST_WAIT = 60.0
"""Seconds after which a lost device is tried again at the latest; the first time after one second."""

_IDENTITY = (
    "index",
    "uuid",
    "name",
    "ordinal",
    "pci_bus_id",
    "parent",
    "mig",
    "memory_total",
    "power_limit",
    "compute_capability",
    "cores",
    "max_sm_clock",
    "compute_mode",
    "display",
    "unified",
    "numa_node",
)
"""What stays true of a device that is lost."""


_ANOTHER_LIST = 16 * 2**20
"""By how many bytes the memory in use differs when other processes use it: a context takes 64 MiB or more."""

_INTEGRATED = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra|Jetson)\b", re.IGNORECASE)
"""Names of GPUs that have no memory of their own."""

_ABOUT = 0.1
"""How far the size of unified memory may be from the host's: firmware and the kernel keep some of it."""

_KIND_OF: dict[str, Kind] = {"Graphics": "graphics", "MPSCompute": "mps"}


class GoneError(Exception):
    """The device has answered that it is lost or must be reset."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class _Retry:
    """When a faulted device is tried again: after 1, 2, 4 … seconds."""

    at: float
    wait: float = 1.0


class Gpu:
    """One GPU with its MIG instances: its handle, what it does not support, and what was last read.

    `listed` tells whether the last reading brought the process list; `activity` is percent of the
    multiprocessors' time by pid, None where nobody looks or the driver does not tell.
    """

    def __init__(self, nvml: Any, index: int, clock: Callable[[], float]) -> None:
        self.devices: tuple[Device, ...] = (Device(index=index, uuid=""),)
        self.handle: Any = None
        self._nvml, self._index, self._clock = nvml, index, clock
        self._unsupported: set[str] = set()
        self._trouble: str | None = None
        self._retry: _Retry | None = None
        self._named = False
        self._instances: dict[str, Gpu] = {}
        self.listed = False
        self._listed_at: tuple[int | None, bool] | None = None
        self.activity: Mapping[int, int] | None = None
        self._reader: TelemetryReader | None = None

    def refresh(self, want: Want, among: Collection[str] | None = None) -> None:
        """Read what is wanted into `devices`. Never raises for the device's own trouble.

        `among`: keys of the devices whose details are wanted, None for all.
        """

        def looked_at(device: Device) -> bool:
            return Want.DETAILS in want and (among is None or device.key in among)

        self.listed = False
        if self._retry and self._clock() < self._retry.at:
            return
        self._trouble = None
        if looked_at(self.devices[0]):
            want |= Want.SENSORS
        try:
            device = self._read(self.devices[0], want)
            if Want.DETAILS in want and self.handle is not None and device.parent is None:
                device = self._detailed(device) if looked_at(device) else self._plain(device)
            instances = self._read_instances(device, want)
        except GoneError as gone:
            self.lose(gone)
            return
        self._retry = None
        fault = None
        if self._trouble:
            before = self.devices[0].fault
            fault = Fault("error", self._trouble, before.since if before else self._clock())
        self.devices = (with_facts(device, fault=fault), *instances)

    def ask(self, function: Any, *arguments: Any) -> Any:
        """The answer, or None: not supported (never asked again), or failed (noted in `fault`)."""
        name = function.__name__
        if name in self._unsupported:
            return None
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            code = error.value
            if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                self._unsupported.add(name)
            elif code in (GPU_IS_LOST, RESET_REQUIRED):
                raise GoneError("lost" if code == GPU_IS_LOST else "reset", str(error)) from None
            else:
                self._trouble = f"{name.removeprefix('nvmlDevice')}: {error}"
            return None

    def ask_in_passing(self, function: Any, *arguments: Any) -> Any:
        """The same for what says nothing of the device: a failure is no fault of it.

        What is not supported is remembered by the numbers among the arguments, too: one clock may be
        supported and another one not.
        """
        name = " ".join((function.__name__, *(str(each) for each in arguments if isinstance(each, int))))
        try:
            return None if name in self._unsupported else function(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                self._unsupported.add(name)
            elif error.value in (GPU_IS_LOST, RESET_REQUIRED):
                kind: FaultKind = "lost" if error.value == GPU_IS_LOST else "reset"
                raise GoneError(kind, str(error)) from None
            return None

    def pair(self, function: Any, other: Gpu, *more: Any) -> Any:
        """The answer about this GPU and another, or None.

        What one pair does not support another may; and NVML does not tell which of the two is lost.
        """
        try:
            return function(self.handle, other.handle, *more)
        except self._nvml.NVMLError:
            return None

    def lose(self, gone: GoneError) -> None:
        """Mark the device as lost, or in need of a reset; it is tried again later."""
        before, now = self.devices[0], self._clock()
        fault = Fault(gone.kind, str(gone), now)
        if before.fault and before.fault.kind == fault.kind:
            fault = replace(fault, since=before.fault.since)
        wait = min(_LONGEST_WAIT, self._retry.wait * 2) if self._retry else 1.0
        self._retry = _Retry(now + wait, wait)
        self.close()
        self.handle, self._instances = None, {}
        # Its identity stays true; its load and processes do not.
        self.devices = (
            Device(
                **{name: getattr(before, name) for name in _IDENTITY},
                fault=fault,
            ),
        )

    def just_listed(self) -> list[Device]:
        """Those of `devices` whose process lists the last reading brought."""
        readers = (self, *self._instances.values())
        return [each.devices[0] for each in readers if each.listed]

    def close(self) -> None:
        """Give back what NVML keeps for the details."""
        self.activity = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _detailed(self, device: Device) -> Device:
        if self._reader is None:
            # Imported here: `pick` never needs it.
            from gputui.vendors.nvidia.telemetry import TelemetryReader

            self._reader = TelemetryReader(self._nvml, self.handle, self.ask_in_passing, self._clock)
        telemetry = self._reader.read(device.throttled)
        self.activity = self._reader.sm()
        return replace(device, telemetry=telemetry)

    def _plain(self, device: Device) -> Device:
        """The device when nobody looks at it any more."""
        self.activity = None
        if self._reader is not None:
            self._reader.rest()
        return replace(device, telemetry=None) if device.telemetry else device

    def _read(self, device: Device, want: Want) -> Device:
        nvml = self._nvml
        if self.handle is None:
            self.handle = self.ask(nvml.nvmlDeviceGetHandleByIndex, self._index)
            if self.handle is None:
                return device
        if not device.uuid and Want.WHOLE not in want:
            device = replace(device, uuid=self.ask(nvml.nvmlDeviceGetUUID, self.handle) or "")
        if Want.NAMES in want and not self._named:
            device = replace(device, **self._names())
            # What failed is asked again: one bad moment must not decide what a device is called.
            self._named = self._trouble is None
        if Want.VERDICT in want:
            return replace(device, **self._least(device, Want.WHOLE in want))
        facts: dict[str, Any] = {}
        if Want.LOAD in want:
            facts |= self._memory(device) | self._utilization()
        if Want.SENSORS in want:
            facts |= self._sensors()
        if Want.PROCESSES in want or (Want.CHANGED_PROCESSES in want and self._list_is_due(device, facts)):
            # The processes of a divided GPU are those of its instances, and are listed there.
            facts["processes"] = () if device.mig else self._processes()
            self.listed = True
            now = {"memory_used": device.memory_used, "utilization": device.utilization} | facts
            self._listed_at = now["memory_used"], bool(now["utilization"])
        return with_facts(device, **facts)

    def _list_is_due(self, device: Device, facts: Mapping[str, Any]) -> bool:
        """Whether other processes may be on the device than are listed: it uses other memory, or has begun or
        stopped working. Where the memory cannot be read, nothing tells."""
        used, busy = facts.get("memory_used"), bool(facts.get("utilization"))
        if self._listed_at is None or device.processes is None or used is None or self._listed_at[0] is None:
            return True
        return abs(used - self._listed_at[0]) >= _ANOTHER_LIST or busy != self._listed_at[1]

    def read_model(self) -> None:
        """Read which model it is, where that is not known yet. Never raises for the device's own trouble."""
        self._once("name", lambda: {"name": self.ask(self._nvml.nvmlDeviceGetName, self.handle)})

    def read_speed(self) -> None:
        """The same for what tells how fast it is."""
        self._once("compute_capability", self._speed)

    def number(self, ordinal: int | None) -> None:
        """Note which number the runtime gives the GPU."""
        self.devices = (replace(self.devices[0], ordinal=ordinal), *self.devices[1:])

    def _once(self, fact: str, ask: Callable[[], dict[str, Any]]) -> None:
        device = self.devices[0]
        if self.handle is None or getattr(device, fact) is not None:
            return
        try:
            self.devices = (replace(device, **ask()), *self.devices[1:])
        except GoneError as gone:
            self.lose(gone)

    def _speed(self) -> dict[str, Any]:
        """What "fastest" is judged by: the name does not tell."""
        nvml, handle = self._nvml, self.handle
        capability = self.ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return {
            "compute_capability": "{}.{}".format(*capability) if capability else None,
            "cores": self.ask(nvml.nvmlDeviceGetNumGpuCores, handle),
            "max_sm_clock": self.ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        }

    def _names(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self.handle
        pci = self.ask(nvml.nvmlDeviceGetPciInfo, handle)
        limit = self.ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return {
            "name": self.ask(nvml.nvmlDeviceGetName, handle),
            "pci_bus_id": bus_id(pci) if pci is not None else None,
            "power_limit": limit / 1000 if limit is not None else None,
            "numa_node": self.numa_node(),
            "mig": self._divided(),
            "display": self._display(),
            **self._speed(),
            **self._mode(),
        }

    def _mode(self) -> dict[str, Any]:
        mode = self.ask(self._nvml.nvmlDeviceGetComputeMode, self.handle)
        known = mode is not None and 0 <= mode < len(COMPUTE_MODES)
        return {"compute_mode": COMPUTE_MODES[mode] if known else None}

    def _display(self) -> bool | None:
        active = self.ask(self._nvml.nvmlDeviceGetDisplayActive, self.handle)
        return None if active is None else bool(active)

    def _divided(self) -> bool:
        """Whether MIG is on; where that cannot be read just now, the device is in trouble anyway."""
        mode = self.ask(self._nvml.nvmlDeviceGetMigMode, self.handle)
        return bool(mode and mode[0])

    def numa_node(self) -> int | None:
        """The host NUMA node whose memory is near, None for none.

        Of several (GH200: the CPU's node, and those that stand for shares of the GPU's own memory) the
        first: that one has the CPUs.
        """
        nodes = self.memory_nodes()
        return nodes[0] if nodes else None

    def memory_nodes(self) -> tuple[int, ...] | None:
        """Every host NUMA node whose memory is near."""
        scope = self._nvml.NVML_AFFINITY_SCOPE_NODE
        return bits_set(self.ask(self._nvml.nvmlDeviceGetMemoryAffinity, self.handle, 4, scope))

    def _memory(self, device: Device) -> dict[str, Any]:
        nvml = self._nvml
        # The first form counts what the driver keeps for itself as used: 0.5 GiB of an idle H100.
        memory = self._ask_memory_v2() or self.ask(nvml.nvmlDeviceGetMemoryInfo, self.handle)
        if memory is None:
            unified = True if "nvmlDeviceGetMemoryInfo" in self._unsupported else device.unified
            return {"memory_total": None, "memory_used": None, "memory_free": None, "unified": unified}
        return {
            "memory_total": memory.total,
            "memory_used": memory.used,
            "memory_free": memory.free,
            "unified": self._is_unified(device, memory.total),
        }

    def _is_unified(self, device: Device, total: int) -> bool | None:
        """Whether the memory is the host's, by its size and the device's name: GB10 and Jetsons answer no
        sizes, or the host's."""
        known = device.unified
        if known is not None or abs(total - host_memory()) > _ABOUT * host_memory():
            return bool(known)
        name = device.name
        if name is None and self._index == 0:
            # (`pick` reads no names, and a box with such a GPU mostly has no other.)
            name = self.ask(self._nvml.nvmlDeviceGetName, self.handle)
        return None if name is None else bool(_INTEGRATED.search(name))

    def _ask_memory_v2(self) -> Any:
        nvml = self._nvml
        if "memory v2" in self._unsupported:
            return None
        try:
            return nvml.nvmlDeviceGetMemoryInfo(self.handle, version=nvml.nvmlMemory_v2)
        except nvml.NVMLError as error:
            # Only "there is no such form" is remembered; for the rest the first form tells what is wrong.
            if error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
                self._unsupported.add("memory v2")
            return None

    def _utilization(self) -> dict[str, Any]:
        rates = self.ask(self._nvml.nvmlDeviceGetUtilizationRates, self.handle)
        return {
            "utilization": rates.gpu if rates is not None else None,
            "memory_utilization": rates.memory if rates is not None else None,
        }

    def _sensors(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self.handle
        power = self.ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return {
            "temperature": self.ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            "power": power / 1000 if power is not None else None,
            "sm_clock": self.ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "throttled": self._clock_reasons(),
        }

    def _clock_reasons(self) -> tuple[str, ...] | None:
        nvml = self._nvml
        bits = self.ask_in_passing(nvml.nvmlDeviceGetCurrentClocksEventReasons, self.handle)
        if bits is None:
            # (The name that drivers before R535 know.)
            bits = self.ask_in_passing(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle)
        return None if bits is None else clock_reasons(bits)

    def _list(self, which: str) -> list[Any] | None:
        nvml = self._nvml
        for version in ("_v3", "_v2"):
            found: list[Any] | None = self.ask(
                getattr(nvml, f"nvmlDeviceGet{which}RunningProcesses{version}"), self.handle
            )
            if found is not None:
                return found
        return None

    def _processes(self) -> tuple[Process, ...] | None:
        """The three lists as one, without doubling; None when one of them cannot be read."""
        compute = self._list("Compute")
        if compute is None:
            return None
        return self._with_others(compute, "Graphics", "MPSCompute")

    def _with_others(self, compute: list[Any], *names: str) -> tuple[Process, ...] | None:
        """Compute processes and those of other lists; a list that the driver does not have is empty."""
        before, self._trouble = self._trouble, None
        lists: list[tuple[Kind, list[Any] | None]] = [("compute", compute)]
        lists += [(_KIND_OF[name], self._list(name)) for name in names]
        failed, self._trouble = self._trouble, self._trouble or before
        # A list that failed may have had somebody on it: then nobody is known not to be.
        return None if failed else self._merged(lists)

    def _merged(self, lists: Iterable[tuple[Kind, list[Any] | None]]) -> tuple[Process, ...] | None:
        found: dict[int, Process] = {}
        for kind, entries in lists:
            for entry in entries or ():
                if not 0 < entry.pid <= _MOST_PID:
                    self._trouble = f"the driver lists an impossible process id, {entry.pid}"
                    return None
                before = found.get(entry.pid)
                if before and kind == "graphics":
                    kind_now: Kind = "compute+graphics"
                else:
                    kind_now = kind
                sizes = [
                    size
                    for size in (entry.usedGpuMemory, before.memory if before else None)
                    if size is not None
                ]
                found[entry.pid] = Process(entry.pid, kind_now, memory=max(sizes, default=None))
        return tuple(found.values())

    def _least(self, device: Device, whole: bool) -> dict[str, Any]:
        """What decides whether the device is free, in the fewest calls: a process settles it at once.

        A device with no compute process is also asked for utilization, and for MPS clients and programs that
        draw unless it is plainly empty: those take memory. (MPS clients run in their server's context, and
        that one is in the list of compute processes.) `whole`: instances do not matter.
        """
        compute = [] if device.mig else self._list("Compute")
        if compute:
            # A divided GPU lists the processes of its instances (nvml.h), which say nothing of the others.
            divided = device.mig
            if divided is None and device.parent is None and not whole:
                divided = self._divided()
            return {"mig": divided, "processes": () if divided else self._merged((("compute", compute),))}
        facts = self._memory(device) | self._utilization()
        if facts["utilization"] is None and device.parent is None:
            facts["mig"] = self._divided()
        if device.parent is None:
            facts |= self._mode()
        if compute is None:
            return facts
        others = () if _plainly_empty(facts) else ("Graphics", "MPSCompute")
        return facts | {"processes": self._with_others(compute, *others)}

    def _read_instances(self, device: Device, want: Want) -> list[Device]:
        """The MIG instances as they are now: they come and go while the box runs."""
        if not device.mig or self.handle is None or Want.WHOLE in want:
            return []
        nvml = self._nvml
        present: dict[str, Gpu] = {}
        for place in range(self.ask(nvml.nvmlDeviceGetMaxMigDeviceCount, self.handle) or 0):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, place)
                uuid = nvml.nvmlDeviceGetUUID(handle)
                instance = self._instances.get(uuid) or self._instance(handle, uuid, place, device)
            except (nvml.NVMLError, GoneError):
                # A place with no instance in it answers NOT_FOUND; one that goes just now is gone.
                continue
            instance.handle = handle
            instance.refresh(want)
            present[uuid] = instance
        self._instances = present
        return [instance.devices[0] for instance in present.values()]

    def _instance(self, handle: Any, uuid: str, place: int, parent: Device) -> Gpu:
        instance = Gpu(self._nvml, place, self._clock)
        name = self._nvml.nvmlDeviceGetName
        # The driver has none of these of an instance, and some drivers answer with the parent's.
        instance._unsupported |= {
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetMigMode",
        }
        instance._named = True
        instance.devices = (
            Device(
                index=place,
                uuid=uuid,
                name=instance.ask(name, handle),
                pci_bus_id=parent.pci_bus_id,
                parent=parent.uuid,
                compute_capability=parent.compute_capability,
                unified=parent.unified,
                numa_node=parent.numa_node,
            ),
        )
        return instance


def with_facts(device: Device, **facts: Any) -> Device:
    """The device with these facts: the same object where none is new, so that what was made of it stays."""
    same = all(getattr(device, name) == value for name, value in facts.items())
    return device if same else replace(device, **facts)


def bits_set(words: Iterable[int] | None) -> tuple[int, ...] | None:
    """The numbers of the bits that are set in a mask of 64-bit words, as NVML gives CPUs and nodes."""
    if words is None:
        return None
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def bus_id(pci: Any) -> str:
    """NVML's 8-digit form, in upper case: some drivers give the 4-digit one in `busIdLegacy` only."""
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"


def _plainly_empty(facts: dict[str, Any]) -> bool:
    """Whether nothing can be running: every context takes more than 64 MiB, CUDA's or a desktop's."""
    used, load = facts["memory_used"], facts["utilization"]
    return used is not None and used < 64 * 2**20 and not load
