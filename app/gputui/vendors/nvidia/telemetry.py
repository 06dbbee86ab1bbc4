"""The facts that a GPU's page shows in addition to the table: clocks, links, errors, counters, occupancy. By
NVML.

A field that fails affects no other field and is no fault of the device: only "lost" and "must be reset" are.
Rates are differences of counters between two readings. nvmlDeviceGetPcieThroughput is never called: each call
counts for 20 ms while it holds the driver's lock.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable, Mapping
from ctypes import byref
from typing import Any

from gputui.inventory.device import Facts
from gputui.inventory.formatting import MIB
from gputui.inventory.process import known_sum
from gputui.inventory.telemetry import NVLINK_FABRICS, Telemetry
from gputui.sources.source import Clock

# nvmlReturn_t, nvml.h.
_SUCCESS, _NOT_SUPPORTED, _NOT_FOUND, _TIMEOUT = 0, 3, 6, 10

_ALL_LINKS = 2**32 - 1
"""The scope of a field that sums up all NVLinks of a GPU."""

_WRAPS_AT = 2**32
"""The value at which the counters of PCIe bytes may restart (nvml.h: "value can be wrapped")."""

_MOST_EVENTS = 16
"""The most events of one reading: an error storm must not delay it."""

_SM_STAYS = 3.0
"""Seconds for which a process keeps its share without a new sample: the driver samples up to 1 s apart."""

TOO_SOON = 0.1
"""The shortest time between two samples of the performance monitor (nvml.h), in seconds.
Rates need it, too."""

SLOW = 2.9
"""Seconds between two readings of facts that need not be followed every second."""

AGAIN = 30.0
"""Seconds after which a refused call is retried."""

_KIB = 2**10

_VALUE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""

Ask = Callable[..., Any]


class TelemetryReader:
    """One GPU's telemetry: its unsupported fields, and the counters of the previous reading.

    `ask` calls a function of NVML and returns its answer, None for any error. It remembers unsupported calls
    for a while, and raises for a device that is gone. `clock` returns seconds since the epoch, `ticks`
    seconds of a monotonic clock, for rates and ages.
    """

    def __init__(self, nvml: Any, handle: Any, ask: Ask, clock: Clock, ticks: Clock) -> None:
        self._nvml, self._handle, self._ask, self._clock, self._ticks = nvml, handle, ask, clock, ticks
        self._fixed: Facts = {}
        self._slow: tuple[float, Facts] | None = None
        self._every_field: Facts = {
            "memory_temperature": nvml.NVML_FI_DEV_MEMORY_TEMP,
            "ecc_corrected": nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
            "ecc_uncorrected": nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
            "retired_corrected": nvml.NVML_FI_DEV_RETIRED_SBE,
            "retired_uncorrected": nvml.NVML_FI_DEV_RETIRED_DBE,
            "remapped_corrected": nvml.NVML_FI_DEV_REMAPPED_COR,
            "remapped_uncorrected": nvml.NVML_FI_DEV_REMAPPED_UNC,
            "energy": nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
            "pcie_sent": nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            "pcie_received": nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            "nvlink_sent": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
            "nvlink_received": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
        }
        self._fields = dict(self._every_field)
        self._counted: dict[str, tuple[float, int]] = {}
        self._refused_at = ticks()
        self._gpm: Gpm | None = None
        self._fabric: Facts | None = None
        self._events: Any = None
        self._listens_at = ticks()
        """When to register for XIDs, while that has not been done."""
        self._xid: tuple[int, float] | None = None
        self._since = 0
        self._sm: dict[int, tuple[int, float]] = {}
        self._last: tuple[float, Telemetry] | None = None

    def read(self, throttle: tuple[str, ...] | None) -> Telemetry:
        """Return all current telemetry; `throttle` has been read already. Raise GoneError."""
        now = self._ticks()
        if self._last is not None and 0 <= now - self._last[0] < TOO_SOON:
            return self._last[1]
        self._last = now, self._read(throttle)
        return self._last[1]

    def _read(self, throttle: tuple[str, ...] | None) -> Telemetry:
        nvml, handle, ask = self._nvml, self._handle, self._ask
        now = self._ticks()
        if now - self._refused_at >= AGAIN:
            # A call that this GPU refused may work by now: another driver, another mode.
            self._refused_at = now
            self._fields = dict(self._every_field)
            if self._gpm is not None and not self._gpm.works:
                self._gpm = None
        self._read_fixed()
        fields = self._read_fields()
        slow = self._slow_facts(now)
        energy = fields.get("energy")
        xid, xid_at = self._last_xid() or (None, None)
        self._gpm = self._gpm or Gpm(nvml, handle, ask)
        found: Facts = self._gpm.read()
        # Counters are exact; where the driver has none, its own averages are used.
        found |= {name: rate for name, rate in self._rates(fields).items() if rate is not None}
        return Telemetry(
            **self._fixed,
            **slow,
            **found,
            **self._fabric_facts(),
            memory_clock=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            # A GPU without such a sensor answers 0.
            memory_temperature=fields.get("memory_temperature") or None,
            throttle=throttle,
            ecc_corrected=fields.get("ecc_corrected"),
            ecc_uncorrected=fields.get("ecc_uncorrected"),
            retired_pages=known_sum(map(fields.get, ("retired_corrected", "retired_uncorrected"))),
            remapped_rows=known_sum(map(fields.get, ("remapped_corrected", "remapped_uncorrected"))),
            xid=xid,
            xid_at=xid_at,
            energy=None if energy is None else energy / 1000,
        )

    def read_table(self, throttle: tuple[str, ...] | None) -> Telemetry:
        """Return the facts that have a column in the device table, without counters or
        samples. Raise GoneError."""
        if self._last is not None:
            # A page has closed: its counters would not span one second when the next page opens.
            self.rest()
        self._read_fixed()
        return Telemetry(**self._fixed, **self._slow_facts(self._ticks()), throttle=throttle)

    def _slow_facts(self, now: float) -> Facts:
        if self._slow is None or not 0 <= now - self._slow[0] < SLOW:
            self._slow = now, self._read_slow()
        return self._slow[1]

    def sm(self) -> Mapping[int, int] | None:
        """Return percent of the multiprocessors' time by pid; None where the driver does not report it.

        A process without a sample has done nothing.
        """
        now = self._ticks()
        samples = self._process_samples()
        if samples is None:
            return None
        for sample in sorted(samples, key=lambda each: each.timeStamp):
            self._since = max(self._since, sample.timeStamp)
            # Some drivers leave entries that belong to no process.
            if sample.pid and sample.smUtil <= 100:
                self._sm[sample.pid] = sample.smUtil, now
        self._sm = {pid: found for pid, found in self._sm.items() if 0 <= now - found[1] <= _SM_STAYS}
        return {pid: percent for pid, (percent, _) in self._sm.items()}

    def rest(self) -> None:
        """Stop the counters, because nobody looks: the next reading is a first reading. XIDs
        are still collected."""
        self._last = self._slow = self._fabric = None
        self._counted.clear()
        self._sm.clear()
        if self._gpm is not None:
            self._gpm.rest()

    def close(self) -> None:
        """Release the NVML resources."""
        if self._gpm is not None:
            self._gpm.close()
        if self._events is not None:
            self._stop_listening()

    def _stop_listening(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(self._events)
        self._events = None

    def _read_fixed(self) -> None:
        """Read the facts that never change, unless they are known already."""
        nvml, handle, ask = self._nvml, self._handle, self._ask
        threshold = nvml.nvmlDeviceGetTemperatureThreshold
        for name, function, *arguments in (
            ("slowdown_temperature", threshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            ("shutdown_temperature", threshold, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
            ("max_pcie_generation", nvml.nvmlDeviceGetMaxPcieLinkGeneration),
            ("max_pcie_width", nvml.nvmlDeviceGetMaxPcieLinkWidth),
            ("max_memory_clock", nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        ):
            if self._fixed.get(name) is None:
                self._fixed[name] = ask(function, handle, *arguments)

    def _fabric_facts(self) -> Facts:
        """Return the place of the GPU in its NVLink fabric. Once known, it stays while the page is open."""
        if self._fabric is not None:
            return self._fabric
        nvml = self._nvml
        for name, kind in (
            ("nvmlDeviceGetGpuFabricInfoV", nvml.c_nvmlGpuFabricInfoV_t),
            # Of drivers before R545.
            ("nvmlDeviceGetGpuFabricInfo", nvml.c_nvmlGpuFabricInfo_t),
        ):
            found = kind()
            if self._ask(getattr(nvml, name), self._handle, byref(found)) is not None:
                break
        else:
            return {}
        if not 0 < found.state < len(NVLINK_FABRICS):
            return {}
        facts: Facts = {"nvlink_fabric": NVLINK_FABRICS[found.state - 1]}
        if facts["nvlink_fabric"] == "ready":
            # The field itself is text in older bindings, and would end at the first zero.
            domain = uuid.UUID(bytes=bytes(found)[kind.clusterUuid.offset :][:16])
            if found.status != _SUCCESS:
                facts["nvlink_fabric"] = "failed"
            elif domain.int:
                # Zeros: the NVLinks end in this box.
                facts |= {"nvlink_domain": str(domain), "nvlink_clique": found.cliqueId}
            self._fabric = facts
        return facts

    def _read_slow(self) -> Facts:
        """Read the facts that need not be followed every second. The fan alone takes 0.14 ms."""
        nvml, handle, ask = self._nvml, self._handle, self._ask
        encoder = ask(nvml.nvmlDeviceGetEncoderUtilization, handle)
        decoder = ask(nvml.nvmlDeviceGetDecoderUtilization, handle)
        persistence = ask(nvml.nvmlDeviceGetPersistenceMode, handle)
        return {
            "encoder": encoder[0] if encoder else None,
            "decoder": decoder[0] if decoder else None,
            "fan": ask(nvml.nvmlDeviceGetFanSpeed, handle),
            "performance_state": self._performance_state(),
            "persistence": None if persistence is None else bool(persistence),
            "pcie_generation": ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_width": ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        }

    def _performance_state(self) -> int | None:
        state = self._ask(self._nvml.nvmlDeviceGetPerformanceState, self._handle)
        # 32 is "unknown" (nvmlPstates_t).
        return state if state is not None and 0 <= state <= 15 else None

    def _read_fields(self) -> dict[str, int]:
        """Return all fields in one call; fields that this GPU does not have are left out for a while."""
        if not self._fields:
            return {}
        names = list(self._fields)
        values = self._ask(self._nvml.nvmlDeviceGetFieldValues, self._handle, list(self._fields.values()))
        found: dict[str, int] = {}
        for name, value in zip(names, values or (), strict=False):
            if value.nvmlReturn == _SUCCESS and 0 <= value.valueType < len(_VALUE):
                found[name] = int(getattr(value.value, _VALUE[value.valueType]))
            elif value.nvmlReturn == _NOT_SUPPORTED:
                del self._fields[name]
        return found

    def _rates(self, fields: Mapping[str, int]) -> dict[str, float | None]:
        """Return bytes per second since the previous reading."""
        now = self._ticks()
        units = {"pcie_sent": 1, "pcie_received": 1, "nvlink_sent": _KIB, "nvlink_received": _KIB}
        found: dict[str, float | None] = {}
        for name, unit in units.items():
            if name not in fields:
                continue
            count = fields[name]
            if name in self._counted:
                at, before = self._counted[name]
                more = count - before
                if more < 0 and before < _WRAPS_AT:
                    more += _WRAPS_AT
                found[name] = more * unit / (now - at) if now > at and more >= 0 else None
            self._counted[name] = now, count
        return found

    def _last_xid(self) -> tuple[int, float] | None:
        """Return the last error that the driver has reported since registration, and when it arrived."""
        nvml = self._nvml
        if self._events is None and self._ticks() >= self._listens_at and not self._listen():
            self._listens_at = self._ticks() + AGAIN
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError as error:
                if error.value != _TIMEOUT:
                    # The other calls report whether the GPU is lost.
                    self._stop_listening()
                    self._listens_at = self._ticks() + AGAIN
                break
            if event.eventType & nvml.nvmlEventTypeXidCriticalError:
                self._xid = int(event.eventData), self._clock()
        return self._xid

    def _listen(self) -> bool:
        """Register for XIDs. Return False where there are no such events now."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            try:
                nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError:
                with contextlib.suppress(nvml.NVMLError):
                    nvml.nvmlEventSetFree(events)
                return False
        except nvml.NVMLError:
            return False
        self._events = events
        return True

    def _process_samples(self) -> list[Any] | None:
        """Return the samples since the last one seen, [] for none; None where the driver does
        not report them."""
        nvml = self._nvml

        def since() -> Any:
            try:
                return nvml.nvmlDeviceGetProcessUtilization(self._handle, self._since)
            except nvml.NVMLError as error:
                # nvidia-ml-py raises "success" where the driver has no samples.
                if error.value in (_SUCCESS, _NOT_FOUND):
                    return []
                raise

        since.__name__ = "nvmlDeviceGetProcessUtilization"
        found: list[Any] | None = self._ask(since)
        return found


class Gpm:
    """The performance monitor (Hopper and newer): the metrics between two of its samples.

    Of a GPU, or of the MIG instance with the driver's number `instance`; `handle` is the GPU's in both cases.
    """

    def __init__(self, nvml: Any, handle: Any, ask: Ask, instance: int | None = None) -> None:
        self._nvml, self._ask = nvml, ask
        self._take: tuple[Any, ...] = (nvml.nvmlGpmSampleGet, handle)
        if instance is not None:
            self._take = nvml.nvmlGpmMigSampleGet, handle, instance
        support = ask(nvml.nvmlGpmQueryDeviceSupport, handle)
        self.works = bool(support and support.isSupportedDevice)
        self._before: Any = None
        self._spare: Any = None
        of_gpu = (
            ("pcie_sent", nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, MIB),
            ("pcie_received", nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, MIB),
            ("nvlink_sent", nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, MIB),
            ("nvlink_received", nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, MIB),
        )
        self._metrics = (
            ("sm_active", nvml.NVML_GPM_METRIC_SM_UTIL, 1),
            ("sm_occupancy", nvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1),
            ("tensor_active", nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 1),
            # The traffic of the links is the GPU's; its utilization is read elsewhere.
            *(of_gpu if instance is None else [("utilization", nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, 1)]),
        )

    def read(self) -> dict[str, float]:
        """Return the metrics since the previous sample; {} at the first sample."""
        nvml, ask = self._nvml, self._ask
        if not self.works:
            return {}
        sample = self._spare = self._spare or self._new_sample()
        if sample is None or ask(*self._take, sample) is None:
            return {}
        before, self._before, self._spare = self._before, sample, None
        if before is None:
            return {}
        self._spare = before
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(self._metrics)
        asked.sample1, asked.sample2 = before, sample
        for place, (_, metric, _) in enumerate(self._metrics):
            asked.metrics[place].metricId = metric
        try:
            answer = nvml.nvmlGpmMetricsGet(asked)
        except nvml.NVMLError:
            # This call is not about a device, so no answer marks a device as lost.
            return {}
        values = zip(self._metrics, answer.metrics, strict=False)
        return {
            name: each.value * unit
            for (name, _, unit), each in values
            if each.nvmlReturn == _SUCCESS and math.isfinite(each.value) and each.value >= 0
        }

    def _new_sample(self) -> Any:
        try:
            return self._nvml.nvmlGpmSampleAlloc()
        except self._nvml.NVMLError:
            return None

    def rest(self) -> None:
        """Make the next sample a first one."""
        self._spare, self._before = self._spare or self._before, None

    def close(self) -> None:
        for sample in (self._before, self._spare):
            if sample is not None:
                with contextlib.suppress(self._nvml.NVMLError):
                    self._nvml.nvmlGpmSampleFree(sample)
        self._before = self._spare = None
        self.works = False
