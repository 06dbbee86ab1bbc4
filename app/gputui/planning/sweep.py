"""A sweep: many tasks, each a command on devices of its own; what each came to, its JSON and its table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import PurePath
from typing import Any, Literal

from gputui.inventory.formatting import UNKNOWN, duration, printable
from gputui.inventory.job_summary import how_it_failed
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.text_table import aligned, cut

SCHEMA = 1

TaskState = Literal["waiting", "running", "done", "failed", "stopped"]
"""waiting  it has not been started, or is to be started again
running  its job runs
done     its command ended with status 0
failed   its command ended otherwise, or could not be started
stopped  it was stopped, by somebody or together with its sweep
"""

SweepState = Literal["running", "done", "stopped"]
"""running: somebody starts its tasks; done: all tasks have ended; stopped: `--resume` goes on with it."""

_MOST_LABEL = 60


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a sweep. Times are seconds since the epoch; None is "not known", or not yet.

    number    1 for the first
    words     its command, without secrets
    label     what tells it from the others
    devices   the labels of its devices
    job       the id of its last job;  attempts: how many it has had
    status    as a shell gives it: 128 + n after signal n
    signal    the number of the one that ended it
    reason    why it could not be started, or how it ended is not known
    """

    number: int
    words: tuple[str, ...]
    label: str
    state: TaskState = "waiting"
    devices: tuple[str, ...] = ()
    job: str | None = None
    attempts: int = 0
    status: int | None = None
    reason: str | None = None
    started: float | None = None
    ended: float | None = None
    signal: int | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in ("done", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as it stands.

    directory  where it was called, and its tasks start
    call       the options of the call, without secrets
    withheld   what was not kept of it: names of options and variables; see `launching/secrets.py`
    """

    id: str
    state: SweepState
    created: float
    directory: str
    call: tuple[str, ...]
    tasks: tuple[Task, ...]
    withheld: tuple[str, ...] = ()
    ended: float | None = None

    def count(self, *states: TaskState) -> int:
        """How many tasks are in one of these states."""
        return sum(task.state in states for task in self.tasks)

    @property
    def went_well(self) -> bool:
        """Whether every task did."""
        return self.count("done") == len(self.tasks)


def job_name(sweep: str, number: int) -> str:
    """How the jobs of a task are called: `gputui jobs log k3f9.12`."""
    return f"{sweep}.{number}"


def document(sweep: Sweep, jobs: PurePath) -> dict[str, Any]:
    """The sweep as JSON; `jobs` is the folder that has the logs."""
    return {
        "schema": SCHEMA,
        "id": sweep.id,
        "state": sweep.state,
        "created": _moment(sweep.created),
        "ended": _moment(sweep.ended),
        "directory": sweep.directory,
        "call": list(sweep.call),
        "withheld": list(sweep.withheld),
        "tasks": [_task(task, jobs) for task in sweep.tasks],
    }


def _task(task: Task, jobs: PurePath) -> dict[str, Any]:
    return {
        "task": task.number,
        "label": task.label,
        "command": list(task.words),
        "state": task.state,
        "devices": list(task.devices),
        "job": task.job,
        "attempts": task.attempts,
        "status": task.status,
        "signal": task.signal,
        "reason": task.reason,
        "started": _moment(task.started),
        "ended": _moment(task.ended),
        "seconds": _seconds(task, None),
        "log": None if task.job is None else str(log_of(task.job, jobs)),
    }


def log_of(job: str, jobs: PurePath) -> PurePath:
    """The log of a job."""
    return jobs / job / "log"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def _seconds(task: Task, now: float | None) -> float | None:
    """How long it ran, or with `now` has run, in milliseconds' precision; None where that is not known."""
    end = now if task.state == "running" else task.ended
    return None if task.started is None or end is None else round(max(0.0, end - task.started), 3)


def headline(sweep: Sweep) -> str:
    """How it stands, in a line."""
    parts = [f"{sweep.count('done')}/{len(sweep.tasks)} tasks done"]
    for state in ("running", "waiting", "failed", "stopped"):
        number = sweep.count(state)
        parts += [f"{number} {state}"] if number else []
    return f"sweep {sweep.id} {sweep.state}: {', '.join(parts)}"


def lines(sweep: Sweep, jobs: PurePath, home: PurePath | None, now: float, width: int | None) -> list[str]:
    """The headline, and a row for each task."""
    rows = [("TASK", "WHAT", "GPU", "STATUS", "TIME", "LOG")]
    rows += [_row(task, jobs, home, now) for task in sweep.tasks]
    return [headline(sweep), "", *(cut(line, width) for line in aligned(rows, right=(0, 4)))]


def _row(
    task: Task, jobs: PurePath, home: PurePath | None, now: float
) -> tuple[str, str, str, str, str, str]:
    took = _seconds(task, now)
    log = "" if task.job is None else printable(_from_home(log_of(task.job, jobs), home))
    devices = ",".join(task.devices) or ("CPU" if task.job is not None else "")
    return (
        str(task.number),
        cut(printable(task.label), _MOST_LABEL),
        devices,
        how(task),
        "" if took is None else f"{took:.1f}s" if took < 10 else duration(took),
        log,
    )


def how(task: Task) -> str:
    """How a task stands, in words."""
    said: str = "ok" if task.state == "done" else task.state
    if task.state == "failed":
        said = how_it_failed(task.status, task.signal) if task.status is not None else "failed"
        said += f" ({printable(task.reason)})" if task.reason is not None else ""
    again = f", {task.attempts}. time" if task.attempts > 1 else ""
    return f"{said}{again}"


def _from_home(path: PurePath, home: PurePath | None) -> str:
    return f"~/{path.relative_to(home)}" if home is not None and path.is_relative_to(home) else str(path)


def list_rows(sweeps: Sequence[Sweep], now: float) -> list[str]:
    """A line for each sweep, below headings."""
    rows = [("ID", "STATE", "DONE", "FAILED", "BEGAN", "FIRST TASK")]
    rows += [
        (
            each.id,
            each.state,
            f"{each.count('done')}/{len(each.tasks)}",
            str(each.count("failed")) if each.count("failed") else UNKNOWN,
            f"{duration(max(0.0, now - each.created))} ago",
            printable(" ".join(each.tasks[0].words)),
        )
        for each in sweeps
    ]
    return aligned(rows)
