"""Jobs that are gputui itself: `gputui run --wait` until it becomes the command, and comparisons."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gputui.allocating.claims.own_lease import own_lease
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.jobs.again import constraint_words
from gputui.jobs.job import Job, JobError
from gputui.jobs.start import Queued, start_job
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launch_options import words_of as option_words

_GPUTUI = (
    f"import sys; sys.path = [*filter(None, sys.path), {str(Path(__file__).parents[2])!r}];"
    " from gputui.cli.main import queued_entry; queued_entry()"
)
"""gputui by our own interpreter, also where it is not installed for it, as on a box that it was sent to.
(`-m` would look for modules in the project's folder first: a json.py there would be ours.)"""


def queue_job(
    words: Sequence[str],
    argv: tuple[str, ...],
    count: int,
    environ: Mapping[str, str],
    name: str | None = None,
    options: LaunchOptions | None = None,
    constraints: Sequence[str] = (),
) -> Job:
    """Start a job that is `gputui run` with these words, which say `--wait`; `argv` is the command in them.

    What others see in `ps` while it waits is "gputui" and nothing of the words. Inside a lease the job waits
    for a step of it, and keeps the lease meanwhile: it would never get what its own lease holds otherwise.

    Raises StartError and JobError.
    """
    own = own_lease(environ)
    if own.steps and not own.descriptors:
        raise JobError(
            "a job cannot wait inside the lease of this process: a program in between has closed its"
            " descriptors (Python's subprocess keeps them with close_fds=False); leave --wait or --detach out"
        )
    launch = Launch((sys.executable, "-c", _GPUTUI, "gputui", "run", "--wait"))
    return start_job(
        launch,
        environ,
        name,
        own.descriptors,
        Queued(count, argv, tuple(words)),
        options=options,
        constraints=constraints,
    )


def compare_job(
    words: Sequence[str], command: Sequence[str], environ: Mapping[str, str], name: str | None = None
) -> Job:
    """Start `gputui compare` with these words as a job. Raises StartError and JobError."""
    launch = Launch((sys.executable, "-c", _GPUTUI, "gputui", "compare"))
    call = (*words, *(("--", *command) if command else ()))
    queued = Queued(None, ("gputui", "compare", *call), call, "compare")
    return start_job(launch, environ, name, own_lease(environ).descriptors, queued)


def compare_call(job: Job) -> tuple[list[str], list[str] | None] | None:
    """The words of `gputui compare` that a job is, and its command; None where it is no comparison."""
    if job.argv[:2] != ("gputui", "compare") or job.launch is not None:
        return None
    words = list(job.argv[2:])
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def words_of(
    options: LaunchOptions, count: int, grouping: Grouping = ALL_REDUCE, keys: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The words of `gputui run` that wait for so many devices, or for those with these `keys` in this order,
    and then start that launch."""
    words = ["--wait", *(["-n", str(count)] if keys is None else ["--gpus", ",".join(keys)])]
    words += constraint_words(grouping)
    words += option_words(replace(options, python=_python(options)))
    return (*words, "--", *options.command)


def _python(options: LaunchOptions) -> str | None:
    """The interpreter of launch options is looked for where the command starts; that of a call, where it
    is called."""
    if options.python is None or options.directory is None or "/" not in options.python:
        return options.python
    return os.path.join(options.directory, options.python)  # noqa: PTH118 - without the "/." that Path drops
