"""The sweeps that are kept: a folder each in the state folder, written, read, found, locked and forgotten."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.inventory.untrusted_json import JsonValue
from gputui.jobs.job import Job, JobError
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
from gputui.jobs.store import Stored, jobs_folder, new_folder
from gputui.planning.braces import MOST_TASKS
from gputui.planning.sweep import SCHEMA, Sweep, Task, TaskState, document, job_name
from gputui.system.files import NoHomeError, open_lock, state_folder

FILE, _LOCK = "sweep.json", "lock"
_STATES: tuple[TaskState, ...] = ("waiting", "running", "done", "failed", "stopped")


class SweepError(Exception):
    """Something that cannot be done with sweeps; the message is one line."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Our sweeps, the oldest first."""

    sweeps: tuple[Sweep, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def sweeps_folder(environ: Mapping[str, str]) -> Path:
    """Raises SweepError when there is no home."""
    try:
        return state_folder(environ) / "sweeps"
    except NoHomeError as error:
        raise SweepError(str(error)) from None


def new_sweep(environ: Mapping[str, str]) -> Path:
    """A folder for a sweep; its name is the id. Raises SweepError."""
    try:
        return new_folder(sweeps_folder(environ))
    except JobError as error:
        raise SweepError(str(error)) from None


def keep(sweep: Sweep, environ: Mapping[str, str]) -> None:
    """Write a sweep as it stands; while it is running, this process runs it. Raises SweepError."""
    try:
        write_record(sweeps_folder(environ) / sweep.id / FILE, document(sweep, jobs_folder(environ)))
    except JobError as error:
        raise SweepError(str(error)) from None


@contextmanager
def running_alone(sweep: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Nobody else runs the sweep meanwhile. Raises SweepError where somebody does."""
    try:
        handle = open_lock(sweeps_folder(environ) / sweep / _LOCK)
    except OSError as error:
        raise SweepError(f"sweep {sweep} cannot be locked: {error.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SweepError(
                f"sweep {sweep} is running already: `gputui each --show {sweep}` shows it"
            ) from None
        yield
    finally:
        os.close(handle)


def kept(environ: Mapping[str, str]) -> Kept:
    """Everything in the folder of sweeps. Raises SweepError when it cannot be looked into."""
    try:
        folders = entries(sweeps_folder(environ))
    except RecordError as error:
        raise SweepError(str(error)) from None
    found, unreadable = [], []
    for entry in folders:
        try:
            found.append(read(entry))
        except SweepError as error:
            if entry.exists():  # else it was forgotten meanwhile
                unreadable.append(Unreadable(entry.name, entry, str(error)))
    return Kept(tuple(sorted(found, key=lambda each: (each.created, each.id))), tuple(unreadable))


def find(word: str, among: Kept) -> Sweep | Unreadable:
    """The sweep that a word means: its id, or the beginning of one. Raises SweepError."""
    everything: tuple[Sweep | Unreadable, ...] = (*among.sweeps, *among.unreadable)
    try:
        return named(word, everything, "sweep", "each")
    except RecordError as error:
        raise SweepError(str(error)) from None


def forget(sweep: Sweep | Unreadable, environ: Mapping[str, str]) -> None:
    """Remove a sweep; its jobs and their logs stay. Raises SweepError while it runs."""
    if isinstance(sweep, Sweep) and sweep.state == "running":
        raise SweepError(f"sweep {sweep.id} is running: end it first (Ctrl-C where it runs)")
    try:
        remove(sweeps_folder(environ) / sweep.id)
    except RecordError as error:
        raise SweepError(str(error)) from None


def read(folder: Path) -> Sweep:
    """The sweep of a folder. One that nobody runs any more is stopped. Raises SweepError."""

    def made(top: JsonValue) -> Sweep:
        found = _sweep(top, folder.name)
        return replace(found, state="stopped") if found.state == "running" and not runs(top) else found

    try:
        return read_record(folder / FILE, made)
    except RecordError as error:
        raise SweepError(str(error)) from None


def _sweep(top: JsonValue, name: str) -> Sweep:
    if top["schema"].value != SCHEMA:
        raise top["schema"].wrong(f"schema {SCHEMA} of this gputui")
    tasks = tuple(_task(node, number) for number, node in enumerate(top["tasks"].items(MOST_TASKS), 1))
    if not tasks:
        raise top["tasks"].wrong("tasks")
    state, ended = top["state"].word(("running", "done", "stopped")), top["ended"]
    return Sweep(
        id=name,
        state="running" if state == "running" else "done" if state == "done" else "stopped",
        created=top["created"].moment(),
        directory=any_text(top["directory"]),
        call=texts(top["call"], MOST_WORDS),
        tasks=tasks,
        withheld=texts(top["withheld"], MOST_WORDS),
        ended=ended.moment() if ended.known else None,
    )


def _task(node: JsonValue, number: int) -> Task:
    state, job, reason = node["state"].word(_STATES), node["job"], node["reason"]
    words = texts(node["command"], MOST_WORDS)
    if not words:
        raise node["command"].wrong("a command")
    return Task(
        number=number,
        words=words,
        label=any_text(node["label"]),
        state=next(each for each in _STATES if each == state),
        devices=texts(node["devices"], MOST_WORDS),
        job=job.text() if job.known else None,
        attempts=node["attempts"].whole(),
        status=maybe_whole(node["status"]),
        reason=any_text(reason) if reason.known else None,
        started=_moment(node["started"]),
        ended=_moment(node["ended"]),
    )


def _moment(node: JsonValue) -> float | None:
    return node.moment() if node.known else None


def last_job(sweep: Sweep, task: Task, jobs: Stored) -> Job | None:
    """The last job of a task, None without any that is kept.

    It is known by its name as well: we may have been killed before its id was written.
    """
    name = job_name(sweep.id, task.number)
    own = [
        job for job in jobs.jobs if job.id == task.job or (job.name == name and job.created >= sweep.created)
    ]
    return own[-1] if own else None


def came_to(task: Task, job: Job) -> Task:
    """The task with what its job has come to, or as what runs."""
    state: TaskState = "running"
    reason = None
    if job.over:
        state = "done" if job.state == "done" else "stopped" if job.state == "stopped" else "failed"
        reason = "how it ended is not known" if job.state == "ended" else None
    return replace(
        task,
        state=state,
        job=job.id,
        status=job.exit_status,
        reason=reason,
        started=job.started,
        ended=job.ended,
    )


def as_it_stands(sweep: Sweep, jobs: Stored) -> Sweep:
    """A sweep that nobody runs, by the records of its jobs: what it did not write itself any more."""
    tasks = []
    for task in sweep.tasks:
        job = last_job(sweep, task, jobs) if task.state != "done" else None
        known = job is not None and (job.id != task.job or task.state == "running")
        lost = task.state == "running" and job is None
        if job is not None and known:
            task = came_to(task, job)
        elif lost:
            task = replace(task, state="failed", reason="the record of its job is gone")
        tasks.append(task)
    return replace(sweep, tasks=tuple(tasks))
