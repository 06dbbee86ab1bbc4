"""The first line: the box, the load of the machine, the age of the reading, and the time."""

from __future__ import annotations

import time

from gputui.inventory.formatting import UNKNOWN, duration, printable
from gputui.inventory.snapshot import HostLoad
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Span, cells_of, clip, width_of

_SHARE, _AVERAGE = 10, 14
"""Cells of the machine's CPU and RAM, and of its load average, each with the blanks after it."""


def header(app_state: AppState, width: int, age: float | None, clock: float) -> Line:
    """The header; `age` is the seconds since the last good reading if that is too long ago, None otherwise.

    If the line is too short, the versions are left out first, then the machine's load, then the label.
    """
    left: list[Span] = [(" gputui ", "brand")]
    snapshot = app_state.snapshot
    if snapshot is not None:
        left.append((f" {printable(snapshot.host.name or UNKNOWN)}", "strong"))
        left.append((f"  {snapshot.models}", ""))
    right: list[Span] = [(time.strftime("%H:%M ", time.localtime(clock)), "dim")]
    if app_state.label:
        right.insert(0, (f"{printable(app_state.label)}  ", "warn"))
    if age is not None:
        right.insert(0, (f"stale {duration(age)}  ", "warn"))
    before, after = width_of(tuple(left)), width_of(tuple(right))
    if snapshot is not None:
        for text in _load(snapshot.host.load):
            # The label of a demo is not left out for the load: both together would be too long.
            if after + len(text) <= min(width - before - 1, width // 2):
                right.insert(len(right) - 1, (text, "dim"))
                after += len(text)
        for name, value in (("driver", snapshot.host.driver), ("CUDA", snapshot.host.cuda)):
            if value is None and name == "CUDA":
                # Other vendors have no CUDA.
                continue
            part = f"  {name} {printable(value or UNKNOWN)}"
            if before + cells_of(part) + after + 1 < width:
                left.append((part, "dim"))
                before += cells_of(part)
    if after > width // 2 and age is None:
        right = right[-1:]
        after = cells_of(right[0][0])
    room = width - after
    if room < 8:
        return clip(tuple(left), width)
    cut = clip(tuple(left), room - 1)
    return (*cut, (" " * (room - width_of(cut)), ""), *right)


def _load(load: HostLoad | None) -> list[str]:
    """The machine's CPU, RAM and load average, the most informative first.

    Each has a place of its own, which is blank while the value is unknown: when a value comes or gets more
    digits, the rest of the line stays.
    """
    cpu = ram = average = ""
    if load is not None and load.cpu is not None:
        cpu = f"cpu {load.cpu:2.0f}%"
    if load is not None and load.memory_used is not None and load.memory_total:
        ram = f"ram {100 * load.memory_used / load.memory_total:2.0f}%"
    if load is not None and load.load is not None:
        average = f"load {load.load:.1f}{f'/{load.cpus}' if load.cpus else ''}"
    return [f"{cpu:<{_SHARE}}", f"{ram:<{_SHARE}}", f"{average:<{_AVERAGE}}"]
