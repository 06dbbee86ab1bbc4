"""The comparisons that are kept: a folder each in the state folder, written, read, found and forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.inventory.untrusted_json import JsonValue
from gputui.jobs.job import JobError
from gputui.jobs.kept_records import (
    MOST_WORDS,
    RecordError,
    Unreadable,
    any_text,
    entries,
    maybe_whole,
    named,
    read_record,
    remove,
    runs,
    texts,
    write_record,
)
from gputui.jobs.store import new_folder
from gputui.planning.comparison import SCHEMA, Comparison, Row, Run, RunState, document
from gputui.planning.comparison_axes import MOST_VARIANTS
from gputui.system.files import NoHomeError, state_folder

FILE = "comparison.json"
_MOST_RUNS = 100_000
_MOST_FIGURE = 1e30
_STATES: tuple[RunState, ...] = ("running", "done", "failed", "timeout", "stopped")


class ComparisonError(Exception):
    """Something that cannot be done with comparisons; the message is one line."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Our comparisons, the oldest first."""

    comparisons: tuple[Comparison, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def comparisons_folder(environ: Mapping[str, str]) -> Path:
    """Raises ComparisonError when there is no home."""
    try:
        return state_folder(environ) / "comparisons"
    except NoHomeError as error:
        raise ComparisonError(str(error)) from None


def new_comparison(environ: Mapping[str, str]) -> Path:
    """A folder for a comparison; its name is the id. Raises ComparisonError."""
    try:
        return new_folder(comparisons_folder(environ))
    except JobError as error:
        raise ComparisonError(str(error)) from None


def keep(folder: Path, comparison: Comparison) -> None:
    """Write a comparison as it stands, which this process runs. Raises ComparisonError."""
    try:
        write_record(folder / FILE, document(comparison))
    except JobError as error:
        raise ComparisonError(str(error)) from None


def kept(environ: Mapping[str, str], before: Kept | None = None) -> Kept:
    """Everything in the folder of comparisons. Raises ComparisonError when it cannot be looked into.

    Of what was read `before`, those that have ended are not read again: nothing happens to them any more.
    """
    try:
        folders = entries(comparisons_folder(environ))
    except RecordError as error:
        raise ComparisonError(str(error)) from None
    found, unreadable = [], []
    known = {each.id: each for each in before.comparisons if each.state != "running"} if before else {}
    for entry in folders:
        try:
            found.append(known.get(entry.name) or read(entry))
        except ComparisonError as error:
            if entry.exists():  # else it was forgotten meanwhile
                unreadable.append(Unreadable(entry.name, entry, str(error)))
    return Kept(tuple(sorted(found, key=lambda each: (each.created, each.id))), tuple(unreadable))


def find(word: str, among: Kept) -> Comparison | Unreadable:
    """The comparison that a word means: its id, or the beginning of one. Raises ComparisonError."""
    everything: tuple[Comparison | Unreadable, ...] = (*among.comparisons, *among.unreadable)
    try:
        return named(word, everything, "comparison", "compare")
    except RecordError as error:
        raise ComparisonError(str(error)) from None


def forget(comparison: Comparison | Unreadable, environ: Mapping[str, str]) -> None:
    """Remove a comparison; its jobs and their logs stay. Raises ComparisonError while it runs."""
    if isinstance(comparison, Comparison) and comparison.state == "running":
        raise ComparisonError(f"comparison {comparison.id} is running: end it first (Ctrl-C where it runs)")
    try:
        remove(comparisons_folder(environ) / comparison.id)
    except RecordError as error:
        raise ComparisonError(str(error)) from None


def read(folder: Path) -> Comparison:
    """The comparison of a folder. One that nobody runs any more is stopped. Raises ComparisonError."""

    def made(top: JsonValue) -> Comparison:
        found = _comparison(top, folder.name)
        return replace(found, state="stopped") if found.state == "running" and not runs(top) else found

    try:
        return read_record(folder / FILE, made)
    except RecordError as error:
        raise ComparisonError(str(error)) from None


def _comparison(top: JsonValue, name: str) -> Comparison:
    if top["schema"].value != SCHEMA:
        raise top["schema"].wrong(f"schema {SCHEMA} of this gputui")
    axes = tuple((axis["name"].text(), axis["heading"].text()) for axis in top["axes"].items(MOST_VARIANTS))
    rows = tuple(_row(row, len(axes)) for row in top["variants"].items(MOST_VARIANTS))
    if not axes or not rows:
        raise top["variants"].wrong("variants")
    state = top["state"].word(("running", "done", "stopped"))
    metric, ended = top["metric"], top["ended"]
    return Comparison(
        id=name,
        state="running" if state == "running" else "done" if state == "done" else "stopped",
        created=top["created"].moment(),
        command=texts(top["command"], MOST_WORDS),
        devices=texts(top["devices"], MOST_WORDS),
        axes=axes,
        rows=rows,
        repeat=top["repeat"].whole(least=1),
        metric=metric.text() if metric.known else None,
        less=top["less_is_better"].yes(),
        ended=ended.moment() if ended.known else None,
    )


def _row(row: JsonValue, axes: int) -> Row:
    values = texts(row["values"], MOST_VARIANTS)
    if len(values) != axes:
        raise row["values"].wrong("a value of each axis")
    runs = tuple(_run(run) for run in row["runs"].items(_MOST_RUNS))
    return Row(values, any_text(row["launch"]), texts(row["devices"], MOST_WORDS), runs)


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
    )


def _figure(node: JsonValue) -> float | None:
    """A figure, which a user's pattern may find below zero."""
    if not node.known:
        return None
    if type(node.value) not in (int, float) or not -_MOST_FIGURE <= node.value <= _MOST_FIGURE:
        raise node.wrong("a number")
    return float(node.value)
