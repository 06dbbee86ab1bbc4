"""What `run`, `export` and `check` share: the options of a launch, and the launch that a call describes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence

from gputui.allocating.allocate import allocate
from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import NotEnoughError
from gputui.allocating.request import Request
from gputui.choosing.named_devices import NONE
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import WrongCallError, add_source_options, elsewhere, opened, say
from gputui.cli.request_options import AUTO, add_request_options, count, request_of
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.text_table import aligned
from gputui.launching.compose import launcher_of
from gputui.launching.environment_hints import THREADS, hints, threads_near
from gputui.launching.intent import Asked, Intent
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, Meeting, Option, OptionError, table
from gputui.launching.secrets import program_and_script
from gputui.launching.shell_words import assignments
from gputui.library.agreement import (
    agreement,
    facts_of,
    heard,
    how_confined,
    launch_of_allocation,
    settled_with,
)
from gputui.sources.source import Want
from gputui.vendors.visibility import Confine

NEAR = "near"


def add_launch_options(parser: argparse.ArgumentParser, exclusive: bool = True) -> None:
    """Which devices, and how the command is started on them; not `exclusive`: `--gpus` beside `-n`."""
    add_request_options(parser, exclusive)
    how = parser.add_argument_group("how it is started")
    how.add_argument(
        "--saved", metavar="NAME|N", help="start a saved launch instead of a command (see `gputui launches`)"
    )
    for each in table().values():
        _add_option(how, each)
    how.add_argument(
        "--env",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="set a variable for the command",
    )
    how.add_argument(
        "--threads",
        type=_threads,
        metavar="N|near",
        help=f"set {THREADS}; near: the CPUs near each device, divided among the GPUs there",
    )
    offered = aligned([(f"{hint.name}={hint.value}", hint.about) for hint in hints(None, ())])
    parser.add_argument_group("variables to try with --env", "\n".join(offered))
    add_source_options(parser)


def add_force(parser: argparse.ArgumentParser) -> None:
    """`--force`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="use devices that somebody else has claimed or uses, if named or if too few are free, start also"
        " where no claim can be made, and use other devices than the command itself names if it can be"
        " rewritten",
    )


def _add_option(group: argparse._ArgumentGroup, each: Option) -> None:
    """A launch option as an argument."""
    if each.kind == "switch":
        group.add_argument(each.flag, dest=each.name, action="store_true", help=each.help)
        return

    def typed(text: str) -> object:
        try:
            return each.typed(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    argument = group.add_argument(
        each.flag,
        dest=each.name,
        type=str if each.kind == "choice" else typed,
        choices=each.choices() or None,
        default=each.default,
        metavar=each.metavar,
        help=each.help,
    )
    if each.bare is not None:
        argument.nargs, argument.const = "?", each.bare
        no, never = f"--no-{each.flag.removeprefix('--')}", each.choices()[-1]
        group.add_argument(no, dest=each.name, action="store_const", const=never, help=argparse.SUPPRESS)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _threads(text: str) -> int | str:
    return NEAR if text == NEAR else count(text)


def options_of(args: argparse.Namespace, command: Sequence[str]) -> LaunchOptions:
    """What a call wants to run; `--threads near` is not in it yet, as that depends on the devices.

    With `--saved` it is what was kept, and what the call says besides counts instead; so do the devices.
    """
    before, argv = assignments(command)
    if isinstance(args.saved, str):
        # Looked up once a call: meanwhile another launch may have taken that number.
        args.saved = _saved(args, argv, (*before, *args.env))
    saved: LaunchOptions = args.saved or LaunchOptions(argv)
    additions = (*saved.additions, *before, *args.env)
    if isinstance(args.threads, int):
        additions = (*additions, (THREADS, str(args.threads)))
    given = {name: getattr(args, name) for name in table()}
    given["python"] = _from_here(args.python, args.directory)
    given = {name: value for name, value in given.items() if value != table()[name].default}
    options = replace(saved, additions=tuple(dict(additions).items()), **given)
    argv = options.command
    if options.nodes > 1 and argv and launcher_of(options).name != "torchrun":
        raise WrongCallError("only torchrun starts a command on several machines: add --launcher torchrun")
    placed = options.rendezvous or getattr(args, "form", "") == "sbatch" or getattr(args, "held", False)
    if options.nodes > 1 and not placed:
        raise WrongCallError(f"--nodes {options.nodes} needs --rendezvous HOST, the first of the machines")
    return options


def _from_here(python: str | None, directory: str | None) -> str | None:
    """The interpreter as named by a person where they are, for a launch that is somewhere else."""
    if python is None or directory is None or "/" not in python:
        return python
    # (Not resolved: a virtual environment's interpreter is a link out of it.)
    return os.path.abspath(python)  # noqa: PTH100


def _saved(args: argparse.Namespace, argv: Sequence[str], given: Sequence[tuple[str, str]]) -> LaunchOptions:
    """The options of the launch that `--saved` names; its number of devices counts unless the call says
    one."""
    from gputui.launching.history import KeepError, again, found, missing
    from gputui.launching.history_file import load

    if argv:
        raise WrongCallError("--saved replaces the command: give only one of them")
    try:
        known = load(os.environ)
    except KeepError as error:
        raise WrongCallError(str(error)) from None
    place = found(known, args.saved)
    if place is None:
        raise WrongCallError(f"no launch is saved as {args.saved!r}; `gputui launches` lists them")
    saved = known[place]
    if args.n is None and args.gpus is None:
        args.n, args.gpus = saved.count or None, None if saved.count else "none"
    lacks = missing(saved, {**os.environ, **dict(given)})
    if lacks:
        say(f"warning: {lacks}")
    return again(saved)


def remember_typed(options: LaunchOptions, count: int) -> None:
    """Keep a launch that a person has typed among the last ones; a message where that cannot be."""
    if sys.stdin is None or not sys.stdin.isatty():
        # What a script starts over and over is not for a person's list.
        return
    import time

    from gputui.launching.history_file import remember

    not_kept = remember(os.environ, options, count, time.time())
    if not_kept:
        say(f"warning: {not_kept}")


def launch_of(args: argparse.Namespace, command: Sequence[str], confine: Confine = "never") -> Launch:
    """The launch that a call describes, on devices that are not held; what there is to say about it has been
    said. Where it is to be confined, that is proved anew."""
    options = options_of(args, command)
    intent = heard(options, os.environ, confine)
    request = request_for(args, options, intent, confine=confine)
    allocation = allocated(
        args, request, holds=False, approve=agreement(options, intent, request, os.environ, claims=False)
    )
    near = args.threads == NEAR
    return noted(launch_on(allocation, options, intent, near, confine=confine, again=confine != "never"))


def request_for(
    args: argparse.Namespace,
    options: LaunchOptions,
    intent: Intent,
    job: str | None = None,
    tell: Callable[[str], None] = say,
    confine: Confine = "never",
) -> Request:
    """The request of a call that launches: what the call says of devices, and what its command says.

    `tell` is told what the command decides. Raises RequestError where they contradict each other, unless the
    call has `--force`.
    """
    facts = Want.VERDICT | Want.TOPOLOGY if args.threads == NEAR else Want.VERDICT
    if args.n == AUTO:
        # (The planner takes milliseconds to import.)
        from gputui.cli.planned_devices import settle_auto

        settle_auto(args, options, intent)
    asked = Asked(args.n, args.gpus, args.group)
    settled = settled_with(asked, intent, args.force)
    default = intent.devices if settled.names is not None else intent.count
    if asked.names is None and asked.count is None and default is not None and not default.firm:
        option = f"--gpus {settled.names}" if settled.names is not None else f"-n {settled.count}"
        said = f"as if {option} were given" if settled.names != NONE else "no device is selected"
        tell(f"note: {said} ({default.words}); -n or --gpus overrides that")
    facts |= facts_of(settled, intent) | (Want(0) if confine == "never" else Want.NODES)
    return request_of(args, program_and_script(options.command), facts, job=job, asked=settled)


def own_job() -> str | None:
    """The id of the job that this process is, where it is a job that is gputui itself."""
    from gputui.jobs import FOLDER

    folder = os.environ.get(FOLDER)
    return os.path.basename(folder) if folder else None  # noqa: PTH119 - pathlib costs milliseconds


def allocated(
    args: argparse.Namespace,
    request: Request,
    holds: bool,
    approve: Approve | None = None,
) -> Allocation:
    """The devices of a call that launches, leased with `holds`, and such as `approve` lets through.

    Without `holds` it is a dry run, which waits for nothing: the devices are those that are free now.
    """
    request = request if holds else replace(request, wait=None)
    try:
        with opened(args, request.cpu_only) as source:
            return allocate(request, source, os.environ, AllocationListener(args.why), holds, approve)
    except NotEnoughError:
        if approve is not None and request.picks:
            # What is wrong with the call comes before what is wrong with the box.
            approve(request.size, ())
        raise


def how_confined_here(args: argparse.Namespace, options: LaunchOptions) -> Confine:
    """Whether the launch of a call is to be confined; never to devices of which nothing is here. Raises
    WrongCallError."""
    from gputui.allocating.settings import SettingsError

    try:
        return how_confined(options.confine, os.environ, not elsewhere(args))
    except SettingsError as error:
        raise WrongCallError(str(error)) from None


def launch_on(
    allocation: Allocation,
    options: LaunchOptions,
    intent: Intent,
    near: bool = False,
    meeting: Meeting | None = None,
    confine: Confine = "never",
    prove: bool = True,
    again: bool = False,
) -> Launch:
    """The launch of launch options on allocated devices; `near` adds the threads of the CPUs near them, and
    the rest says whether it is confined to them (`launch_of_allocation`)."""
    if near:
        threads = threads_near(allocation.snapshot, allocation.devices)
        if threads is None:
            say(f"warning: the CPUs near these devices are not known: no {THREADS}")
        else:
            options = replace(options, additions=(*options.additions, (THREADS, str(threads))))
    return launch_of_allocation(allocation, options, intent, os.environ, meeting, confine, prove, again)


def noted(launch: Launch) -> Launch:
    """The launch; its warnings and remarks have been said."""
    for warning in launch.warnings:
        say(f"warning: {warning}")
    for remark in launch.remarks:
        say(f"note: {remark}")
    return launch
