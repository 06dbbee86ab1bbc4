"""The GPUs that several simulated boxes have: sizes, clocks and limits are those of the real products."""

from __future__ import annotations

from gputui.inventory.light_dataclasses import replace
from gputui.sources.simulated.spec import Gpu

NO_NUMA = frozenset({"numa_node"})

H100 = Gpu(
    name="NVIDIA H100 80GB HBM3",
    cores=16896,
    generation=5,
    memory=81559,
    bus="",
    capability="9.0",
    power_limit=700,
    clock=1980,
    idle_power=68,
)
V100 = Gpu(
    name="Tesla V100-SXM2-32GB",
    cores=5120,
    generation=3,
    memory=32768,
    bus="",
    capability="7.0",
    power_limit=300,
    clock=1530,
    idle_power=43,
)
RTX_3090_GPU = Gpu(
    name="NVIDIA GeForce RTX 3090",
    cores=10496,
    memory=24576,
    bus="",
    capability="8.6",
    power_limit=350,
    clock=1695,
    idle_power=24,
    unsupported=NO_NUMA,
)
RTX_4090_GPU = Gpu(
    name="NVIDIA GeForce RTX 4090",
    cores=16384,
    memory=24564,
    bus="",
    capability="8.9",
    power_limit=450,
    clock=2520,
    idle_power=18,
)
_UNTOLD = frozenset(
    {
        *("mig", "compute_mode", "display", "unified", "throttled", "switched"),
        *("encoder", "decoder", "fan", "shutdown_temperature", "throttle"),
        *("performance_state", "persistence"),
        *("remapped_rows", "pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received"),
        *("sm_active", "sm_occupancy", "tensor_active", "sm"),
    }
)
"""What the kernel's files do not tell of AMD's GPUs."""

MI300X = Gpu(
    name="AMD Instinct MI300X",
    cores=19456,
    generation=5,
    memory=196592,
    bus="",
    capability="gfx942",
    power_limit=750,
    clock=2100,
    idle_power=138,
    reserve=283,
    pci_id="1002:74a1",
    unsupported=_UNTOLD,
)
MI300X_PARTITION = replace(
    MI300X,
    memory=24574,
    cores=2432,
    reserve=0,
    unsupported=_UNTOLD
    | {"utilization", "memory_utilization", "temperature", "power", "power_limit", "sm_clock", "telemetry"},
)
"""One of eight (CPX): the sensors are the whole GPU's."""
_UNTOLD_ELSEWHERE = frozenset(
    {"telemetry", "mig", "compute_mode", "display", "throttled", "switched", "memory_utilization", "sm"}
)
"""What xe, hl-smi and ioreg do not tell."""

MAX_1550_TILE = Gpu(
    name="Intel Data Center GPU Max 1550",
    generation=5,
    memory=65_536,
    bus="",
    capability="",
    power_limit=None,
    clock=1600,
    idle_power=0,
    reserve=34,
    pci_id="8086:0bd5",
    has_uuid=False,
    unified=False,
    unsupported=_UNTOLD_ELSEWHERE | {"temperature", "power", "power_limit"},
)
"""One of two, a device of its own under Level Zero's default (FLAT); the sensors are the card's."""

ARC_B580 = Gpu(
    name="Intel Arc B580",
    memory=12_216,
    bus="",
    capability="",
    power_limit=190,
    clock=2850,
    idle_power=35,
    reserve=33,
    pci_id="8086:e20b",
    has_uuid=False,
    unified=False,
    unsupported=_UNTOLD_ELSEWHERE | NO_NUMA,
)
UHD = Gpu(
    name="Intel UHD Graphics 770",
    memory=0,
    bus="00:02.0",
    capability="",
    power_limit=None,
    clock=1650,
    idle_power=0,
    pci_id="8086:a780",
    has_uuid=False,
    apart="integrated",
    unified=True,
    unsupported=_UNTOLD_ELSEWHERE
    | {"numa_node", "power", "power_limit", "temperature", "memory_total", "memory_used", "memory_free"},
)
GAUDI_3 = Gpu(
    name="HL-325L",
    generation=5,
    memory=131_072,
    bus="",
    capability="",
    power_limit=850,
    clock=0,
    idle_power=226,
    reserve=672,
    idle_memory=672,
    unified=False,
    unsupported=_UNTOLD_ELSEWHERE | {"sm_clock", "processes"},
)
"""hl-smi names no processes of other users."""

M3_MAX = Gpu(
    name="Apple M3 Max",
    cores=40,
    memory=65_536,
    bus="",
    capability="",
    power_limit=None,
    clock=0,
    idle_power=0,
    reserve=410,
    has_uuid=False,
    unified=True,
    unsupported=_UNTOLD_ELSEWHERE
    | {"numa_node", "memory_free", "temperature", "power", "power_limit", "sm_clock"},
)
A100 = Gpu(
    name="NVIDIA A100-SXM4-80GB",
    cores=6912,
    memory=81920,
    bus="",
    capability="8.0",
    power_limit=400,
    clock=1410,
    idle_power=52,
)
