"""`gputui run`: pick devices and become the command on them.

This module has its own options; the options that it shares with export and check are in launch_call.py, and
the table of launch options is in launching/launch_options.py. The modules for jobs, other boxes and Slurm are
imported on demand: they take 20 ms and more, and becoming a command needs none of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from gputui.cli.become import become
from gputui.cli.common import DONE, INTERNAL, Call, Parser, WrongCallError, say, warn, warn_elsewhere
from gputui.cli.launch_call import (
    add_force,
    add_launch_options,
    allocated,
    check_machines,
    launch_request,
    noted,
    own_job,
    prepared_call,
    print_launch,
    remember_typed,
)
from gputui.cli.request_options import add_after_options, add_wait_option
from gputui.inventory.errors import GputuiError
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.typed_json import DocumentError
from gputui.jobs import FOLDER
from gputui.launching.compose import on_any
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, Meeting
from gputui.launching.memory_warning import memory_warning
from gputui.launching.shell_words import one_word_for_several
from gputui.launching.start import CANNOT_START, StartError, look_ahead
from gputui.requesting.launch_request import LaunchRequest, received
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.system.environment import given_environment
from gputui.system.trust import who_can_change

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease
    from gputui.jobs.foreground import Foreground


def parser() -> Parser:
    made = Parser(
        "run",
        "Select the best N free devices (or the named ones), claim them, and start the command on exactly\n"
        "those. gputui becomes the command: same process, the command's own exit status.",
        common="-n --gpus --wait --detach --on --dry-run",
        example="gputui run -n 2 --launcher torchrun -- python train.py --lr 3e-4",
    )
    made.usage = "gputui run [-n N | --gpus LIST] [OPTION…] -- COMMAND…"
    made.add_argument(
        *("--on", "--hosts"),
        metavar="BOX|A,B|all|anywhere",
        help="start it on another box, over ssh; with torchrun, on several at the same time, -n devices on"
        " each (or A:4,B:2); all: on every box in the settings; anywhere: on the best of them",
    )
    made.add_argument("--dry-run", action="store_true", help="print the launch line and start nothing")
    made.add_argument("--detach", action="store_true", help="start as a background job and print its id")
    made.add_argument(
        "--json",
        action="store_true",
        help="with --dry-run, print the launch as JSON; with --detach, the job",
    )
    made.add_argument(
        "--attach",
        action="store_true",
        help="start as a job and show its output; the job outlives this terminal (`gputui jobs attach`)",
    )
    # `run --on A,B` calls this on each box: claim the devices, and start once standard input has the
    # rendezvous address.
    made.add_argument("--held", action="store_true", help=INTERNAL)
    # `run --on` calls this where it names the directory: refuse one that others can change.
    made.add_argument("--own-directory", action="store_true", help=INTERNAL)
    made.add_argument("--name", help="name of the job (`gputui jobs`)")
    made.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="PLACE",
        help="start through Slurm: on any node, or on PLACE, a NODE or PARTITION (with :TYPE of the devices)",
    )
    # What another gputui asks for, instead of a command and options (`run --on`, queued jobs).
    made.add_argument("--request", metavar="JSON", help=INTERNAL)
    add_wait_option(made)
    add_after_options(made)
    add_force(made)
    made.add_argument(
        "--if-free",
        action="store_true",
        help="start on named devices only if all of them are free, else end with status 4 (by default, your"
        " own processes there are a warning)",
    )
    made.add_argument("-q", "--quiet", action="store_true", help="do not print the launch line on stderr")
    add_launch_options(made)
    return made


def main(args: Call) -> int:
    if args.request is None:
        return start(args, args.argv or ())
    if (
        args.argv is not None
        or args.saved is not None
        or launch_request(args, ()) != LaunchRequest(LaunchOptions())
    ):
        raise WrongCallError("--request already gives the command and its options; leave them out")
    try:
        return start(args, (), received(args.request))
    except GputuiError as error:
        if own_job() is not None:
            from gputui.cli.run_as_job import write_why

            write_why(str(error))
        raise
    except DocumentError as error:
        # The message is that of an unknown option: on it, the sender sends its own, newer gputui.
        raise WrongCallError(f"unrecognized arguments: --request: {error}") from None


def start(args: Call, command: Sequence[str], asked: LaunchRequest | None = None) -> int:
    """Start the command with the launch options of the call, or the launch request `asked` instead: here, as
    a job, on another box or through Slurm, as the options say."""
    if asked is None and not command and args.saved is None:
        raise WrongCallError("no command: put it after --, as in `gputui run -n 2 -- python train.py`")
    if args.name is not None:
        from gputui.jobs.start import check_name

        if not (args.detach or args.attach or args.on):
            raise WrongCallError("--name needs --detach: it names a job")
        check_name(args.name)
    is_job = args.detach or args.attach or args.dry_run
    if args.idle_release is not None and (args.slurm is not None or not is_job):
        raise WrongCallError("--idle-release needs --detach or --attach: gputui watches its jobs only")
    if args.slurm is not None and (args.on is not None or args.attach):
        raise WrongCallError("--slurm cannot be used with --on or --attach")
    if args.if_free and (args.force or (args.wait, args.after, args.after_ok) != (None, None, None)):
        raise WrongCallError("--if-free cannot be used with --force, --wait or --after")
    if args.attach and args.detach:
        raise WrongCallError("--attach and --detach cannot be used together")
    if args.json and not (args.dry_run or (args.detach and args.slurm is None)):
        raise WrongCallError("--json needs --dry-run or --detach: otherwise stdout belongs to the command")
    if args.on is not None and args.saved is not None:
        raise WrongCallError("--saved cannot be used with --on: saved launches are for this machine")
    asked = asked or launch_request(args, command)
    if not asked.options.command:
        hint = one_word_for_several(" ".join(command[-1:]))
        raise WrongCallError(f"no command after the variables{hint}")
    if args.slurm is not None:
        from gputui.cli.run_slurm import run_in_slurm

        return run_in_slurm(args, asked)
    if args.on is not None:
        from gputui.cli.on_boxes import run_on

        return run_on(args, asked)
    if args.attach:
        from gputui.jobs.foreground import Foreground

        with Foreground() as foreground:
            return _run(args, asked, foreground)
    return _run(args, asked, None)


def _run(args: Call, asked: LaunchRequest, foreground: Foreground | None) -> int:
    """Run the call on this machine. With `foreground` it starts a job and follows it there."""
    as_job = args.detach or foreground is not None
    directory = asked.options.directory
    if args.own_directory and directory and (reason := who_can_change(directory)):
        raise StartError(
            f"{reason}, and may have planted it; name the directory with --directory if you mean this one",
            CANNOT_START,
        )
    check_machines(asked.options, together=args.held)
    if asked.awaited:
        from gputui.jobs.after import settled, wait_for_jobs

        asked = settled(asked, os.environ, not args.detach and own_job() is None)
    prepared = prepared_call(asked, own_job())
    request = prepared.request
    waits = request.wait is not None and not request.cpu_only
    if (asked.awaited or waits) and not args.dry_run:
        _look_ahead(prepared)
    if as_job and (asked.awaited or waits) and not args.dry_run:
        from gputui.cli.run_as_job import queue

        if not waits:
            warn_elsewhere(asked.devices, "; the command really runs on this machine")
        return queue(args, prepared, foreground)
    if asked.awaited and args.dry_run:
        say(f"note: it waits for the end of {', '.join(asked.awaited)}")
    elif asked.awaited:
        wait_for_jobs(asked, os.environ, say)
        # Those jobs may have written what the command reads.
        prepared = prepared_call(prepared.asked, own_job(), lambda text: None)
    allocation = allocated(prepared, holds=not args.dry_run)
    meeting: Meeting | None = None
    if args.held:
        from gputui.cli.run_held import held_launch

        agreed = held_launch(prepared, allocation, args.dry_run)
        if isinstance(agreed, int):
            allocation.release()
            return agreed
        prepared, meeting = agreed
    options = prepared.asked.options
    launch = noted(prepared.launch(allocation, os.environ, meeting, not args.dry_run))
    lacking = memory_warning(options, allocation.snapshot, allocation.devices, os.environ)
    if lacking is not None:
        warn(lacking)
    if as_job or FOLDER in os.environ:
        from gputui.jobs.start import detached

        launch = detached(launch, os.environ)
    if args.dry_run:
        print_launch(launch, args.json)
        return DONE
    warn_elsewhere(asked.devices, "; the command really runs on this machine")
    if not args.quiet:
        say(launch.line)
    remember_typed(options, len(launch.devices))
    if as_job:
        from gputui.cli.run_as_job import start_with

        return start_with(allocation, launch, args, prepared.asked, foreground)
    return allocation.start(lambda lease: _become(launch, lease))


def _look_ahead(prepared: PreparedLaunch) -> None:
    """Raise StartError where a call would wait for devices in vain, because its program cannot be started;
    only warn where it waits for jobs, which may make that program."""
    launch = on_any(prepared.asked.options, prepared.request.size, os.environ, intent=prepared.intent)
    try:
        look_ahead(launch, given_environment())
    except StartError as error:
        if not prepared.asked.awaited:
            raise
        warn(str(error))


def _become(launch: Launch, lease: Lease | None) -> NoReturn:
    """Become the command. A job that has waited for its devices also writes them into its record, and its
    supervisor watches its time."""
    environ = given_environment()
    folder = environ.pop(FOLDER, None)
    if folder is not None:
        from gputui.cli.run_as_job import write_devices

        write_devices(folder, launch, lease)
        launch = replace(launch, time_limit=None)
    become(launch, environ, lease)
