"""The GPUs that several simulated boxes have: sizes, clocks and limits are those of the real products."""

from __future__ import annotations

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
