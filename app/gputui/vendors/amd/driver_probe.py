"""What HIP itself gives to any program of an environment: run by the interpreter that will train.

Loaded by `checking/scripts/probe.py`, never by gputui. Devices are only counted and asked who they are, which
takes none of their memory. A framework brings a HIP of its own: where one is loaded already, that one is
asked, as two of them in one process get in each other's way.

This file must run on Python 3.8 and newer with nothing installed.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

_LIBRARY = "libamdhip64.so"
_NAMES = (_LIBRARY, f"{_LIBRARY}.7", f"{_LIBRARY}.6", f"{_LIBRARY}.5", f"/opt/rocm/lib/{_LIBRARY}")


def driver() -> dict[str, Any]:
    """HIP's devices (hip_runtime_api.h); `code` is its hipError_t."""
    found: dict[str, Any] = {"error": None, "code": None, "version": None, "devices": []}
    try:
        hip = _load()
    except OSError as error:
        found["error"] = _line(error)
        return found
    try:
        version = ctypes.c_int()
        if hip.hipRuntimeGetVersion(ctypes.byref(version)) == 0:
            found["version"] = version.value
        count = ctypes.c_int()
        code = hip.hipInit(0) or hip.hipGetDeviceCount(ctypes.byref(count))
        if code:
            found["code"] = code
            return found
        for place in range(count.value):
            found["devices"].append(_device(hip, place))
    except (AttributeError, ValueError, OSError) as error:
        found["error"] = _line(error)
    return found


def _load() -> Any:
    """The HIP that is loaded, else the system's. Raises OSError where there is none."""
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


def _device(hip: Any, place: int) -> dict[str, Any]:
    bus, name = ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
    memory, device = ctypes.c_size_t(), ctypes.c_int()
    uuid = (ctypes.c_ubyte * 16)()
    if hip.hipDeviceGet(ctypes.byref(device), place):
        return {"uuid": None, "bus": None, "name": None, "memory": None}
    has_uuid = hasattr(hip, "hipDeviceGetUuid") and hip.hipDeviceGetUuid(ctypes.byref(uuid), device) == 0
    has_bus = hip.hipDeviceGetPCIBusId(bus, len(bus), place) == 0
    has_name = hip.hipDeviceGetName(name, len(name), device) == 0
    has_memory = hip.hipDeviceTotalMem(ctypes.byref(memory), device) == 0
    return {
        # (All zero of a GPU that has none.)
        "uuid": bytes(uuid).hex() if has_uuid and any(uuid) else None,
        "bus": bus.value.decode("ascii", "replace") if has_bus else None,
        "name": name.value.decode("utf-8", "replace") if has_name else None,
        "memory": memory.value if has_memory else None,
    }


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (type(error).__name__ + ": " + lines[0])[:500] if lines else type(error).__name__
