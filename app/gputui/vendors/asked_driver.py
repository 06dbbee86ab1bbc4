"""Code shared by the vendors' scripts that query a driver (`driver_probe`).

They run in the interpreter that will train, or in a child process of gputui. CUDA's driver and HIP have the
same functions under other names. The scripts only count and identify devices: they call nothing that needs a
context, so that they take no memory from the programs on the devices.

This file must run on Python 3.8 and newer with nothing installed; the scripts load it by its path.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple


class Functions(NamedTuple):
    """The names of an interface's functions. Each function returns 0 on success."""

    version: str
    initialize: str
    device_count: str
    device: str
    bus: str
    name: str
    memory: str


def driver(
    load: Callable[[], Any], functions: Functions, uuid: Callable[[Any, Any], str | None]
) -> dict[str, Any]:
    """Return what the library that `load` finds reports about its devices; `code` is its own error.

    `uuid` returns the UUID of a device.
    """
    found: dict[str, Any] = {"error": None, "code": None, "version": None, "devices": []}
    try:
        library = load()
    except OSError as error:
        found["error"] = _line(error)
        return found
    try:
        version, count = ctypes.c_int(), ctypes.c_int()
        if getattr(library, functions.version)(ctypes.byref(version)) == 0:
            found["version"] = version.value
        code = getattr(library, functions.initialize)(0) or getattr(library, functions.device_count)(
            ctypes.byref(count)
        )
        if code:
            found["code"] = code
            return found
        for place in range(count.value):
            found["devices"].append(_device(library, functions, uuid, place))
    except (AttributeError, ValueError, OSError) as error:
        found["error"] = _line(error)
    return found


def _device(
    library: Any, functions: Functions, uuid: Callable[[Any, Any], str | None], place: int
) -> dict[str, Any]:
    device = ctypes.c_int()
    if getattr(library, functions.device)(ctypes.byref(device), place):
        return {"uuid": None, "bus": None, "name": None, "memory": None}
    bus, name = ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    has_bus = getattr(library, functions.bus)(bus, len(bus), device) == 0
    has_name = getattr(library, functions.name)(name, len(name), device) == 0
    has_memory = getattr(library, functions.memory)(ctypes.byref(memory), device) == 0
    return {
        "uuid": uuid(library, device),
        "bus": bus.value.decode("ascii", "replace") if has_bus else None,
        "name": name.value.decode("utf-8", "replace") if has_name else None,
        "memory": memory.value if has_memory else None,
    }


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (type(error).__name__ + ": " + lines[0])[:500] if lines else type(error).__name__
