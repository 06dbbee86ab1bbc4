"""What Level Zero itself shows to any program of an environment.

It runs in the interpreter that will train, or in a confined one. Structures and numbers are those of ze_api.h
(1.0 and later; the place on the bus: extension 1.0 of 1.1).

This file must run on Python 3.8 and newer with nothing installed.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int32, c_int64, c_ubyte, c_uint32, c_uint64, c_void_p
from typing import Any

_GPU_ONLY, _MOST = 1, 4096
"""ZE_INIT_FLAG_GPU_ONLY, and the most devices of a driver."""
_OF_DEVICE, _OF_PCI = 0x3, 0x10008
"""ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES."""


class _Device(ctypes.Structure):
    """ze_device_properties_t; numbers that are not used are not named."""

    _fields_ = [
        ("stype", c_uint32),
        ("next", c_void_p),
        ("numbers", c_uint32 * 6),
        ("most_allocated", c_uint64),
        ("more_numbers", c_uint32 * 7),
        ("timer", c_uint64),
        ("valid_bits", c_uint32 * 2),
        ("uuid", c_ubyte * 16),
        ("name", c_char * 256),
    ]


class _Pci(ctypes.Structure):
    """ze_pci_ext_properties_t."""

    _fields_ = [
        ("stype", c_uint32),
        ("next", c_void_p),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("speed", c_int32 * 2),
        ("bandwidth", c_int64),
    ]


def driver() -> dict[str, Any]:
    """Return Level Zero's devices in its own order; `code` is its ze_result_t."""
    found: dict[str, Any] = {"error": None, "code": None, "version": None, "devices": []}
    try:
        library = ctypes.CDLL("libze_loader.so.1")
        code = library.zeInit(_GPU_ONLY)
        if code:
            found["code"], found["error"] = code, f"Level Zero does not start: zeInit returns {code:#x}"
            return found
        for one in _handles(library.zeDriverGet):
            found["devices"] += [_told(library, each) for each in _handles(library.zeDeviceGet, one)]
    except (AttributeError, ValueError, OSError) as error:
        found["error"] = str(error)[:500]
    return found


def _handles(ask: Any, *of: Any) -> list[c_void_p]:
    """Return the handles that a function gives; its first call gets their number."""
    count = c_uint32()
    if ask(*of, ctypes.byref(count), None) or not count.value:
        return []
    handles = (c_void_p * min(count.value, _MOST))()
    code = ask(*of, ctypes.byref(count), handles)
    return [] if code else [c_void_p(each) for each in handles[: count.value]]


def _told(library: Any, handle: c_void_p) -> dict[str, Any]:
    own, place = _Device(stype=_OF_DEVICE), _Pci(stype=_OF_PCI)
    known = library.zeDeviceGetProperties(handle, ctypes.byref(own)) == 0
    # Loaders before 1.1 lack this function.
    placed = hasattr(library, "zeDevicePciGetPropertiesExt") and (
        library.zeDevicePciGetPropertiesExt(handle, ctypes.byref(place)) == 0
    )
    bus = f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.{place.function:x}"
    return {
        "uuid": bytes(own.uuid).hex() if known else None,
        "bus": bus if placed else None,
        "name": own.name.decode("utf-8", "replace") if known else None,
        "memory": None,
    }
