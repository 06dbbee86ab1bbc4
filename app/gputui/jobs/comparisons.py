"""The comparisons that are kept in the state folder, and how their records are read."""

from __future__ import annotations

from gputui.inventory.untrusted_json import JsonValue
from gputui.jobs.kept_records import Store, state_of
from gputui.jobs.record_fields import any_text, check_schema, maybe_moment, maybe_whole, texts
from gputui.planning.comparison import SCHEMA, Comparison, Row, Run, RunState, document
from gputui.planning.comparison_axes import MOST_VARIANTS

_MOST_RUNS = 100_000
_MOST_FIGURE = 1e30
_STATES: tuple[RunState, ...] = ("running", "done", "failed", "timeout", "stopped")


def _comparison(top: JsonValue, name: str) -> Comparison:
    check_schema(top, SCHEMA)
    axes = tuple((axis["name"].text(), axis["heading"].text()) for axis in top["axes"].items(MOST_VARIANTS))
    rows = tuple(_row(row, len(axes)) for row in top["variants"].items(MOST_VARIANTS))
    if not axes or not rows:
        raise top["variants"].wrong("variants")
    metric = top["metric"]
    return Comparison(
        id=name,
        state=state_of(top),
        created=top["created"].moment(),
        command=texts(top["command"]),
        devices=texts(top["devices"]),
        axes=axes,
        rows=rows,
        repeat=top["repeat"].whole(least=1),
        metric=metric.text() if metric.known else None,
        less=top["less_is_better"].yes(),
        ended=maybe_moment(top["ended"]),
    )


def _row(row: JsonValue, axes: int) -> Row:
    values = texts(row["values"], MOST_VARIANTS)
    if len(values) != axes:
        raise row["values"].wrong("a value of each axis")
    runs = tuple(_run(run) for run in row["runs"].items(_MOST_RUNS))
    return Row(values, any_text(row["launch"]), texts(row["devices"]), runs)


def _run(run: JsonValue) -> Run:
    state = run["state"].word(_STATES)
    job, reason = run["job"], run["reason"]
    return Run(
        round=run["round"].whole(least=1),
        job=job.text() if job.known else None,
        state=next(each for each in _STATES if each == state),
        status=maybe_whole(run["status"]),
        reason=reason.text() if reason.known else None,
        wall=_figure(run["wall"]),
        runtime=_figure(run["runtime"]),
        steps_per_second=_figure(run["steps_per_second"]),
        metric=_figure(run["metric"]),
        peak_memory=maybe_whole(run["peak_memory"]),
        utilization=_figure(run["utilization"]),
        signal=maybe_whole(run.get("signal", None)),
    )


def _figure(node: JsonValue) -> float | None:
    """A figure, which a user's pattern may find below zero."""
    if not node.known:
        return None
    if type(node.value) not in (int, float) or not -_MOST_FIGURE <= node.value <= _MOST_FIGURE:
        raise node.wrong("a number")
    return float(node.value)


COMPARISONS: Store[Comparison] = Store(
    word="comparison",
    subcommand="compare",
    document=lambda comparison, _: document(comparison),
    made=_comparison,
)
