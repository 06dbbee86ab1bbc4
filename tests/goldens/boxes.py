"""The recorded demo boxes, and the fixed moment of all recordings."""

from __future__ import annotations

import os
import time

import psutil

BOXES = (
    *("shared", "dgx-h100", "dgx-1", "rtx3090", "a100-mig", "gb10"),
    *("mixed", "lost", "wsl", "amd-cpx", "intel", "gaudi"),
)
MOMENT = 1_700_000_000.0
"""Seconds since the epoch; the same as `tui.support.OPENED`."""


def stand_still() -> None:
    """Stop this process's clock, and hide the load of the machine. Call it before gputui is imported, since
    gputui uses `time.time` as the default of a parameter."""
    time.time = lambda: MOMENT
    psutil.cpu_percent = lambda *_, **__: 12.0  # type: ignore[assignment]
    os.getloadavg = lambda: (1.0, 1.0, 1.0)
