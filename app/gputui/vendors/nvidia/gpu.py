"""One NVIDIA GPU with its MIG instances, read through NVML's functions (which `source.py` passes in).

Facts that never change are read once; what a device does not support becomes None and is asked again at a
slow pace; one device's trouble stays on that device, and a device that heals is back in the next reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import COMPUTE_MODES, UUID, Device, Fault, FaultKind
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Kind, Process
from gputui.sources.source import Want
from gputui.system.memory import host_memory
from gputui.vendors.nvidia.clock_reasons import clock_reasons
from gputui.vendors.nvidia.refusals import LONGEST_WAIT_AFTER_ERROR, Refusals

if TYPE_CHECKING:
    from gputui.vendors.nvidia.telemetry import TelemetryReader

# nvmlReturn_t, nvml.h.
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND = (
    1,
    2,
    3,
    4,
    6,
    13,
)
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 25

_MOST_PID = 2**22
"""Linux's PID_MAX_LIMIT: a pid above it comes from a driver whose struct has other fields (gpustat #161)."""

_QUICK, _SHARE = 0.05, 0.05
"""A lost device is tried in every reading, where a try takes less than so many seconds; else the tries take
no more than this share of the time. (A driver that tries to start a dead GPU again takes seconds for it.)"""

_FACTS: dict[str, tuple[str, tuple[int, ...], Callable[[Any], Any]]] = {
    # (The literals: NVML_AFFINITY_SCOPE_NODE of up to four words of nodes, and NVML_CLOCK_SM.)
    "name": ("nvmlDeviceGetName", (), lambda answer: text_of(answer)),
    "pci_bus_id": ("nvmlDeviceGetPciInfo", (), lambda answer: bus_id(answer)),
    "power_limit": ("nvmlDeviceGetEnforcedPowerLimit", (), lambda answer: answer / 1000),
    "numa_node": (
        "nvmlDeviceGetMemoryAffinity",
        (4, 0),
        lambda answer: next(iter(bits_set(answer) or ()), None),
    ),
    "display": ("nvmlDeviceGetDisplayActive", (), bool),
    "compute_capability": ("nvmlDeviceGetCudaComputeCapability", (), lambda answer: "{}.{}".format(*answer)),
    "cores": ("nvmlDeviceGetNumGpuCores", (), int),
    "max_sm_clock": ("nvmlDeviceGetMaxClockInfo", (1,), int),
    "minor": ("nvmlDeviceGetMinorNumber", (), int),
    "gpu_instance": ("nvmlDeviceGetGpuInstanceId", (), int),
    "compute_instance": ("nvmlDeviceGetComputeInstanceId", (), int),
}
"""Facts that never change, and on which no verdict depends: the function, its further arguments, and what is
made of its answer.

Of several near NUMA nodes (GH200: the CPU's node, and those that stand for shares of the GPU's own memory)
the first is the GPU's: that one has the CPUs.
"""

_NODES = ("minor",)
_NODES_OF_INSTANCES = ("gpu_instance", "compute_instance")
"""What its device files are known by: read for a confined launch only."""

_SPEED = ("compute_capability", "cores", "max_sm_clock")
"""What "fastest" is judged by: the name does not tell."""

_WITHOUT_OUTPUTS = re.compile(r"\b(P100|V100|A30|A[18]00X?|[HB][1238]00|H20|G[HB][23]00)\b")
"""Names of boards without display connectors, according to their data sheets. `pick` need not ask those, and
may make six calls a GPU at most."""

_NOT_OF_INSTANCES = frozenset(
    {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeMode",
    }
)
"""What the driver does not report for a MIG instance; some drivers answer with the parent's value."""

_IDENTITY = (
    "index",
    "uuid",
    "name",
    "ordinal",
    "pci_bus_id",
    "minor",
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


_INHERITED = ("pci_bus_id", "minor", "compute_capability", "unified", "numa_node")
"""What a MIG instance has from its GPU."""

_ANOTHER_LIST = 16 * 2**20
"""The change of the memory in use (bytes) that means other processes: a context takes 64 MiB or more."""

_INTEGRATED = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra|Jetson)\b", re.IGNORECASE)
"""Names of GPUs that have no memory of their own."""

_INTEGRATED_CAPABILITIES = ("5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1")
"""Compute capabilities that only such GPUs have (developer.nvidia.com/cuda-gpus): Tegra X1 and X2,
Xavier, Orin, Thor before and since CUDA 13, GB10. For GPUs whose names are not listed yet."""

_ABOUT = 0.1
"""How far the size of unified memory may be from the host's: firmware and the kernel keep some of it."""

_KIND_OF: dict[str, Kind] = {"Graphics": "graphics", "MPSCompute": "mps"}


class GoneError(Exception):
    """The device has answered that it is lost or must be reset."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Gpu:
    """One GPU with its MIG instances: its handle, what it refuses, and what was last read.

    clock, ticks  seconds since the epoch, and seconds that only grow: how long ago something was
    listed        whether the last reading brought the process list
    unlisted      why the list could not be read the last time, None where it could; after a failure `devices`
                  keep the processes of the list before
    activity      percent of the multiprocessors' time by pid, None where nobody looks or the driver does not
                  tell
    missed        how many calls in passing brought no answer
    """

    def __init__(
        self,
        nvml: Any,
        index: int,
        clock: Callable[[], float],
        ticks: Callable[[], float],
        instance: bool = False,
    ) -> None:
        self.devices: tuple[Device, ...] = (Device(index=index, uuid=""),)
        self.handle: Any = None
        self._nvml, self._index, self._clock, self._ticks = nvml, index, clock, ticks
        self._never = _NOT_OF_INSTANCES if instance else frozenset()
        self._facts: tuple[str, ...] = (
            ("name",)
            if instance
            else tuple(fact for fact in _FACTS if fact not in (*_NODES, *_NODES_OF_INSTANCES))
        )
        self._refusals = Refusals(ticks)
        self._trouble: str | None = None
        self._stale = False
        self._try_at: float | None = None
        """When a lost device is tried again whose tries take long."""
        self._lost_by: tuple[Any, tuple[Any, ...]] | None = None
        """The call that said that the device is lost."""
        self._learned: set[str] = set()
        self._modes_due = not instance
        self._instances: dict[str, Gpu] = {}
        self.refused = False
        """Whether the driver knows the GPU, and we may not open it."""
        self.listed = False
        self.unlisted: str | None = None
        self._listed_at: tuple[int | None, bool] | None = None
        self.activity: Mapping[int, int] | None = None
        self.missed = 0
        self._calls = 0
        self._reader: TelemetryReader | None = None

    def refresh(self, want: Want, among: Collection[str] | None = None) -> None:
        """Read what is wanted into `devices`. Never raises for the device's own trouble.

        `among`: keys of the devices whose details are wanted, None for all.
        """

        def looked_at(device: Device) -> bool:
            return Want.DETAILS in want and (among is None or device.key in among)

        self.listed = False
        began = self._ticks()
        if self._try_at is not None and began < self._try_at:
            return
        self._trouble = None
        if looked_at(self.devices[0]) and Want.TABLE not in want:
            want |= Want.SENSORS
        try:
            device = self._read(self.devices[0], want)
            if Want.DETAILS in want and self.handle is not None and device.parent is None:
                device = self._detailed(device, want) if looked_at(device) else self._plain(device)
            instances = self._read_instances(device, want)
        except GoneError as gone:
            self.lose(gone, self._ticks() - began)
            return
        self._try_at = None
        fault = None
        if words := self._trouble or self.unlisted:
            before = self.devices[0].fault
            kind: FaultKind = "error" if self._trouble else "processes"
            fault = Fault(kind, words, before.since if before else self._clock())
        self.devices = (with_facts(device, fault=fault), *instances)
        if self._stale and device.parent is None:
            self.close()
            self.handle, self._stale = None, False

    @property
    def progress(self) -> int:
        """How many calls have begun: while it grows, nothing hangs. For any thread."""
        return self._calls + sum(instance.progress for instance in list(self._instances.values()))

    def stand_in(self, message: str) -> Gpu:
        """A stand-in for this GPU while one of its calls hangs: it has what is known, and reads nothing."""
        found = Gpu(self._nvml, self._index, self._clock, self._ticks)
        found.devices, found._try_at = self.devices, float("inf")
        found.fail(message)
        return found

    def renew(self, nvml: Any) -> None:
        """NVML has been started again, or its devices have been counted anew: ask for the handle again."""
        self.close()
        self._nvml, self.handle, self._try_at = nvml, None, None

    def ask(self, function: Any, *arguments: Any) -> Any:
        """The answer, or None: never supported, or failed, which is the device's fault (`Device.fault`).

        A call that has answered before is supported: when it is refused, that is a failure, too.
        """
        name = function.__name__
        if name in self._never or not self._refusals.due(name):
            return None
        self._calls += 1
        try:
            answer = function(*arguments)
        except self._nvml.NVMLError as error:
            self._raise_gone(error, function, arguments)
            if error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND) and not self._refusals.has_answered(name):
                self._refusals.refused(name)
            else:
                self._note(name, error)
            return None
        self._refusals.answered(name)
        return answer

    def ask_in_passing(self, function: Any, *arguments: Any) -> Any:
        """The same for a call whose failure says nothing about the device.

        What is not supported is remembered by the numbers among the arguments, too: one clock may be
        supported and another one not.
        """
        name = " ".join((function.__name__, *(str(each) for each in arguments if isinstance(each, int))))
        if function.__name__ in self._never or not self._refusals.due(name):
            self.missed += 1
            return None
        self._calls += 1
        try:
            answer = function(*arguments)
        except self._nvml.NVMLError as error:
            self._raise_gone(error, function, arguments)
            self.missed += 1
            if error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND) and not self._refusals.has_answered(name):
                self._refusals.refused(name)
            return None
        self._refusals.answered(name)
        return answer

    def _raise_gone(self, error: Any, function: Any, arguments: tuple[Any, ...]) -> None:
        """Raises GoneError where the driver says that the device is lost or must be reset."""
        if error.value not in (GPU_IS_LOST, RESET_REQUIRED):
            return
        plain = all(isinstance(each, (int, list)) for each in arguments[1:])
        if arguments and arguments[0] is self.handle and plain:
            # (A sample or a set of events is given back when the device is lost.)
            self._lost_by = function, arguments[1:]
        kind: FaultKind = "lost" if error.value == GPU_IS_LOST else "reset"
        raise GoneError(kind, words_of(error)) from None

    def _note(self, name: str, error: Any) -> None:
        """Note that a call has failed: until it works, the device does not count as free. Of several failures
        the first is reported, as the calls after it differ from reading to reading."""
        self._trouble = self._trouble or f"{name.removeprefix('nvmlDevice')}: {words_of(error)}"
        # A handle that is no longer one: the next reading asks for another.
        self._stale = self._stale or error.value in (UNINITIALIZED, INVALID_ARGUMENT)

    def pair(self, function: Any, other: Gpu, *more: Any) -> Any:
        """The answer about this GPU and another, or None.

        What one pair does not support another may; and NVML does not tell which of the two is lost.
        """
        try:
            return function(self.handle, other.handle, *more)
        except self._nvml.NVMLError:
            self.missed += 1
            return None

    def lose(self, gone: GoneError, took: float = 0.0) -> None:
        """Mark the device as lost, or in need of a reset. It is tried again in the next reading, unless the
        last try `took` long (seconds)."""
        before, now = self.devices[0], self._clock()
        fault = Fault(gone.kind, str(gone), now)
        if before.fault and before.fault.kind == fault.kind:
            fault = replace(fault, since=before.fault.since)
        self._try_at = self._ticks() + took / _SHARE if took > _QUICK else None
        self.close()
        self.handle = None
        self._blank(fault)

    def _blank(self, fault: Fault) -> None:
        """The identity of a device that cannot be read stays true; its load and processes do not."""
        before = self.devices[0]
        known: dict[str, Any] = {name: getattr(before, name) for name in _IDENTITY}
        self.devices = (Device(**known, fault=fault),)
        self._listed_at = self.unlisted = None

    def fail(self, message: str) -> None:
        """Mark the device as one that cannot be read now."""
        before = self.devices[0].fault
        self._blank(Fault("error", message, before.since if before else self._clock()))

    def just_listed(self) -> list[Device]:
        """Those of `devices` whose process lists the last reading brought."""
        readers = (self, *self._instances.values())
        return [each.devices[0] for each in readers if each.listed]

    def change(self, changed: Callable[[Device], Device]) -> None:
        """Replace each of `devices` by what `changed` makes of it."""
        for instance in self._instances.values():
            instance.change(changed)
        by_uuid = {each.devices[0].uuid: each.devices[0] for each in self._instances.values()}
        self.devices = (
            changed(self.devices[0]),
            *(by_uuid.get(device.uuid, device) for device in self.devices[1:]),
        )

    def keep_processes(self, lives: Callable[[int], bool]) -> None:
        """Where the list could not be read again, keep those of its processes that are known to be alive."""
        for instance in self._instances.values():
            instance.keep_processes(lives)
        devices = (self.devices[0], *(each.devices[0] for each in self._instances.values()))
        device = self.devices[0]
        if self.unlisted is not None and device.processes is not None:
            left = tuple(process for process in device.processes if lives(process.pid))
            devices = (with_facts(device, processes=left or None), *devices[1:])
        if len(devices) == len(self.devices):
            self.devices = devices

    def close(self) -> None:
        """Give back what NVML keeps for the details."""
        self.activity = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _detailed(self, device: Device, want: Want) -> Device:
        if self._reader is None:
            # Imported here: `pick` never needs it.
            from gputui.vendors.nvidia.telemetry import TelemetryReader

            self._reader = TelemetryReader(
                self._nvml, self.handle, self.ask_in_passing, self._clock, self._ticks
            )
        if Want.TABLE in want:
            self.activity = None
            return with_facts(device, telemetry=self._reader.read_table(device.throttled))
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
        if self.handle is None:
            device = self._found(device)
            if self.handle is None:
                return device
        if self._lost_by is not None:
            # The call that reported the device as lost must report it as back: others may never have noticed.
            function, arguments = self._lost_by
            self.ask_in_passing(function, self.handle, *arguments)
            self._lost_by = None
        if not device.uuid and Want.WHOLE not in want:
            device = replace(device, uuid=self._uuid())
            self.devices = (replace(self.devices[0], uuid=device.uuid), *self.devices[1:])
        if Want.NAMES in want and not self._learned.issuperset(self._facts):
            device = with_facts(device, **self._learn(*self._facts))
        if device.parent is None and (
            Want.MODES in want or (self._modes_due and want & (Want.NAMES | Want.LOAD))
        ):
            device = self._with_modes(device)
        if Want.VERDICT in want:
            self.unlisted = None
            return replace(device, **self._least(device, want))
        facts: dict[str, Any] = {}
        if Want.LOAD in want:
            facts |= self._memory(device)
            load, device = self._load(device)
            facts |= load
        if Want.SENSORS in want:
            facts |= self._sensors()
        listing = Want.PROCESSES in want or (
            # (A device that has just come back is listed at once.)
            self._list_is_due(device, facts)
            if Want.CHANGED_PROCESSES in want
            else Want.LOAD in want and self._listed_at is None
        )
        if listing:
            # The processes of a divided GPU are those of its instances, and are listed there.
            before, self._trouble = self._trouble, None
            found = () if device.mig else self._processes()
            self.unlisted, self._trouble = self._trouble, before
            self.listed = self.unlisted is None
            now = {"memory_used": device.memory_used, "utilization": device.utilization} | facts
            # (A list that has failed is asked for again in the next reading; its processes may still be
            # running.)
            self._listed_at = (now["memory_used"], bool(now["utilization"])) if self.listed else None
            if self.listed:
                # (An equal list is the same object, so that what was made of it stays.)
                facts["processes"] = device.processes if _are_same(found, device.processes) else found
        return with_facts(device, **facts)

    def _found(self, device: Device) -> Device:
        """The device by its place in the box: the one that was there before, or another one."""
        try:
            self.handle = self._nvml.nvmlDeviceGetHandleByIndex(self._index)
        except self._nvml.NVMLError as error:
            self._raise_gone(error, self._nvml.nvmlDeviceGetHandleByIndex, ())
            # (One that has been open before has lost more than our right to it.)
            self.refused = error.value == NO_PERMISSION and not device.uuid
            self._note("nvmlDeviceGetHandleByIndex", error)
            return device
        self.refused = False
        self._refusals.ask_all()
        self._modes_due, self._listed_at = True, None
        if not device.uuid:
            return device
        uuid = self._uuid()
        if not uuid:
            self.handle = None
        elif uuid != device.uuid:
            self._refusals.forget()
            self._learned.clear()
            self._lost_by = None
            self._instances = {}
            device = Device(index=self._index, uuid=uuid)
            self.devices, self.unlisted = (device,), None
        return device

    def _uuid(self) -> str:
        """The device's UUID, "" where it cannot be read: then nobody knows who has claimed it."""
        function = bare(self._nvml.nvmlDeviceGetUUID)
        try:
            found = text_of(function(self.handle))
        except self._nvml.NVMLError as error:
            self._raise_gone(error, function, (self.handle,))
            self._note("nvmlDeviceGetUUID", error)
            return ""
        if re.fullmatch(UUID, found):
            return found
        self._trouble = f"GetUUID: {found!r} is no UUID"
        return ""

    def _learn(self, *facts: str) -> dict[str, Any]:
        """Those of `_FACTS` that are not known yet. What fails is asked again in the next reading, and then
        later and later: one bad moment must not decide what a device is called."""
        found: dict[str, Any] = {}
        for fact in facts:
            if fact in self._learned or not self._refusals.due(fact):
                continue
            function, arguments, made = _FACTS[fact]
            answer = self.ask_in_passing(bare(getattr(self._nvml, function)), self.handle, *arguments)
            if answer is None:
                self._refusals.refused(fact, 0.0, LONGEST_WAIT_AFTER_ERROR)
                continue
            found[fact] = made(answer)
            self._learned.add(fact)
            # (At once: the device may be lost over the next one.)
            self.devices = (replace(self.devices[0], **found), *self.devices[1:])
        return found

    def _list_is_due(self, device: Device, facts: Mapping[str, Any]) -> bool:
        """Whether processes other than those listed may be on the device: its memory in use has changed, or
        it has begun or stopped working. Where the memory cannot be read, nothing tells."""
        used, busy = facts.get("memory_used"), bool(facts.get("utilization"))
        if self._listed_at is None or device.processes is None or used is None or self._listed_at[0] is None:
            return True
        return abs(used - self._listed_at[0]) >= _ANOTHER_LIST or busy != self._listed_at[1]

    def read_model(self) -> None:
        """Read what a choice depends on, where it is not known yet: which model it is, and whether a display
        is attached. Never raises for the device's own trouble."""
        self._once("name")
        device = self.devices[0]
        if not _WITHOUT_OUTPUTS.search(device.name or ""):
            self._once("display")
        elif device.display is None:
            self.devices = (replace(device, display=False), *self.devices[1:])

    def read_speed(self) -> None:
        """The same for what tells how fast it is."""
        self._once(*_SPEED)

    def read_nodes(self) -> None:
        """The same for what its device files are known by, and those of its instances."""
        self._once(*_NODES)
        for instance in self._instances.values():
            instance.inherit(self.devices[0])
            instance._once(*_NODES_OF_INSTANCES)
        if len(self.devices) > 1:
            # (Without them where the GPU has just been lost.)
            instances = (instance.devices[0] for instance in self._instances.values())
            self.devices = (self.devices[0], *instances)

    def count_as(self, index: int) -> None:
        """Note which number programs give the GPU, as there are others that nobody of ours may open."""
        self.devices = (replace(self.devices[0], index=index), *self.devices[1:])

    def number(self, ordinal: int | None) -> None:
        """Note which number the runtime gives the GPU."""
        self.devices = (replace(self.devices[0], ordinal=ordinal), *self.devices[1:])

    def _once(self, *facts: str) -> None:
        if self.handle is None:
            return
        try:
            self.devices = (replace(self.devices[0], **self._learn(*facts)), *self.devices[1:])
        except GoneError as gone:
            self.lose(gone)

    def _with_modes(self, device: Device) -> Device:
        """The device with what an administrator may change at any moment: MIG and the compute mode."""
        before, self._trouble = self._trouble, None
        mig, mode = self._divided(device), self._mode()
        # What could not be read is asked in each reading: until then the device is not known to be free.
        self._modes_due = self._trouble is not None
        self._trouble = before or self._trouble
        if device.mig is not None and mig != device.mig:
            # It supports other calls now, and has other processes.
            self._refusals.forget()
            self._listed_at = None
        return with_facts(device, mig=mig, **mode)

    def _mode(self) -> dict[str, Any]:
        mode = self.ask(self._nvml.nvmlDeviceGetComputeMode, self.handle)
        known = mode is not None and 0 <= mode < len(COMPUTE_MODES)
        return {"compute_mode": COMPUTE_MODES[mode] if known else None}

    def _divided(self, device: Device) -> bool:
        """Whether MIG is on; where that cannot be read just now, the device is in trouble anyway."""
        mode = self.ask(self._nvml.nvmlDeviceGetMigMode, self.handle)
        return bool(device.mig if mode is None else mode[0])

    def _load(self, device: Device) -> tuple[dict[str, Any], Device]:
        """Utilization, and the device in the mode that it turns out to be in.

        MIG that has just been switched on takes the utilization away.
        """
        before, self._trouble = self._trouble, None
        load = self._utilization()
        if self._trouble and device.parent is None:
            now = self._with_modes(device)
            if now.mig and not device.mig:
                self._trouble = None
            device = now
        self._trouble = before or self._trouble
        return load, device

    def memory_nodes(self) -> tuple[int, ...] | None:
        """Every host NUMA node whose memory is near."""
        scope = self._nvml.NVML_AFFINITY_SCOPE_NODE
        return bits_set(self.ask_in_passing(self._nvml.nvmlDeviceGetMemoryAffinity, self.handle, 4, scope))

    def _memory(self, device: Device) -> dict[str, Any]:
        nvml = self._nvml
        # The first form counts what the driver keeps for itself as used: 0.5 GiB of an idle H100.
        memory = self._ask_memory_v2()
        if memory is None and not self._refusals.has_answered("memory v2"):
            memory = self.ask(nvml.nvmlDeviceGetMemoryInfo, self.handle)
        if memory is None or not memory.total:
            # (Jetson's driver answers 0 of 0, which is no answer.)
            refused = device.parent is None and self._refusals.refuses("nvmlDeviceGetMemoryInfo")
            unified = self._is_integrated(device) if refused else device.unified
            return {"memory_total": None, "memory_used": None, "memory_free": None, "unified": unified}
        return {
            "memory_total": memory.total,
            "memory_used": memory.used,
            "memory_free": memory.free,
            "unified": self._is_unified(device, memory.total),
        }

    def _is_unified(self, device: Device, total: int) -> bool | None:
        """Whether the memory is the host's, by its size and the device's name: GB10 and Jetsons report no
        sizes, or the host's."""
        # (Where there was no memory before, it only looked like the host's.)
        known = None if device.memory_total is None else device.unified
        if known is not None or abs(total - host_memory()) > _ABOUT * host_memory():
            return bool(known)
        name = device.name
        if name is None and self._index == 0:
            # (`pick` reads no names, and a box with such a GPU mostly has no other.)
            answer = self.ask_in_passing(bare(self._nvml.nvmlDeviceGetName), self.handle)
            name = None if answer is None else text_of(answer)
        return None if name is None else bool(_INTEGRATED.search(name))

    def _is_integrated(self, device: Device) -> bool | None:
        """Whether a GPU that never tells its memory has none of its own; None where nothing says so.

        (A driver that fails answers "not supported", too: then the memory of a discrete GPU is unknown.)
        """
        name, capability = device.name, device.compute_capability
        if name is None:
            answer = self.ask_in_passing(bare(self._nvml.nvmlDeviceGetName), self.handle)
            name = None if answer is None else text_of(answer)
        if name is not None and _INTEGRATED.search(name):
            return True
        if capability is None:
            pair = self.ask_in_passing(self._nvml.nvmlDeviceGetCudaComputeCapability, self.handle)
            capability = None if pair is None else "{}.{}".format(*pair)
        if capability in _INTEGRATED_CAPABILITIES:
            return True
        return None if name is None or capability is None else False

    def _ask_memory_v2(self) -> Any:
        nvml = self._nvml
        if not self._refusals.due("memory v2"):
            return None
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(self.handle, version=nvml.nvmlMemory_v2)
        except nvml.NVMLError as error:
            self._raise_gone(error, nvml.nvmlDeviceGetMemoryInfo, (self.handle, nvml.nvmlMemory_v2))
            if self._refusals.has_answered("memory v2"):
                # The first form gives other numbers: they would look like memory that somebody has taken.
                self._note("nvmlDeviceGetMemoryInfo", error)
            elif error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH):
                self._refusals.refused("memory v2")
            return None
        self._refusals.answered("memory v2")
        return memory

    def _utilization(self) -> dict[str, Any]:
        rates = self.ask(self._nvml.nvmlDeviceGetUtilizationRates, self.handle)
        return {
            "utilization": rates.gpu if rates is not None else None,
            "memory_utilization": rates.memory if rates is not None else None,
        }

    def _sensors(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self.handle
        ask = self.ask_in_passing
        power = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return {
            "temperature": ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            "power": power / 1000 if power is not None else None,
            "sm_clock": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
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
        for version in ("_v3", "_v2"):
            function = getattr(self._nvml, f"nvmlDeviceGet{which}RunningProcesses{version}")
            found: list[Any] | None = self.ask(function, self.handle)
            if found is not None or not self._refusals.refuses(function.__name__):
                # (The older form is for drivers that have no newer one; it does not mend an error.)
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
        failed, self._trouble = self._trouble, before or self._trouble
        # A list that failed may have had processes on it: then it is unknown whether there are none.
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

    def _least(self, device: Device, want: Want) -> dict[str, Any]:
        """What decides whether the device is free, in the fewest calls: a process settles it at once.

        A device with no compute process is also asked for utilization, and for MPS clients and programs that
        draw unless it is plainly empty: those take memory. (MPS clients run in their server's context, and
        that one is in the list of compute processes.)
        """
        whole = Want.WHOLE in want
        compute = [] if device.mig else self._list("Compute")
        if compute:
            # A divided GPU lists the processes of its instances (nvml.h), which say nothing of the others.
            divided = device.mig
            if divided is None and device.parent is None and not whole:
                divided = self._divided(device)
            return {"mig": divided, "processes": () if divided else self._merged((("compute", compute),))}
        load, now = self._load(device)
        facts = self._memory(device) | load
        if device.parent is None:
            if now is device and facts["utilization"] is None:
                now = self._with_modes(device)
            elif now is device and Want.MODES not in want:
                facts |= self._mode()
            if now is not device:
                facts |= {"mig": now.mig, "compute_mode": now.compute_mode}
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
        places = self.ask(nvml.nvmlDeviceGetMaxMigDeviceCount, self.handle)
        if places is None and self._trouble:
            self._keep_instances(present, self._trouble)
        for place in range(places or 0):
            name = "nvmlDeviceGetMigDeviceHandleByIndex"
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, place)
                name = "nvmlDeviceGetUUID"
                uuid = text_of(bare(nvml.nvmlDeviceGetUUID)(handle))
            except nvml.NVMLError as error:
                # A place with no instance in it answers NOT_FOUND.
                if error.value not in (NOT_FOUND, INVALID_ARGUMENT):
                    if name != "nvmlDeviceGetUUID":
                        self._raise_gone(error, getattr(nvml, name), (self.handle, place))
                    self._keep_instances(
                        present, f"{name.removeprefix('nvmlDevice')}: {words_of(error)}", place
                    )
                continue
            instance = self._instances.get(uuid) or self._instance(uuid, place, device)
            instance.handle = handle
            instance.inherit(device)
            instance.refresh(want | Want.NAMES)
            present[uuid] = instance
        self._instances = present
        return [instance.devices[0] for instance in present.values()]

    def inherit(self, parent: Device) -> None:
        """Take over what an instance has from its GPU."""
        have = self.devices[0]
        if any(getattr(have, name) != getattr(parent, name) for name in _INHERITED):
            now = replace(have, **{name: getattr(parent, name) for name in _INHERITED})
            self.devices = (now,)

    def _keep_instances(self, present: dict[str, Gpu], message: str, place: int | None = None) -> None:
        """The instances that were there (at this place) are there still, and cannot be read."""
        for uuid, instance in self._instances.items():
            if place is None or instance.devices[0].index == place:
                instance.fail(message)
                present[uuid] = instance

    def _instance(self, uuid: str, place: int, parent: Device) -> Gpu:
        instance = Gpu(self._nvml, place, self._clock, self._ticks, instance=True)
        instance.devices = (Device(index=place, uuid=uuid, parent=parent.uuid),)
        return instance


def bare(function: Any) -> Any:
    """A function of nvidia-ml-py that answers with bytes: it would raise for text that is not UTF-8."""
    return getattr(function, "__wrapped__", function)


def text_of(answer: bytes | str) -> str:
    """Text of the driver's; what is not UTF-8 is escaped."""
    return answer if isinstance(answer, str) else answer.decode(errors="backslashreplace")


def words_of(error: Any) -> str:
    """What went wrong, in NVML's words; they may be no text either."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return f"NVML error {error.value}"


def with_facts(device: Device, **facts: Any) -> Device:
    """The device with these facts: the same object where none is new, so that what was made of it stays."""
    same = all(getattr(device, name) == value for name, value in facts.items())
    return device if same else replace(device, **facts)


def _are_same(listed: Sequence[Process] | None, before: Sequence[Process] | None) -> bool:
    """Whether the driver lists the same of the same processes as before; those have their owners by now."""
    if listed is None or before is None or len(listed) != len(before):
        return listed is before
    return all(
        now.pid == was.pid and now.memory == was.memory and now.kind == was.kind
        for now, was in zip(listed, before, strict=True)
    )


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
