"""The sweeps that are kept in the state folder: how they are read, and what their jobs tell of them."""

from __future__ import annotations

from typing import Annotated, Any

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.typed_json import DocumentError, Form, Moment, Record, Words, schema
from gputui.jobs.job import Job
from gputui.jobs.kept_records import Runner, Store, state_of
from gputui.jobs.store import Stored, jobs_folder
from gputui.planning.sweep import SCHEMA, Sweep, Task, TaskState, document, job_name

_TASK = Record(
    Task,
    "command=words label state devices job attempts status reason started ended signal",
    later="signal",
    words=tuple[Words, ...],
    label=Words,
    devices=tuple[Words, ...],
    reason=Words | None,
    started=Moment | None,
    ended=Moment | None,
)
_SWEEP = Record(
    Sweep,
    "schema state created directory call tasks withheld ended runner",
    later="runner",
    schema=schema(SCHEMA),
    created=Moment,
    directory=Words,
    call=tuple[Words, ...],
    tasks=tuple[Annotated[object, Form(_TASK.facts)], ...],
    withheld=tuple[Words, ...],
    ended=Moment | None,
    runner=Runner,
)


def _sweep(document: Any, name: str) -> Sweep:
    facts = _SWEEP.facts(document)
    del facts["schema"]
    facts["state"] = state_of(facts)
    tasks = tuple(Task(number, **task) for number, task in enumerate(facts["tasks"], 1))
    if not tasks or not all(task.words for task in tasks):
        raise DocumentError("tasks with a command expected", "tasks")
    return Sweep(name, **{**facts, "tasks": tasks})


SWEEPS: Store[Sweep] = Store(
    word="sweep",
    subcommand="each",
    document=lambda sweep, environ: document(sweep, jobs_folder(environ)),
    made=_sweep,
)


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
        signal=job.signal,
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
