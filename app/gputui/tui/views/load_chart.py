"""Charts each device's recent load, the newest at the right."""

from __future__ import annotations

from functools import cache

from gputui.inventory.formatting import duration
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, fit, title

_STEPS = " ▁▂▃▄▅▆▇█"
_TALLEST = 4
"""Lines a device may have when there is room, the gap to the next among them."""


def history(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule, and a chart for each device that has a load, all equally high, as many as fit.

    Always 0 to 100 %: three percent of jitter must not look like work.
    """
    snapshot = app_state.snapshot
    if snapshot is None:
        return []
    devices = [
        d for d in snapshot.devices if any(load is not None for load in app_state.watch.loads.get(d.key, ()))
    ]
    label = max([1, *(len(snapshot.label(device)) for device in devices)])
    room = width - label - 9
    seen = max([0, *(len(loads) for loads in app_state.watch.loads.values())])
    tall = max(1, min(_TALLEST, (height - 1) // max(1, len(devices))))
    lines = [title("utilization", width, f"last {duration(min(room, seen))}" if seen > 1 else "")]
    for device in devices:
        loads = [
            None if load is None else min(100, load) for load in app_state.watch.loads[device.key][-room:]
        ]
        now = "–" if device.utilization is None else f"{device.utilization}%"
        gap = 1 if tall > 1 else 0
        lines += [((" ", ""),)] * (gap if device is not devices[0] else 0)
        for line in reversed(range(tall - gap)):
            drawn = "".join(map(_steps(line, tall - gap).__getitem__, loads))
            lines.append(
                (
                    (f"  {fit(snapshot.label(device) if not line else '', label, right=True)} ", "dim"),
                    (fit(drawn, room, right=True), "load"),
                    (f" {now if not line else '':>4}", ""),
                )
            )
    return lines[:height]


@cache
def _steps(line: int, tall: int) -> dict[int | None, str]:
    """By load: the part of one column that falls into one line, counted from the bottom."""
    # A device that was seen idle has a base line; one that was not seen has none.
    least = 0 if line else 1
    drawn = {load: round(load * tall * 8 / 100) - line * 8 for load in range(101)}
    return {None: " "} | {load: _STEPS[min(8, max(eighths, least))] for load, eighths in drawn.items()}
