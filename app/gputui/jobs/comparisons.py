"""The comparisons that are kept: a folder each in the state folder, written, read, found and forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.inventory.process import Identity
from gputui.inventory.untrusted_json import DocumentError, JsonValue
from gputui.jobs.job import JobError, PidScope
from gputui.jobs.process_tree import alive, here, identity
from gputui.jobs.store import cannot_keep, new_folder
from gputui.planning.comparison import SCHEMA, Comparison, Row, Run, RunState, document
from gputui.planning.comparison_axes import MOST_VARIANTS
from gputui.system.files import NoHomeError, open_own, state_folder, write_private

FILE = "comparison.json"
_MOST_BYTES = 64 * 1024 * 1024
_MOST_WORDS = 1_000_000
_MOST_RUNS = 100_000
_MOST_FIGURE = 1e30
_STATES: tuple[RunState, ...] = ("running", "done", "failed", "timeout", "stopped")


class ComparisonError(Exception):
    """Something that cannot be done with comparisons; the message is one line."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder among the comparisons that has no record we could read, and why."""

    id: str
    folder: Path
    reason: str


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
    scope, runner = here(), identity(os.getpid())
    about = {
        "host": scope.host,
        "boot": scope.boot,
        "pids": scope.pids,
        "pid": runner.pid,
        "ticks": runner.ticks,
    }
    try:
        write_private(folder / FILE, json.dumps({**document(comparison), "runner": about}))
    except OSError as error:
        raise ComparisonError(str(cannot_keep(folder.parent, error))) from None


def kept(environ: Mapping[str, str], before: Kept | None = None) -> Kept:
    """Everything in the folder of comparisons. Raises ComparisonError when it cannot be looked into.

    Of what was read `before`, those that have ended are not read again: nothing happens to them any more.
    """
    folder = comparisons_folder(environ)
    try:
        entries = [entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return Kept()
    except OSError as error:
        raise ComparisonError(f"cannot read {str(folder)!r}: {error.strerror}") from None
    found, unreadable = [], []
    known = {each.id: each for each in before.comparisons if each.state != "running"} if before else {}
    for entry in sorted(entries):
        try:
            found.append(known.get(entry.name) or read(entry))
        except ComparisonError as error:
            if entry.exists():  # else it was forgotten meanwhile
                unreadable.append(Unreadable(entry.name, entry, str(error)))
    return Kept(tuple(sorted(found, key=lambda each: (each.created, each.id))), tuple(unreadable))


def find(word: str, among: Kept) -> Comparison | Unreadable:
    """The comparison that a word means: its id, or the beginning of one. Raises ComparisonError."""
    everything: tuple[Comparison | Unreadable, ...] = (*among.comparisons, *among.unreadable)
    like = [each for each in everything if each.id == word] or [
        each for each in everything if word and each.id.startswith(word)
    ]
    if len(like) == 1:
        return like[0]
    if like:
        ids = ", ".join(each.id for each in like)
        raise ComparisonError(f"{word!r} matches more than one comparison: {ids}")
    raise ComparisonError(f"no comparison is called {word!r}; `gputui compare --list` lists them")


def forget(comparison: Comparison | Unreadable, environ: Mapping[str, str]) -> None:
    """Remove a comparison; its jobs and their logs stay. Raises ComparisonError while it runs."""
    if isinstance(comparison, Comparison) and comparison.state == "running":
        raise ComparisonError(f"comparison {comparison.id} is running: end it first (Ctrl-C where it runs)")
    folder = comparisons_folder(environ) / comparison.id
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ComparisonError(f"cannot remove {str(folder)!r}: {error.strerror}") from None


def read(folder: Path) -> Comparison:
    """The comparison of a folder. One that nobody runs any more is stopped. Raises ComparisonError."""
    try:
        handle = open_own(folder / FILE)
        with os.fdopen(handle, "rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ComparisonError("its record is too long")
        top = JsonValue(json.loads(data), "file")
        found = _comparison(top, folder.name)
        if found.state == "running" and not _runs(top["runner"]):
            found = replace(found, state="stopped")
    except FileNotFoundError:
        raise ComparisonError("there is no record in it") from None
    except OSError as error:
        raise ComparisonError(f"it cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise ComparisonError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise ComparisonError(f"{FILE}: not JSON: {error}") from None
    return found


def _runs(runner: JsonValue) -> bool:
    """Whether the process that runs it is there; on another machine nobody can tell, and its word counts."""
    boot, pids = runner["boot"], runner["pids"]
    scope = PidScope(
        runner["host"].text(),
        boot.text() if boot.known else None,
        pids.text() if pids.known else None,
    )
    process = Identity(runner["pid"].whole(least=1), _whole(runner["ticks"]))
    now = here()
    if scope == now:
        return alive(process)
    # (This machine after a reboot.)
    return not (scope.host == now.host and scope.boot != now.boot)


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
        command=_texts(top["command"], _MOST_WORDS),
        devices=_texts(top["devices"], _MOST_WORDS),
        axes=axes,
        rows=rows,
        repeat=top["repeat"].whole(least=1),
        metric=metric.text() if metric.known else None,
        less=top["less_is_better"].yes(),
        ended=ended.moment() if ended.known else None,
    )


def _row(row: JsonValue, axes: int) -> Row:
    values = _texts(row["values"], MOST_VARIANTS)
    if len(values) != axes:
        raise row["values"].wrong("a value of each axis")
    runs = tuple(_run(run) for run in row["runs"].items(_MOST_RUNS))
    return Row(values, _text(row["launch"]), _texts(row["devices"], _MOST_WORDS), runs)


def _run(run: JsonValue) -> Run:
    state = run["state"].word(_STATES)
    job, reason = run["job"], run["reason"]
    return Run(
        round=run["round"].whole(least=1),
        job=job.text() if job.known else None,
        state=next(each for each in _STATES if each == state),
        status=_whole(run["status"]),
        reason=reason.text() if reason.known else None,
        wall=_figure(run["wall"]),
        runtime=_figure(run["runtime"]),
        steps_per_second=_figure(run["steps_per_second"]),
        metric=_figure(run["metric"]),
        peak_memory=_whole(run["peak_memory"]),
        utilization=_figure(run["utilization"]),
    )


def _whole(node: JsonValue) -> int | None:
    return node.whole() if node.known else None


def _figure(node: JsonValue) -> float | None:
    """A figure, which a user's pattern may find below zero."""
    if not node.known:
        return None
    if type(node.value) not in (int, float) or not -_MOST_FIGURE <= node.value <= _MOST_FIGURE:
        raise node.wrong("a number")
    return float(node.value)


def _texts(node: JsonValue, most: int) -> tuple[str, ...]:
    return tuple(_text(each) for each in node.items(most))


def _text(node: JsonValue) -> str:
    """As `JsonValue.text`, with the stray bytes that a command line may have."""
    if isinstance(node.value, str):
        with contextlib.suppress(UnicodeEncodeError):
            node.value.encode(errors="surrogateescape")
            return node.value
    raise node.wrong("a text")
