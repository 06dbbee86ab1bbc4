"""Parse a call of `gputui compare` or `gputui each`: its options, axes, variants, and their requests."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.errors import RequestError
from gputui.allocating.request import Request
from gputui.choosing.named_devices import NONE, entries_of
from gputui.cli.common import (
    INTERNAL,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    duration_type,
    number_type,
    parsed_by,
)
from gputui.cli.launch_call import (
    add_force,
    add_launch_options,
    as_given,
    check_machines,
    launch_request,
    own_job,
    prepared_call,
)
from gputui.cli.request_options import add_wait_option, add_window_option, memory
from gputui.inventory.errors import reason_of
from gputui.inventory.formatting import MIB, Tell
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.typed_json import DocumentError
from gputui.jobs.experiments.axes import NOTHING_VARIED, check_number, read_axis
from gputui.jobs.experiments.log_figures import read_metric
from gputui.jobs.experiments.request import (
    OPTIONS,
    REQUEST,
    ExperimentRequest,
    Kind,
    axis_options,
    variants_of,
)
from gputui.jobs.experiments.runner import Planned
from gputui.launching.shell_words import shell_syntax, split
from gputui.requesting.launch_request import LaunchRequest, received
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.sources.source import Want
from gputui.system.files import open_given

STDIN = "-"
_MOST_BYTES = MIB
_LONGEST_LINE = 1 << 13
"""Characters of a line of a file of tasks."""
_MOST_MARKS = 50_000
"""Quotes and backslashes in a file, on which parsing spends most of its time: 5 in each of 10,000 tasks."""
_TASK = re.compile(r"^[^\S\n]*[^\s#].*", re.MULTILINE)
"""A line that is neither empty nor a comment."""


# Options


def parser(kind: Kind) -> Parser:
    if kind == "comparison":
        made = Parser(
            "compare",
            "Run the same command in variants, one after another on the same devices, and compare time,\n"
            "steps per second, memory and utilization. Every variant is a job with a log; the devices stay\n"
            "claimed until the last one has ended. --vary can name a launch option of `gputui run`\n"
            "(launcher, processes, python, threads, numa-binding=on,off …), env:NAME, arg:--OPTION, arg:KEY\n"
            "or word:NAME of the command, n=1,2,4, or gpus=0+1,2+3. Braces such as {1,2} in the command\n"
            "are varied, too, as with `gputui each`.",
            common="-n --gpus --vary --repeat --metric --resume",
            example="gputui compare -n 2 --vary launcher=python,torchrun -- train.py\n"
            "gputui compare -n 2 --vary env:NCCL_P2P_DISABLE=0,1 --repeat 3 -- train.py",
        )
        made.usage = (
            "gputui compare [-n N | --gpus LIST] --vary NAME=A,B… -- COMMAND…\n"
            "       gputui compare --resume ID | --list | --show ID | --forget ID"
        )
    else:
        made = Parser(
            "each",
            "Run many tasks, each on devices of its own. The next task starts when there are devices for\n"
            "it; it waits in line like any other launch. In COMMAND, {1..8} or {0.1,0.01} makes one task\n"
            "per value, and several of them make every combination. Quote them: otherwise bash expands them\n"
            "into one long command. --vary varies launch options and variables, as with `gputui compare`.",
            common="-n --jobs --memory --from-file --resume",
            example="gputui each -n 1 --jobs 4 -- python train.py --seed '{1..8}' '--lr={0.1,0.01}'",
        )
        made.usage = (
            "gputui each [-n N] [--gpus LIST] [OPTION…] -- COMMAND…\n"
            "       gputui each [-n N] … --from-file FILE\n"
            "       gputui each --resume ID | --list | --show ID | --forget ID"
        )
    _add_what_runs(made)
    _add_how(made, kind)
    made.add_argument("--request", metavar="JSON", help=INTERNAL)
    form = made.add_mutually_exclusive_group()
    add_json_option(form)
    form.add_argument("--csv", action="store_true", help="print a line per run as CSV")
    what = made.add_mutually_exclusive_group()
    what.add_argument(
        "--resume", metavar="ID", help=f"continue a {kind}: run everything that has not succeeded"
    )
    what.add_argument("--list", action="store_true", help=f"list the {kind}s that are kept")
    what.add_argument("--show", metavar="ID", help=f"show a {kind} again")
    what.add_argument("--forget", metavar="ID", help=f"remove a {kind}; its jobs stay")
    add_launch_options(made, exclusive=kind == "comparison")
    return made


def _add_what_runs(made: Parser) -> None:
    made.add_argument(
        "--vary",
        type=parsed_by(lambda text: read_axis(text, axis_options())),
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="what to vary; with several --vary, every combination is run",
    )
    made.add_argument(
        "--except",
        dest="left_out",
        action="append",
        default=[],
        metavar="NAME=A…",
        help="leave out the combinations with these values: 'launcher=python env:X=1'",
    )
    made.add_argument(
        "--from-file",
        metavar="FILE",
        help="read the tasks from FILE, one per line, quoted as in a shell; - is stdin",
    )
    made.add_argument(
        "--before",
        default="",
        metavar="COMMAND",
        help="shell command before each run: 'rm -r out'; {run}, here and in the command, is a folder of the"
        " run's own",
    )
    made.add_argument(
        "--repeat",
        type=number_type("a number from 1 to 1000", 1, 1000),
        default=1,
        metavar="N",
        help="run every variant N times; print median and spread",
    )
    made.add_argument(
        "--warm-up",
        action="store_true",
        help="run the first variant once beforehand, uncounted, to fill the caches",
    )
    made.add_argument(
        "--metric",
        type=parsed_by(lambda text: read_metric(text).pattern),
        metavar="REGEX",
        help="compare by the last number in the log that the group of REGEX matches; higher is better",
    )
    made.add_argument("--less", action="store_true", help="with --metric: lower is better")
    made.add_argument(
        "--timeout",
        type=duration_type(least=0.001),
        metavar="TIME",
        help="stop a run after this time (90, 30m, 2h)",
    )


def _add_how(made: Parser, kind: Kind) -> None:
    made.add_argument(
        "--jobs",
        type=number_type("a number from 1 to 99999", 1, 99_999),
        metavar="J",
        help="at most J runs at once",
    )
    made.add_argument(
        "--memory",
        type=memory,
        metavar="SIZE",
        help="let runs share devices: as many on each device as find SIZE of free memory there",
    )
    made.add_argument(
        "--retry",
        type=number_type("a number from 0 to 1000", 0, 1000),
        default=0,
        metavar="N",
        help="start a failed run again, up to N times",
    )
    failed = made.add_mutually_exclusive_group()
    failed.add_argument(
        "--keep-going",
        dest="stop_on_failure",
        action="store_false",
        default=False,
        help="after a failed run, start the others (default)",
    )
    failed.add_argument("--stop-on-failure", action="store_true", help="after a failed run, start no others")
    made.add_argument("--dry-run", action="store_true", help="print every launch line and start nothing")
    made.add_argument("--detach", action="store_true", help="run as a background job and print its id")
    (add_wait_option if kind == "comparison" else add_window_option)(made)
    add_force(made)
    made.add_argument("-q", "--quiet", action="store_true", help="do not print progress on stderr")


# The request


def parsed(
    kind: Kind, words: Sequence[str], command: Sequence[str] | None, base: ExperimentRequest | None = None
) -> tuple[Call, ExperimentRequest]:
    """Parse a call: its options, and the experiment that it asks for. They override those of `base`, unless
    the call has a command or tasks of its own. Raises WrongCallError."""
    made = parser(kind)
    args = made.parse_args(words)
    if args.from_file is not None and command is not None:
        raise WrongCallError("tasks come from --from-file or from a command: give only one of them")
    if args.request is not None:
        try:
            base = received(args.request, REQUEST)
        except DocumentError as error:
            raise WrongCallError(f"--request: {error}") from None
    elif command is not None or args.from_file is not None or args.saved is not None:
        base = None
    if base is not None:
        args = made.parse_args(words, _as_given(base))
        return args, _request(kind, args, base.launch.options.command, base.tasks)
    return args, _request(kind, args, command or (), _tasks_of_file(args.from_file) if args.from_file else ())


def _as_given(request: ExperimentRequest) -> Call:
    """The parsed call that asks for the same experiment and gives nothing else."""
    given = as_given(request.launch)
    given.vary, given.left_out = list(request.axes), list(request.left_out)
    for name in OPTIONS:
        setattr(given, name, getattr(request, name))
    return given


def _request(
    kind: Kind, args: Call, command: Sequence[str], tasks: tuple[tuple[str, ...], ...]
) -> ExperimentRequest:
    if args.less and args.metric is None:
        raise WrongCallError("--less needs --metric")
    if _varies_devices(args) and (args.n is not None or args.gpus is not None):
        raise WrongCallError("the devices are varied: leave -n and --gpus out")
    launch = launch_request(args, ())
    if args.saved is None:
        launch = replace(launch, options=replace(launch.options, command=tuple(command)))
    own = {name: getattr(args, name) for name in OPTIONS}
    return ExperimentRequest(kind, launch, tasks, tuple(args.vary), tuple(args.left_out), **own)


def _varies_devices(args: Call) -> bool:
    return any(axis.kind in ("n", "gpus") for axis in args.vary)


def typed(line: str, launch: LaunchRequest) -> ExperimentRequest:
    """Parse a comparison of a launch as a user types it in a field for variants: options of `gputui compare`
    are that, each other NAME=A,B, --NAME=A,B or arg:--NAME is varied. Devices in the line replace those of
    the launch. Raises WrongCallError."""
    made = parser("comparison")
    valued = {option for each in made._actions if each.nargs != 0 for option in each.option_strings}
    words: list[str] = []
    for word in split(line):
        name, equals, _ = word.partition("=")
        vary = word.startswith("arg:") or (equals and name not in valued)
        own = bool(words) and words[-1] in valued
        words += [f"--vary={word}"] if vary and not own else [word]
    args = made.parse_args(words)
    if not args.vary:
        raise WrongCallError(NOTHING_VARIED)
    if _varies_devices(args) or args.n is not None or args.gpus is not None:
        launch = replace(launch, devices=DeviceRequest())
    args = made.parse_args(words, _as_given(ExperimentRequest("comparison", launch)))
    return _request("comparison", args, launch.options.command, ())


def _tasks_of_file(name: str) -> tuple[tuple[str, ...], ...]:
    """Read a task from each line that is neither empty nor a comment. Raises WrongCallError."""
    shown = "stdin" if name == STDIN else repr(name)
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1) if sys.stdin is not None else b""
        else:
            with open_given(name) as stream:
                data = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise WrongCallError(f"cannot read {shown}: {reason_of(error)}") from None
    if len(data) > _MOST_BYTES:
        raise WrongCallError(f"{shown} is too long")
    if sum(map(data.count, (b"'", b'"', b"\\"))) > _MOST_MARKS:
        raise WrongCallError(f"{shown} has more than {_MOST_MARKS} quotes and backslashes")
    tasks = list[tuple[str, ...]]()
    text = os.fsdecode(data)
    for match in _TASK.finditer(text):
        check_number(len(tasks) + 1)
        try:
            tasks.append(_words_of(match[0]))
        except ValueError as error:
            number = text.count("\n", 0, match.start()) + 1
            raise WrongCallError(f"line {number} of {shown}: {error}") from None
    if not tasks:
        raise WrongCallError(f"{shown} has no tasks: write one command per line")
    return tuple(tasks)


def _words_of(line: str) -> tuple[str, ...]:
    """Split a line into the words of a command. Raises ValueError."""
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"it has more than {_LONGEST_LINE} characters")
    if "\0" in line:
        raise ValueError("it contains a NUL byte")
    if (syntax := shell_syntax(line)) is not None:
        raise ValueError(f"{syntax} needs a shell: write bash -c '…', or quote it")
    return split(line)


# The launches of the variants


class Prepared(NamedTuple):
    """A valid experiment: its axes by name and heading, its variants, and the request for devices that are
    held for all of them."""

    axes: tuple[tuple[str, str], ...]
    planned: tuple[Planned, ...]
    held: Request | None


def prepared(request: ExperimentRequest, tell: Tell) -> Prepared:
    """Prepare the variants of an experiment, without claiming devices. Raises WrongCallError,
    RequestError."""
    kind = request.kind
    if not request.launch.options.command and not request.tasks:
        name = "compare --vary …" if kind == "comparison" else "each -n 1"
        more = "" if kind == "comparison" else " --seed '{1..8}'"
        raise WrongCallError(
            f"no command: put it after --, as in `gputui {name} -- python train.py{more}`,"
            " or use --from-file FILE"
        )
    axes, every = variants_of(request)
    if not axes and kind == "comparison":
        raise WrongCallError(NOTHING_VARIED)
    if not axes and len(every) == 1 and not request.tasks:
        raise WrongCallError(
            "this is one task only: put braces such as '{1..8}' in quotes (the shell expands them into"
            " one command otherwise), or use `gputui run`"
        )
    planned = []
    for variant in every:
        try:
            check_machines(variant.launch.options)
            planned.append(Planned(variant, _prepared(kind, variant.launch, request.memory, tell)))
        except (RequestError, WrongCallError) as error:
            raise WrongCallError(f"{variant.label}: {error}") from None
    return Prepared(axes, tuple(planned), _for_all(planned) if kind == "comparison" else None)


def _prepared(kind: Kind, asked: LaunchRequest, memory: int | None, tell: Tell) -> PreparedLaunch:
    """Prepare the launch of a variant. For tasks, `--gpus` names the devices from which theirs are picked.
    Raises RequestError, WrongCallError."""
    if kind == "comparison" and asked.options.nodes > 1:
        raise WrongCallError("a launch on several machines cannot be compared from one of them")
    devices, pool = asked.devices, asked.devices.names
    if pool is not None:
        entries_of(pool)
    if kind == "comparison" or pool is None or pool.strip() == NONE:
        if pool is not None and (devices.count is not None or devices.auto):
            raise WrongCallError("--gpus none is CPU only: leave -n out")
        pool = None
    else:
        devices = replace(devices, names=None)
    if memory is not None:
        devices = replace(devices, min_free=max(memory, devices.min_free or 0))
    found = prepared_call(replace(asked, devices=devices), own_job(), tell)
    if pool is not None:
        if found.request.names is not None:
            raise WrongCallError("its command names its devices: leave --gpus out")
        found = replace(found, request=replace(found.request, names=pool))
    if memory is not None and kind == "sweep" and not found.request.picks:
        raise WrongCallError("--memory is for devices that gputui picks")
    return found


def _for_all(every: Sequence[Planned]) -> Request:
    """Return one request for all variants: for the largest number of devices of a variant, or for all that
    they name. Raises WrongCallError."""
    requests = [each.prepared.request for each in every]
    kinds = {axis.kind for axis, _ in every[0].variant.settings}
    found = max(requests, key=lambda each: each.count or 0) if "n" in kinds else requests[0]
    if "gpus" in kinds:
        words = (word for each in requests if each.names for word in each.names.split(","))
        found = replace(found, names=",".join(dict.fromkeys(words)), count=None)
    elif "n" not in kinds:
        for variant, prepared in every:
            own = prepared.request
            if (own.names, own.count) != (found.names, found.count):
                raise WrongCallError(
                    f"{variant.label}: its command asks for other devices than the first variant's:"
                    " give -n or --gpus, or vary n"
                )
    return replace(found, facts=functools.reduce(Want.__or__, (each.facts for each in requests)))
