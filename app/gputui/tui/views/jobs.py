"""The jobs: a line each, the devices of one of them, and its log."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import chop_cells

from gputui.inventory.wording import duration, printable
from gputui.launching.jobs.job import Job, State
from gputui.tui.board import Board
from gputui.tui.views.table import Columns, row
from gputui.tui.views.text import Line, clip, fit, title

SIGNS: dict[State, tuple[str, str]] = {
    "starting": ("…", "dim"),
    "running": ("●", "free"),
    "done": ("✓", "dim"),
    "failed": ("✕", "lost"),
    "stopped": ("■", "warn"),
    "ended": ("?", "unknown"),
    "elsewhere": ("↗", "dim"),
}
"""A glyph and a style for each state; the word stands beside it."""

_NONE = " no jobs: d on the main screen starts the command as one, as does gputui run --detach"


def headline(jobs: Sequence[Job], width: int) -> Line:
    """The rule at the top."""
    running = sum(not job.over for job in jobs)
    return title("jobs", width, f"{running} of {len(jobs)} running" if jobs else "")


def listed(jobs: Sequence[Job], cursor: int, width: int, now: float) -> list[Line]:
    """A line a job."""
    if not jobs:
        return [clip(((_NONE, "dim"),), width)]
    wide = max(len(job.id) for job in jobs)
    lines: list[Line] = []
    for place, job in enumerate(jobs):
        sign, style = SIGNS[job.state]
        devices = ",".join(str(device.index) for device in job.devices)
        lines.append(
            clip(
                (
                    ("▸" if place == cursor else " ", "cursor"),
                    (f" {fit(job.id, wide)}  ", "strong"),
                    (f"{sign} {fit(_state(job), 12)}", style),
                    (f" {fit(_for_how_long(job, now), 6, right=True)}  ", "dim"),
                    (f"{fit(f'GPU {devices}' if devices else 'CPU', 10)} ", ""),
                    (printable(job.title), "strong" if place == cursor else ""),
                ),
                width,
            )
        )
    return lines


def _state(job: Job) -> str:
    if job.state == "failed" and job.exit_status is not None:
        return f"status {job.exit_status}"
    return job.state


def _for_how_long(job: Job, now: float) -> str:
    """How long it has run, or ran."""
    begin = job.started or job.created
    end = job.ended if job.over else now
    return "–" if end is None else duration(max(0.0, end - begin))


def devices_of(job: Job, board: Board, width: int, most: int) -> list[Line]:
    """What the job's devices do now, as far as they are this box's."""
    if board.snapshot is None or not job.devices or job.over:
        return []
    found = [board.snapshot.by_key.get(device.uuid) for device in job.devices]
    there = [device for device in found if device is not None]
    if not there:
        return []
    columns = Columns.of(board, width)
    lines = [row(board, device, columns, width) for device in there[:most]]
    if len(there) > most:
        lines.append(((f"   … and {len(there) - most} more", "dim"),))
    return lines


def log(lines: Sequence[str], width: int, height: int, back: int) -> tuple[list[Line], int]:
    """The last `height` lines of a log, `back` lines before its end, long ones in pieces; and how far back
    that is in truth."""
    pieces = [piece for line in lines for piece in chop_cells(printable(line), width - 2) or [""]]
    back = min(back, max(0, len(pieces) - height))
    end = len(pieces) - back
    shown = pieces[max(0, end - height) : end]
    return [((f" {piece}", ""),) for piece in shown], back
