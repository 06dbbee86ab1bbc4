"""How each device was loaded lately: a line a device, the newest at the right."""

from __future__ import annotations

from gputui.inventory.wording import duration
from gputui.tui.board import Board
from gputui.tui.views.text import Line, fit, title

_STEPS = "▁▂▃▄▅▆▇█"


def history(board: Board, width: int) -> list[Line]:
    """A rule, and a line a device that has a load. Always 0 to 100 %: jitter must not look like work."""
    snapshot = board.snapshot
    if snapshot is None:
        return []
    label = max([1, *(len(snapshot.label(device)) for device in snapshot.devices)])
    room = width - label - 9
    seen = max([0, *(len(loads) for loads in board.watch.loads.values())])
    lines = [title("utilization", width, f"last {duration(min(room, seen))}" if seen > 1 else "")]
    for device in snapshot.devices:
        loads = board.watch.loads.get(device.key, ())[-room:]
        if device.mig or not any(load is not None for load in loads):
            continue
        drawn = "".join(_step(load) for load in loads)
        now = "–" if device.utilization is None else f"{device.utilization}%"
        lines.append(
            (
                (f"  {fit(snapshot.label(device), label, right=True)} ", "dim"),
                (fit(drawn, room, right=True), "load"),
                (f" {now:>4}", ""),
            )
        )
    return lines


def _step(load: int | None) -> str:
    if load is None:
        return " "
    return "▁" if load <= 0 else _STEPS[min(7, load * 8 // 100)]
