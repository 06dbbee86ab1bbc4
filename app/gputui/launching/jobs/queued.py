"""Jobs that wait in line for their devices: a `gputui run --wait` that becomes the command, as a job."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Mapping, Sequence

from gputui.choosing.job import ALL_REDUCE
from gputui.choosing.job import Job as Shape
from gputui.launching.jobs.job import Job
from gputui.launching.jobs.start import Queued, start_job
from gputui.launching.launch import Launch
from gputui.launching.plan import AUTO, Plan

_GPUTUI = (
    "import sys; sys.path = [place for place in sys.path if place];"
    " from gputui.cli.main import queued_entry; queued_entry()"
)
"""gputui by our own interpreter. (`-m` would look for modules in the project's folder first: a json.py there
would be ours.)"""


def queue_job(
    words: Sequence[str],
    argv: tuple[str, ...],
    count: int,
    environ: Mapping[str, str],
    name: str | None = None,
) -> Job:
    """Start a job that is `gputui run` with these words, which say `--wait`; `argv` is the command in them.

    What others see in `ps` while it waits is "gputui" and nothing of the words.

    Raises StartError and JobError.
    """
    launch = Launch((sys.executable, "-c", _GPUTUI, "gputui", "run", "--wait"))
    return start_job(launch, environ, name, queued=Queued(count, argv, tuple(words)))


def words_of(plan: Plan, count: int, shape: Shape = ALL_REDUCE) -> tuple[str, ...]:
    """The words of `gputui run` that wait for so many devices and then start that plan."""
    words = ["--wait", "-n", str(count)]
    if shape != ALL_REDUCE:
        words += ["--group", "none" if shape.independent else str(shape)]
    for flag, value in (
        ("--launcher", None if plan.launcher == AUTO else plan.launcher),
        ("--ids", None if plan.ids == "index" else plan.ids),
        ("--directory", plan.directory),
        ("--python", _python(plan)),
        ("--processes", plan.processes),
        ("--logs", plan.logs),
        ("--nodes", plan.nodes if plan.nodes > 1 else None),
        ("--rendezvous", plan.rendezvous),
        *(("--env", f"{name}={value}") for name, value in plan.additions),
    ):
        words += [] if value is None else [f"{flag}={value}"]
    words += ["--numa-binding"] if plan.numa else []
    return (*words, "--", *plan.command)


def _python(plan: Plan) -> str | None:
    """A plan's interpreter is looked for where the command starts; that of a call, where it is called."""
    if plan.python is None or plan.directory is None or "/" not in plan.python:
        return plan.python
    return os.path.join(plan.directory, plan.python)  # noqa: PTH118 - without the "/." that Path drops
