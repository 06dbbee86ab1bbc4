"""What runs on which device, and what holds the others: whom to ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gputui.inventory.process import Process
from gputui.inventory.wording import duration, printable, size
from gputui.tui.board import Board
from gputui.tui.views.text import Line, clip, fit, title, wrap

_WIDE = 64


@dataclass(frozen=True, slots=True)
class _Entry:
    """A process, or a device that is not free though no process is to be seen on it."""

    key: str
    label: str
    pid: str
    user: str
    used: str
    age: str
    what: str


def processes(board: Board, width: int, height: int) -> list[Line]:
    """A rule, and each process; its command line wrapped where all of them then fit in `height`, else cut."""
    lines = [title("processes", width)]
    entries = list(_entries(board))
    if not entries:
        return [*lines, clip(((" none", "dim"),), width)] if board.snapshot else lines
    label, pid, user = (max(len(getattr(e, name)) for e in entries) for name in ("label", "pid", "user"))
    user = min(12, user)
    # Beside the table there is room for the command or for its number: the command says more.
    pid = pid + 2 if width >= _WIDE else 0
    head_width = label + pid + user + 21
    room = max(10, width - head_width)
    pieces = [wrap(entry.what, room) for entry in entries]
    whole = sum(map(len, pieces)) + 1 <= height
    for entry, words in zip(entries, pieces, strict=True):
        style = "strong" if entry.key == board.cursor else ""
        head: Line = (
            (f" {fit(entry.label, label, right=True)} ", "dim"),
            (f" {fit(entry.user, user)}  {entry.used:>6}  {entry.age:>6}  ", style),
            (fit(f"{entry.pid}  ", pid, right=True) if pid else "", "dim"),
        )
        shown = words if whole else [entry.what]
        lines.append(clip((*head, (shown[0], style or "dim")), width))
        lines += [((" " * head_width, ""), (piece, style or "dim")) for piece in shown[1:]]
    return lines


def _entries(board: Board) -> Iterator[_Entry]:
    snapshot = board.snapshot
    if snapshot is None:
        return
    for device in snapshot.devices:
        label, verdict = snapshot.label(device), board.verdicts[device.key]
        for process in device.processes or ():
            used = "–" if process.memory is None else size(process.memory)
            age = "–" if process.started is None else duration(snapshot.time - process.started)
            user = printable(process.user) if process.user else "?"
            yield _Entry(device.key, label, str(process.pid), user, used, age, _what(process))
        if not device.processes and not verdict.free and not device.mig:
            used = "–" if device.memory_used is None else size(device.memory_used)
            what = f"{verdict.state}: {printable(verdict.reason)}"
            yield _Entry(device.key, label, "", "–", used, "–", what)


def _what(process: Process) -> str:
    if process.command:
        return printable(process.command)
    return process.note or "?"
