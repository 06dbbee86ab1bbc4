"""What the person does on a simulated box: start a job, wait in line, stop a job. Nothing real is started.

Pure functions from a box and a moment to the box afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.formatting import YOU
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.quoting import posix
from gputui.sources.simulated.motion import at, claimed, started
from gputui.sources.simulated.spec import Box, Choose, OwnJob, Task, Waiting

_PID, _MEMORY, _LOAD = 52_000, 6_000, 62
"""Of a job that got its devices: a pid that no task of a box has, MiB and percent on each device."""


def queued(
    box: Box,
    elapsed: float,
    command: Sequence[str],
    count: int,
    keys: Sequence[str] | None,
    choose: Choose | None = None,
    at_once: bool = False,
) -> tuple[Box, str]:
    """Return the box with a job of the person, and its id. It waits in line for `count` of the devices with
    these keys, None for any; or `at_once` it has all of them, in this order, whoever else uses or awaits
    them."""
    number = 1 + sum(job.id.startswith("demo") for job in box.jobs)
    title = " ".join(map(posix, command))
    label_of = {box.key(label): label for label in box.labels}
    devices = None if keys is None else tuple(label_of[key] for key in keys if key in label_of)
    waiting = Waiting(
        user=YOU,
        count=count,
        command=title,
        devices=devices,
        job=f"demo{number}",
        starts=elapsed,
        choose=choose,
    )
    job = OwnJob(id=f"demo{number}", title=title, created=elapsed, waits=None if at_once else count)
    box = replace(box, line=(*box.line, waiting), jobs=(*box.jobs, job))
    return (_with_devices(box, elapsed, waiting, devices or ()) if at_once else box), job.id


def stopped(box: Box, elapsed: float, id: str) -> Box:
    """Return the box with this job neither in line nor on its devices."""
    return replace(
        box,
        line=tuple(each for each in box.line if each.job != id),
        tasks=tuple(
            replace(task, ends=min(task.ends, elapsed)) if task.job == id else task for task in box.tasks
        ),
        jobs=tuple(
            replace(job, ended=elapsed) if job.id == id and job.ended is None else job for job in box.jobs
        ),
    )


def served(box: Box, elapsed: float, opened: float) -> Box:
    """Return the box, which was `opened` then, after those in line whose turn has come have got their
    devices."""
    taken = {
        label
        for task in box.tasks
        if task.kind != "graphics" and (started(task, elapsed), claimed(task, elapsed)) != (None, None)
        for label in task.devices
    }
    for waiting in box.line:
        if started(waiting, elapsed) is not None:
            # (A process uses one MIG instance at most.)
            several = waiting.count > 1
            wanted = [label for label in waiting.devices or box.labels if not (several and ":" in label)]
            got = [label for label in wanted if label not in taken and elapsed < box.fails_after(label)]
            if waiting.choose is not None:
                labels = {box.key(label): label for label in got}
                got = [labels[key] for key in waiting.choose(at(box, elapsed, opened), labels)]
            if len(got) >= waiting.count:
                wanted = got[: waiting.count]
                box = _with_devices(box, elapsed, waiting, tuple(wanted))
            # First come, first served: nobody behind takes a device that this one waits for.
            taken.update(wanted)
    return box


def _with_devices(box: Box, elapsed: float, waiting: Waiting, labels: tuple[str, ...]) -> Box:
    task = Task(
        devices=labels,
        user=waiting.user,
        command=waiting.command,
        pid=_PID + 100 * len(box.tasks),
        memory=_MEMORY,
        load=_LOAD,
        starts=elapsed,
        claims=0,
        job=waiting.job,
    )
    jobs = (replace(job, devices=labels, taken=elapsed) if job.id == waiting.job else job for job in box.jobs)
    return replace(
        box,
        line=tuple(each for each in box.line if each is not waiting),
        tasks=(*box.tasks, task),
        jobs=tuple(jobs),
    )
