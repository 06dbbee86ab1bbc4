"""Jobs that are gputui itself: `gputui run --wait` until it becomes the command, and experiments."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gputui.allocating.claims.own_lease import own_lease
from gputui.inventory.job import Job, JobError
from gputui.jobs.start import OwnCall, start_job
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest, sent

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
    request: LaunchRequest,
    count: int,
    environ: Mapping[str, str],
    name: str | None = None,
    quiet: bool = False,
) -> Job:
    """Start a job that waits in line for `count` devices and becomes the command of `request` then.

    What others see in `ps` while it waits is "gputui" and nothing of the request. Inside a lease the job
    waits for a step of it, and keeps the lease meanwhile: it would never get what its own lease holds
    otherwise. Raises StartError and JobError.
    """
    own = own_lease(environ)
    if own.steps and not own.descriptors:
        raise JobError(
            "a job cannot wait inside the lease of this process: a program in between has closed its"
            " descriptors (Python's subprocess keeps them with close_fds=False); leave --wait or --detach out"
        )
    launch = Launch((sys.executable, "-c", _GPUTUI, "gputui", "run", "--wait"))
    words = (*(["--quiet"] if quiet else []), "--request", sent(request))
    call = OwnCall(count, request.options.command, words, ("gputui", "run", *request.words))
    return start_job(launch, environ, name, own.descriptors, call, request=request)


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
    line = ("gputui", subcommand, *call)
    queued = OwnCall(None, line, call, line)
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
