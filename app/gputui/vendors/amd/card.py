"""What amdgpu tells of one GPU in sysfs: who it is, its memory, its load and its sensors.

(Documentation/gpu/amdgpu/driver-misc.rst and thermal.rst.)
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from gputui.system.drm import Card, Sensors, asleep
from gputui.system.pci_tree import outermost_bridge
from gputui.system.root import Root
from gputui.vendors.amd import metrics

_OWN_BRIDGES = frozenset({"1002:1478", "1002:1479", "1022:1500"})
"""PCIe bridges on the card itself: of Navi, and of MI300X."""

_CURRENT_CLOCK = re.compile(r"^\d+:\s*(\d{1,6})\s*M[Hh]z\s*\*", re.MULTILINE)
_STATES = re.compile(r"^\d+:\s*(\d{1,6})\s*M[Hh]z", re.MULTILINE)


class AmdCard:
    """One GPU's files. Facts that never change are read once."""

    def __init__(self, root: Root, card: Card) -> None:
        self._root, self.card = root, card
        self._sensors: Sensors | None = None

    def _text(self, name: str) -> str | None:
        return self._root.text(f"{self.card.folder}/{name}") or None

    def number(self, name: str) -> int | None:
        """A whole number; None also for a negative one, which stands for no answer."""
        found = self._root.number(f"{self.card.folder}/{name}")
        return found if found is not None and found >= 0 else None

    @property
    def sensors(self) -> Sensors:
        if self._sensors is None:
            self._sensors = Sensors(self._root, self.card)
        return self._sensors

    @property
    def revision(self) -> str | None:
        number = self._root.number(f"{self.card.folder}/revision", 16)
        return None if number is None else f"{number & 0xFF:02x}"

    @property
    def product(self) -> str | None:
        return self._text("product_name")

    @property
    def unique_id(self) -> int:
        return self._root.number(f"{self.card.folder}/unique_id", 16) or 0

    @property
    def integrated(self) -> bool:
        """Whether it is a part of a processor: only those have a sensor of the north bridge's voltage
        (amdgpu_pm.c, hwmon_attributes_visible; MI300A, which is one for training, has none)."""
        return ("in", "vddnb") in self.sensors.labels

    @property
    def numa_node(self) -> int | None:
        return self.number("numa_node")

    @property
    def has_numa_node(self) -> bool:
        """Whether the kernel tells at all; it says -1 where there is none."""
        return self._root.number(f"{self.card.folder}/numa_node") is not None

    @property
    def partitioned(self) -> bool:
        """Whether the GPU is divided into compute partitions."""
        return (self._text("current_compute_partition") or "SPX") != "SPX"

    def memory(self) -> tuple[int | None, int | None]:
        """Bytes of the GPU's own memory in all, and in use."""
        return self.number("mem_info_vram_total"), self.number("mem_info_vram_used")

    def load(self) -> dict[str, Any]:
        """Utilization of the GPU and of its memory, percent. A GPU that sleeps runs nothing, and is not
        woken."""
        if asleep(self._root, self.card):
            return {"utilization": 0, "memory_utilization": None}
        return {
            "utilization": _percent(self.number("gpu_busy_percent")),
            "memory_utilization": _percent(self.number("mem_busy_percent")),
        }

    def readings(self) -> dict[str, Any]:
        """Temperature (°C), power and its limit (W), clock (MHz); None for all of a GPU that sleeps."""
        if asleep(self._root, self.card):
            return dict.fromkeys(("temperature", "power", "power_limit", "sm_clock"))
        sensors = self.sensors
        heat = sensors.labelled("temp", ("edge", "junction"))
        if heat is None and not any(kind == "temp" for kind, _ in sensors.labels):
            # (Old kernels have one sensor, without a label.)
            heat = sensors.number("temp1_input")
        power = sensors.number("power1_average", "power1_input")
        limit = sensors.number("power1_cap")
        return {
            "temperature": None if heat is None else round(heat / 1000),
            "power": None if power is None else power / 1e6,
            "power_limit": None if not limit else limit / 1e6,
            "sm_clock": self._clock(),
        }

    def _clock(self) -> int | None:
        found = _CURRENT_CLOCK.search(self._text("pp_dpm_sclk") or "")
        if found:
            return int(found[1])
        hertz = self.sensors.labelled("freq", ("sclk",))
        if hertz is None and not self.sensors.labels:
            hertz = self.sensors.number("freq1_input")
        return None if hertz is None else round(hertz / 1e6)

    def max_clock(self) -> int | None:
        """The highest clock of the GPU, MHz."""
        return max((int(mhz) for mhz in _STATES.findall(self._text("pp_dpm_sclk") or "")), default=None)

    def is_own_bridge(self, folder: str) -> bool:
        """Whether a bridge of the PCI tree is on the card."""
        ids = (self._root.number(f"{folder}/{name}", 16) for name in ("vendor", "device"))
        return ":".join(f"{number or 0:04x}" for number in ids) in _OWN_BRIDGES

    def telemetry(self) -> dict[str, Any]:
        """What its page shows beyond the table (`Telemetry`)."""
        if asleep(self._root, self.card):
            return {}
        sensors = self.sensors
        memory_heat = sensors.labelled("temp", ("mem",))
        # (`Device.temperature` is the edge's where there is one, else the junction's.)
        critical, shutdown = (
            sensors.labelled("temp", ("edge", "junction"), suffix) for suffix in ("_crit", "_emergency")
        )
        edge = ("temp", "edge") in sensors.labels
        hottest, hottest_limit = (
            sensors.labelled("temp", ("junction",), suffix) if edge else None
            for suffix in ("_input", "_crit")
        )
        memory_limit = sensors.labelled("temp", ("mem",), "_crit")
        fan, full = sensors.number("pwm1"), sensors.number("pwm1_max") or 255
        memory_clock = _CURRENT_CLOCK.search(self._text("pp_dpm_mclk") or "")
        memory_clocks = _STATES.findall(self._text("pp_dpm_mclk") or "")
        table = self._root.bytes(f"{self.card.folder}/gpu_metrics", 4096) or b""
        corrected, uncorrected = self._errors()
        return {
            "memory_clock": int(memory_clock[1]) if memory_clock else None,
            "max_memory_clock": max(map(int, memory_clocks), default=None),
            "fan": None if fan is None or fan < 0 else min(100, round(100 * fan / max(full, 1))),
            "memory_temperature": _degrees(memory_heat),
            "memory_slowdown_temperature": _degrees(memory_limit),
            "slowdown_temperature": _degrees(critical),
            "shutdown_temperature": _degrees(shutdown),
            "hotspot_temperature": _degrees(hottest),
            "hotspot_slowdown_temperature": _degrees(hottest_limit),
            "throttle": metrics.throttle(table),
            "energy": metrics.energy(table),
            "ecc_corrected": corrected,
            "ecc_uncorrected": uncorrected,
            "retired_pages": self._bad_pages(),
            **self.link(),
        }

    def link(self) -> dict[str, int | None]:
        """Generation and lanes of the link to the slot, now and at most (`Telemetry`)."""
        link = self._link
        speeds = (
            self._root.text(f"{link}/{name}", 64) or "" for name in ("current_link_speed", "max_link_speed")
        )
        generation, most = (_GENERATIONS.get(speed.partition(" ")[0]) for speed in speeds)
        lanes, most_lanes = (
            self._root.number(f"{link}/{name}") for name in ("current_link_width", "max_link_width")
        )
        return {
            "pcie_generation": generation,
            "pcie_width": _lanes(lanes),
            "max_pcie_generation": most,
            "max_pcie_width": _lanes(most_lanes),
        }

    @cached_property
    def _link(self) -> str:
        """Where the link to the slot is told. A card with bridges of its own has it at the outermost of them:
        between those and the GPU there is another, which is never slower."""
        real = self._root.real(self.card.folder) if self.card.function is not None else None
        outermost = None if real is None else outermost_bridge(real, self.is_own_bridge)
        return outermost or self.card.folder

    def _errors(self) -> tuple[int | None, int | None]:
        """Errors of the memory, corrected ones and others (amdgpu-ras: "ue: 0", "ce: 2"); None where the GPU
        has no ECC."""
        text = self._text("ras/umc_err_count") or ""
        found = {name: int(count) for name, count in _ERRORS.findall(text)}
        return found.get("ce"), found.get("ue")

    def _bad_pages(self) -> int | None:
        """Pages of memory that are out of use for good, or will be (a line each, of three columns)."""
        text = self._text("ras/gpu_vram_bad_pages")
        if text is None:
            return 0 if self._root.has(f"{self.card.folder}/ras/gpu_vram_bad_pages") else None
        return sum(line.count(":") == 2 for line in text.splitlines())


_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s a lane of PCIe, as the kernel writes it."""


_ERRORS = re.compile(r"^(ue|ce):\s*(\d{1,18})$", re.MULTILINE)


def _degrees(thousandths: int | None) -> int | None:
    return None if thousandths is None else round(thousandths / 1000)


def _lanes(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= 32 else None


def _percent(number: int | None) -> int | None:
    return number if number is not None and number <= 100 else None
