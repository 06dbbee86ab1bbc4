"""Jobs that are gputui itself: `gputui run --wait` until it becomes the command, and experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gputui.allocating.claims.own_lease import own_lease
from gputui.inventory.job import Job, JobError
from gputui.jobs.own_call import OwnCall, this_gputui
from gputui.jobs.start import start_job
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest, sent


def queue_job(
    request: LaunchRequest,
    count: int,
    environ: Mapping[str, str],
    name: str | None = None,
    quiet: bool = False,
) -> Job:
    """Start a job that waits in line for `count` devices and then becomes the command of `request`.

    While it waits, `ps` shows other users "gputui" and nothing of the request. Inside a lease the job waits
    for a step of that lease, and keeps the lease meanwhile: otherwise it would never get the devices that its
    own lease holds. Raises StartError and JobError.
    """
    own = own_lease(environ)
    if own.steps and not own.descriptors:
        raise JobError(
            "a job cannot wait inside the lease of this process: a program in between has closed its"
            " descriptors (Python's subprocess keeps them with close_fds=False); leave --wait or --detach out"
        )
    launch = Launch(this_gputui(("gputui", "run", "--wait"), "queued_entry"))
    words = (*(["--quiet"] if quiet else []), "--request", sent(request))
    call = OwnCall(count, request.options.command, words, ("gputui", "run", *request.words))
    return start_job(launch, environ, name, own.descriptors, call, request=request)


CALLS: Mapping[str, str] = {"compare": "a comparison", "each": "a sweep"}
"""The subcommands that can run as a job for its whole life, and the noun for such a job in messages."""


def call_job(
    subcommand: str,
    words: Sequence[str],
    command: Sequence[str],
    environ: Mapping[str, str],
    name: str | None = None,
) -> Job:
    """Start a subcommand of CALLS with these words as a job. Raises StartError and JobError."""
    launch = Launch(this_gputui(("gputui", subcommand), "queued_entry"))
    call = (*words, *(("--", *command) if command else ()))
    line = ("gputui", subcommand, *call)
    queued = OwnCall(None, line, call, line)
    return start_job(launch, environ, name, own_lease(environ).descriptors, queued)


class Call(NamedTuple):
    """The call of gputui that a job runs: a subcommand of CALLS, its arguments, and its command."""

    subcommand: str
    words: list[str]
    command: list[str] | None


def call_of(job: Job) -> Call | None:
    """The call of gputui that a job runs; None where it runs another command."""
    if job.argv[:1] != ("gputui",) or job.argv[1:2] == () or job.argv[1] not in CALLS:
        return None
    if job.launch is not None:
        return None
    words = list(job.argv[2:])
    if "--" not in words:
        return Call(job.argv[1], words, None)
    place = words.index("--")
    return Call(job.argv[1], words[:place], words[place + 1 :])
