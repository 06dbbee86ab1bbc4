"""`gputui export`: the launch in another form, on stdout or the clipboard."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gputui.cli.common import DONE, Parser, print_line, say
from gputui.cli.launching import add_launch_options, launch_of
from gputui.launching.exports import FORMS


def parser() -> Parser:
    made = Parser(
        "export",
        "The launch in another form. sh: a line for any POSIX shell; without a command, the variables alone\n"
        "to be read with eval. json: argv, environment changes, directory.",
        epilog="gputui export -n 2 --as sh -- torchrun train.py >> jobs.sh",
    )
    made.usage = "gputui export [-n N | --gpus LIST] [--launcher NAME] --as FORM [--copy] [-- COMMAND…]"
    made.add_argument("--as", dest="form", choices=tuple(FORMS), required=True, help="the form")
    made.add_argument("--copy", action="store_true", help="to the clipboard instead of stdout")
    add_launch_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    text = FORMS[args.form](launch_of(args, command or ()))
    if not args.copy:
        print_line(text)
        return DONE
    from gputui.launching.clipboard import copy

    say(copy(text, os.environ).message)
    return DONE
