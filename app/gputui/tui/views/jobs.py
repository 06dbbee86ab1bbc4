"""The jobs: a line each, the devices of one of them, and its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import chop_cells

from gputui.choosing.claimed_use import ClaimedUse
from gputui.choosing.verdict_text import claimed_and_runs_on
from gputui.inventory.formatting import duration, printable
from gputui.jobs.job import Job, State
from gputui.system.users import own_name
from gputui.tui.app_state import AppState
from gputui.tui.views.columns import Columns
from gputui.tui.views.table import row
from gputui.tui.views.text import Line, clip, fit, title

SIGNS: dict[State, tuple[str, str]] = {
    "starting": ("…", "dim"),
    "waiting": ("◷", "warn"),
    "running": ("●", "free"),
    "done": ("✓", "dim"),
    "failed": ("✕", "lost"),
    "stopped": ("■", "warn"),
    "ended": ("?", "unknown"),
    "elsewhere": ("↗", "dim"),
}
"""A glyph and a style for each state; the word stands beside it."""

_NONE = " no jobs: d on the main screen, or gputui run --detach, starts one"


def headline(jobs: Sequence[Job], unreadable: int, width: int) -> Line:
    """The rule at the top: how many run, and how many records cannot be read (`gputui jobs` says why)."""
    waiting = sum(job.state == "waiting" for job in jobs)
    running = sum(not job.over for job in jobs) - waiting
    counts = [f"{running} of {len(jobs)} running"] if jobs else []
    counts += [f"{waiting} waiting"] if waiting else []
    counts += [f"{unreadable} cannot be read: gputui jobs"] if unreadable else []
    return title("jobs", width, ", ".join(counts))


def listed(
    jobs: Sequence[Job], cursor: int, width: int, now: float, unclaimed: Mapping[str, str] | None = None
) -> list[Line]:
    """A line a job. `unclaimed` says of some, by id, what they claimed and run on (`unclaimed_uses_of`)."""
    if not jobs:
        return [clip(((_NONE, "dim"),), width)]
    wide = max(len(job.id) for job in jobs)
    lines: list[Line] = []
    for place, job in enumerate(jobs):
        sign, style = SIGNS[job.state]
        lines.append(
            clip(
                (
                    ("▸" if place == cursor else " ", "cursor"),
                    (f" {fit(job.id, wide)}  ", "strong"),
                    (f"{sign} {fit(_state(job), 12)}", style),
                    (f" {fit(_for_how_long(job, now), 6, right=True)}  ", "dim"),
                    (f"{fit(_on(job), 10)} ", ""),
                    (f"{use} " if (use := (unclaimed or {}).get(job.id)) else "", "warn"),
                    (printable(job.title), "strong" if place == cursor else ""),
                ),
                width,
            )
        )
    return lines


def unclaimed_uses_of(app_state: AppState) -> dict[str, str]:
    """What our jobs claimed and run on, "claimed 6,7, runs on 0,1", by their ids, where the two differ."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return {}
    return {use.job: claimed_and_runs_on(use, snapshot) for use in _unclaimed_uses(app_state) if use.job}


def _unclaimed_uses(app_state: AppState) -> list[ClaimedUse]:
    return [use for use in app_state.unclaimed_uses if use.user == own_name()]


def _on(job: Job) -> str:
    """What it runs on, or waits for."""
    if job.waits is not None and job.taken is None:
        return f"for {job.waits} GPU" + ("s" if job.waits > 1 else "")
    # The index of a MIG instance is one within its GPU.
    devices = ",".join(d.uuid[:9] if d.uuid.startswith("MIG-") else str(d.index) for d in job.devices)
    return f"GPU {devices}" if devices else "CPU"


def _state(job: Job) -> str:
    if job.state == "failed" and job.exit_status is not None:
        return f"status {job.exit_status}"
    return job.state


def _for_how_long(job: Job, now: float) -> str:
    """How long it has run, or ran."""
    begin = job.started or job.created
    end = job.ended if job.over else now
    return "–" if end is None else duration(max(0.0, end - begin))


def devices_of(job: Job, app_state: AppState, width: int, most: int) -> list[Line]:
    """What the job's devices do now, as far as they are this box's; those that it has not claimed last."""
    if app_state.snapshot is None or not job.devices or job.over:
        return []
    outside = (key for use in _unclaimed_uses(app_state) if use.job == job.id for key in use.outside)
    found = [app_state.snapshot.by_key.get(key) for key in (*(d.uuid for d in job.devices), *outside)]
    devices = [device for device in found if device is not None]
    if not devices:
        return []
    columns = Columns.of(app_state, width)
    lines = [row(app_state, device, columns, width) for device in devices[:most]]
    if len(devices) > most:
        lines.append(((f"   … and {len(devices) - most} more", "dim"),))
    return lines


def broken(lines: Sequence[str], width: int) -> list[str]:
    """The lines of a log in pieces that fit."""
    return [piece for line in lines for piece in chop_cells(printable(line), max(1, width - 2)) or [""]]


def log(pieces: Sequence[str], height: int, back: int) -> tuple[list[Line], int]:
    """The last `height` pieces of a log, `back` before its end; and how far back that is in truth."""
    back = min(back, max(0, len(pieces) - height))
    end = len(pieces) - back
    return [((f" {piece}", ""),) for piece in pieces[max(0, end - height) : end]], back
