"""The processes of the box, device by device: who to ask."""

from __future__ import annotations

from gputui.inventory.process import Process
from gputui.inventory.wording import duration, printable, size
from gputui.tui.board import Board
from gputui.tui.views.text import Line, clip, fit, title, wrap


def processes(board: Board, width: int, height: int) -> list[Line]:
    """A rule, and each process; its command line wrapped where all of them then fit in `height`, else cut."""
    lines = [title("processes", width)]
    snapshot = board.snapshot
    if snapshot is None:
        return lines
    listed = [(device, process) for device in snapshot.devices for process in device.processes or ()]
    user = min(12, max([4, *(len(_who(process)) for _, process in listed)]))
    label = max([1, *(len(snapshot.label(device)) for device, _ in listed)])
    room = max(10, width - label - user - 21)
    commands = [wrap(_what(process), room) for _, process in listed]
    whole = sum(map(len, commands)) + 1 <= height
    for (device, process), command in zip(listed, commands, strict=True):
        style = "strong" if device.key == board.cursor else ""
        used = "–" if process.memory is None else size(process.memory)
        age = "–" if process.started is None else duration(snapshot.time - process.started)
        head: Line = (
            (f" {fit(snapshot.label(device), label, right=True)} ", "dim"),
            (f" {fit(_who(process), user)}  {used:>6}  {age:>6}  ", style),
        )
        if not whole:
            lines.append(clip((*head, (_what(process), style or "dim")), width))
            continue
        lines.append((*head, (command[0], style or "dim")))
        indent = " " * (width - room)
        lines += [((indent, ""), (piece, style or "dim")) for piece in command[1:]]
    unread = [snapshot.label(d) for d in snapshot.devices if d.processes is None and not d.fault]
    if unread:
        lines.append(clip(((f" not listed by the driver: GPU {', '.join(unread)}", "warn"),), width))
    if not listed and not unread:
        lines.append(clip(((" none", "dim"),), width))
    return lines


def _who(process: Process) -> str:
    return printable(process.user) if process.user else "?"


def _what(process: Process) -> str:
    if process.command:
        return printable(process.command)
    return f"pid {process.pid} ({process.note})" if process.note else f"pid {process.pid}"
