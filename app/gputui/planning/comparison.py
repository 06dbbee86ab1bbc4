"""A comparison: variants of one command with their runs, what each came to, and its JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from statistics import median
from typing import Any, Literal, NamedTuple

from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.planning.comparison_axes import label

SCHEMA = 1

RunState = Literal["running", "done", "failed", "timeout", "stopped"]
"""failed also for a command that could not be started; timeout: stopped as it took too long; stopped: by
somebody, or together with its comparison."""

Basis = Literal["metric", "runtime", "wall"]
"""What variants are compared by: the figure of `--metric`, the training's own clock, or the process's."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a variant. None is "not known".

    round             1 for the first of its variant; 0 is a warm-up, which no row has
    job               its id, None where there could be none
    status            as a shell gives it: 128 + n after signal n
    reason            why it could not be started
    wall              seconds of the process
    runtime           seconds of the training by its own log
    steps_per_second  by its log;  metric: what the user's pattern found
    peak_memory       bytes: the most that one of its devices had in use
    utilization       percent: the mean over its devices and its time
    signal            the number of the one that ended it
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


@dataclass(frozen=True, slots=True)
class Row:
    """A variant: the values of the axes in their order, its launch line, its devices' labels, its runs."""

    values: tuple[str, ...]
    line: str
    devices: tuple[str, ...]
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison as it stands. Times are seconds since the epoch.

    state     running; done: every run was made; stopped: it was ended before (its rows stay)
    axes      names as `--vary` has them, and headings
    metric    the user's pattern; `less` says that less of it is better
    repeat    runs of each variant
    devices   labels of all devices that are held
    """

    id: str
    state: Literal["running", "done", "stopped"]
    created: float
    command: tuple[str, ...]
    devices: tuple[str, ...]
    axes: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    repeat: int = 1
    metric: str | None = None
    less: bool = False
    ended: float | None = None

    def label(self, row: Row) -> str:
        """A variant in a few words."""
        return label([(heading, value) for (_, heading), value in zip(self.axes, row.values, strict=True)])

    @property
    def title(self) -> str:
        """What is compared, in a few words."""
        return " × ".join(heading for _, heading in self.axes)

    @property
    def made(self) -> int:
        """How many runs have ended, without the one that was stopped together with its comparison."""
        over = ("done", "failed", "timeout", *(("stopped",) if self.state != "stopped" else ()))
        return sum(run.state in over for row in self.rows for run in row.runs)

    @property
    def basis(self) -> Basis:
        """The clock of the training counts where every run that went well has it: it leaves start-up out."""
        if self.metric is not None:
            return "metric"
        good = [run for row in self.rows for run in row.runs if run.state == "done"]
        return "runtime" if good and all(run.runtime is not None for run in good) else "wall"

    @property
    def more_is_better(self) -> bool:
        return self.basis == "metric" and not self.less


class Spread(NamedTuple):
    """The median of several runs, and the least and the most."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a variant came to: the runs that went well, None where no such run has the figure.

    basis       what variants are compared by
    difference  percent from the best variant, which has 0
    failed      runs that have ended and did not go well
    """

    row: Row
    basis: Spread | None
    wall: Spread | None
    runtime: Spread | None
    steps_per_second: Spread | None
    metric: Spread | None
    peak_memory: Spread | None
    utilization: Spread | None
    failed: tuple[Run, ...]
    difference: float | None = None


FIGURES: Mapping[str, Callable[[Run], float | None]] = {
    "wall": lambda run: run.wall,
    "runtime": lambda run: run.runtime,
    "steps_per_second": lambda run: run.steps_per_second,
    "metric": lambda run: run.metric,
    "peak_memory": lambda run: run.peak_memory,
    "utilization": lambda run: run.utilization,
}
"""The figures of a run by the names that the JSON has."""


def summaries(comparison: Comparison) -> list[Summary]:
    """What each variant came to, in the order of the variants."""
    found = [_summary(row, comparison.basis) for row in comparison.rows]
    medians = [each.basis.median for each in found if each.basis is not None]
    if not medians:
        return found
    best = max(medians) if comparison.more_is_better else min(medians)
    return [_compared(each, best) for each in found]


def _summary(row: Row, basis: Basis) -> Summary:
    good = [run for run in row.runs if run.state == "done"]
    spreads = {name: _spread([read(run) for run in good]) for name, read in FIGURES.items()}
    failed = tuple(run for run in row.runs if run.state not in ("done", "running"))
    return Summary(
        row,
        spreads[basis],
        spreads["wall"],
        spreads["runtime"],
        spreads["steps_per_second"],
        spreads["metric"],
        spreads["peak_memory"],
        spreads["utilization"],
        failed,
    )


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


def _compared(summary: Summary, best: float) -> Summary:
    if summary.basis is None or best == 0:
        return summary
    return replace(summary, difference=(summary.basis.median / best - 1) * 100)


# JSON and CSV


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON: what is kept, and what follows from it (`basis`, `difference`, `summary`)."""
    return {
        "schema": SCHEMA,
        "id": comparison.id,
        "state": comparison.state,
        "created": _moment(comparison.created),
        "ended": _moment(comparison.ended),
        "command": list(comparison.command),
        "devices": list(comparison.devices),
        "axes": [{"name": name, "heading": heading} for name, heading in comparison.axes],
        "repeat": comparison.repeat,
        "metric": comparison.metric,
        "less_is_better": comparison.less,
        "basis": comparison.basis,
        "variants": [_variant(summary) for summary in summaries(comparison)],
    }


def _variant(summary: Summary) -> dict[str, Any]:
    row = summary.row
    figures = {name: getattr(summary, name) for name in FIGURES}
    return {
        "values": list(row.values),
        "launch": row.line,
        "devices": list(row.devices),
        "difference": summary.difference,
        "summary": {name: spread and spread._asdict() for name, spread in figures.items()},
        "runs": [{name: getattr(run, name) for name in run_fields()} for run in row.runs],
    }


def run_fields() -> tuple[str, ...]:
    """The names of what is known of a run."""
    return tuple(Run.__dataclass_fields__)


def as_csv(comparison: Comparison) -> str:
    """A line a run, with a column for each axis; the first line has the names."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    fields = run_fields()
    writer.writerow([*(name for name, _ in comparison.axes), *fields])
    for row in comparison.rows:
        for run in row.runs:
            writer.writerow([*row.values, *(getattr(run, name) for name in fields)])
    return stream.getvalue()


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
