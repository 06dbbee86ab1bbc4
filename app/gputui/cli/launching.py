"""What `run`, `export` and `check` share: the launch options, and the launch of one call."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputui.cli.choice import Approve, Chosen, Hold, asked, choose, picks
from gputui.cli.choice_options import add_choice_options, count
from gputui.cli.common import NotEnoughError, WrongCallError, add_source_options, say
from gputui.inventory.device import Device
from gputui.launching.compose import compose, launcher_of, own_devices
from gputui.launching.environment_hints import THREADS, threads_near
from gputui.launching.launch import Launch
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.launching.launchers import LAUNCHERS
from gputui.launching.secrets import program_and_script
from gputui.launching.shell_words import assignments
from gputui.sources.source import Want
from gputui.vendors.registry import vendors_of

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease

NEAR = "near"


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Which devices, and how the command is started on them."""
    add_choice_options(parser, exclusive=True)
    how = parser.add_argument_group("how it is started")
    how.add_argument(
        "--saved", metavar="NAME|N", help="a launch of before, in place of a command (see `gputui launches`)"
    )
    how.add_argument(
        "--launcher",
        choices=(AUTO, *LAUNCHERS),
        default=AUTO,
        help="auto (default) recognises it from the command",
    )
    how.add_argument("--python", metavar="PY", help="the interpreter to start it with")
    how.add_argument("--processes", type=count, metavar="N", help="processes, instead of one a device")
    how.add_argument(
        "--env", action="append", default=[], type=_assignment, metavar="NAME=VALUE", help="a variable to set"
    )
    how.add_argument(
        "--threads",
        type=_threads,
        metavar="N|near",
        help=f"{THREADS}; near: the CPUs near each device, divided among the GPUs there",
    )
    how.add_argument("--directory", metavar="DIR", help="where to start it")
    how.add_argument("--logs", metavar="DIR", help="a log a rank there, where the launcher can")
    how.add_argument(
        "--numa-binding", action="store_true", help="processes stay on the CPUs near their devices (torchrun)"
    )
    how.add_argument("--nodes", type=count, default=1, metavar="N", help="so many machines (torchrun)")
    how.add_argument(
        "--rendezvous", metavar="HOST[:PORT]", help="the first of several machines (port 29400 unless given)"
    )
    add_source_options(parser)


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
    said = {
        "launcher": args.launcher,
        "ids": args.ids,
        "directory": args.directory,
        "python": _from_here(args.python, args.directory),
        "processes": args.processes,
        "logs": args.logs,
        "numa": args.numa_binding,
        "nodes": args.nodes,
        "rendezvous": args.rendezvous,
    }
    said = {name: value for name, value in said.items() if value != getattr(_UNSAID, name)}
    options = replace(saved, additions=tuple(dict(additions).items()), **said)
    argv = options.command
    if options.nodes > 1 and argv and launcher_of(options).name != "torchrun":
        raise WrongCallError("several machines are started by torchrun: --launcher torchrun")
    if options.nodes > 1 and not options.rendezvous and getattr(args, "form", "") != "sbatch":
        raise WrongCallError(f"--nodes {options.nodes} needs --rendezvous HOST, the first of the machines")
    return options


_UNSAID = LaunchOptions()


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
        raise WrongCallError("--saved is in place of a command; both are given")
    try:
        known = load(os.environ)
    except KeepError as error:
        raise WrongCallError(str(error)) from None
    place = found(known, args.saved)
    if place is None:
        raise WrongCallError(f"no launch {args.saved!r} is kept; `gputui launches` lists them")
    saved = known[place]
    if args.n is None and args.gpus is None:
        args.n, args.gpus = saved.count or None, None if saved.count else "none"
    lacks = missing(saved, {**os.environ, **dict(given)})
    if lacks:
        say(f"warning: {lacks}")
    return again(saved)


def remember(options: LaunchOptions, count: int) -> None:
    """Keep a launch among the last ones; a message where that cannot be."""
    import time

    from gputui.launching.history import KeepError, here, with_launch
    from gputui.launching.history_file import change

    try:
        change(os.environ, lambda known: with_launch(known, options, count, time.time(), here()))
    except KeepError as error:
        say(f"warning: {error}")


def launch_of(args: argparse.Namespace, command: Sequence[str]) -> Launch:
    """The launch that a call describes; what there is to say about it has been said."""
    return held_launch(args, options_of(args, command), None)[0]


def held_launch(
    args: argparse.Namespace, options: LaunchOptions, hold: Hold | None, approve: Approve | None = None
) -> tuple[Launch, Lease | None]:
    """The launch of a call's options, and the lease on its devices, which `approve` lets through."""
    near = args.threads == NEAR
    want = Want.VERDICT | Want.TOPOLOGY if near else Want.VERDICT
    try:
        chosen = choose(args, want=want, hold=hold, told=program_and_script(options.command), approve=approve)
    except NotEnoughError:
        if approve is not None and picks(args):
            # What is wrong with the call comes before what is wrong with the box.
            approve(asked(args))
        raise
    return told(composed(chosen, options, near)), chosen.lease


def agreement(options: LaunchOptions) -> Approve:
    """What refuses devices for launch options whose command asks for others, which would not be claimed.

    It raises WrongCallError.
    """

    def approve(devices: Sequence[Device] | int) -> None:
        if isinstance(devices, int):
            own = own_devices(options, devices, os.environ)
        else:
            own = compose(devices, options, os.environ).own
        if own is not None:
            raise WrongCallError(own.refusal)

    return approve


def composed(chosen: Chosen, options: LaunchOptions, near: bool = False) -> Launch:
    """The launch of launch options on devices that have been chosen; `near` adds the threads near them."""
    if near:
        threads = threads_near(chosen.snapshot, chosen.devices)
        if threads is None:
            say(f"warning: the CPUs near these devices are not known: no {THREADS}")
        else:
            options = replace(options, additions=(*options.additions, (THREADS, str(threads))))
    return compose(chosen.devices, options, os.environ, box=vendors_of(chosen.snapshot.devices))


def told(launch: Launch) -> Launch:
    """The launch; its warnings and remarks have been said."""
    for warning in launch.warnings:
        say(f"warning: {warning}")
    for remark in launch.remarks:
        say(f"note: {remark}")
    return launch
