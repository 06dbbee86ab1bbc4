"""The power firmware's table of a GPU, `gpu_metrics`: why its clocks are low, and its energy.

A table begins with its size and version. Only versions with known offsets of these facts are read (Linux,
drivers/gpu/drm/amd/include/kgd_pp_interface.h, gpu_metrics_v1_3 to v1_5). A value that a GPU does not report
has all bits set.
"""

from __future__ import annotations

import struct

_THROTTLE_AT = {(1, 3): 112}
_ENERGY_AT = {(1, 4): 24, (1, 5): 88}
_JOULE = 1 << 16
"""Energy counts in units of 15.259 µJ."""

_REASONS: tuple[tuple[range, str], ...] = (
    (range(46, 48), "another part is too hot"),
    (range(44, 46), "thermal, voltage regulator"),
    (range(32, 44), "thermal"),
    (range(8), "power limit"),
    (range(16, 24), "current limit"),
    (range(56, 57), "power manager"),
    (range(57, 58), "reliability limit"),
)
"""Bits of `indep_throttle_status` (amdgpu_smu.h, SMU_THROTTLER_*), the worst first."""


def throttle(table: bytes) -> tuple[str, ...] | None:
    """Return why the clocks are lower than they could be: () for no reason, None where the
    table has no reasons."""
    bits = _whole(table, _THROTTLE_AT)
    if bits is None:
        return None
    return tuple(word for places, word in _REASONS if any(bits >> place & 1 for place in places))


def energy(table: bytes) -> float | None:
    """Return J since the driver was loaded."""
    units = _whole(table, _ENERGY_AT)
    return None if units is None else units / _JOULE


def _whole(table: bytes, at: dict[tuple[int, int], int]) -> int | None:
    if len(table) < 4:
        return None
    size, major, minor = struct.unpack_from("<HBB", table)
    place = at.get((major, minor))
    if place is None or min(size, len(table)) < place + 8:
        return None
    found = int(struct.unpack_from("<Q", table, place)[0])
    return None if found == (1 << 64) - 1 else found
