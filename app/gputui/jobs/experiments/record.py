"""An experiment: variants of one command with their runs, and what each came to; its JSON and CSV.

`gputui compare` makes one of kind "comparison", whose variants run one after another on devices that are held
for all of them; `gputui each` one of kind "sweep", whose variants (tasks) get devices of their own.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from statistics import median
from typing import Any, Literal, NamedTuple

from gputui.inventory.job import PidScope
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.process import Identity
from gputui.inventory.typed_json import (
    DocumentError,
    Figure,
    Moment,
    Positive,
    Record,
    Words,
    inside,
    iso,
    list_of,
    schema,
    within,
)
from gputui.jobs.experiments.axes import label
from gputui.jobs.process_tree import alive, here, identity

SCHEMA = 1

Kind = Literal["comparison", "sweep"]
State = Literal["running", "done", "stopped"]
"""running: somebody starts its runs; done: every run was made; stopped: `--resume` goes on with it."""

RunState = Literal["waiting", "running", "done", "failed", "timeout", "stopped"]
"""waiting: to be started, or started again; done: its command ended with status 0; failed: it ended
otherwise, or could not be started; timeout: stopped because it took too long; stopped: by somebody, or
together with its experiment."""

Basis = Literal["metric", "runtime", "wall"]
"""What variants are compared by: the figure of `--metric`, the training's own clock, or the process's."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a variant. None is "not known", or not yet.

    round             1 for the first of its variant; 0 is a warm-up, which no row has
    job               the id of its last job
    status            as a shell gives it: 128 + n after signal n
    reason            why it could not be started, or how it ended is not known
    wall              seconds of the process
    runtime           seconds of the training by its own log
    steps_per_second  by its log;  metric: what the user's pattern found
    peak_memory       bytes: the most that one of its devices had in use
    utilization       percent: the mean over its devices and its time
    signal            the number of the one that ended it
    utilizations      percent: the mean over its time, of each of its devices
    attempts          how often it was started
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
    """A variant: the values of the axes in their order, its launch line, its devices' labels, its runs; the
    words of its command without secrets, and what tells it from the others."""

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
        """The run of a round."""
        return next((run for run in self.runs if run.round == number), None)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as it stands. Times are seconds since the epoch.

    command    the words of the call's command, without secrets; () where its tasks are lines of a file
    devices    labels of all devices that are held
    axes       names as `--vary` has them, and headings
    repeat     runs of each variant
    metric     the user's pattern; `less` says that less of it is better
    directory  where it was called, and its commands start
    call       the options of the call, without secrets
    withheld   what was not kept of it: names of options and variables; see `launching/secrets.py`
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
        """A variant in a few words."""
        pairs = zip(self.axes, row.values, strict=True)
        return row.label or label([(heading, value) for (_, heading), value in pairs])

    @property
    def title(self) -> str:
        """What is varied, in a few words."""
        return " × ".join(heading for _, heading in self.axes) or " ".join(self.rows[0].words)

    @property
    def made(self) -> int:
        """How many runs have ended, without one that was stopped together with its experiment."""
        over = ("done", "failed", "timeout", *(("stopped",) if self.state != "stopped" else ()))
        return sum(run.state in over for row in self.rows for run in row.runs)

    @property
    def wanted(self) -> int:
        """How many runs there are to be."""
        return len(self.rows) * self.repeat

    def state_of(self, row: Row) -> RunState:
        """How a variant stands: done if all its runs are."""
        found = {run.state for run in row.runs}
        for state in ("running", "failed", "timeout", "stopped"):
            if state in found:
                return state
        return "waiting" if len(row.runs) < self.repeat or "waiting" in found else "done"

    def count(self, *states: RunState) -> int:
        """How many variants are in one of these states."""
        return sum(self.state_of(row) in states for row in self.rows)

    @property
    def went_well(self) -> bool:
        """Whether every task did; of a comparison one run is enough."""
        if self.kind == "sweep":
            return self.count("done") == len(self.rows)
        return any(run.state == "done" for row in self.rows for run in row.runs)

    @property
    def basis(self) -> Basis:
        """The clock of the training counts where every run that went well has it: it leaves start-up out."""
        if self.metric is not None:
            return "metric"
        good = [run for row in self.rows for run in row.runs if run.state == "done"]
        return "runtime" if good and all(run.runtime is not None for run in good) else "wall"

    @property
    def compares(self) -> bool:
        """Whether its variants are told apart by how much they differ from the best: tasks that run beside
        one another are not, unless by a metric of the user's."""
        return self.kind == "comparison" or self.metric is not None

    @property
    def more_is_better(self) -> bool:
        return self.basis == "metric" and not self.less

    def with_run(self, place: int, run: Run, **more: Any) -> Experiment:
        """With this run in place of the one of its round, and the row changed besides."""
        rows = list(self.rows)
        others = [each for each in rows[place].runs if each.round != run.round]
        rows[place] = replace(rows[place], runs=(*others, run), **more)
        return replace(self, rows=tuple(rows))


class Spread(NamedTuple):
    """The median of several runs, and the least and the most."""

    median: float
    low: float
    high: float


FIGURES = ("wall", "runtime", "steps_per_second", "metric", "peak_memory", "utilization")
"""The figures of a run by the names that the JSON has."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a variant came to by the runs that went well.

    spreads     by the names of FIGURES; None where no such run has the figure
    basis       what variants are compared by
    difference  percent from the best variant, which has 0
    failed      runs that have ended and did not go well
    """

    row: Row
    spreads: Mapping[str, Spread | None]
    basis: Spread | None
    failed: tuple[Run, ...]
    difference: float | None = None


def summaries(experiment: Experiment) -> list[Summary]:
    """What each variant came to, in the order of the variants."""
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
        # (Most have one run only, and `median` takes its time.)
        return Spread(known[0], known[0], known[0])
    return Spread(median(known), min(known), max(known)) if known else None


def log_of(job: str | None, jobs: PurePath) -> PurePath | None:
    """The log of a job; `jobs` is their folder."""
    return None if job is None else jobs / job / "log"


# JSON and CSV


def document(experiment: Experiment, jobs: PurePath) -> dict[str, Any]:
    """The experiment as JSON: what is kept, and what follows from it. `jobs` is the folder with the logs."""
    axes = tuple(_Axis(*axis) for axis in experiment.axes)
    return {
        **_EXPERIMENT.write(experiment, schema=SCHEMA, axes=axes),
        "basis": experiment.basis,
        _ROWS[experiment.kind]: [
            _row_document(experiment, number, summary, jobs)
            for number, summary in enumerate(summaries(experiment), 1)
        ],
    }


_ROWS: Mapping[Kind, str] = {"comparison": "variants", "sweep": "tasks"}


def _row_document(experiment: Experiment, number: int, summary: Summary, jobs: PurePath) -> dict[str, Any]:
    """A variant: what its last run came to is there by itself, as most have one only."""
    row, last = summary.row, summary.row.last or Run(1, None, "waiting", attempts=0)
    log = log_of(last.job, jobs)
    return {
        "task": number,
        "label": experiment.label(row),
        "command": list(row.words),
        "state": experiment.state_of(row),
        "devices": list(row.devices),
        "job": last.job,
        "attempts": last.attempts,
        "status": last.status,
        "signal": last.signal,
        "reason": last.reason,
        "started": _moment(last.started),
        "ended": _moment(last.ended),
        "seconds": None if last.wall is None else round(last.wall, 3),
        "log": None if log is None else str(log),
        "values": list(row.values),
        "launch": row.line,
        "difference": summary.difference,
        "summary": {name: spread and spread._asdict() for name, spread in summary.spreads.items()},
        "runs": [_RUN.write(run) for run in row.runs],
    }


def as_csv(experiment: Experiment) -> str:
    """A line a run, with a column for each axis; the first line has the names."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*(name for name, _ in experiment.axes), *(row[1] for row in _RUN.rows)])
    for row in experiment.rows:
        for run in row.runs:
            found = _RUN.write(run)
            found["utilizations"] = " ".join("" if each is None else str(each) for each in run.utilizations)
            writer.writerow([*row.values, *found.values()])
    return stream.getvalue()


# Read again


@dataclass(frozen=True, slots=True)
class _Axis:
    name: str
    heading: str


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that runs what a record tells of."""

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
        """Whether it is there; on another machine nobody can tell, and it counts."""
        now = here()
        if PidScope(self.host, self.boot, self.pids) == now:
            return alive(Identity(self.pid, self.ticks))
        # (This machine after a reboot.)
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
_EXPERIMENT = Record(
    Experiment,
    "schema id state created ended directory call withheld command devices axes repeat metric"
    " less_is_better=less",
    "id command devices axes repeat metric less directory call withheld",
    schema=schema(SCHEMA),
    created=Moment,
    ended=Moment | None,
    directory=Words,
    call=tuple[Words, ...],
    withheld=tuple[Words, ...],
    command=tuple[Words, ...],
    devices=tuple[Words, ...],
    axes=tuple[_Axis, ...],
    repeat=Positive,
)


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def read(value: Any, name: str) -> Experiment:
    """The experiment of a document, of an earlier version too; its id is `name`. One that nobody runs any
    more is stopped. Raises DocumentError."""
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
    """The run of a task of an earlier version, which had one only, in the task itself."""
    run = _RUN.read({"round": 1, **value})
    wall = run.ended - run.started if run.ended is not None and run.started is not None else None
    return (replace(run, wall=wall),) if run.attempts or run.state != "waiting" else ()
