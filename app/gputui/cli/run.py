"""`gputui run`: pick devices and become the command on them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gputui.cli.common import DONE, Parser, WrongCallError, print_line, say
from gputui.cli.launching import add_launch_options, launch_of
from gputui.launching.start import StartError, replace_process


def parser() -> Parser:
    made = Parser(
        "run",
        "Take the best N free devices (or the named ones) and become the command on exactly those: same\n"
        "process, the command's own exit status.",
        epilog="gputui run -n 2 --launcher torchrun -- python train.py --lr 3e-4",
    )
    made.usage = (
        "gputui run [-n N | --gpus LIST] [--launcher NAME] [--ids index|uuid] [--dry-run] -- COMMAND…"
    )
    made.add_argument("--dry-run", action="store_true", help="print the launch line and start nothing")
    made.add_argument("-q", "--quiet", action="store_true", help="do not say on stderr what is started")
    add_launch_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    if not command:
        raise WrongCallError("no command: it goes after --, as in `gputui run -n 2 -- python train.py`")
    launch = launch_of(args, command)
    if not launch.argv:
        raise WrongCallError("no command after the variables")
    if args.dry_run:
        print_line(launch.line)
        return DONE
    if args.demo is not None or args.recording is not None:
        say("warning: the devices are not this machine's (--demo, --from); the command starts all the same")
    if not args.quiet:
        say(launch.line)
    try:
        replace_process(launch, os.environ)
    except StartError as error:
        say(str(error))
        return error.status
