"""The RAM of this machine."""

from __future__ import annotations

import os


def host_memory() -> int:
    """Return the bytes of RAM, 0 where the system does not report them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0
