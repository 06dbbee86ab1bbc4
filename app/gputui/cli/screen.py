"""`gputui` without a subcommand: the screen. A command after `--` is put on the launch line."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui import __version__
from gputui.allocating.named_source import opened_in_time
from gputui.allocating.settings import SettingsError
from gputui.choosing.verdict import verdicts
from gputui.cli.become import become
from gputui.cli.common import (
    DONE,
    WRONG_CALL,
    Call,
    Parser,
    WrongCallError,
    add_source_options,
    duration_type,
    elsewhere,
    own_settings,
    say,
    source_of,
    warn,
)
from gputui.cli.subcommands import SUBCOMMANDS
from gputui.inventory.quoting import posix
from gputui.sources.source import INTERVALS, NoSourceError, Source
from gputui.system.environment import given_environment
from gputui.system.terminal_abilities import can_draw, is_terminal

if TYPE_CHECKING:
    from gputui.jobs.experiments.record import Experiment
    from gputui.jobs.experiments.request import ExperimentRequest
    from gputui.requesting.launch_request import LaunchRequest

EXAMPLE = ("python", "train.py")
"""The default command of a demo: it can be edited and copied, but not started."""


_ABOUT = "See which GPUs are free, select them in an order, and start a command on those."
_EXAMPLES = """\
gputui --demo                           try the screen on a simulated box
gputui -- python train.py               select GPUs on the screen, press Enter
gputui run -n 2 -- torchrun train.py    start on the best two free GPUs"""
_GROUPS = {
    "look": ("ls", "topo", "people", "queue"),
    "launch": ("run", "pick", "plan", "check", "export"),
    "jobs": ("jobs", "each", "compare", "claims", "launches"),
}
"""The subcommands that `gputui --help` explains; it names the others under "more"."""


class _ScreenParser(Parser):
    def format_help(self) -> str:
        lines = [_ABOUT, "", *(f"  {line}" for line in _EXAMPLES.splitlines()), ""]
        for title, names in _GROUPS.items():
            for place, name in enumerate(names):
                lines.append(f"{'' if place else title:<8}{name:<11}{SUBCOMMANDS[name]}")
        grouped = {name for names in _GROUPS.values() for name in names}
        rest = ", ".join(name for name in SUBCOMMANDS if name not in grouped)
        lines += textwrap.wrap(rest, 78, initial_indent=f"{'more':<8}", subsequent_indent=" " * 8)
        lines += ["", "`gputui SUBCOMMAND --help` explains one. `gputui --help-all` has the options of"]
        lines += ["the screen, all subcommands and the exit statuses."]
        return "\n".join(lines) + "\n"


def parser() -> Parser:
    listed = "\n".join(f"  {name:<11} {about}" for name, about in SUBCOMMANDS.items())
    made = _ScreenParser("", _ABOUT, common="--demo", example=_EXAMPLES)
    made.usage = "gputui [OPTION…] [-- COMMAND…]\n       gputui SUBCOMMAND [OPTION…]"
    made.add_argument_group("subcommands (each has its own --help)", listed)
    made.add_argument_group(
        "exit status",
        "0 done, 2 wrong call, 3 no source, 4 not enough devices, 5 a check failed, 124 waited too long, else"
        " the command's own",
    )
    made.add_argument(
        "--version", action="version", version=f"gputui {__version__}", help="print the version"
    )
    made.add_argument(
        "--interval",
        type=duration_type(*INTERVALS),
        default=None,
        metavar="S",
        help="time between readings (default 1, or the settings')",
    )
    add_source_options(made)
    return made


def main(args: Call) -> int:
    source = source_of(args)
    found = own_settings()
    reason = _no_screen()
    if reason:
        return _table_instead(source, reason, args.argv)
    from gputui.tui.replaced_files import UpdatedError
    from gputui.tui.run import run_screen

    example = EXAMPLE if args.demo is not None and not args.argv else ()
    try:
        outcome = run_screen(
            source,
            tuple(args.argv or ()),
            given_environment(),
            comparison,
            found.rules,
            found.screen,
            args.interval,
            example,
        )
    except SettingsError as error:
        raise WrongCallError(str(error)) from None
    except NoSourceError as error:
        if not args.argv or elsewhere(args):
            raise
        # A user who gives a command wants it to run.
        raise NoSourceError(
            f"{error}; on the CPU: gputui run --gpus none -- {' '.join(map(posix, args.argv))}"
        ) from None
    if outcome.text:
        print(outcome.text)
    if outcome.warning:
        warn(outcome.warning)
    if outcome.launch is None:
        return outcome.status
    if is_terminal(sys.stderr):
        # The launch line stays readable above the command's output; a log gets only the command's own output.
        say(outcome.launch.line)
        if outcome.launch.inside is not None:
            say(f"note: {outcome.launch.inside.sees}")
    launch = outcome.launch
    try:
        if outcome.allocation is None:
            become(launch, given_environment())
        return outcome.allocation.start(lambda lease: become(launch, given_environment(), lease))
    except UpdatedError as error:
        say(str(error))
        return 1


def comparison(line: str, launch: LaunchRequest) -> tuple[ExperimentRequest, Experiment]:
    """Make a comparison for the screen, as `gputui compare` does; it is imported when one is made."""
    from gputui.cli.experiment import new_experiment
    from gputui.cli.experiment_call import prepared, typed

    request = typed(line, launch)
    return request, new_experiment(request, prepared(request, lambda text: None))


def _no_screen() -> str | None:
    """Return why the screen cannot start here, None where it can."""
    # Only one of the two must be the terminal: the other may be a file or a pipe for the command.
    stdin, stdout, stderr = map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))
    if not (stdin and (stdout or stderr)):
        return "no terminal: showing `gputui ls` instead"
    if not can_draw(os.environ):
        return "TERM=dumb cannot show a screen: showing `gputui ls` instead"
    return None


def _table_instead(source: Source, reason: str, command: Sequence[str] | None) -> int:
    from gputui.cli.ls_text import table

    with opened_in_time(source) as in_time:
        snapshot = in_time.read()
    print(table(snapshot, verdicts(snapshot, own_settings().rules), None, colour=False), end="")
    if command is None:
        say(reason)
        return DONE
    say(f"{reason}; nothing was started (without a screen: gputui run -n N -- COMMAND)")
    # A demo box or a recording is only for viewing, and the table has shown it.
    return DONE if source.label else WRONG_CALL
