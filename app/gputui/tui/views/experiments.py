"""Lines of the results of an experiment, and its row in the list of jobs."""

from __future__ import annotations

from gputui.inventory.job import Job
from gputui.inventory.quoting import quote
from gputui.jobs.experiments import table as text
from gputui.jobs.experiments.record import Experiment, summaries
from gputui.jobs.experiments.table import bars, by_what, figures, table
from gputui.tui.views.text import Line, clip, title, told_lines

_STATUS = {"done": 0, "failed": 1}
"""The exit status of the call that ran an experiment, by its outcome."""


def row_of(experiment: Experiment) -> Job:
    """The row of an experiment that ran in a terminal, in the form of a job."""
    words = experiment.request.words
    return Job(
        id=experiment.id,
        line=" ".join(map(quote, words)),
        argv=words,
        directory=experiment.directory,
        created=experiment.created,
        started=experiment.created,
        ended=experiment.ended,
        status=_STATUS.get(experiment.outcome),
        state=experiment.outcome,
    )


def details(experiment: Experiment, width: int) -> list[Line]:
    """The table of an experiment, and the bars of its figures."""
    lines = [title(text.headline(experiment), width)]
    heading, *rows = table(experiment, width - 1)
    lines.append(clip(((f" {heading}", "dim"),), width))
    for row, summary in zip(rows, summaries(experiment), strict=True):
        style = "strong" if summary.difference == 0 else "lost" if summary.failed else ""
        lines.append(clip(((f" {row}", style),), width))
    known = figures(experiment) if experiment.compares else []
    lines += told_lines(by_what(experiment), "dim", width) if known else []
    for each in known:
        lines += [
            title(each.title, width),
            *(clip(((line, ""),), width) for line in bars(experiment, each, width)),
        ]
    return lines
