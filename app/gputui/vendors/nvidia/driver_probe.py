"""What the CUDA driver itself shows to any program of an environment.

`checking/scripts/probe.py` runs it in the interpreter that will train, and `driver_process.py` runs it in a
child process. It never runs in gputui's own process.

This file must run on Python 3.8 and newer with nothing installed.
"""

from __future__ import annotations

import ctypes
import runpy
from pathlib import Path
from typing import Any

_SHARED = runpy.run_path(str(Path(__file__).resolve().parents[1] / "asked_driver.py"))


def driver() -> dict[str, Any]:
    """Return the devices that the CUDA driver shows to a program here; `code` is its CUresult."""
    functions = _SHARED["Functions"](
        version="cuDriverGetVersion",
        initialize="cuInit",
        device_count="cuDeviceGetCount",
        device="cuDeviceGet",
        bus="cuDeviceGetPCIBusId",
        name="cuDeviceGetName",
        memory="cuDeviceTotalMem_v2",
    )
    found: dict[str, Any] = _SHARED["driver"](lambda: ctypes.CDLL("libcuda.so.1"), functions, _uuid)
    return found


def _uuid(cuda: Any, device: Any) -> str | None:
    """Return a MIG instance's own UUID by version 2 of the function (CUDA 11.4), else the GPU's."""
    found = (ctypes.c_ubyte * 16)()
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if hasattr(cuda, name) and getattr(cuda, name)(ctypes.byref(found), device) == 0:
            digits = bytes(found).hex()
            parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
            return "-".join(parts)
    return None
