"""The facts that amdgpu reports about one GPU in sysfs: its identity, memory, load and sensors.

Sources: Documentation/gpu/amdgpu/driver-misc.rst and thermal.rst.
"""

from __future__ import annotations

import re

from gputui.inventory.device import Facts
from gputui.system.drm import GpuFiles
from gputui.vendors.amd import metrics

_CURRENT_CLOCK = re.compile(r"^\d+:\s*(\d{1,6})\s*M[Hh]z\s*\*", re.MULTILINE)
_STATES = re.compile(r"^\d+:\s*(\d{1,6})\s*M[Hh]z", re.MULTILINE)


class AmdCard(GpuFiles):
    """One GPU's files."""

    own_bridges = frozenset({"1002:1478", "1002:1479", "1022:1500"})
    """The bridges of Navi and of MI300X."""

    @property
    def revision(self) -> str | None:
        number = self._root.number(f"{self.card.folder}/revision", 16)
        return None if number is None else f"{number & 0xFF:02x}"

    @property
    def unique_id(self) -> int:
        return self._root.number(f"{self.card.folder}/unique_id", 16) or 0

    @property
    def integrated(self) -> bool:
        """Whether it is part of a processor.

        Only those have a sensor of the north bridge's voltage (amdgpu_pm.c, hwmon_attributes_visible).
        MI300A, which is made for training, has none.
        """
        return ("in", "vddnb") in self.sensors.labels

    @property
    def has_numa_node(self) -> bool:
        """Whether the kernel reports a NUMA node at all; it reports -1 where there is none."""
        return self._root.number(f"{self.card.folder}/numa_node") is not None

    @property
    def partitioned(self) -> bool:
        """Whether the GPU is divided into compute partitions."""
        return (self.text("current_compute_partition") or "SPX") != "SPX"

    def memory(self) -> tuple[int | None, int | None]:
        """Return the bytes of the GPU's own memory: total and in use."""
        return self.number("mem_info_vram_total"), self.number("mem_info_vram_used")

    def load(self) -> Facts:
        """Return the utilization of the GPU and of its memory, percent. A sleeping GPU runs
        nothing; it is not woken."""
        if self.asleep:
            return {"utilization": 0, "memory_utilization": None}
        return {
            "utilization": _percent(self.number("gpu_busy_percent")),
            "memory_utilization": _percent(self.number("mem_busy_percent")),
        }

    def _sensed(self, now: float) -> Facts:
        power = self.sensors.number("power1_average", "power1_input")
        limit = self.sensors.number("power1_cap")
        return {
            "temperature": self.temperature("edge", "junction"),
            "power": None if power is None else power / 1e6,
            "power_limit": None if not limit else limit / 1e6,
            "sm_clock": self._clock(),
        }

    def _clock(self) -> int | None:
        found = _CURRENT_CLOCK.search(self.text("pp_dpm_sclk") or "")
        if found:
            return int(found[1])
        hertz = self.sensors.labelled("freq", ("sclk",))
        if hertz is None and not self.sensors.labels:
            hertz = self.sensors.number("freq1_input")
        return None if hertz is None else round(hertz / 1e6)

    def max_clock(self) -> int | None:
        """Return the highest clock of the GPU, MHz."""
        return max((int(mhz) for mhz in _STATES.findall(self.text("pp_dpm_sclk") or "")), default=None)

    def telemetry(self) -> Facts:
        """Return the facts that its page shows in addition to the table (`Telemetry`)."""
        if self.asleep:
            return {}
        sensors = self.sensors

        def heat(suffix: str, *labels: str) -> int | None:
            found = sensors.labelled("temp", labels, suffix)
            return None if found is None else round(found / 1000)

        # `Device.temperature` is the edge's where there is one, else the junction's.
        hottest = ("junction",) if ("temp", "edge") in sensors.labels else ()
        fan, full = sensors.number("pwm1"), sensors.number("pwm1_max") or 255
        clocks = self.text("pp_dpm_mclk") or ""
        memory_clock = _CURRENT_CLOCK.search(clocks)
        table = self._root.bytes(f"{self.card.folder}/gpu_metrics", 4096) or b""
        corrected, uncorrected = self._errors()
        (generation, lanes), (most, most_lanes) = self.link("current"), self.link()
        return {
            "memory_clock": int(memory_clock[1]) if memory_clock else None,
            "max_memory_clock": max(map(int, _STATES.findall(clocks)), default=None),
            "fan": None if fan is None or fan < 0 else min(100, round(100 * fan / max(full, 1))),
            "memory_temperature": heat("_input", "mem"),
            "memory_slowdown_temperature": heat("_crit", "mem"),
            "slowdown_temperature": heat("_crit", "edge", "junction"),
            "shutdown_temperature": heat("_emergency", "edge", "junction"),
            "hotspot_temperature": heat("_input", *hottest),
            "hotspot_slowdown_temperature": heat("_crit", *hottest),
            "throttle": metrics.throttle(table),
            "energy": metrics.energy(table),
            "ecc_corrected": corrected,
            "ecc_uncorrected": uncorrected,
            "retired_pages": self._bad_pages(),
            "pcie_generation": generation,
            "pcie_width": lanes,
            "max_pcie_generation": most,
            "max_pcie_width": most_lanes,
        }

    def _errors(self) -> tuple[int | None, int | None]:
        """Return the corrected and uncorrected errors of the memory (amdgpu-ras: "ue: 0", "ce: 2").

        None where the GPU has no ECC.
        """
        text = self.text("ras/umc_err_count") or ""
        found = {name: int(count) for name, count in _ERRORS.findall(text)}
        return found.get("ce"), found.get("ue")

    def _bad_pages(self) -> int | None:
        """Return the number of memory pages that are retired for good, or will be (one line
        each, of three columns)."""
        text = self.text("ras/gpu_vram_bad_pages")
        if text is None:
            return 0 if self._root.has(f"{self.card.folder}/ras/gpu_vram_bad_pages") else None
        return sum(line.count(":") == 2 for line in text.splitlines())


_ERRORS = re.compile(r"^(ue|ce):\s*(\d{1,18})$", re.MULTILINE)


def _percent(number: int | None) -> int | None:
    return number if number is not None and number <= 100 else None
