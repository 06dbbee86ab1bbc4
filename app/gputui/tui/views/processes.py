"""The processes of the box, device by device: who to ask."""

from __future__ import annotations

from gputui.inventory.process import Process
from gputui.inventory.wording import duration, printable, size
from gputui.tui.board import Board
from gputui.tui.views.text import Line, clip, fit, title


def processes(board: Board, width: int) -> list[Line]:
    """A rule, and a line a process; the device under the cursor first in the eye, not in the order."""
    lines = [title("processes", width)]
    snapshot = board.snapshot
    if snapshot is None:
        return lines
    listed = [(device, process) for device in snapshot.devices for process in device.processes or ()]
    users = max([4, *(len(_who(process)) for _, process in listed)])
    label = max([1, *(len(snapshot.label(device)) for device, _ in listed)])
    for device, process in listed:
        style = "strong" if device.key == board.cursor else ""
        used = "–" if process.memory is None else size(process.memory)
        age = "–" if process.started is None else duration(snapshot.time - process.started)
        what = printable(process.command) if process.command else f"pid {process.pid} ({process.note})"
        lines.append(
            clip(
                (
                    (f" {fit(snapshot.label(device), label, right=True)} ", "dim"),
                    (f" {fit(_who(process), min(users, 12))}  {used:>6}  {age:>5}  ", style),
                    (what, style or "dim"),
                ),
                width,
            )
        )
    unread = [snapshot.label(d) for d in snapshot.devices if d.processes is None and not d.fault]
    if unread:
        lines.append(clip(((f" not listed by the driver: GPU {', '.join(unread)}", "warn"),), width))
    if not listed and not unread:
        lines.append(clip(((" none", "dim"),), width))
    return lines


def _who(process: Process) -> str:
    return printable(process.user) if process.user else "?"
