"""One NVIDIA GPU with its MIG instances, read through NVML's functions (which `source.py` passes in).

Facts that never change are read once. A fact that a device does not support becomes None and is retried at a
slow pace. A device's error stays on that device, and a device that recovers is back in the next reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gputui.inventory.device import COMPUTE_MODES, UUID, Among, Device, Facts, Fault, FaultKind
from gputui.inventory.formatting import MIB
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Kind, Process
from gputui.sources.source import Clock, Want
from gputui.system.memory import host_memory
from gputui.vendors.nvidia.clock_reasons import clock_reasons
from gputui.vendors.nvidia.refusals import LONGEST_WAIT_AFTER_ERROR, Refusals

if TYPE_CHECKING:
    from gputui.vendors.nvidia.telemetry import Gpm, TelemetryReader

T = TypeVar("T")

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
"""A lost device is retried in every reading, if a try takes less than `_QUICK` seconds; otherwise the tries
take no more than this share of the time. A driver that tries to restart a dead GPU takes seconds for it."""


def bare(function: Any) -> Any:
    """Return nvidia-ml-py's function that returns bytes: the usual one raises for text that is not UTF-8."""
    return getattr(function, "__wrapped__", function)


def text_of(answer: bytes | str) -> str:
    """Return the driver's text; bytes that are not UTF-8 are escaped."""
    return answer if isinstance(answer, str) else answer.decode(errors="backslashreplace")


def words_of(error: Any) -> str:
    """Return the message of an NVML error, which may not be valid text either."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return f"NVML error {error.value}"


def bits_set(words: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of the set bits in a mask of 64-bit words, NVML's form for CPUs and nodes."""
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def bus_id(pci: Any) -> str:
    """Return NVML's 8-digit form, in upper case: some drivers have the 4-digit form in `busIdLegacy` only."""
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"


_FACTS: dict[str, tuple[str, tuple[int, ...], Callable[[Any], Any]]] = {
    # The literals: NVML_AFFINITY_SCOPE_NODE of up to four words of nodes, and NVML_CLOCK_SM.
    "name": ("nvmlDeviceGetName", (), text_of),
    "pci_bus_id": ("nvmlDeviceGetPciInfo", (), bus_id),
    "power_limit": ("nvmlDeviceGetEnforcedPowerLimit", (), lambda answer: answer / 1000),
    "numa_node": ("nvmlDeviceGetMemoryAffinity", (4, 0), lambda answer: next(iter(bits_set(answer)), None)),
    "display": ("nvmlDeviceGetDisplayActive", (), bool),
    "compute_capability": ("nvmlDeviceGetCudaComputeCapability", (), lambda answer: "{}.{}".format(*answer)),
    "cores": ("nvmlDeviceGetNumGpuCores", (), int),
    "max_sm_clock": ("nvmlDeviceGetMaxClockInfo", (1,), int),
    "minor": ("nvmlDeviceGetMinorNumber", (), int),
    "gpu_instance": ("nvmlDeviceGetGpuInstanceId", (), int),
    "compute_instance": ("nvmlDeviceGetComputeInstanceId", (), int),
}
"""Facts that never change and that no verdict depends on: the function, its further arguments, and the
conversion of its answer.

Of several near NUMA nodes (GH200: the CPU's node, and nodes for shares of the GPU's own memory), the first is
the GPU's, because that node has the CPUs.
"""

_NODES = ("minor",)
_NODES_OF_INSTANCES = ("gpu_instance", "compute_instance")
"""The facts that identify its device files: read for a confined launch only."""

_FACTS_OF_GPUS = tuple(fact for fact in _FACTS if fact not in (*_NODES, *_NODES_OF_INSTANCES))

SPEED = ("compute_capability", "cores", "max_sm_clock")
"""The facts that rank GPUs by speed, because the name does not."""

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
"""Functions that the driver does not support for a MIG instance; some drivers answer with the
parent's value."""

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
"""The facts that stay true of a lost device."""


_INHERITED = ("pci_bus_id", "minor", "compute_capability", "unified", "numa_node")
"""The facts that a MIG instance takes from its GPU."""

_WHOLE_INSTANCE = re.compile(r"MIG \d+g\.")
"""The name of a MIG instance that has a GPU instance to itself."""

_ANOTHER_LIST = 16 * MIB
"""The change of the memory in use (bytes) that means other processes: a context takes 64 MiB or more."""

_INTEGRATED = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra|Jetson)\b", re.IGNORECASE)
"""Names of GPUs that have no memory of their own."""

_INTEGRATED_CAPABILITIES = ("5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1")
"""Compute capabilities that only GPUs without own memory have (developer.nvidia.com/cuda-gpus): Tegra X1 and
X2, Xavier, Orin, Thor before and since CUDA 13, GB10. For GPUs whose names are not listed yet."""

_ABOUT = 0.1
"""The relative difference that is allowed between unified memory and the host's: firmware and
the kernel keep some of it."""

_KIND_OF: dict[str, Kind] = {"Graphics": "graphics", "MPSCompute": "mps"}


class GoneError(Exception):
    """The device has reported that it is lost or must be reset."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Gpu:
    """One GPU with its MIG instances, or one instance: its handle, its refusals, and the facts of its last
    reading.

    device        its last reading, or the first discovery
    instances     its MIG instances by UUID
    clock, ticks  seconds since the epoch, and seconds of a monotonic clock for ages
    listed        whether the last reading brought the process list
    unlisted      why the last reading of the list failed, None where it worked; after a failure `device`
                  keeps the processes of the previous list
    activity      percent of the multiprocessors' time by pid; None where nobody looks or the driver does not
                  report it
    missed        the number of calls in passing without an answer
    refused       whether the driver knows the GPU, but gputui may not open it
    """

    def __init__(self, nvml: Any, device: Device, clock: Clock, ticks: Clock) -> None:
        self.device = device
        self.instances: dict[str, Gpu] = {}
        self.handle: Any = None
        self._nvml, self._index, self._clock, self._ticks = nvml, device.index, clock, ticks
        instance = device.parent is not None
        self._never = _NOT_OF_INSTANCES if instance else frozenset()
        self._facts = ("name",) if instance else _FACTS_OF_GPUS
        self._refusals = Refusals(ticks)
        self._trouble: str | None = None
        self._stale = False
        self._try_at: float | None = None
        """When a lost device with slow tries is retried."""
        self._lost_by: tuple[Any, tuple[Any, ...]] | None = None
        """The call that reported the device as lost."""
        self._learned: set[str] = set()
        self._modes_due = not instance
        self.refused = self.listed = False
        self.unlisted: str | None = None
        self._listed_at: tuple[int | None, bool] | None = None
        self.activity: Mapping[int, int] | None = None
        self.missed = self._calls = 0
        self._reader: TelemetryReader | None = None
        self._gpm: Gpm | None = None
        self._monitored: dict[str, float] = {}
        self._monitor_at: float | None = None
        """When to sample the load of an instance; None before its first reading."""
        self._whole: Any = None
        """The handle of the GPU that an instance is a part of."""

    @property
    def readers(self) -> tuple[Gpu, ...]:
        """Itself and its instances."""
        return (self, *self.instances.values())

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPU as a device, and its instances."""
        return tuple(each.device for each in self.readers)

    def refresh(self, want: Want, among: Among = None) -> None:
        """Read the wanted facts into `devices`. Never raise for the device's own errors.

        `among`: keys of the devices whose details are wanted, None for all.
        """

        def is_looked_at() -> bool:
            return Want.DETAILS in want and (among is None or self.device.key in among)

        self.listed = False
        began = self._ticks()
        if self._try_at is not None and began < self._try_at:
            return
        self._trouble = None
        if is_looked_at() and Want.TABLE not in want:
            want |= Want.SENSORS
        try:
            self._read(want)
            if Want.DETAILS in want and self.handle is not None:
                self._read_details(want) if is_looked_at() else self._forget_details()
            self.instances = self._read_instances(want, among)
        except GoneError as gone:
            self.lose(gone, self._ticks() - began)
            return
        self._try_at = None
        fault = None
        if words := self._trouble or self.unlisted:
            before = self.device.fault
            kind: FaultKind = "error" if self._trouble else "processes"
            fault = Fault(kind, words, before.since if before else self._clock())
        self.have(fault=fault)
        if self._stale and self.device.parent is None:
            self.close()
            self.handle, self._stale = None, False

    def have(self, **facts: Any) -> None:
        """Set these facts. `device` stays the same object where nothing changes, so that
        objects derived from it stay valid."""
        if any(getattr(self.device, name) != value for name, value in facts.items()):
            self.device = replace(self.device, **facts)

    def have_processes(self, found: tuple[Process, ...] | None) -> None:
        """Set the processes. An equal list stays the same object, for the same reason."""
        if not _are_same(found, self.device.processes):
            self.device = replace(self.device, processes=found)

    @property
    def never_lists(self) -> bool:
        """Whether the driver lists no processes of this GPU, in no form."""
        return self._refusals.refuses("nvmlDeviceGetComputeRunningProcesses_v2")

    @property
    def progress(self) -> int:
        """The number of calls that have begun: while it grows, nothing hangs. May be read from any thread."""
        return self._calls + sum(instance.progress for instance in list(self.instances.values()))

    def stand_in(self) -> Gpu:
        """Return a stand-in for this GPU while one of its calls hangs: it keeps the known
        facts and reads nothing."""
        found = Gpu(self._nvml, self.device, self._clock, self._ticks)
        found._try_at = float("inf")
        found.fail("the driver does not answer: a call hangs")
        return found

    def renew(self, nvml: Any) -> None:
        """Prepare to request the handle again: NVML has been restarted, or its devices have
        been counted again."""
        self.close()
        self._nvml, self.handle, self._try_at = nvml, None, None

    def ask(self, function: Any, *arguments: Any) -> Any:
        """Return the answer, or None: unsupported, or failed. A failure becomes the device's fault
        (`Device.fault`)."""
        return self._ask(function, arguments, function.__name__, self._note)

    def ask_in_passing(self, function: Any, *arguments: Any) -> Any:
        """Return the same for a call whose failure does not count against the device.

        Unsupported calls are remembered together with their integer arguments, because one clock may be
        supported and another not.
        """
        numbers = (str(each) for each in arguments if isinstance(each, int))
        answer = self._ask(function, arguments, " ".join((function.__name__, *numbers)), lambda *_: None)
        self.missed += answer is None
        return answer

    def _ask(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        call: str,
        failed: Callable[[str, Any], None],
        unsupported: tuple[int, ...] = (NOT_SUPPORTED, FUNCTION_NOT_FOUND),
    ) -> Any:
        """Return the answer, None for none.

        `call` is the key under which a refusal is remembered; `failed` is called with any other error. A call
        that has answered before is supported: its refusal is a failure, too.
        """
        if function.__name__ in self._never or not self._refusals.due(call):
            return None
        self._calls += 1
        try:
            answer = function(*arguments)
        except self._nvml.NVMLError as error:
            self._raise_gone(error, function, arguments)
            if error.value in unsupported and not self._refusals.has_answered(call):
                self._refusals.refused(call)
            else:
                failed(function.__name__, error)
            return None
        self._refusals.answered(call)
        return answer

    def _raise_gone(self, error: Any, function: Any, arguments: tuple[Any, ...]) -> None:
        """Raise GoneError where the driver reports that the device is lost or must be reset."""
        if error.value not in (GPU_IS_LOST, RESET_REQUIRED):
            return
        plain = all(isinstance(each, (int, list)) for each in arguments[1:])
        if arguments and arguments[0] is self.handle and plain:
            # Only a call with plain arguments can be repeated: samples and event sets are
            # freed with the device.
            self._lost_by = function, arguments[1:]
        kind: FaultKind = "lost" if error.value == GPU_IS_LOST else "reset"
        raise GoneError(kind, words_of(error)) from None

    def _note(self, name: str, error: Any) -> None:
        """Note that a call has failed: until it works, the device does not count as free.

        Of several failures the first is reported, because the calls after it differ from reading to reading.
        """
        self._trouble = self._trouble or f"{name.removeprefix('nvmlDevice')}: {words_of(error)}"
        # A handle that has become invalid: the next reading requests another.
        self._stale = self._stale or error.value in (UNINITIALIZED, INVALID_ARGUMENT)

    def pair(self, function: Any, other: Gpu, *more: Any) -> Any:
        """Return the answer about this GPU and another, or None.

        Another pair may support what one pair does not, and NVML does not report which of the two is lost.
        """
        try:
            return function(self.handle, other.handle, *more)
        except self._nvml.NVMLError:
            self.missed += 1
            return None

    def _apart(self, work: Callable[[], T]) -> tuple[T, str | None]:
        """Return the result of `work` and the first failure that it noted, which does not
        count as the device's yet."""
        before, self._trouble = self._trouble, None
        found = work()
        trouble, self._trouble = self._trouble, before
        return found, trouble

    def lose(self, gone: GoneError, took: float = 0.0) -> None:
        """Mark the device as lost, or in need of a reset.

        It is retried in the next reading, unless the last try took long (`took`, in seconds).
        """
        before, now = self.device.fault, self._clock()
        since = before.since if before and before.kind == gone.kind else now
        self._try_at = self._ticks() + took / _SHARE if took > _QUICK else None
        self.close()
        self.handle = None
        self._blank(Fault(gone.kind, str(gone), since))

    def _blank(self, fault: Fault) -> None:
        """Keep the identity of a device that cannot be read; drop its load and processes."""
        known: Facts = {name: getattr(self.device, name) for name in _IDENTITY}
        self.device, self.instances = Device(**known, fault=fault), {}
        self._listed_at = self.unlisted = None

    def fail(self, message: str) -> None:
        """Mark the device as one that cannot be read now."""
        before = self.device.fault
        self._blank(Fault("error", message, before.since if before else self._clock()))

    def keep_processes(self, lives: Callable[[int], bool]) -> None:
        """Where a list could not be read again, keep those of its processes that are known to be alive."""
        for each in self.readers:
            if each.unlisted is not None and each.device.processes is not None:
                left = tuple(process for process in each.device.processes if lives(process.pid))
                each.have(processes=left or None)

    def close(self) -> None:
        """Release the NVML resources of the details and the instances."""
        self.activity = None
        for each in self.instances.values():
            each.close()
        if self._gpm is not None:
            self._gpm.close()
            self._gpm, self._monitored, self._monitor_at = None, {}, None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _read_details(self, want: Want) -> None:
        if self.device.parent is not None:
            from gputui.inventory.telemetry import Telemetry

            known: Facts = {k: v for k, v in self._monitored.items() if k != "utilization"}
            self.have(telemetry=Telemetry(**known) if known else None)
            return
        if self._reader is None:
            # Imported here: `pick` never needs it.
            from gputui.vendors.nvidia.telemetry import TelemetryReader

            self._reader = TelemetryReader(
                self._nvml, self.handle, self.ask_in_passing, self._clock, self._ticks
            )
        of_table = Want.TABLE in want
        read = self._reader.read_table if of_table else self._reader.read
        self.have(telemetry=read(self.device.throttled))
        self.activity = None if of_table else self._reader.sm()

    def _forget_details(self) -> None:
        """Drop the details, because nobody looks at the device any more."""
        self.activity = None
        if self._reader is not None:
            self._reader.rest()
        self.have(telemetry=None)

    def _read(self, want: Want) -> None:
        if self.handle is None:
            self._find()
            if self.handle is None:
                return
        if self._lost_by is not None:
            # The call that reported the device as lost must report it as back: other calls
            # may never have noticed.
            function, arguments = self._lost_by
            self.ask_in_passing(function, self.handle, *arguments)
            self._lost_by = None
        if not self.device.uuid and Want.WHOLE not in want:
            self.have(uuid=self._uuid())
        if Want.NAMES in want:
            self._learn(*self._facts)
        if self.device.parent is None and (
            Want.MODES in want or (self._modes_due and want & (Want.NAMES | Want.LOAD))
        ):
            self._read_modes()
        if Want.VERDICT in want:
            self.unlisted = None
            self.have(**self._least(want))
            return
        facts: Facts = {}
        if Want.LOAD in want:
            facts |= self._memory()
            facts |= self._load() if self.device.parent is None else self._instance_load()
        if Want.SENSORS in want:
            facts |= self._sensors()
        listing = Want.PROCESSES in want or (
            # A device that has just come back is listed at once.
            self._list_is_due(facts)
            if Want.CHANGED_PROCESSES in want
            else Want.LOAD in want and self._listed_at is None
        )
        self.have(**facts)
        if listing:
            self._read_processes()

    def _read_processes(self) -> None:
        # The processes of a divided GPU are those of its instances, and are listed there.
        found, self.unlisted = self._apart(lambda: () if self.device.mig else self._processes())
        self.listed = self.unlisted is None
        # A list that failed is requested again in the next reading; its processes may still be running.
        self._listed_at = None
        if self.listed:
            self._listed_at = self.device.memory_used, bool(self.device.utilization)
            self.have_processes(found)

    def _find(self) -> None:
        """Request the handle by the GPU's place in the box: it may be the same device as
        before, or another."""
        try:
            self.handle = self._nvml.nvmlDeviceGetHandleByIndex(self._index)
        except self._nvml.NVMLError as error:
            self._raise_gone(error, self._nvml.nvmlDeviceGetHandleByIndex, ())
            # A GPU that was open before has lost more than the permission.
            self.refused = error.value == NO_PERMISSION and not self.device.uuid
            self._note("nvmlDeviceGetHandleByIndex", error)
            return
        self.refused = False
        self._refusals.ask_all()
        self._modes_due, self._listed_at = True, None
        if not self.device.uuid:
            return
        uuid = self._uuid()
        if not uuid:
            self.handle = None
        elif uuid != self.device.uuid:
            self._refusals.forget()
            self._learned.clear()
            self._lost_by = self.unlisted = None
            self.device, self.instances = Device(index=self._index, uuid=uuid), {}

    def _uuid(self) -> str:
        """Return the device's UUID; "" where it cannot be read, so that its claims are not known."""
        function = bare(self._nvml.nvmlDeviceGetUUID)
        try:
            found = text_of(function(self.handle))
        except self._nvml.NVMLError as error:
            self._raise_gone(error, function, (self.handle,))
            self._note("nvmlDeviceGetUUID", error)
            return ""
        if re.fullmatch(UUID, found):
            return found
        self._trouble = f"GetUUID: {found!r} is not a UUID"
        return ""

    def fact(self, name: str) -> Any:
        """Return one of `_FACTS`: the known value, else the answer of a call in passing; None
        for no answer."""
        known = getattr(self.device, name)
        if known is not None:
            return known
        function, arguments, made = _FACTS[name]
        answer = self.ask_in_passing(bare(getattr(self._nvml, function)), self.handle, *arguments)
        return None if answer is None else made(answer)

    def _learn(self, *names: str) -> None:
        """Read those of `_FACTS` that are not known yet.

        A failed fact is retried in the next reading, and then at growing intervals: one bad moment must not
        decide the name of a device.
        """
        for name in names:
            if name in self._learned or not self._refusals.due(name):
                continue
            before = self.missed
            found = self.fact(name)
            if self.missed > before:
                self._refusals.refused(name, 0.0, LONGEST_WAIT_AFTER_ERROR)
            else:
                self._learned.add(name)
                self.have(**{name: found})

    def _list_is_due(self, facts: Facts) -> bool:
        """Return whether the list of processes may be out of date.

        That is so where the memory in use has changed, or the device has begun or stopped working. Where the
        memory cannot be read, there is no way to know.
        """
        used, busy = facts.get("memory_used"), bool(facts.get("utilization"))
        if self._listed_at is None or self.device.processes is None or None in (used, self._listed_at[0]):
            return True
        assert used is not None and self._listed_at[0] is not None
        return abs(used - self._listed_at[0]) >= _ANOTHER_LIST or busy != self._listed_at[1]

    def read_model(self) -> None:
        """Read the facts that a choice depends on and that are not known yet: the model, and an attached
        display.

        Never raise for the device's own errors.
        """
        self.read_once("name")
        if not _WITHOUT_OUTPUTS.search(self.device.name or ""):
            self.read_once("display")
        elif self.device.display is None:
            self.have(display=False)

    def read_nodes(self) -> None:
        """Read the facts that identify its device files and those of its instances, in the same way."""
        self.read_once(*_NODES)
        for instance in list(self.instances.values()):
            instance.inherit(self.device)
            instance.read_once(*_NODES_OF_INSTANCES)

    def read_once(self, *facts: str) -> None:
        """Read these of `_FACTS` once, in the same way."""
        if self.handle is not None:
            try:
                self._learn(*facts)
            except GoneError as gone:
                self.lose(gone)

    def _read_modes(self) -> None:
        """Read what an administrator may change at any moment: MIG and the compute mode."""
        (mig, mode), trouble = self._apart(lambda: (self._is_divided(), self._mode()))
        # A mode that could not be read is requested in each reading: until then the device may not be free.
        self._modes_due = trouble is not None
        self._trouble = self._trouble or trouble
        if self.device.mig is not None and mig != self.device.mig:
            # It supports other calls now, and has other processes.
            self._refusals.forget()
            self._listed_at = None
        self.have(mig=mig, compute_mode=mode)

    def _mode(self) -> str | None:
        mode = self.ask(self._nvml.nvmlDeviceGetComputeMode, self.handle)
        return COMPUTE_MODES[mode] if mode is not None and 0 <= mode < len(COMPUTE_MODES) else None

    def _is_divided(self) -> bool:
        """Return whether MIG is on; where that cannot be read, the device has a fault anyway."""
        mode = self.ask(self._nvml.nvmlDeviceGetMigMode, self.handle)
        return bool(self.device.mig if mode is None else mode[0])

    def _load(self) -> Facts:
        """Return utilization. Where it fails, read the modes again: switching MIG on takes
        utilization away."""
        load, trouble = self._apart(self._utilization)
        if trouble and self.device.parent is None:
            before = self.device.mig
            _, of_modes = self._apart(self._read_modes)
            trouble = of_modes if self.device.mig and not before else trouble
        self._trouble = self._trouble or trouble
        return load

    def _instance_load(self) -> Facts:
        """Return the load of a MIG instance since its last sample, by the GPU's performance monitor.

        A first reading takes no sample: most programs make no second one. Instances that share a GPU instance
        ("1c.3g.40gb") share its numbers, so their own load is not known.
        """
        now = self._ticks()
        if self._monitor_at is None:
            self._monitor_at = now
        elif now >= self._monitor_at and _WHOLE_INSTANCE.search(self.device.name or ""):
            from gputui.vendors.nvidia.telemetry import AGAIN, SLOW, TOO_SOON, Gpm

            wait = SLOW
            if self._gpm is None or not self._gpm.works:
                place, wait = self.fact("gpu_instance"), TOO_SOON
                if place is not None:
                    self._gpm = Gpm(self._nvml, self._whole, self.ask_in_passing, place)
            works = self._gpm is not None and self._gpm.works
            self._monitored = self._gpm.read() if self._gpm is not None else {}
            self._monitor_at = now + (wait if works else AGAIN)
        load = self._monitored.get("utilization")
        return {"utilization": None if load is None else min(100, round(load)), "memory_utilization": None}

    def _memory(self) -> Facts:
        nvml, device = self._nvml, self.device
        asked, second = nvml.nvmlDeviceGetMemoryInfo, "memory v2"

        def failed(name: str, error: Any) -> None:
            if self._refusals.has_answered(second):
                # The first form gives other numbers: they would look like memory that a program has taken.
                self._note(name, error)

        # The first form counts the driver's own memory as used: 0.5 GiB of an idle H100.
        unsupported = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH)
        memory = self._ask(asked, (self.handle, nvml.nvmlMemory_v2), second, failed, unsupported)
        if memory is None and not self._refusals.has_answered(second):
            memory = self.ask(asked, self.handle)
        if memory is None or not memory.total:
            # Jetson's driver answers 0 of 0, which is no answer.
            refused = device.parent is None and self._refusals.refuses(asked.__name__)
            unified = self._is_integrated() if refused else device.unified
            return {"memory_total": None, "memory_used": None, "memory_free": None, "unified": unified}
        return {
            "memory_total": memory.total,
            "memory_used": memory.used,
            "memory_free": memory.free,
            "unified": self._is_unified(memory.total),
        }

    def _is_unified(self, total: int) -> bool | None:
        """Return whether the memory is the host's, by its size and the device's name.

        GB10 and Jetsons report no sizes, or the host's.
        """
        # Where there was no memory before, it only looked like the host's.
        known = None if self.device.memory_total is None else self.device.unified
        if known is not None or abs(total - host_memory()) > _ABOUT * host_memory():
            return bool(known)
        # `pick` reads no names, and a box with such a GPU mostly has no other.
        name = self.fact("name") if self._index == 0 else self.device.name
        return None if name is None else bool(_INTEGRATED.search(name))

    def _is_integrated(self) -> bool | None:
        """Return whether a GPU that never reports its memory has none of its own; None where that is unknown.

        A failing driver answers "not supported", too: then the memory of a discrete GPU is unknown.
        """
        name = self.fact("name")
        if name is not None and _INTEGRATED.search(name):
            return True
        capability = self.fact("compute_capability")
        if capability in _INTEGRATED_CAPABILITIES:
            return True
        return None if name is None or capability is None else False

    def _utilization(self) -> Facts:
        rates = self.ask(self._nvml.nvmlDeviceGetUtilizationRates, self.handle)
        return {
            "utilization": rates.gpu if rates is not None else None,
            "memory_utilization": rates.memory if rates is not None else None,
        }

    def _sensors(self) -> Facts:
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
            # The name of the function in drivers before R535.
            bits = self.ask_in_passing(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle)
        return None if bits is None else clock_reasons(bits)

    def _list(self, which: str) -> list[Any] | None:
        for version in ("_v3", "_v2"):
            function = getattr(self._nvml, f"nvmlDeviceGet{which}RunningProcesses{version}")
            found: list[Any] | None = self.ask(function, self.handle)
            if found is not None or not self._refusals.refuses(function.__name__):
                # The older form is for drivers without the newer form; it does not help after an error.
                return found
        return None

    def _processes(self) -> tuple[Process, ...] | None:
        """Return the three lists as one, without duplicates; None when one of them cannot be read."""
        compute = self._list("Compute")
        if compute is None:
            return None
        return self._with_others(compute, "Graphics", "MPSCompute")

    def _with_others(self, compute: list[Any], *names: str) -> tuple[Process, ...] | None:
        """Return compute processes and those of other lists; a list that the driver does not
        have is empty."""
        others, trouble = self._apart(lambda: [(_KIND_OF[name], self._list(name)) for name in names])
        self._trouble = self._trouble or trouble
        # A list that failed may have had processes on it: the absence of processes is not known.
        return None if trouble else self._merged([("compute", compute), *others])

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

    def _least(self, want: Want) -> Facts:
        """Return the facts that decide whether the device is free, in the fewest calls: a process settles it
        at once.

        A device without a compute process is also asked for utilization, and, unless it is plainly empty, for
        MPS clients and graphics programs: those take memory. MPS clients run in their server's context, and
        the server is in the list of compute processes.
        """
        device = self.device
        compute = [] if device.mig else self._list("Compute")
        if compute:
            # A divided GPU lists the processes of its instances (nvml.h), which do not
            # concern the other instances.
            divided = device.mig
            if divided is None and device.parent is None and Want.WHOLE not in want:
                divided = self._is_divided()
            return {"mig": divided, "processes": () if divided else self._merged([("compute", compute)])}
        load = self._load()
        facts = self._memory() | load
        if device.parent is None and self.device is device:
            if facts["utilization"] is None:
                self._read_modes()
            elif Want.MODES not in want:
                facts["compute_mode"] = self._mode()
        if compute is None:
            return facts
        others = () if _plainly_empty(facts) else ("Graphics", "MPSCompute")
        return facts | {"processes": self._with_others(compute, *others)}

    def _read_instances(self, want: Want, among: Among) -> dict[str, Gpu]:
        """Return the current MIG instances: they come and go while the box runs."""
        if not self.device.mig or self.handle is None or Want.WHOLE in want:
            return {}
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
                # A place without an instance answers NOT_FOUND.
                if error.value not in (NOT_FOUND, INVALID_ARGUMENT):
                    if name != "nvmlDeviceGetUUID":
                        self._raise_gone(error, getattr(nvml, name), (self.handle, place))
                    self._keep_instances(
                        present, f"{name.removeprefix('nvmlDevice')}: {words_of(error)}", place
                    )
                continue
            found = self.instances.get(uuid)
            if found is None:
                of = Device(index=place, uuid=uuid, parent=self.device.uuid)
                found = Gpu(nvml, of, self._clock, self._ticks)
            found.handle, found._whole = handle, self.handle
            found.inherit(self.device)
            found.refresh(want | Want.NAMES, among)
            present[uuid] = found
        for uuid, gone in self.instances.items():
            if uuid not in present:
                gone.close()
        return present

    def inherit(self, parent: Device) -> None:
        """Take over the facts that an instance takes from its GPU."""
        self.have(**{name: getattr(parent, name) for name in _INHERITED})

    def _keep_instances(self, present: dict[str, Gpu], message: str, place: int | None = None) -> None:
        """Keep the instances that were there (at this place) as present but unreadable."""
        for uuid, instance in self.instances.items():
            if place is None or instance.device.index == place:
                instance.fail(message)
                present[uuid] = instance


def _are_same(listed: Sequence[Process] | None, before: Sequence[Process] | None) -> bool:
    """Return whether the driver lists the same processes with the same facts; the old ones have owners."""
    if listed is None or before is None or len(listed) != len(before):
        return listed is before
    return all(
        now.pid == was.pid and now.memory == was.memory and now.kind == was.kind
        for now, was in zip(listed, before, strict=True)
    )


def _plainly_empty(facts: Facts) -> bool:
    """Return whether nothing can be running: every context takes more than 64 MiB, CUDA's or a desktop's."""
    used, load = facts["memory_used"], facts["utilization"]
    return used is not None and used < 64 * MIB and not load
