"""How much RAM this machine has."""

from __future__ import annotations

import os


def host_memory() -> int:
    """Bytes of RAM, 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
