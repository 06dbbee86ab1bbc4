"""Lines of the experiments page: the list of experiments, and the table and bars of one of them."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.columns import Column
from gputui.jobs.columns import SIGNS
from gputui.jobs.experiments import table as text
from gputui.jobs.experiments.record import Experiment, summaries
from gputui.jobs.experiments.table import bars, by_what, experiment_columns, figures, table
from gputui.tui.views.text import Line, clip, table_lines, title, told_lines

NONE = "no experiments: v on the page of jobs, gputui compare or gputui each makes one"


def headline(found: Sequence[Experiment], unreadable: int, width: int) -> Line:
    """The title of the page, with the numbers of running, of all and of unreadable experiments."""
    running = sum(each.state == "running" for each in found)
    counts = [f"{running} of {len(found)} running"] if found else []
    counts += [f"{unreadable} cannot be read: --list says why"] if unreadable else []
    return title("experiments", width, ", ".join(counts))


def listed(found: Sequence[Experiment], width: int, now: float) -> list[Line]:
    """The headings, and one line per experiment. `now` is seconds since the epoch."""
    signed = Column[Experiment](
        "  ID", lambda each: f"{SIGNS[each.outcome][0]} {each.id}", lambda each: SIGNS[each.outcome][1]
    )
    columns = [signed, *experiment_columns(now)[1:]]
    return [clip(line, width) for line in table_lines(columns, found, heading=True)]


def details(experiment: Experiment, figure: int, width: int, room: int) -> list[Line]:
    """The table of an experiment, and the bars of its figures from index `figure` on, which wraps around. The
    bars of that figure are always included, those of the next ones only if they fit into `room` lines."""
    lines = [title(text.headline(experiment), width)]
    heading, *rows = table(experiment, width - 1)
    lines.append(clip(((f" {heading}", "dim"),), width))
    for row, summary in zip(rows, summaries(experiment), strict=True):
        style = "strong" if summary.difference == 0 else "lost" if summary.failed else ""
        lines.append(clip(((f" {row}", style),), width))
    known = figures(experiment) if experiment.compares else []
    if not known:
        return lines
    lines += told_lines(by_what(experiment), "dim", width)
    start = figure % len(known)
    for place in range(start, start + len(known)):
        number = place % len(known)
        each = known[number]
        block = [title(each.title, width, f"{number + 1} of {len(known)}")]
        block += [clip(((line, ""),), width) for line in bars(experiment, each, width)]
        if place > start and len(lines) + len(block) > room:
            break
        lines += block
    return lines
