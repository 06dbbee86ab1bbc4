"""A simulated CUDA driver for the tests: a libcuda.so.1 that shows the box of the simulated NVML to a
program.

It lists the devices that a program sees under CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, and does nothing
else: no context, no memory, no kernel. It is written from the documentation, not from a driver's behaviour.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from simcuda.building import LIBRARY, build

__all__ = ["LIBRARY", "build", "environment"]


def environment(base: Mapping[str, str], library: Path, init: int = 0) -> dict[str, str]:
    """`base`, the environment of a simulated NVML, with the variables that lead a program to the simulated
    CUDA too.

    `init` is a CUresult that the driver returns instead of starting.
    """
    before = base.get("LD_LIBRARY_PATH")
    path = os.pathsep.join([str(library.parent), *([before] if before else [])])
    return {**base, "LD_LIBRARY_PATH": path, "SIMCUDA_INIT": str(init)}
