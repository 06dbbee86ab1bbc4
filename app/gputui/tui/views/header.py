"""The first line: the box, the load of the machine, the age of the reading, and the time."""

from __future__ import annotations

import time

from gputui.inventory.formatting import UNKNOWN, duration, printable
from gputui.inventory.snapshot import HostLoad
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Span, clip, width_of


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
    if snapshot is not None:
        for text in _load(snapshot.host.load):
            # The label of a demo is not left out for the load: both together would be too long.
            room = min(width - width_of(tuple(left)) - 1, width // 2)
            if width_of(tuple(right)) + len(text) <= room:
                right.insert(len(right) - 1, (text, "dim"))
        for name, value in (("driver", snapshot.host.driver), ("CUDA", snapshot.host.cuda)):
            if value is None and name == "CUDA":
                # Other vendors have no CUDA.
                continue
            part = (f"  {name} {printable(value or UNKNOWN)}", "dim")
            if width_of((*left, part, *right)) + 1 < width:
                left.append(part)
    if width_of(tuple(right)) > width // 2 and age is None:
        right = right[-1:]
    room = width - width_of(tuple(right))
    if room < 8:
        return clip(tuple(left), width)
    cut = clip(tuple(left), room - 1)
    return (*cut, (" " * (room - width_of(cut)), ""), *right)


def _load(load: HostLoad | None) -> list[str]:
    """The machine's CPU, RAM and load average, the most informative first; unknown values are left out."""
    if load is None:
        return []
    parts = []
    if load.cpu is not None:
        parts.append(f"cpu {load.cpu:.0f}%  ")
    if load.memory_used is not None and load.memory_total:
        parts.append(f"ram {100 * load.memory_used / load.memory_total:.0f}%  ")
    if load.load is not None:
        parts.append(f"load {load.load:.1f}{f'/{load.cpus}' if load.cpus else ''}  ")
    return parts
