"""`gputui run --detach` and `--attach`: start the launch as a job, with its devices or in line for them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.allocating.allocate_in_turn import awaited
from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Allocator
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import DONE, Call, opened, print_json, print_line, say, warn
from gputui.cli.job_output import attached, say_how_to_come_back
from gputui.cli.run_held import obey_input
from gputui.inventory.formatting import devices_text
from gputui.inventory.job import STOP, Job, JobError
from gputui.jobs import FOLDER
from gputui.jobs.foreground import Foreground
from gputui.jobs.process_tree import own_scope
from gputui.jobs.queued import queue_job
from gputui.jobs.record import read_job, write_claims, write_limit, write_taken
from gputui.jobs.record_folders import RecordError
from gputui.jobs.start import start_leased_job
from gputui.jobs.stop import GRACE
from gputui.jobs.typed_name import typed_name
from gputui.launching.launch import Launch
from gputui.launching.start import CANNOT_START, StartError
from gputui.requesting.launch_request import LaunchRequest
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.system.environment import given_environment
from gputui.system.files import write_private

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease


def queue(args: Call, prepared: PreparedLaunch, foreground: Foreground | None) -> int:
    """Start a job that waits in line and then becomes the command."""
    request, approve = prepared.request, prepared.approve(os.environ)
    count, asked = request.size, prepared.asked
    # Refuse now what the job would be refused for later.
    if request.picks or request.cpu_only:
        approve(count, ())
    if not request.cpu_only:
        with opened(asked.devices) as source:
            awaited(Allocator(request, source, os.environ, AllocationListener(), approve=approve))
    what = ", ".join(asked.awaited)
    how = f"waits for {what}" if what else f"in line for {devices_text(count)}"
    return _started(
        lambda: queue_job(asked, count, given_environment(), args.name, args.quiet),
        f"{how}: `gputui jobs log -f {{0}}` follows it",
        args,
        foreground,
    )


def start_with(
    allocation: Allocation,
    launch: Launch,
    args: Call,
    asked: LaunchRequest,
    foreground: Foreground | None,
) -> int:
    """Start the launch as a job, which then holds the lease on its devices."""
    return allocation.start(
        lambda lease: _started(
            lambda: start_leased_job(launch, given_environment(), lease, args.name, asked),
            "job {0}: `gputui jobs log -f {0}` follows it",
            args,
            foreground,
        )
    )


def _started(start: Callable[[], Job], told: str, args: Call, foreground: Foreground | None) -> int:
    """Start a job, print its id on stdout and return. Raises StartError. With
    `foreground` the job is followed there, and the status is its own; `--held` still prints the id first.
    `told` is the message about the job, with {0} for its id."""
    try:
        job = start()
    except JobError as error:
        raise StartError(str(error), CANNOT_START) from None
    quiet = args.quiet or args.held
    if foreground is None:
        print_job(job, args.json)
        if not quiet:
            say(told.format(job.id))
        return DONE
    if args.held:
        print_line(job.id)
        sys.stdout.flush()
        obey_input()
    if not quiet:
        say_how_to_come_back([typed_name(job.id)])
    return attached(job, foreground)


def print_job(job: Job, as_json: bool) -> None:
    """Print a job that has been started: its id, or its document."""
    if as_json:
        from gputui.cli.jobs_text import job_document

        print_json(job_document(job))
    else:
        print_line(job.id)


def write_why(text: str) -> None:
    """Write for our supervisor why our job does not become its command."""
    with contextlib.suppress(OSError):
        write_private(Path(os.environ[FOLDER]) / STOP, f"{signal.SIGTERM:d} {GRACE} {text}")


def write_devices(folder: str, launch: Launch, lease: Lease | None) -> None:
    """Write the devices of the job that we are, which has waited for them, into its record."""
    supervisor = None
    with contextlib.suppress(RecordError):
        # Processes that the job leaves behind are adopted by its supervisor and still belong to the job.
        supervisor = read_job(Path(folder), own_scope()).supervisor
        if lease is not None and supervisor is not None:
            lease.belongs_to(os.getpid(), Path(folder).name, supervisor.pid)
    try:
        write_taken(Path(folder), launch, time.time())
        write_claims(Path(folder), lease.records if lease else ())
        if launch.time_limit is not None and supervisor is not None:
            write_limit(Path(folder), launch.time_limit)
            os.kill(supervisor.pid, signal.SIGIO)
    except OSError as error:
        warn(f"the job's record cannot be written: {error.strerror}")
