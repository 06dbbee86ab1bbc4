"""Reads the call counters that the library keeps in a shared file; `native/counts.c` describes it."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

NAME_SIZE = 64
SLOT_SIZE = 72
_SLOT = struct.Struct(f"{NAME_SIZE}sQ")


def read(path: Path) -> dict[tuple[str, str], int]:
    """Calls by function and device label; the label is "" for calls that name no device."""
    data = path.read_bytes() if path.exists() else b""
    found: dict[tuple[str, str], int] = {}
    for name, total in _SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size]):
        # A slot whose first byte is still missing is being taken at this moment.
        if name[0] and total:
            function, _, label = name.rstrip(b"\0").decode().partition(" ")
            found[function, label] = total
    return found


def by_function(path: Path) -> dict[str, int]:
    """Calls by function, on all devices together."""
    totals: Counter[str] = Counter()
    for (function, _), total in read(path).items():
        totals[function] += total
    return dict(totals)
