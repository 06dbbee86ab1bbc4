"""The generations of Gaudi, and the memory that an idle device has in use."""

from __future__ import annotations

import re

from gputui.inventory.formatting import MIB

IDLE = {1: 512 * MIB, 2: 768 * MIB, 3: 672 * MIB}
"""Bytes in use on an idle device, by generation, as hl-smi prints them."""

_MOST_IDLE = max(IDLE.values())


def generation(name: str | None) -> int | None:
    """Return 1 for HL-205 (also HL-200, 202), 2 for HL-225, 3 for HL-325 (also HL-328, 338)."""
    found = re.match(r"HL-?([23])(\d)\d", name or "")
    if found is None:
        return None
    return 3 if found[1] == "3" else 2 if found[2] == "2" else 1


def idle_memory(name: str | None) -> int:
    """Return the bytes that an idle device has in use."""
    return IDLE.get(generation(name) or 0, _MOST_IDLE)
