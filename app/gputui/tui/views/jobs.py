"""The jobs: a line each, the devices of one of them, its log; and news about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.cells import chop_cells

from gputui.choosing.claimed_use import ClaimedUse
from gputui.choosing.verdict_text import claimed_and_runs_on
from gputui.inventory.formatting import duration, gpus, peak_size, printable, size
from gputui.inventory.job import Job, grouped
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.columns import how_long, job_columns, labels_of
from gputui.tui.app_state import AppState
from gputui.tui.views.columns import USUAL, Columns
from gputui.tui.views.table import heading, row
from gputui.tui.views.text import (
    Line,
    cells_of,
    clip,
    fit,
    table_lines,
    told_lines,
    wrap,
)

_NONE = (
    " no jobs: d on the main screen, or gputui run --detach, starts one",
    " those of other boxes: :nodes, D, or gputui jobs --hosts all",
)

_WIDE = 100
"""The width in cells from which a line has the peak memory, and ends with the last line of the log."""
_LINES_OF_LAUNCH = 2
"""The most lines of a launch line on the jobs page: `y` copies all of it."""


def numbers(jobs: Sequence[Job]) -> str:
    """How many run, wait and have ended, an experiment counted once: "1 running, 2 ended"."""
    return ", ".join(counts(jobs))


def counts(jobs: Sequence[Job], in_line: int = 0) -> list[str]:
    """The same as a list, the more important first; `in_line`: those in line, who are not among the jobs."""
    heads = [head for head, *_ in grouped(jobs)]
    waiting, ended = sum(job.state == "waiting" for job in heads), sum(job.over for job in heads)
    running = len(heads) - waiting - ended
    kinds = (running, "running"), (in_line, "in line"), (waiting, "waiting"), (ended, "ended")
    return [f"{number} {kind}" for number, kind in kinds if number]


def listed(
    jobs: Sequence[Job],
    width: int,
    now: float,
    snapshot: Snapshot | None = None,
    uses: Mapping[str, str] = MappingProxyType({}),
) -> list[Line]:
    """A heading and a line per job; `uses` as in `job_columns`. With room, the peak memory and the last line
    of the log."""
    if not jobs:
        return [clip(((words, "dim"),), width) for words in _NONE]
    wide = width >= _WIDE
    names = f"id outcome ran on{' peak' * wide} use title{' log' * wide}"
    columns = [
        replace(column, most=max(column.most, width // 3)) if column.name == "NAME" else column
        for column in job_columns(names, now, snapshot, uses)
    ]
    return [clip(line, width) for line in table_lines(columns, jobs, heading=True, before="  ")]


def unclaimed_uses_of(app_state: AppState) -> dict[str, str]:
    """The text "claimed 6,7, runs on 0,1" by job id, for our jobs whose claimed and used devices differ."""
    uses = _unclaimed_uses(app_state)
    return {use.job: claimed_and_runs_on(use, app_state.box) for use in uses if use.job}


def _unclaimed_uses(app_state: AppState) -> list[ClaimedUse]:
    return [use for use in app_state.unclaimed_uses if use.own]


_JOBS_READ = 3.0
"""Seconds before the time of a reading at which it may have read the jobs: one may start and end since."""


def news(before: Snapshot | None, now: Snapshot) -> list[tuple[str, bool]]:
    """The news about jobs between two snapshots, a sentence each, and whether it is no failure: a waiting job
    has started, or a job has ended."""
    if before is None:
        return []
    earlier = {job.id: job for job in before.jobs}
    found = []
    for job in now.jobs:
        was = earlier.get(job.id)
        if job.over:
            if not was.over if was else (job.ended or 0.0) >= before.time - _JOBS_READ:
                # (A stop without a reason is one that the user asked for.)
                well = job.state == "done" or (
                    job.state == "stopped" and job.why is None and job.trouble is None
                )
                found.append((f"job {job.id} {_ended(job)}", well))
        elif was is not None and was.in_line_for is not None and job.in_line_for is None:
            waited = how_long(was, now.time)
            where = gpus(labels_of(job, now)) if job.devices else "the CPU"
            found.append((f"job {job.id} has started on {where} after waiting {waited}", True))
    return found


def _ended(job: Job) -> str:
    return f"{job.how_ended} after {'waiting ' * job.never_ran}{how_long(job, 0.0)}"


def facts_of(job: Job, now: float, width: int) -> list[Line]:
    """The launch line of the job; for a job that has ended, also how, when, and its peaks."""
    pieces = wrap(f"$ {printable(job.line)}", width - 2)
    if len(pieces) > _LINES_OF_LAUNCH:
        rest = " ".join(pieces[_LINES_OF_LAUNCH - 1 :])
        pieces = [*pieces[: _LINES_OF_LAUNCH - 1], fit(rest, width - 2)]
    lines: list[Line] = [((f" {piece}", "dim"),) for piece in pieces]
    if job.client:
        lines.append(clip(((f" asked by {printable(job.client)}", "dim"),), width))
    if job.box is not None and job.directory:
        lines.append(clip(((f" in {printable(job.directory)}", "dim"),), width))
    if job.over:
        lines += told_lines(_end_of(job, now), "", width)
    return lines


def _end_of(job: Job, now: float) -> str:
    """ "ended with status 1 after 3m, 5m ago; peak memory: 76.1G on a GPU, 5.7G RAM in its largest …"."""
    ago = "" if job.ended is None else f", {duration(now - job.ended)} ago"
    peaks = [] if job.peak_memory is None else [f"{size(job.peak_memory)} on a GPU"]
    # Of a job that has never left the line, it is gputui's own.
    if job.peak_process_memory is not None and (job.devices or not job.waits):
        peaks.append(f"{peak_size(job.peak_process_memory)} RAM in its largest process")
    return f"{_ended(job).removeprefix('was ')}{ago}" + (
        f"; peak memory: {', '.join(peaks)}" if peaks else ""
    )


def devices_of(job: Job, app_state: AppState, width: int, most: int) -> list[Line]:
    """The present rows of the job's devices below the headings of the table, if they are on this box; devices
    that it has not claimed last."""
    if job.box is not None or not job.keys or job.over:
        return []
    outside = (key for use in _unclaimed_uses(app_state) if use.job == job.id for key in use.outside)
    found = [app_state.box.by_key.get(key) for key in (*job.keys, *outside)]
    devices = [device for device in found if device is not None]
    if not devices:
        return []
    # The cursor of this page is in the list of jobs, and the command is above.
    screen = app_state.screen
    others = tuple(name for name in screen.columns or USUAL if name != "command")
    screen = screen._replace(columns=others, filter="", sort=None)
    app_state = replace(app_state, cursor=None, screen=screen)
    columns = Columns.of(app_state, width)
    lines = [heading(app_state, columns, width)]
    lines += [row(app_state, device, columns, width) for device in devices[:most]]
    if len(devices) > most:
        lines.append(((f"   … and {len(devices) - most} more", "dim"),))
    return lines


def pieces_of(lines: Sequence[str], width: int, wraps: bool = True) -> list[str]:
    """The lines of a log in pieces that fit; without `wraps` each line is one piece, cut to the width."""
    room = max(1, width - 2)
    if not wraps:
        return [fit(shown, room) if cells_of(shown := printable(line)) > room else shown for line in lines]
    return [piece for line in lines for piece in _broken(printable(line), room)]


def _broken(line: str, room: int) -> list[str]:
    """A line of a log in pieces that fit: broken after spaces if there are any, its own spaces kept."""
    pieces: list[str] = []
    while cells_of(line) > room:
        # Only the beginning of a very long line is measured again for each piece.
        head = chop_cells(line[: 2 * room], room)[0]
        end = len(head) + 1 if line[len(head)] == " " else head.rfind(" ") + 1
        if not head[:end].strip():
            end = max(1, len(head))
        pieces.append(line[:end].rstrip())
        line = line[end:]
    return [*pieces, line]


def log(pieces: Sequence[str], height: int, back: int) -> tuple[list[Line], int]:
    """The last `height` pieces of a log, `back` before its end; and how far back that really is."""
    back = min(back, max(0, len(pieces) - height))
    end = len(pieces) - back
    return [((f" {piece}", ""),) for piece in pieces[max(0, end - height) : end]], back
