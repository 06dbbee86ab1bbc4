"""What `run` and `export` share: the launch options, and the launch of one call."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from gputui.cli.choice import add_choice_options, choose
from gputui.cli.common import add_source_options, say
from gputui.launching.compose import Plan, compose
from gputui.launching.launch import Launch
from gputui.launching.launchers import AUTO, LAUNCHERS
from gputui.launching.words import assignments


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Which devices, which launcher, and where from."""
    add_choice_options(parser, exclusive=True)
    parser.add_argument(
        "--launcher",
        choices=(AUTO, *LAUNCHERS),
        default=AUTO,
        help="how the command is started; auto (default) recognises it",
    )
    add_source_options(parser)


def launch_of(args: argparse.Namespace, command: Sequence[str]) -> Launch:
    """The launch that a call describes; its warnings have been said."""
    additions, argv = assignments(command)
    devices = choose(args).devices
    # Without a command there is nothing to start: the variables alone are asked for.
    launcher = args.launcher if argv else "python"
    launch = compose(devices, Plan(argv, launcher, args.ids, None, additions), os.environ)
    for warning in launch.warnings:
        say(f"warning: {warning}")
    return launch
