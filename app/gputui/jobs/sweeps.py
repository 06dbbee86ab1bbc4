"""The sweeps that are kept in the state folder: how they are read, and what their jobs tell of them."""

from __future__ import annotations

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.untrusted_json import JsonValue
from gputui.jobs.job import Job
from gputui.jobs.kept_records import Store, state_of
from gputui.jobs.record_fields import any_text, check_schema, maybe_moment, maybe_whole, texts
from gputui.jobs.store import Stored, jobs_folder
from gputui.planning.braces import MOST_TASKS
from gputui.planning.sweep import SCHEMA, Sweep, Task, TaskState, document, job_name

_STATES: tuple[TaskState, ...] = ("waiting", "running", "done", "failed", "stopped")


def _sweep(top: JsonValue, name: str) -> Sweep:
    check_schema(top, SCHEMA)
    tasks = tuple(_task(node, number) for number, node in enumerate(top["tasks"].items(MOST_TASKS), 1))
    if not tasks:
        raise top["tasks"].wrong("tasks")
    return Sweep(
        id=name,
        state=state_of(top),
        created=top["created"].moment(),
        directory=any_text(top["directory"]),
        call=texts(top["call"]),
        tasks=tasks,
        withheld=texts(top["withheld"]),
        ended=maybe_moment(top["ended"]),
    )


def _task(node: JsonValue, number: int) -> Task:
    state, job, reason = node["state"].word(_STATES), node["job"], node["reason"]
    words = texts(node["command"])
    if not words:
        raise node["command"].wrong("a command")
    return Task(
        number=number,
        words=words,
        label=any_text(node["label"]),
        state=next(each for each in _STATES if each == state),
        devices=texts(node["devices"]),
        job=job.text() if job.known else None,
        attempts=node["attempts"].whole(),
        status=maybe_whole(node["status"]),
        reason=any_text(reason) if reason.known else None,
        started=maybe_moment(node["started"]),
        ended=maybe_moment(node["ended"]),
        signal=maybe_whole(node.get("signal", None)),
    )


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
