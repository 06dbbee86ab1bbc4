"""Jobs that are gputui itself: `gputui run --wait` until it becomes the command, and experiments."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gputui.allocating.claims.own_lease import own_lease
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.again import constraint_words
from gputui.jobs.start import Queued, start_job
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launch_options import words_of as option_words

_PACKAGES = str(Path(__file__).parents[2])
"""The folder that has gputui, which our interpreter alone may not know (a zip that has unpacked itself)."""
_GPUTUI_WITH = (
    "import sys; places = [place for place in sys.path if place];"
    " others = [n for n, place in enumerate(places) if place.endswith('-packages')];"
    f" places.insert(others[0] if others else len(places), {_PACKAGES!r}); sys.path = places;"
    " from gputui.cli.main import {entry}; {entry}()"
)
"""gputui by our own interpreter, and the very one that runs. (`-m` would look for modules in the project's
folder first: a json.py there would be ours.)"""
_GPUTUI = _GPUTUI_WITH.format(entry="queued_entry")


def this_gputui(words: Sequence[str]) -> tuple[str, ...]:
    """The command that is a call of this very gputui with these words."""
    return (sys.executable, "-c", _GPUTUI_WITH.format(entry="entry"), *words)


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


CALLS: Mapping[str, str] = {"compare": "a comparison", "each": "a sweep"}
"""The subcommands that a job can be and stay, and what such a job is for people."""


def call_job(
    subcommand: str,
    words: Sequence[str],
    command: Sequence[str],
    environ: Mapping[str, str],
    name: str | None = None,
) -> Job:
    """Start a subcommand of CALLS with these words as a job. Raises StartError and JobError."""
    launch = Launch((sys.executable, "-c", _GPUTUI, "gputui", subcommand))
    call = (*words, *(("--", *command) if command else ()))
    queued = Queued(None, ("gputui", subcommand, *call), call, subcommand)
    return start_job(launch, environ, name, own_lease(environ).descriptors, queued)


class Call(NamedTuple):
    """A call of gputui that a job is: a subcommand of CALLS, its words, and its command."""

    subcommand: str
    words: list[str]
    command: list[str] | None


def call_of(job: Job) -> Call | None:
    """The call that a job is; None where it is another command."""
    if job.argv[:1] != ("gputui",) or job.argv[1:2] == () or job.argv[1] not in CALLS:
        return None
    if job.launch is not None:
        return None
    words = list(job.argv[2:])
    if "--" not in words:
        return Call(job.argv[1], words, None)
    place = words.index("--")
    return Call(job.argv[1], words[:place], words[place + 1 :])


def words_of(
    options: LaunchOptions, count: int, grouping: Grouping = ALL_REDUCE, keys: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The words of `gputui run` that wait for so many devices, or for those with these `keys` in this order,
    and then start that launch."""
    words = ["--wait", *(["-n", str(count)] if keys is None else ["--gpus", ",".join(keys)])]
    return (*words, *launch_words(options, grouping))


def launch_words(options: LaunchOptions, grouping: Grouping = ALL_REDUCE) -> tuple[str, ...]:
    """The words of `gputui run` that start that launch on whatever devices: all but which ones."""
    words = option_words(replace(options, python=_python(options)))
    return (*constraint_words(grouping), *words, "--", *options.command)


def _python(options: LaunchOptions) -> str | None:
    """The interpreter of launch options is looked for where the command starts; that of a call, where it
    is called."""
    if options.python is None or options.directory is None or "/" not in options.python:
        return options.python
    return os.path.join(options.directory, options.python)  # noqa: PTH118 - without the "/." that Path drops
