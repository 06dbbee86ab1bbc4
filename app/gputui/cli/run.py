"""`gputui run`: pick devices and become the command on them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gputui.cli.common import DONE, Parser, WrongCallError, print_line, say
from gputui.cli.launching import add_launch_options, launch_of, plan_of, remember
from gputui.launching.launch import Launch
from gputui.launching.start import StartError, replace_process

CANNOT_START = 126
"""What a shell ends with when a command is there and cannot be started."""


def parser() -> Parser:
    made = Parser(
        "run",
        "Take the best N free devices (or the named ones) and become the command on exactly those: same\n"
        "process, the command's own exit status.",
        epilog="gputui run -n 2 --launcher torchrun -- python train.py --lr 3e-4",
    )
    made.usage = (
        "gputui run [-n N | --gpus LIST] [--launcher NAME] [--ids index|uuid] [--detach [--name NAME]]"
        " [--dry-run] -- COMMAND…"
    )
    made.add_argument("--dry-run", action="store_true", help="print the launch line and start nothing")
    made.add_argument("--detach", action="store_true", help="as a job that goes on by itself; prints its id")
    made.add_argument("--name", help="what the job is called (`gputui jobs`)")
    made.add_argument("-q", "--quiet", action="store_true", help="do not say on stderr what is started")
    add_launch_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    if not command and args.saved is None:
        raise WrongCallError("no command: it goes after --, as in `gputui run -n 2 -- python train.py`")
    if args.name is not None:
        _check_name(args)
    launch = launch_of(args, command or ())
    if not launch.argv:
        raise WrongCallError("no command after the variables")
    if args.detach:
        from gputui.launching.jobs.start import detached

        launch = detached(launch, os.environ)
    if args.dry_run:
        print_line(launch.line)
        return DONE
    if args.demo is not None or args.recording is not None:
        say("warning: the devices are not this machine's (--demo, --from); the command starts all the same")
    if not args.quiet:
        say(launch.line)
    if sys.stdin is not None and sys.stdin.isatty():
        # What a script starts over and over is not for a person's list.
        remember(plan_of(args, command or ()), len(launch.devices))
    if args.detach:
        return _detach(launch, args)
    try:
        replace_process(launch, os.environ)
    except StartError as error:
        say(str(error))
        return error.status


def _check_name(args: argparse.Namespace) -> None:
    from gputui.launching.jobs.job import JobError
    from gputui.launching.jobs.start import check_name

    if not args.detach:
        raise WrongCallError("--name is for a job: it goes with --detach")
    try:
        check_name(args.name)
    except JobError as error:
        raise WrongCallError(str(error)) from None


def _detach(launch: Launch, args: argparse.Namespace) -> int:
    """Start the job and come back: its id on stdout, 126 or 127 when it could not be started."""
    from gputui.launching.jobs.job import JobError
    from gputui.launching.jobs.start import start_job

    try:
        job = start_job(launch, os.environ, args.name)
    except StartError as error:
        say(str(error))
        return error.status
    except JobError as error:
        say(str(error))
        return CANNOT_START
    print_line(job.id)
    if not args.quiet:
        say(f"job {job.id}: `gputui jobs log -f {job.id}` follows it")
    return DONE
