"""The parts that `run`, `export` and `check` share: the launch options, and the launch of a call."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gputui.allocating.allocate import allocate
from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.errors import NotEnoughError
from gputui.allocating.request import Request
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import (
    Call,
    WrongCallError,
    add_source_options,
    elsewhere,
    opened,
    own_settings,
    parsed_by,
    print_json,
    print_line,
    say,
    warn,
)
from gputui.cli.request_options import AUTO, DESTINATIONS, add_request_options, count, device_request
from gputui.inventory.formatting import Tell
from gputui.inventory.light_dataclasses import fields, replace
from gputui.launching.compose import why_not_on_machines
from gputui.launching.environment_hints import THREADS, hints
from gputui.launching.launch import Launch
from gputui.launching.launch_options import VARIABLE, LaunchOptions, Option, table
from gputui.launching.shell_words import assignments
from gputui.requesting.launch_request import NEAR, LaunchRequest, ModelRequest, python_in_launch
from gputui.requesting.prepared_launch import PreparedLaunch, how_confined, prepare, read_command
from gputui.vendors.visibility import Confine


def add_launch_options(parser: argparse.ArgumentParser, exclusive: bool = True) -> None:
    """Add the options that select the devices and start the command. Without `exclusive`, `--gpus` and `-n`
    may be combined."""
    add_request_options(parser, exclusive)
    how = parser.add_argument_group("how the command is started")
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
    offered = [f"  {f'{hint.name}={hint.value}':<32}  {hint.about}" for hint in hints(None, ())]
    parser.add_argument_group("variables to try with --env", "\n".join(offered))
    add_source_options(parser)


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add `--force`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="use devices that somebody else has claimed or uses (if named, or if too few are free); start"
        " even if no claim can be made; override the devices that the command itself names, if it can be"
        " rewritten",
    )


def _add_option(group: argparse._ArgumentGroup, each: Option) -> None:
    """Add a launch option to the parser."""
    if each.kind == "switch":
        group.add_argument(each.flag, dest=each.name, action="store_true", help=each.help)
        return
    argument = group.add_argument(
        each.flag,
        dest=each.name,
        type=str if each.kind == "choice" else parsed_by(each.typed),
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
    if not equals or not VARIABLE.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _threads(text: str) -> int | str:
    return NEAR if text == NEAR else count(text)


def launch_request(args: Call, command: Sequence[str]) -> LaunchRequest:
    """The launch request of a call.

    With `--saved` it is the saved launch, overridden by the other options of the call. Raises WrongCallError.
    """
    before, argv = assignments(command)
    if isinstance(args.saved, str):
        # Look it up once per call: another launch may take that number meanwhile.
        args.saved = _saved(args, argv, (*before, *args.env))
    saved: LaunchOptions = args.saved or LaunchOptions(argv)
    additions = (*saved.additions, *before, *args.env)
    if isinstance(args.threads, int):
        additions = (*additions, (THREADS, str(args.threads)))
    given = {name: getattr(args, name) for name in table()}
    if getattr(args, "on", None) is None:
        given["python"] = python_in_launch(args.python, args.directory)
    given = {name: value for name, value in given.items() if value != table()[name].default}
    options = replace(saved, additions=tuple(dict(additions).items()), **given)
    placed = getattr(args, "form", "") == "sbatch"
    together = getattr(args, "held", False) or getattr(args, "on", None) is not None
    check_machines(options, placed, together)
    jobs = {name: getattr(args, name, None) for name in ("after", "after_ok")}
    return LaunchRequest(options, device_request(args), model_request(args), args.threads == NEAR, **jobs)


def check_machines(options: LaunchOptions, placed: bool = False, together: bool = False) -> None:
    """Raise WrongCallError for a command that cannot be started on that number of machines. `together`:
    gputui starts it on all of them, and numbers them. Then, or with `placed`, no rendezvous need be given."""
    refused = why_not_on_machines(options, together) if options.nodes > 1 and options.command else None
    if refused is not None:
        raise WrongCallError(refused)
    if options.nodes > 1 and not (options.rendezvous or placed or together):
        raise WrongCallError(f"--nodes {options.nodes} needs --rendezvous HOST, the first of the machines")


def model_request(args: Call) -> ModelRequest:
    """The options of a call about the model to train."""
    return ModelRequest(**{each.name: getattr(args, each.name) for each in fields(ModelRequest)})


def as_given(request: LaunchRequest) -> Call:
    """The parsed call that asks for the same request and gives nothing else."""
    options = {name: getattr(request.options, name) for name in table()}
    options["python"] = request.python_in_call
    devices = {each.name: getattr(request.devices, each.name) for each in fields(DeviceRequest)}
    devices |= {DESTINATIONS.get(name, name): value for name, value in devices.items()}
    devices |= {"n": AUTO, "auto": False} if request.devices.auto else {}
    model = {each.name: getattr(request.model, each.name) for each in fields(ModelRequest)}
    devices["ignore_user"] = list(request.devices.ignore_user)
    env, near = list(request.options.additions), NEAR if request.near else None
    jobs = {"after": request.after, "after_ok": request.after_ok}
    return Call(**devices, **options, **model, **jobs, env=env, threads=near)


def _saved(args: Call, argv: Sequence[str], given: Sequence[tuple[str, str]]) -> LaunchOptions:
    """The options of the launch that `--saved` names. Its number of devices applies unless the call gives
    devices."""
    from gputui.launching.history import again, find_launch, missing
    from gputui.launching.history_file import load

    if argv:
        raise WrongCallError("--saved replaces the command: give only one of them")
    known = load(os.environ)
    place = find_launch(known, args.saved)
    if place is None:
        raise WrongCallError(f"no launch is saved as {args.saved!r}; `gputui launches` lists them")
    saved = known[place]
    if args.n is None and args.gpus is None:
        args.n, args.gpus = saved.count or None, None if saved.count else "none"
    lacks = missing(saved, {**os.environ, **dict(given)})
    if lacks:
        warn(lacks)
    return again(saved)


def remember_typed(options: LaunchOptions, count: int) -> None:
    """Keep a launch that a person has typed in the list of recent launches; warn where that fails."""
    if sys.stdin is None or not sys.stdin.isatty():
        # A launch that a script repeats does not belong in a person's list.
        return
    import time

    from gputui.launching.history_file import remember

    not_kept = remember(os.environ, options, count, time.time())
    if not_kept:
        warn(not_kept)


def launch_of(asked: LaunchRequest, confine: Confine = "never") -> Launch:
    """The requested launch, on devices that are not held; its warnings and remarks are printed. Confinement
    is proved again where it is requested."""
    prepared = prepared_call(asked, confine=confine)
    allocation = allocated(prepared, holds=False, claims=False)
    return noted(prepared.launch(allocation, os.environ, again=confine != "never"))


def prepared_call(
    asked: LaunchRequest,
    job: str | None = None,
    tell: Tell = say,
    confine: Confine | None = None,
) -> PreparedLaunch:
    """Combine the demands that a call and its command make on the box.

    `tell` receives a note about the command's decisions. `confine` None means as the call says, else as the
    settings say, and never for devices that are not here. Raises RequestError where call and command
    contradict each other, unless the call has `--force`; WrongCallError, NotEnoughError for `-n auto`.
    """
    settings = own_settings()
    if confine is None:
        confine = how_confined(asked.options, settings, not elsewhere(asked.devices))
    read = read_command(asked, os.environ, confine)
    if asked.devices.auto:
        # Imported here: the planner takes milliseconds to import.
        from gputui.cli.planned_devices import settle_auto

        read = replace(read, asked=settle_auto(asked, read.intent))
    return prepare(read, settings, job, tell)


def own_job() -> str | None:
    """The id of the job that this process is; None where gputui itself does not run as a job."""
    from gputui.jobs import FOLDER

    folder = os.environ.get(FOLDER)
    return os.path.basename(folder) if folder else None  # noqa: PTH119 - pathlib costs milliseconds


def allocated(prepared: PreparedLaunch, holds: bool, claims: bool = True) -> Allocation:
    """Allocate devices for a launch on which its command can be started; with `holds`, lease them.

    Without `holds` it is a dry run, which does not wait: the devices are free now.
    """
    return allocated_for(
        prepared.asked.devices, prepared.request, holds, prepared.approve(os.environ, claims)
    )


def allocated_for(devices: DeviceRequest, request: Request, holds: bool, approve: Approve) -> Allocation:
    """Allocate as `allocated` does, for a request that the caller has made."""
    request = request if holds else replace(request, wait=None)
    try:
        with opened(devices, request.cpu_only) as source:
            return allocate(request, source, os.environ, AllocationListener(devices.explain), holds, approve)
    except NotEnoughError:
        if request.picks:
            # An error in the call takes precedence over a shortage on the box.
            approve(request.size, ())
        raise


def print_launch(launch: Launch, as_json: bool) -> None:
    """Print a launch that is not started: its line, or its document."""
    if as_json:
        from gputui.launching.exports.json_document import launch_document

        print_json(launch_document(launch))
    else:
        print_line(launch.line)


def noted(launch: Launch) -> Launch:
    """Print the warnings and remarks of a launch, and return the launch."""
    for note in launch.notes:
        say(note)
    return launch
