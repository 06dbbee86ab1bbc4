"""An experiment: variants of one command with their runs and results, and its JSON and CSV.

`gputui compare` makes one of kind "comparison", whose variants run on devices that are held for all of them.
`gputui each` makes one of kind "sweep", whose variants (tasks) get devices of their own.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

from gputui.inventory.job import PidScope
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.process import Identity
from gputui.inventory.typed_json import (
    SCHEMA_KEY,
    Document,
    DocumentError,
    Figure,
    Form,
    Moment,
    Positive,
    Record,
    View,
    Words,
    inside,
    list_of,
    within,
)
from gputui.jobs.experiments.axes import label
from gputui.jobs.process_tree import alive, here, identity

Kind = Literal["comparison", "sweep"]
State = Literal["running", "done", "stopped"]
"""running: a process starts its runs; done: every run was made; stopped: `--resume` continues it."""

RunState = Literal["waiting", "running", "done", "failed", "timeout", "stopped"]
"""waiting: to be started, or started again; done: its command ended with status 0; failed: it ended with
another status, or could not be started; timeout: stopped because it took too long; stopped: stopped by a
user, or together with its experiment."""

Basis = Literal["metric", "runtime", "wall"]
"""The figure that variants are compared by: that of `--metric`, the time in the training's log, or the time
of the process."""


@dataclass(frozen=True, slots=True)
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

    round: int
    job: str | None
    state: RunState
    status: int | None = None
    reason: str | None = None
    wall: float | None = None
    runtime: float | None = None
    steps_per_second: float | None = None
    metric: float | None = None
    peak_memory: int | None = None
    utilization: float | None = None
    signal: int | None = None
    utilizations: tuple[float | None, ...] = ()
    attempts: int = 1
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A variant: the values of the axes in their order, its launch line, the labels of its devices, its runs,
    the words of its command without secrets, and its label."""

    values: tuple[str, ...]
    line: str
    devices: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    words: tuple[str, ...] = ()
    label: str = ""

    @property
    def last(self) -> Run | None:
        """The run that began last."""
        return self.runs[-1] if self.runs else None

    def run_of(self, number: int) -> Run | None:
        """Return the run of a round, or None."""
        return next((run for run in self.runs if run.round == number), None)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment with the present state of its runs. Times are seconds since the epoch.

    command    the words of the call's command, without secrets; () where its tasks are lines of a file
    devices    labels of all devices that are held
    axes       the name in `--vary`, and the heading, of each axis
    repeat     runs of each variant
    metric     the user's pattern
    less       whether a lower metric is better
    directory  the working directory of the call and of its commands
    call       the options of the call, without secrets
    withheld   the names of options and variables whose values were not kept; see `launching/secrets.py`
    """

    id: str
    state: State
    created: float
    command: tuple[str, ...]
    devices: tuple[str, ...]
    axes: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    repeat: int = 1
    metric: str | None = None
    less: bool = False
    ended: float | None = None
    kind: Kind = "comparison"
    directory: str = ""
    call: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    def label(self, row: Row) -> str:
        """Return the label of a variant."""
        pairs = zip(self.axes, row.values, strict=True)
        return row.label or label([(heading, value) for (_, heading), value in pairs])

    @property
    def title(self) -> str:
        """The headings of the axes, or the command where no axis is varied."""
        return " × ".join(heading for _, heading in self.axes) or " ".join(self.rows[0].words)

    @property
    def made(self) -> int:
        """The number of runs that have ended, without a run that was stopped together with its experiment."""
        over = ("done", "failed", "timeout", *(("stopped",) if self.state != "stopped" else ()))
        return sum(run.state in over for row in self.rows for run in row.runs)

    @property
    def wanted(self) -> int:
        """The number of runs that the experiment makes in all."""
        return len(self.rows) * self.repeat

    def state_of(self, row: Row) -> RunState:
        """Return the state of a variant: done if all its runs are done."""
        found = {run.state for run in row.runs}
        for state in ("running", "failed", "timeout", "stopped"):
            if state in found:
                return state
        return "waiting" if len(row.runs) < self.repeat or "waiting" in found else "done"

    def count(self, *states: RunState) -> int:
        """Count the variants that are in one of these states."""
        return sum(self.state_of(row) in states for row in self.rows)

    @property
    def went_well(self) -> bool:
        """Whether every task is done; for a comparison, one run that is done is enough."""
        if self.kind == "sweep":
            return self.count("done") == len(self.rows)
        return any(run.state == "done" for row in self.rows for run in row.runs)

    @property
    def basis(self) -> Basis:
        """The figure that variants are compared by. The time in the log counts if every successful run has
        it, because it leaves start-up out."""
        if self.metric is not None:
            return "metric"
        good = [run for row in self.rows for run in row.runs if run.state == "done"]
        return "runtime" if good and all(run.runtime is not None for run in good) else "wall"

    @property
    def compares(self) -> bool:
        """Whether its variants are compared with the best one. Tasks that run at the same time are not,
        except by a metric of the user's."""
        return self.kind == "comparison" or self.metric is not None

    @property
    def more_is_better(self) -> bool:
        return self.basis == "metric" and not self.less

    def with_run(self, place: int, run: Run, **more: Any) -> Experiment:
        """Replace the run of the same round by this run, and change fields of the row by `more`."""
        rows = list(self.rows)
        others = [each for each in rows[place].runs if each.round != run.round]
        rows[place] = replace(rows[place], runs=(*others, run), **more)
        return replace(self, rows=tuple(rows))


class Spread(NamedTuple):
    """The median of several runs, with the minimum and the maximum."""

    median: float
    low: float
    high: float


FIGURES = ("wall", "runtime", "steps_per_second", "metric", "peak_memory", "utilization")
"""The names of the figures of a run, as in the JSON."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a variant, computed from its runs that are done.

    spreads     by the names of FIGURES; None where no such run has the figure
    basis       the spread of the figure that variants are compared by
    failed      runs that have ended and are not done
    difference  percent from the best variant, which has 0
    """

    row: Row
    spreads: Mapping[str, Spread | None]
    basis: Spread | None
    failed: tuple[Run, ...]
    difference: float | None = None


def summaries(experiment: Experiment) -> list[Summary]:
    """Return the result of each variant, in the order of the variants."""
    basis = experiment.basis
    found = [_summary(row, basis) for row in experiment.rows]
    medians = [each.basis.median for each in found if each.basis is not None]
    best = (max if experiment.more_is_better else min)(medians, default=0.0)
    if best == 0 or not experiment.compares:
        return found
    return [
        replace(each, difference=(each.basis.median / best - 1) * 100) if each.basis is not None else each
        for each in found
    ]


def _summary(row: Row, basis: Basis) -> Summary:
    good = [run for run in row.runs if run.state == "done"]
    spreads = {name: _spread([getattr(run, name) for run in good]) for name in FIGURES}
    failed = tuple(run for run in row.runs if run.state in ("failed", "timeout", "stopped"))
    return Summary(row, spreads, spreads[basis], failed)


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if len(known) == 1:
        # Most variants have one run only, and `median` is slow.
        return Spread(known[0], known[0], known[0])
    return Spread(median(known), min(known), max(known)) if known else None


def log_of(job: str | None, jobs: PurePath) -> PurePath | None:
    """Return the path of the log of a job; `jobs` is the folder of the jobs."""
    return None if job is None else jobs / job / "log"


# JSON and CSV


def document(experiment: Experiment, jobs: PurePath) -> dict[str, Any]:
    """Return the experiment as JSON: its fields, and the figures that follow from them. `jobs` is the folder
    of the jobs with their logs."""
    rows = [
        _row_document(experiment, number, summary, jobs)
        for number, summary in enumerate(summaries(experiment), 1)
    ]
    axes = tuple(_Axis(*axis) for axis in experiment.axes)
    return DOCUMENTS[experiment.kind].write(experiment, axes=axes, **{_ROWS[experiment.kind]: rows})


_ROWS: Mapping[Kind, str] = {"comparison": "variants", "sweep": "tasks"}


def _row_document(experiment: Experiment, number: int, summary: Summary, jobs: PurePath) -> dict[str, Any]:
    """Return a variant as JSON. The result of its last run is also on the top level, as most variants have
    one run only."""
    row, last = summary.row, summary.row.last or Run(1, None, "waiting", attempts=0)
    log = log_of(last.job, jobs)
    return _ROW_DOCUMENT.write(
        last,
        task=number,
        label=experiment.label(row),
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


@dataclass(frozen=True, slots=True)
class _Axis:
    name: str
    heading: str


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that runs a recorded experiment."""

    host: Words
    boot: Words | None
    pids: Words | None
    pid: Positive
    ticks: int | None

    @classmethod
    def own(cls) -> Runner:
        """This process."""
        scope, process = here(), identity(os.getpid())
        return cls(scope.host, scope.boot, scope.pids, process.pid, process.ticks)

    @property
    def runs(self) -> bool:
        """Whether it exists. On another machine or in another PID namespace that cannot be told, and it
        counts as existing."""
        now = here()
        if PidScope(self.host, self.boot, self.pids) == now:
            return alive(Identity(self.pid, self.ticks))
        # After a reboot of this machine the process is gone.
        return not (self.host == now.host and self.boot != now.boot)


RUNNER = Record(Runner)
_FIGURES: dict[str, Any] = {name: Figure | None for name in FIGURES if name != "peak_memory"}
_RUN = Record(
    Run,
    "",
    "signal utilizations attempts started ended peak_memory wall runtime steps_per_second metric utilization",
    round=Positive,
    job=Words | None,
    reason=Words | None,
    utilizations=tuple[Figure | None, ...],
    started=Moment | None,
    ended=Moment | None,
    **_FIGURES,
)
_ROW = Record(
    Row,
    "values launch=line devices runs command=words label",
    "values line runs words label",
    values=tuple[Words, ...],
    line=Words,
    devices=tuple[Words, ...],
    words=tuple[Words, ...],
    label=Words,
)
_SPREAD = View(Spread, "median low high", **dict.fromkeys(Spread._fields, Figure))
_SUMMARY = View(None, " ".join(FIGURES), **dict.fromkeys(FIGURES, _SPREAD.one | None))
_ROW_DOCUMENT = View(
    Run,
    "task label command state devices job attempts status signal reason started ended seconds=wall log values"
    " launch difference summary runs",
    task=Positive,
    label=Words,
    command=tuple[Words, ...],
    devices=tuple[Words, ...],
    job=Words | None,
    reason=Words | None,
    started=Moment | None,
    ended=Moment | None,
    wall=Annotated[float, Form(float, lambda seconds: round(seconds, 3))] | None,
    log=Words | None,
    values=tuple[Words, ...],
    launch=Words,
    difference=Figure | None,
    summary=_SUMMARY.one,
    runs=_RUN.list,
)
_KEYS = (
    "id state created ended directory call withheld command devices axes repeat metric less_is_better=less"
)
_KINDS: dict[str, Any] = {
    "created": Moment,
    "ended": Moment | None,
    "directory": Words,
    **dict.fromkeys(("call", "withheld", "command", "devices"), tuple[Words, ...]),
    "axes": Record(_Axis).list,
    "repeat": Positive,
}
_EXPERIMENT = Record(
    Experiment,
    f"schema {_KEYS}",
    "id command devices axes repeat metric less directory call withheld",
    schema=SCHEMA_KEY,
    **_KINDS,
)
DOCUMENTS: Mapping[Kind, Document] = {
    kind: Document(f"{_KEYS} basis {rows}", Experiment, **_KINDS, **{rows: _ROW_DOCUMENT.list})
    for kind, rows in _ROWS.items()
}
LISTS: Mapping[Kind, Document] = {
    kind: Document(f"{kind}s", **{f"{kind}s": of_one.list}) for kind, of_one in DOCUMENTS.items()
}


def read(value: Any, name: str) -> Experiment:
    """Read the experiment of a document, also of an earlier version; its id is `name`. An experiment that no
    process runs any more is stopped. Raises DocumentError."""
    facts = _EXPERIMENT.facts(value)
    del facts["schema"]
    kind: Kind = "sweep" if "tasks" in value else "comparison"
    axes = tuple((axis.name, axis.heading) for axis in facts.get("axes", ()))
    rows = inside(
        _ROWS[kind],
        lambda found: list_of(lambda row: _row(row, len(axes)), found),
        within(value, _ROWS[kind]),
    )
    if not rows or (kind == "comparison" and not axes):
        raise DocumentError("variants expected", _ROWS[kind])
    if facts["state"] == "running":
        runner = inside("runner", RUNNER.read, value["runner"]) if "runner" in value else None
        facts["state"] = "running" if runner is not None and runner.runs else "stopped"
    own = {"id": name, "axes": axes, "rows": rows, "kind": kind}
    return Experiment(**{"command": (), "devices": (), **facts, **own})


def _row(value: Any, axes: int) -> Row:
    facts = {"values": (), "line": "", **_ROW.facts(value)}
    if len(facts["values"]) != axes:
        raise DocumentError("a value of each axis expected", "values")
    if not axes and not facts.get("words"):
        raise DocumentError("a command expected", "command")
    if "runs" not in facts:
        facts["runs"] = _only_run(value)
    return Row(**facts)


def _only_run(value: dict[str, Any]) -> tuple[Run, ...]:
    """Read the run of a task of an earlier version, in which the task itself had the fields of its only
    run."""
    run = _RUN.read({"round": 1, **value})
    wall = run.ended - run.started if run.ended is not None and run.started is not None else None
    return (replace(run, wall=wall),) if run.attempts or run.state != "waiting" else ()
