"""What runs on which device, and what holds the others: whom to ask."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.tui.app_state import AppState
from gputui.tui.process_rows import Row, rows
from gputui.tui.views.text import Line, clip, fit, title, wrap

_WIDE = 64
_MOST_USER = 12


def processes(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule, and each process; its command line wrapped where all of them then fit in `height`, else cut."""
    lines = [title("processes", width)]
    found = rows(app_state)
    if not found:
        return [*lines, clip(((" none", "dim"),), width)] if app_state.snapshot else lines
    label, pid, user = _widths(found)
    # Beside the table there is room for the command or for its number: the command says more.
    pid = pid + 2 if width >= _WIDE else 0
    head_width = label + pid + user + 21
    room = max(10, width - head_width)
    pieces = [wrap(row.what, room) for row in found]
    whole = sum(map(len, pieces)) + 1 <= height
    for row, words in zip(found, pieces, strict=True):
        style = "strong" if row.key == app_state.cursor else ""
        shown = words if whole else [row.what]
        lines.append(clip((*_head(row, label, pid, user, style), (shown[0], style or "dim")), width))
        lines += [((" " * head_width, ""), (piece, style or "dim")) for piece in shown[1:]]
    return lines


def listed(shown: Sequence[Row], width: int, found: Sequence[Row]) -> list[Line]:
    """A line a row of `shown`, in columns that are wide enough for all of `found`; a tree is indented."""
    if not found:
        return [clip(((" none", "dim"),), width)]
    label, pid, user = _widths(found)
    where = max(len(row.where) for row in found)
    names = Row("#", "PID", "USER", "MEMORY", "FOR", "WHERE" if where else "", "COMMAND")
    heading = "".join(text for text, _ in _head(names, label, pid + 2, user, ""))
    heading += fit(names.where, where) + "  " if where else ""
    lines: list[Line] = [clip(((f"{heading}{names.what}", "dim"),), width)]
    for row in shown:
        head = _head(row, label, pid + 2, user, "")
        place: Line = ((fit(row.where, where) + "  ", "dim"),) if where else ()
        branch = "  " * (row.depth - 1) + "└ " if row.depth else ""
        style = "" if row.process else "dim"
        lines.append(clip((*head, *place, (branch, "rule"), (row.what, style)), width))
    return lines


def _widths(found: Sequence[Row]) -> tuple[int, int, int]:
    """Of the columns device, pid and user."""
    label, pid, user = (max(len(getattr(row, name)) for row in found) for name in ("label", "pid", "user"))
    return label, pid, min(_MOST_USER, user)


def _head(row: Row, label: int, pid: int, user: int, style: str) -> Line:
    return (
        (f" {fit(row.label, label, right=True)} ", "dim"),
        (f" {fit(row.user, user)}  {row.memory:>6}  {row.age:>6}  ", style),
        (fit(f"{row.pid}  ", pid, right=True) if pid else "", "dim"),
    )
