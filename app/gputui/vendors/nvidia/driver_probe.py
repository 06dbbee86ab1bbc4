"""What the CUDA driver itself gives to any program of an environment: run by the interpreter that will train.

Loaded by `checking/scripts/probe.py`, never by gputui. The driver is only counted: nothing is asked for that
needs a CUDA context, so that no memory is taken from whoever is there.

This file must run on Python 3.8 and newer with nothing installed.
"""

from __future__ import annotations

import ctypes
from typing import Any


def driver() -> dict[str, Any]:
    """What the CUDA driver itself gives to any program of this environment."""
    found: dict[str, Any] = {"error": None, "code": None, "version": None, "devices": []}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        found["error"] = _line(error)
        return found
    try:
        version = ctypes.c_int()
        if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
            found["version"] = version.value
        count = ctypes.c_int()
        code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
        if code:
            found["code"] = code
            return found
        for place in range(count.value):
            found["devices"].append(_of_driver(cuda, place))
    except (AttributeError, ValueError, OSError) as error:
        found["error"] = _line(error)
    return found


def _of_driver(cuda: Any, place: int) -> dict[str, Any]:
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), place):
        return {"uuid": None, "bus": None, "name": None, "memory": None}
    bus, name = ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    has_bus = cuda.cuDeviceGetPCIBusId(bus, len(bus), device) == 0
    has_name = cuda.cuDeviceGetName(name, len(name), device) == 0
    has_memory = cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device) == 0
    return {
        "uuid": _uuid(cuda, device),
        "bus": bus.value.decode("ascii", "replace") if has_bus else None,
        "name": name.value.decode("utf-8", "replace") if has_name else None,
        "memory": memory.value if has_memory else None,
    }


def _uuid(cuda: Any, device: Any) -> str | None:
    """A MIG instance's own UUID by version 2 of the function (CUDA 11.4), else the GPU's."""
    found = (ctypes.c_ubyte * 16)()
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if hasattr(cuda, name) and getattr(cuda, name)(ctypes.byref(found), device) == 0:
            digits = bytes(found).hex()
            parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
            return "-".join(parts)
    return None


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (type(error).__name__ + ": " + lines[0])[:500] if lines else type(error).__name__
