"""Boxes with GPUs of several models, for `tests/simnvml` and `tests/simcuda`."""

from __future__ import annotations

from dataclasses import replace

from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.spec import Box, Gpu, uniform
from unit.builders import NOW
from unit.simulated_gpus import A100, NO_NUMA, RTX_3090_GPU, RTX_4090_GPU

T400 = Gpu(
    name="NVIDIA T400 4GB",
    cores=384,
    memory=4096,
    bus="",
    capability="7.5",
    power_limit=30,
    clock=1425,
    unsupported=NO_NUMA,
)
A6000 = Gpu(
    name="NVIDIA RTX A6000",
    cores=10752,
    memory=49140,
    bus="",
    capability="8.6",
    power_limit=300,
    clock=1800,
    unsupported=NO_NUMA,
)


def idle_box(*gpus: Gpu, link: str = "PHB") -> Box:
    """An idle box with these GPUs in this order."""
    return Box(
        name="unlike",
        about="",
        host="mixed-bag",
        driver="570.86.16",
        cuda="12.8",
        gpus=tuple(replace(gpu, bus=f"{place + 1:02X}:00.0", numa=None) for place, gpu in enumerate(gpus)),
        links=uniform(len(gpus), link),
    )


def seen(box: Box) -> Snapshot:
    """The box as a demo shows it: every fact is read except those of CUDA itself."""
    return at(box, 0, NOW)


CLEAR = idle_box(T400, RTX_4090_GPU, RTX_3090_GPU)
"""Each GPU is faster than the next by every fact: the 4090 (1), the 3090 (2), the T400 (0)."""

UNCLEAR = idle_box(A100, T400, RTX_4090_GPU)
"""An A100 has more memory than a 4090, and is older and slower by its clock: the first one in CUDA's order is
unknown. The T400 is the last in any case."""

TWINS = idle_box(RTX_3090_GPU, RTX_4090_GPU, RTX_4090_GPU, A6000)
"""With two equal GPUs among others, the first one of them in CUDA's order is unknown."""
