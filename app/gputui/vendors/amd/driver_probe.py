"""What HIP itself shows to any program of an environment.

`checking/scripts/probe.py` runs it in the interpreter that will train, and `driver_process.py` runs it in a
child process. It never runs in gputui's own process. A framework ships its own HIP: if one is already loaded,
that one is used, because two of them in one process get in each other's way.

This file must run on Python 3.8 and newer with nothing installed.
"""

from __future__ import annotations

import ctypes
import re
import runpy
from pathlib import Path
from typing import Any

_SHARED = runpy.run_path(str(Path(__file__).resolve().parents[1] / "asked_driver.py"))
_LIBRARY = "libamdhip64.so"
_NAMES = (_LIBRARY, f"{_LIBRARY}.7", f"{_LIBRARY}.6", f"{_LIBRARY}.5", f"/opt/rocm/lib/{_LIBRARY}")


def driver() -> dict[str, Any]:
    """Return HIP's devices (hip_runtime_api.h); `code` is its hipError_t."""
    functions = _SHARED["Functions"](
        version="hipRuntimeGetVersion",
        initialize="hipInit",
        device_count="hipGetDeviceCount",
        device="hipDeviceGet",
        bus="hipDeviceGetPCIBusId",
        name="hipDeviceGetName",
        memory="hipDeviceTotalMem",
    )
    found: dict[str, Any] = _SHARED["driver"](_load, functions, _uuid)
    return found


def _load() -> Any:
    """Return the HIP that is loaded, else the system's. Raise OSError where there is none."""
    failed = OSError(f"{_LIBRARY}: not found")
    for name in (*_loaded(), *_NAMES):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            failed = error if name == _LIBRARY else failed
    raise failed


def _loaded() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return re.findall(r"(/\S*libamdhip64\.so\S*)$", maps, re.MULTILINE)[:1]


def _uuid(hip: Any, device: Any) -> str | None:
    found = (ctypes.c_ubyte * 16)()
    asked = hasattr(hip, "hipDeviceGetUuid") and hip.hipDeviceGetUuid(ctypes.byref(found), device) == 0
    # All bytes are zero for a GPU that has no UUID.
    return bytes(found).hex() if asked and any(found) else None
