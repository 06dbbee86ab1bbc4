"""The memory of one GPU, which its driver reports through the render node: xe and i915 have no file for it.

The queries are DRM_IOCTL_XE_DEVICE_QUERY and DRM_IOCTL_I915_QUERY (Linux, include/uapi/drm/xe_drm.h and
i915_drm.h). A process without CAP_PERFMON gets the answer that nothing is in use: xe reports 0, and i915
reports that all memory is unallocated. No GPU is that empty, because the driver itself has memory there: that
answer means "not known".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

_XE_QUERY, _XE_REGIONS = 0xC0286440, 1
_I915_QUERY, _I915_REGIONS = 0xC0106479, 4
_DEVICE_MEMORY = 1
"""The class of a device's region in both drivers; 0 is the host's."""

_REGION = 88
_MOST = 1 << 16
_CARD_OF_XE, _CARD_OF_I915 = 8, 16
"""Bytes before the first region."""

Sizes = tuple[int, int | None]
"""Bytes in total and in use (None: not reported) of one region, which is a tile."""


def ask(render: str, driver: str) -> tuple[Sizes, ...]:
    """Return the regions of the GPU behind "renderD128" on this machine; () where it cannot be queried."""
    try:
        handle = os.open(f"/dev/dri/{render}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        return of_xe(_xe(handle)) if driver == "xe" else of_i915(_i915(handle))
    except (OSError, struct.error, ValueError):
        return ()
    finally:
        os.close(handle)


def _xe(handle: int) -> bytes:
    import fcntl

    def query(size: int, data: int) -> int:
        words = bytearray(struct.pack("=QIIQ2Q", 0, _XE_REGIONS, size, data, 0, 0))
        fcntl.ioctl(handle, _XE_QUERY, words, True)
        return int(struct.unpack_from("=I", words, 12)[0])

    return _filled(query)


def _i915(handle: int) -> bytes:
    import ctypes
    import fcntl

    def query(length: int, data: int) -> int:
        item = ctypes.create_string_buffer(struct.pack("=QiIQ", _I915_REGIONS, length, 0, data), 24)
        words = bytearray(struct.pack("=IIQ", 1, 0, ctypes.addressof(item)))
        fcntl.ioctl(handle, _I915_QUERY, words, True)
        return int(struct.unpack_from("=i", item.raw, 8)[0])

    return _filled(query)


def _filled(query: Callable[[int, int], int]) -> bytes:
    """The answer to a query, which says its size where it gets no room (size and address) for it."""
    import ctypes

    size = query(0, 0)
    if not 0 < size <= _MOST:
        return b""
    buffer = ctypes.create_string_buffer(size)
    query(size, ctypes.addressof(buffer))
    return buffer.raw


def of_xe(answer: bytes) -> tuple[Sizes, ...]:
    """Return the device's regions in an answer of xe: class at 0, total at 8, used at 16."""
    found: list[Sizes] = []
    for start in _regions(answer, _CARD_OF_XE):
        kind = struct.unpack_from("=H", answer, start)[0]
        total, used = struct.unpack_from("=QQ", answer, start + 8)
        if kind == _DEVICE_MEMORY and total:
            found.append((total, used if 0 < used <= total else None))
    return tuple(found)


def of_i915(answer: bytes) -> tuple[Sizes, ...]:
    """Return the device's regions in an answer of i915: class at 0, probed size at 8,
    unallocated size at 16."""
    found: list[Sizes] = []
    for start in _regions(answer, _CARD_OF_I915):
        kind = struct.unpack_from("=H", answer, start)[0]
        total, free = struct.unpack_from("=QQ", answer, start + 8)
        if kind == _DEVICE_MEMORY and 0 < total < 1 << 63:
            found.append((total, total - free if free < total else None))
    return tuple(found)


def _regions(answer: bytes, before: int) -> range:
    count = struct.unpack_from("=I", answer)[0] if len(answer) >= before else 0
    return range(before, before + min(count, (len(answer) - before) // _REGION) * _REGION, _REGION)
