"""Why the clocks of a GPU are lower than they could be, in plain words."""

from __future__ import annotations

_BITS: tuple[tuple[int, str], ...] = (
    (0x40, "thermal, hardware"),
    (0x20, "thermal"),
    (0x80, "power brake"),
    (0x04, "power limit"),
    (0x10, "sync boost"),
    (0x02, "application clocks"),
    (0x100, "display clocks"),
)
"""nvmlClocksEventReasons (nvml.h), the worst first. Bit 1, "idle", is left out: it costs no performance."""

_HARDWARE, _ITS_CAUSES = 0x08, 0x40 | 0x80
"""The driver sets "hardware slowdown" together with its cause, where it knows the cause."""


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Return the reasons in words, () for none."""
    found = [word for bit, word in _BITS if bits & bit]
    if bits & _HARDWARE and not bits & _ITS_CAUSES:
        found.insert(0, "hardware slowdown")
    return tuple(found)
