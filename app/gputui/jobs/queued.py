"""Jobs that are gputui itself: `gputui run --wait` until it becomes the command, and experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.allocating.claims.own_lease import NO_LEASE, own_lease
from gputui.inventory.job import Job, JobError
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.typed_json import DocumentError, Record
from gputui.jobs.experiments.request import REQUEST, SUBCOMMANDS, ExperimentRequest, without_secrets
from gputui.jobs.own_call import OwnCall, this_gputui
from gputui.jobs.rerun import runs_experiment
from gputui.jobs.start import start_job
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest, sent, sparse
from gputui.system.environment import Environ

if TYPE_CHECKING:
    from gputui.inventory.typed_json import WordList
    from gputui.jobs.experiments.record import Experiment


def queue_job(
    request: LaunchRequest,
    count: int,
    environ: Environ,
    name: str | None = None,
    quiet: bool = False,
) -> Job:
    """Start a job that waits in line for `count` devices, and before that for the jobs of a settled request,
    and then becomes the command of `request`.

    While it waits, `ps` shows other users "gputui" and nothing of the request. Inside a lease the job waits
    for a step of that lease, and keeps the lease meanwhile: otherwise it would never get the devices that its
    own lease holds. Raises StartError and JobError.
    """
    # No lease is kept while other jobs run.
    own = NO_LEASE if request.awaited else own_lease(environ)
    if own.claims and not own.descriptors:
        raise JobError(
            "a job cannot wait inside the claim of this process: a program in between has closed its"
            " descriptors (Python's subprocess keeps them with close_fds=False); leave --wait or --detach out"
        )
    launch = Launch(this_gputui(("gputui", "run", "--wait"), "queued_entry"))
    words = (*(["--quiet"] if quiet else []), "--request", sent(request))
    call = OwnCall(count, request.options.command, words, ("gputui", "run", *request.words))
    return start_job(launch, environ, name, own.descriptors, call, request=request)


@frozen
class KeptExperiment:
    """The request of the experiment that a job runs, without secrets, and the names of what is withheld."""

    experiment: ExperimentRequest
    withheld: WordList = ()


_KEPT = Record(KeptExperiment)


def experiment_job(
    found: Experiment, request: ExperimentRequest, environ: Environ, words: Sequence[str] = ()
) -> Job:
    """Start a job that runs the recorded experiment; `request` has its secrets, and `words` are further
    options. Raises StartError and JobError."""
    subcommand = SUBCOMMANDS[request.kind]
    launch = Launch(this_gputui(("gputui", subcommand), "queued_entry"))
    call = (*words, "--resume", found.id, "--request", sent(request, REQUEST))
    kept = sparse(_KEPT.write(KeptExperiment(*without_secrets(request))))
    own = OwnCall(None, request.words, call, request.words, kept)
    return start_job(launch, environ, None, own_lease(environ).descriptors, own, part=found.part)


def experiment_of(job: Job) -> KeptExperiment | None:
    """The experiment that a job runs; None where it runs another command. Raises JobError if its request
    cannot be read."""
    if not runs_experiment(job):
        return None
    try:
        return _KEPT.read(job.launch)
    except DocumentError as error:
        raise JobError(f"the experiment of job {job.id} cannot be read: {error}") from None
