"""The panel of the user's jobs and of the queue: a line for each, in one layout."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.queue_outlook import Turn
from gputui.choosing.queue_text import next_in_line, turn_columns
from gputui.inventory.columns import Column
from gputui.inventory.formatting import person, printable
from gputui.inventory.job import Job, grouped, place_in_list
from gputui.jobs.columns import SIGNS, job_columns
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views import jobs
from gputui.tui.views.text import (
    Line,
    clip_command,
    column_widths,
    hanging,
    table_lines,
    title,
)

MOST_LINES = 8
"""The most lines of the panel, its rule included: the pages have everything."""
_LEAST_COMMAND = 16
"""Cells of the commands below which first the devices of the jobs, which the table has, and then the times
are left out."""
_MOST_USER = 12
"""The most cells of a place and a user."""
_MOST_ENDED = 3
"""The most ended jobs in the panel."""
_RECENT = 60.0
"""Seconds since its end for which a job asks for a line where there are few."""

_Row = Job | Turn


def _jobs(app_state: AppState) -> list[Job]:
    """The jobs. One that is in line is only among the waiters, which have its place; of an experiment, there
    is only the job that runs it."""
    in_line = {turn.waiter.job for turn in app_state.outlook.turns if turn.waiter.ours}
    found = [group[0] for group in grouped(app_state.box.jobs)]
    return [job for job in found if job.over or job.in_line_for is None or job.id not in in_line]


def rows(app_state: AppState, recent: bool = False) -> tuple[list[Job], tuple[Turn, ...]]:
    """The jobs and the waiters that have a line. With `recent`, without jobs that ended a while ago."""
    found = _jobs(app_state)
    since = app_state.box.time - _RECENT if recent else 0.0
    ended = [job for job in found if job.over and (job.ended or 0.0) >= since]
    return [job for job in found if not job.over] + ended[:_MOST_ENDED], app_state.outlook.turns


def lines_wanted(app_state: AppState) -> int:
    """The lines that the panel fills, those of jobs that ended a while ago left out; 0 for none."""
    of_jobs, turns = rows(app_state, recent=True)
    return min(MOST_LINES, 1 + len(of_jobs) + len(turns) + bool(turns)) if of_jobs or turns else 0


def panel(app_state: AppState, width: int, height: int) -> list[Line]:
    """The jobs, the waiters, and what the next one waits for. Where lines are short, neither the jobs nor the
    waiters have more than half of them if the others need them; the rule has the numbers of all."""
    of_jobs, turns = rows(app_state)
    reasons = [
        ((f" {who}", "strong"), (why, ""))
        for who, why in next_in_line(app_state.outlook, app_state.box)[: height > 1]
    ]
    room = max(0, height - 1 - len(reasons))
    most = max(room - len(turns), room - room // 2)
    newest = sorted(of_jobs, key=lambda job: (job.over, -job.created))[:most]
    shown: list[_Row] = [*sorted(newest, key=place_in_list), *turns[: room - len(newest)]]
    pages = [*["jobs"] * bool(app_state.box.jobs), *["queue"] * bool(turns)] or ["jobs"]
    keys = [key_of(page, app_state.screen.keymap) for page in pages]
    head = title("jobs and queue", width, *jobs.counts(_jobs(app_state), len(turns)), *keys)
    lines = [head, *_lines(app_state, shown, width - 1)]
    for reason in reasons:
        whole = hanging(reason, width - 1)
        lines += whole if len(lines) + len(whole) <= height else [clip_command(reason, width - 1)]
    return lines


def _lines(app_state: AppState, shown: Sequence[_Row], width: int) -> list[Line]:
    """A line for each. Commands are cut last."""
    columns = _columns(app_state)
    widths: dict[Column[_Row], int] = {}
    for dropped in ((), (2,), (2, 3)):
        widths = column_widths([c for n, c in enumerate(columns) if n not in dropped], shown)
        command = [*widths.values()][-1:]
        before = 1 + sum(2 + cells for cells in [*widths.values()][:-1])
        if all(width - before >= min(_LEAST_COMMAND, cells) for cells in command):
            break
    return [clip_command(line, width) for line in table_lines(widths, shown, widths=widths)]


def _columns(app_state: AppState) -> list[Column[_Row]]:
    """The id, or the place and the user; the state, or the request; the devices; the time; the command."""
    snapshot = app_state.box
    uses = jobs.unclaimed_uses_of(app_state)
    of_jobs = job_columns("id short on time use title", snapshot.time, snapshot, uses)
    _, user, wants, since, _, command = turn_columns(snapshot)
    sign, tone = SIGNS["waiting"]
    nothing: Column[Turn] = Column("", lambda turn: "")
    of_turns: Sequence[Column[Turn]] = (
        Column("", _who, user.tone, most=_MOST_USER),
        Column("", lambda turn: f"{sign} {wants.text(turn)}", lambda turn: tone if turn.waiter.ours else ""),
        nothing,
        since,
        nothing,
        command,
    )
    return [_either(of_job, of_turn) for of_job, of_turn in zip(of_jobs, of_turns, strict=True)]


def _who(turn: Turn) -> str:
    """ "2 ana"; the id of a job of the user's own."""
    waiter = turn.waiter
    own = printable(waiter.job) if waiter.ours and waiter.job else ""
    return f"{turn.place} {own or person(waiter.user, waiter.ours)}"


def _either(of_job: Column[Job], of_turn: Column[Turn]) -> Column[_Row]:
    """One column of both."""

    def cell(row: _Row) -> tuple[str, str]:
        return (of_turn.cells([row]) if isinstance(row, Turn) else of_job.cells([row]))[0]

    most = min(of_job.most, of_turn.most)
    return Column("", lambda row: cell(row)[0], lambda row: cell(row)[1], of_job.right, of_job.least, most)
