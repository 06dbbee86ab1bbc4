"""An experiment: variants of one command with their runs and results, and its JSON and CSV.

`gputui compare` makes one of kind "comparison", whose variants run on devices that are held for all of them.
`gputui each` makes one of kind "sweep", whose variants (tasks) get devices of their own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

from gputui.inventory.job import Part
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.typed_json import (
    SCHEMA_KEY,
    Document,
    DocumentError,
    Figure,
    Form,
    Json,
    Moment,
    Positive,
    Record,
    View,
    WordList,
    Words,
    form_of,
    inside,
    within,
)
from gputui.jobs.experiments.request import NAMES, ExperimentRequest, Kind

State = Literal["running", "done", "stopped"]
"""running: a process starts its runs; done: every run was made; stopped: `--resume` continues it."""

RunState = Literal["waiting", "running", "done", "failed", "timeout", "stopped"]
"""waiting: to be started, or started again; done: its command ended with status 0; failed: it ended with
another status, or could not be started; timeout: stopped because it took too long; stopped: stopped by a
user, or together with its experiment."""

Basis = Literal["metric", "runtime", "wall"]
"""The figure that variants are compared by: that of `--metric`, the time in the training's log, or the time
of the process."""


@frozen
class Run:
    """One run of a variant. None means not known, or not known yet.

    round             1 for the first run of its variant; 0 for a warm-up, which is in no row
    job               the id of its last job
    status            exit status as in a shell: 128 + n after signal n
    reason            why it could not be started, or that its exit status is not known
    wall              seconds of the process
    runtime           seconds of the training, according to its log
    steps_per_second  according to its log
    metric            the number that the user's pattern matched
    peak_memory       bytes: the most memory in use on one of its devices
    utilization       percent: the mean over its devices and its duration
    signal            the number of the signal that ended it
    utilizations      percent: for each of its devices, the mean over its duration
    attempts          how many times it was started
    started, ended    seconds since the epoch
    """

    round: Positive
    job: Words | None
    state: RunState
    status: int | None = None
    reason: Words | None = None
    wall: Figure | None = None
    runtime: Figure | None = None
    steps_per_second: Figure | None = None
    metric: Figure | None = None
    peak_memory: int | None = None
    utilization: Figure | None = None
    signal: int | None = None
    utilizations: tuple[Figure | None, ...] = ()
    attempts: int = 1
    started: Moment | None = None
    ended: Moment | None = None


@frozen
class Row:
    """A variant: the values of the axes in their order, its label, the words of its command without secrets,
    its runs, and the devices (labels) and the launch line of the last run, empty before the first."""

    values: WordList = ()
    label: Words = ""
    words: WordList = ()
    runs: tuple[Run, ...] = ()
    devices: WordList = ()
    line: Words = ""

    @property
    def last(self) -> Run | None:
        """The run that began last."""
        return self.runs[-1] if self.runs else None

    def run_of(self, number: int) -> Run | None:
        """Return the run of a round, or None."""
        return next((run for run in self.runs if run.round == number), None)


@frozen
class Change:
    """A run that has begun or ended: the index of its variant, the run, and its devices and launch line."""

    place: int
    run: Run
    devices: WordList
    line: Words


@frozen
class Experiment:
    """An experiment with the present state of its runs. Times are seconds since the epoch.

    folder     where its record is; its name is the id of the experiment
    request    without secrets
    axes       the name in `--vary`, and the heading, of each axis
    devices    labels of all devices that are held for all variants
    directory  the working directory of the call and of its commands
    withheld   the names of options and variables whose values were not kept; see `launching/secrets.py`
    job        the id of the job that runs it or ran it last, "" for a terminal
    """

    folder: Path
    state: State
    created: Moment
    request: ExperimentRequest
    axes: tuple[tuple[Words, Words], ...]
    rows: tuple[Row, ...]
    devices: WordList = ()
    ended: Moment | None = None
    directory: Words = ""
    withheld: WordList = ()
    job: Words = ""

    @property
    def id(self) -> str:
        return self.folder.name

    def log(self, run: Run | None) -> Path | None:
        """The path of the log of a run's job."""
        return self.folder.parents[1] / "jobs" / run.job / "log" if run and run.job else None

    @property
    def title(self) -> str:
        """The headings of the axes, or the command where no axis is varied."""
        return " × ".join(heading for _, heading in self.axes) or " ".join(self.rows[0].words)

    @property
    def name(self) -> str:
        """Its kind and id: "comparison d3a4", "each z5v4"."""
        return f"{NAMES[self.request.kind]} {self.id}"

    @property
    def part(self) -> Part:
        """What the job is that runs the experiment."""
        return Part(self.id, f"{self.name} of {self.title}", self.runs_over, self.runs_in_all, whole=True)

    def part_of_run(self, place: int, number: int) -> Part:
        """What the job of a run is: of the variant with this index, in this round."""
        number = (number - 1) * len(self.rows) + place + 1 if number else 0
        return Part(self.id, self.rows[place].label, number, self.runs_in_all)

    @property
    def runs_over(self) -> int:
        """The number of runs that have ended, without a run that was stopped together with its experiment."""
        over = ("done", "failed", "timeout", *(("stopped",) if self.state != "stopped" else ()))
        return sum(run.state in over for row in self.rows for run in row.runs)

    @property
    def runs_in_all(self) -> int:
        """The number of runs that the experiment makes in all."""
        return len(self.rows) * self.request.repeat

    def state_of(self, row: Row) -> RunState:
        """Return the state of a variant: done if all its runs are done."""
        found = {run.state for run in row.runs}
        for state in ("running", "failed", "timeout", "stopped"):
            if state in found:
                return state
        return "waiting" if len(row.runs) < self.request.repeat or "waiting" in found else "done"

    def count(self, *states: RunState) -> int:
        """Count the variants that are in one of these states."""
        return sum(self.state_of(row) in states for row in self.rows)

    @property
    def went_well(self) -> bool:
        """Whether every task is done; for a comparison, one run that is done is enough."""
        if self.request.kind == "sweep":
            return self.count("done") == len(self.rows)
        return any(run.state == "done" for row in self.rows for run in row.runs)

    @property
    def outcome(self) -> str:
        """Its state for people: "failed" for one that is done, but not well."""
        return "failed" if self.state == "done" and not self.went_well else self.state

    @property
    def basis(self) -> Basis:
        """The figure that variants are compared by. The time in the log counts if every successful run has
        it, because it leaves start-up out."""
        if self.request.metric is not None:
            return "metric"
        good = [run for row in self.rows for run in row.runs if run.state == "done"]
        return "runtime" if good and all(run.runtime is not None for run in good) else "wall"

    @property
    def compares(self) -> bool:
        """Whether its variants are compared with the best one. Tasks that run at the same time are not,
        except by a metric of the user's."""
        return self.request.kind == "comparison" or self.request.metric is not None

    @property
    def more_is_better(self) -> bool:
        return self.basis == "metric" and not self.request.less

    def with_changes(self, changes: Iterable[Change]) -> Experiment:
        """Replace, for each change, the run of the same round of its variant."""
        rows = list(self.rows)
        for change in changes:
            row, run = rows[change.place], change.run
            others = [each for each in row.runs if each.round != run.round]
            rows[change.place] = replace(row, runs=(*others, run), devices=change.devices, line=change.line)
        return replace(self, rows=tuple(rows))

    def change(self, place: int, run: Run) -> Change:
        """The change to this run of a variant, whose devices and launch line stay."""
        return Change(place, run, self.rows[place].devices, self.rows[place].line)


class Spread(NamedTuple):
    """The median of several runs, with the minimum and the maximum."""

    median: float
    low: float
    high: float


FIGURES = ("wall", "runtime", "steps_per_second", "metric", "peak_memory", "utilization")
"""The names of the figures of a run, as in the JSON."""


@frozen
class Summary:
    """The result of a variant, computed from its runs that are done.

    number      1 for the first variant
    spreads     by the names of FIGURES; None where no such run has the figure
    basis       the spread of the figure that variants are compared by
    failed      runs that have ended and are not done
    difference  percent from the best variant, which has 0
    """

    number: int
    row: Row
    spreads: Mapping[str, Spread | None]
    basis: Spread | None
    failed: tuple[Run, ...]
    difference: float | None = None


def summaries(experiment: Experiment) -> list[Summary]:
    """Return the result of each variant, in the order of the variants."""
    basis = experiment.basis
    found = [_summary(number, row, basis) for number, row in enumerate(experiment.rows, 1)]
    medians = [each.basis.median for each in found if each.basis is not None]
    best = (max if experiment.more_is_better else min)(medians, default=0.0)
    if best == 0 or not experiment.compares:
        return found
    return [
        replace(each, difference=(each.basis.median / best - 1) * 100) if each.basis is not None else each
        for each in found
    ]


def _summary(number: int, row: Row, basis: Basis) -> Summary:
    good = [run for run in row.runs if run.state == "done"]
    spreads = {name: _spread([getattr(run, name) for run in good]) for name in FIGURES}
    failed = tuple(run for run in row.runs if run.state in ("failed", "timeout", "stopped"))
    return Summary(number, row, spreads, spreads[basis], failed)


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if len(known) == 1:
        # Most variants have one run only, and `median` is slow.
        return Spread(known[0], known[0], known[0])
    return Spread(median(known), min(known), max(known)) if known else None


# JSON and CSV

# The form of the rows within STORED.
Record(Row, "values label command=words runs devices launch=line")
STORED = Record(
    Experiment, "state created request axes rows devices ended directory withheld job", later="job"
)
CHANGE = Record(Change)
"""The forms of the record's files."""
_SCHEMA = form_of(SCHEMA_KEY)
_RUN = Record(Run)
_ROWS: Mapping[Kind, str] = {"comparison": "variants", "sweep": "tasks"}
_SPREAD = View(Spread, "median low high", median=Figure, low=Figure, high=Figure)
_SUMMARY = View(None, " ".join(FIGURES), **dict.fromkeys(FIGURES, _SPREAD.one | None))
_AXIS = View(None, "name heading", name=str, heading=str)
_ROW = View(
    Run,
    "task label command state devices job attempts status signal reason started ended seconds=wall log values"
    " launch difference summary runs",
    task=Positive,
    label=Words,
    command=WordList,
    devices=WordList,
    wall=Annotated[float, Form(float, lambda seconds: round(seconds, 3))] | None,
    log=Words | None,
    values=WordList,
    launch=Words,
    difference=Figure | None,
    summary=_SUMMARY.one,
    runs=_RUN.list,
)
DOCUMENTS: Mapping[Kind, Document] = {
    kind: Document(
        "id state created ended directory call=request.options withheld"
        " command=request.launch.options.command devices axes repeat=request.repeat metric=request.metric"
        f" less_is_better=request.less basis {rows}",
        Experiment,
        call=WordList,
        command=WordList,
        axes=_AXIS.list,
        **{rows: _ROW.list},
    )
    for kind, rows in _ROWS.items()
}
LISTS: Mapping[Kind, Document] = {
    kind: Document(f"{kind}s", **{f"{kind}s": of_one.list}) for kind, of_one in DOCUMENTS.items()
}


def document(experiment: Experiment) -> Json:
    """Return the experiment as JSON, with the figures that follow from its runs."""
    kind = experiment.request.kind
    rows = [_row_document(experiment, each) for each in summaries(experiment)]
    axes = [_AXIS.write(name=name, heading=heading) for name, heading in experiment.axes]
    return DOCUMENTS[kind].write(experiment, axes=axes, **{_ROWS[kind]: rows})


def _row_document(experiment: Experiment, summary: Summary) -> Json:
    """Return a variant as JSON. The result of its last run is also on the top level, as most variants have
    one run only."""
    row, last = summary.row, summary.row.last or Run(1, None, "waiting", attempts=0)
    log = experiment.log(last)
    return _ROW.write(
        last,
        task=summary.number,
        label=row.label,
        command=row.words,
        state=experiment.state_of(row),
        devices=row.devices,
        log=None if log is None else str(log),
        values=row.values,
        launch=row.line,
        difference=summary.difference,
        summary=_SUMMARY.write(**summary.spreads),
        runs=row.runs,
    )


def as_csv(experiment: Experiment) -> str:
    """Return one line per run, with a column for each axis; the first line has the names of the columns."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*(name for name, _ in experiment.axes), *(row[1] for row in _RUN.rows)])
    for row in experiment.rows:
        for run in row.runs:
            found = _RUN.write(run)
            found["utilizations"] = " ".join("" if each is None else str(each) for each in run.utilizations)
            writer.writerow([*row.values, *found.values()])
    return stream.getvalue()


# Reading


def read(value: Any, folder: Path, changes: Iterable[Any]) -> Experiment:
    """Read the experiment in this folder from its record, and apply its changes. Raises DocumentError."""
    inside("schema", _SCHEMA.read, within(value, "schema"))
    found = Experiment(folder, **STORED.facts(value))
    if not found.rows or any(len(row.values) != len(found.axes) for row in found.rows):
        raise DocumentError("expected variants with a value for each axis", "rows")
    return found.with_changes(each for each in map(CHANGE.read, changes) if each.place < len(found.rows))
