"""Timelines of utilization, memory and power: charts of the past, one above the other, over one time axis."""

from __future__ import annotations

from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line

ZOOMS = (60, 300, 900, 3600, 3 * 3600, 12 * 3600)
"""Seconds that a chart may span."""


def device_timeline(app_state: AppState, key: str, width: int, height: int, zoom: int) -> list[Line]:
    """Utilization, memory and power of one device over the last `zoom` seconds (one of `ZOOMS`), and their
    axis: `height` lines of `width` cells. Each chart goes from 0 to 100 %: of the memory, of the power limit."""
    return []
