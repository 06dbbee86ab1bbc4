"""The first line: which box, how fresh, what time."""

from __future__ import annotations

import time

from gputui.inventory.formatting import duration, printable
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, clip, width_of


def header(app_state: AppState, width: int, age: float | None, cpu: float | None, clock: float) -> Line:
    """`age`: seconds since the last good reading when that is too long ago, None when it is fresh."""
    left: list[tuple[str, str]] = [(" gputui ", "brand")]
    snapshot = app_state.snapshot
    if snapshot is not None:
        left.append((f" {printable(snapshot.host.name or '?')}", "strong"))
        left.append((f"  {snapshot.models}", ""))
    right: list[tuple[str, str]] = []
    if age is not None:
        right.append((f"stale {duration(age)}  ", "warn"))
    if app_state.label:
        right.append((f"{printable(app_state.label)}  ", "warn"))
    if cpu is not None:
        right.append((f"cpu {cpu:.0f}%  ", "dim"))
    right.append((time.strftime("%H:%M ", time.localtime(clock)), "dim"))
    if snapshot is not None:
        for name, value in (("driver", snapshot.host.driver), ("CUDA", snapshot.host.cuda)):
            part = (f"  {name} {printable(value or '?')}", "dim")
            if width_of((*left, part, *right)) < width:
                left.append(part)
    room = width - width_of(tuple(right))
    cut = clip(tuple(left), room - 1)
    return (*cut, (" " * (room - width_of(cut)), ""), *right)
