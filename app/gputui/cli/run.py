"""`gputui run`: pick devices and become the command on them.

Here are its own options; those that it shares with export and check are in launch_call.py, and the table of
launch options is launching/launch_options.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputui.allocating.allocator import Allocator, Approve
from gputui.allocating.errors import WaitedTooLongError
from gputui.allocating.request import Request
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.become import become
from gputui.cli.common import DONE, Parser, WrongCallError, elsewhere, opened, print_line, say
from gputui.cli.launch_call import (
    NEAR,
    add_force,
    add_launch_options,
    allocated,
    how_confined_here,
    launch_on,
    noted,
    options_of,
    own_job,
    remember_typed,
    request_for,
)
from gputui.cli.request_options import add_wait_option, constraints_of
from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import replace
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, Meeting
from gputui.launching.model_memory import memory_warning
from gputui.launching.start import StartError, look_ahead
from gputui.library.agreement import agreement, heard
from gputui.system.environment import given_environment
from gputui.system.trust import who_can_change

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease
    from gputui.inventory.job import Job
    from gputui.jobs.foreground import Foreground

CANNOT_START = 126
"""What a shell ends with when a command is there and cannot be started."""


def parser() -> Parser:
    made = Parser(
        "run",
        "Select the best N free devices (or the named ones), claim them, and start the command on exactly\n"
        "those. gputui becomes the command: same process, the command's own exit status.",
        epilog="gputui run -n 2 --launcher torchrun -- python train.py --lr 3e-4",
    )
    made.usage = (
        "gputui run [-n N | --gpus LIST] [--launcher NAME] [--wait [TIME]] [--detach [--name NAME]]"
        " [--dry-run] -- COMMAND…"
    )
    made.add_argument(
        *("--on", "--hosts"),
        metavar="BOX|A,B|all|anywhere",
        help="start it on another box, over ssh; with torchrun on several at the same time, -n on each (or"
        " A:4,B:2); all: on all boxes of the settings; anywhere: on the best of them",
    )
    made.add_argument("--dry-run", action="store_true", help="print the launch line and start nothing")
    made.add_argument("--detach", action="store_true", help="start as a background job and print its id")
    made.add_argument(
        "--attach",
        action="store_true",
        help="start as a job and show its output here; it outlives this terminal (`gputui jobs attach`)",
    )
    made.add_argument(
        "--held",
        action="store_true",
        help="what `run --on A,B` calls on each box: claim the devices, and start once standard input says"
        " where the machines meet",
    )
    made.add_argument(
        "--own-directory",
        action="store_true",
        help="what `run --on` calls where it names the directory: refuse one that others can change",
    )
    made.add_argument("--name", help="name of the job (`gputui jobs`)")
    made.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="PLACE",
        help="through Slurm: on any node, or on PLACE, a NODE or PARTITION (with :TYPE of the devices)",
    )
    add_wait_option(made)
    add_force(made)
    made.add_argument(
        "--if-free",
        action="store_true",
        help="start on devices that are named only if all of them are free; else status 4 (without it your"
        " own processes are a warning)",
    )
    made.add_argument("-q", "--quiet", action="store_true", help="do not print the launch line on stderr")
    add_launch_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    if not command and args.saved is None:
        raise WrongCallError("no command: put it after --, as in `gputui run -n 2 -- python train.py`")
    if args.name is not None:
        _check_name(args)
    if args.slurm is not None:
        if args.on is not None or args.attach:
            raise WrongCallError("--slurm goes with neither --on nor --attach")
        from gputui.cli.run_slurm import run_in_slurm

        return run_in_slurm(args, command or ())
    if args.if_free and (args.force or args.wait is not None):
        raise WrongCallError("--if-free excludes --force and --wait")
    if args.attach and args.detach:
        raise WrongCallError("--attach and --detach exclude each other")
    if args.on is not None:
        from gputui.cli.on_boxes import run_on

        return run_on(args, words, command or ())
    if args.attach:
        from gputui.jobs.foreground import Foreground

        with Foreground() as foreground:
            return _run(args, words, command, foreground)
    return _run(args, words, command, None)


def _run(
    args: argparse.Namespace,
    words: Sequence[str],
    command: Sequence[str] | None,
    foreground: Foreground | None,
) -> int:
    """The call; with `foreground` its job is followed there."""
    as_job = args.detach or foreground is not None
    options = options_of(args, command or ())
    if not options.command:
        raise WrongCallError("no command after the variables")
    if args.own_directory and options.directory and (reason := who_can_change(options.directory)):
        say(f"{reason}, and may have made it for you to start in: --directory names the one that you mean")
        return CANNOT_START
    confine = how_confined_here(args, options)
    intent = heard(options, os.environ, confine)
    request = request_for(args, options, intent, own_job(), confine=confine)
    approve = agreement(options, intent, request, os.environ)
    if as_job and args.wait is not None and not args.dry_run and not request.cpu_only:
        return _queue(words, command or (), options, request, approve, args, foreground)
    allocation = allocated(args, request, holds=not args.dry_run, approve=approve)
    meeting: Meeting | None = None
    if args.held:
        from gputui.cli.held import LEFT, met

        if not args.dry_run:
            try:
                # (Which program and directory it is does not depend on where the machines meet.)
                unmet = replace(options, rendezvous=options.rendezvous or "localhost")
                look_ahead(launch_on(allocation, unmet, intent), given_environment())
            except StartError as error:
                allocation.release()
                say(str(error))
                return error.status
        try:
            agreed = met(allocation)
        except WaitedTooLongError:
            allocation.release()
            raise
        if agreed is None:
            allocation.release()
            return LEFT
        place, meeting = agreed
        options = replace(options, rendezvous=place)
    near = args.threads == NEAR
    launch = noted(launch_on(allocation, options, intent, near, meeting, confine, not args.dry_run))
    lacking = memory_warning(options, allocation.snapshot, allocation.devices, os.environ)
    if lacking is not None:
        say(f"warning: {lacking}")
    if as_job:
        from gputui.jobs.start import detached

        launch = detached(launch, os.environ)
    if args.dry_run:
        print_line(launch.line)
        return DONE
    _warn_elsewhere(args)
    if not args.quiet:
        say(launch.line)
    remember_typed(options, len(launch.devices))
    if as_job:
        return allocation.start(lambda lease: _detach(launch, lease, args, options, foreground))
    try:
        return allocation.start(lambda lease: become(launch, _environment(launch, lease), lease))
    except StartError as error:
        say(str(error))
        return error.status


def _warn_elsewhere(args: argparse.Namespace) -> None:
    if elsewhere(args):
        say("warning: not this machine's devices (--demo, --from, --root); the command starts anyway")


def _environment(launch: Launch, lease: Lease | None) -> dict[str, str]:
    """Ours; a job that has waited for its devices says in its record which they are."""
    from gputui.jobs import FOLDER

    environ = given_environment()
    folder = environ.pop(FOLDER, None)
    if folder is not None:
        import time
        from pathlib import Path

        from gputui.jobs.process_tree import here
        from gputui.jobs.record import read_job, write_claims, write_taken
        from gputui.jobs.record_folders import RecordError

        with contextlib.suppress(RecordError):
            # What the job leaves behind is given to its supervisor, and belongs to the job all the same.
            supervisor = read_job(Path(folder), here()).supervisor
            if lease is not None and supervisor is not None:
                lease.belongs_to(os.getpid(), os.path.basename(folder), supervisor.pid)  # noqa: PTH119
        try:
            write_taken(Path(folder), launch, time.time())
            write_claims(Path(folder), lease.records if lease else ())
        except OSError as error:
            say(f"warning: the job's record cannot be written: {error.strerror}")
    return environ


def _queue(
    words: Sequence[str],
    command: Sequence[str],
    options: LaunchOptions,
    request: Request,
    approve: Approve,
    args: argparse.Namespace,
    foreground: Foreground | None,
) -> int:
    """Start a job that waits in line: this very call without `--detach`, by itself."""
    from gputui.jobs.queued import queue_job

    inner = [
        word for word in words if word not in ("--detach", "--attach") and not word.startswith("--name=")
    ]
    while "--name" in inner:
        place = inner.index("--name")
        del inner[place : place + 2]
    inner += ["--", *command] if command else []
    _warn_elsewhere(args)
    count = request.size or 1
    approve(count if request.picks else _named(args, request), ())
    words = constraints_of(args)
    return _as_job(
        lambda: queue_job(inner, options.command, count, given_environment(), args.name, options, words),
        lambda job: f"in line for {devices_text(count)}: `gputui jobs log -f {job.id}` follows it",
        args.quiet,
        foreground,
    )


def _named(args: argparse.Namespace, request: Request) -> tuple[Device, ...]:
    """The devices that a call names. Raises RequestError for what the job would be refused for later."""
    with opened(args) as source:
        allocator = Allocator(request, source, os.environ, AllocationListener())
        return allocator.named(allocator.read())


def _check_name(args: argparse.Namespace) -> None:
    from gputui.inventory.job import JobError
    from gputui.jobs.start import check_name

    if not (args.detach or args.attach or args.on):
        raise WrongCallError("--name is for a job: it goes with --detach")
    try:
        check_name(args.name)
    except JobError as error:
        raise WrongCallError(str(error)) from None


def _detach(
    launch: Launch,
    lease: Lease | None,
    args: argparse.Namespace,
    options: LaunchOptions,
    foreground: Foreground | None,
) -> int:
    """Start the launch as a job, which has the lease then."""
    from gputui.jobs.start import start_leased_job

    return _as_job(
        lambda: start_leased_job(
            launch, given_environment(), lease, args.name, options, constraints_of(args)
        ),
        lambda job: f"job {job.id}: `gputui jobs log -f {job.id}` follows it",
        args.quiet or args.held,
        foreground,
        args.held,
    )


def _as_job(
    start: Callable[[], Job],
    told: Callable[[Job], str],
    quiet: bool,
    foreground: Foreground | None,
    held: bool = False,
) -> int:
    """Start a job and come back: its id on stdout, 126 or 127 when it could not be started. With `foreground`
    it is followed there, and the status is its own; with `held` its id comes first all the same."""
    from gputui.inventory.job import JobError

    try:
        job = start()
    except StartError as error:
        say(str(error))
        return error.status
    except JobError as error:
        say(str(error))
        return CANNOT_START
    if foreground is not None:
        from gputui.cli.jobs import attached

        if held:
            from gputui.cli.held import obey_input

            print_line(job.id)
            sys.stdout.flush()
            obey_input()
        if not quiet:
            from gputui.jobs.typed_name import typed_name

            name = typed_name(job.id)
            say(f"job {job.id}: it outlives this terminal; `gputui jobs attach {name}` comes back to it")
        return attached(job, foreground)
    print_line(job.id)
    if not quiet:
        say(told(job))
    return DONE
