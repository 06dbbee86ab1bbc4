"""Jobs of other boxes as lines: one for each job, one for a box without jobs or without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from time import localtime, strftime

from gputui.inventory.formatting import printable
from gputui.jobs.box_jobs import BoxJobs
from gputui.tui.views.jobs import listed, numbers
from gputui.tui.views.text import Line, clip, fit, title, told_lines

_WIDEST = 20
"""The most cells for the name of a box."""


def headline_of_boxes(boxes: Sequence[BoxJobs], end: str, width: int) -> Line:
    """The rule at the top, with the text `end` at its end."""
    asking = sum(box.jobs is None and box.error is None for box in boxes)
    more = [f"asking {asking} of {len(boxes)} boxes"] if asking else []
    jobs = [job for box in boxes for job in box.jobs or ()]
    return title("jobs of other boxes", width, numbers(jobs), *more, end)


def row_keys(boxes: Sequence[BoxJobs]) -> list[tuple[str, str]]:
    """The box and the job's id of each line of `job_rows`, "" for the box itself."""
    return [
        (box.alias, id)
        for box in sorted(boxes, key=_place)
        for id in [*([""] if _facts(box) else []), *(job.id for job in box.jobs or ())]
    ]


def job_rows(boxes: Sequence[BoxJobs], now: float, width: int) -> list[Line]:
    """A heading where there are jobs, and the rows by box, boxes with jobs first: a line for the facts about
    a box and one for each of its jobs; `now` is in seconds since the epoch."""
    boxes = sorted(boxes, key=_place)
    jobs = [job for box in boxes for job in box.jobs or ()]
    lines = iter(listed(jobs, width, now) if jobs else ())
    names = min(_WIDEST, max((len(box.alias) for box in boxes), default=0))
    rows = [next(lines)] if jobs else []
    for box in boxes:
        # The line of the box comes first: its error applies to all jobs below it.
        facts = _facts(box)
        if facts is not None:
            rows.append(clip(((f"  {fit(box.alias, names)}  ", ""), facts), width))
        rows += [next(lines) for _ in box.jobs or ()]
    return rows


def _place(box: BoxJobs) -> int:
    """The sort key of a box: with jobs, then with an error, then not known yet, then without jobs."""
    return 0 if box.jobs else 1 if box.error is not None else 2 if box.jobs is None else 3


def _facts(box: BoxJobs) -> tuple[str, str] | None:
    """The facts about a box in addition to its jobs, and their style; None if there are none."""
    if box.error is not None:
        return f"{_not_asked(box)}: {printable(box.error)}", "lost"
    if box.jobs is None:
        return "asking …", "dim"
    said = [] if box.jobs else ["no jobs"]
    said += [f"{box.more} more: gputui jobs --hosts {box.alias}"] if box.more else []
    said += [f"{box.unreadable} cannot be read: gputui jobs says why there"] if box.unreadable else []
    return (", ".join(said), "dim") if said else None


def _not_asked(box: BoxJobs) -> str:
    """The words for a failed query, with the time of the jobs that are still shown."""
    if box.since is None or not box.jobs:
        return "cannot be queried"
    return f"cannot be queried, jobs as of {strftime('%H:%M:%S', localtime(box.since))}"


def box_lines(box: BoxJobs, width: int) -> list[Line]:
    """The full reason why a box cannot be queried; no lines if it can."""
    if box.error is None:
        return []
    words = f"{box.alias} {_not_asked(box)}: {box.error}. :refresh asks again now"
    return told_lines(printable(words), "warn", width)
