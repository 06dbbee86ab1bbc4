"""Parse a call of `gputui compare` or `gputui each`: its options, axes, variants, and their requests."""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gputui.allocating.errors import RequestError
from gputui.allocating.request import Request
from gputui.choosing.named_devices import NONE, NamingError, entries_of
from gputui.cli.common import Parser, WrongCallError, duration_type, say
from gputui.cli.hosts_options import without_options
from gputui.cli.launch_call import (
    NEAR,
    add_force,
    add_launch_options,
    launch_request,
    own_job,
    prepared_call,
)
from gputui.cli.request_options import add_wait_option, add_window_option, count, memory
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.jobs.experiments.axes import (
    JOIN,
    NOTHING_VARIED,
    OFF,
    ON,
    Axis,
    AxisError,
    Setting,
    label,
    left_out,
    read_axis,
    variants,
    varied_command,
)
from gputui.jobs.experiments.braces import MOST_TASKS, Expansion, TooManyTasksError, expanded
from gputui.jobs.experiments.log_figures import read_metric
from gputui.jobs.experiments.record import Kind, Row
from gputui.launching.launch_options import OptionError, table
from gputui.launching.quoting import quote
from gputui.launching.secrets import MARK, secret_word, without_secrets
from gputui.launching.shell_words import shell_syntax, split
from gputui.requesting.launch_request import LaunchRequest
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.sources.source import Want

STDIN = "-"
_NOT_VARIED = ("nodes", "rendezvous")
"""Options of a launch on several machines, which waits for the other machines: these would have to vary them,
too."""
_THREADS = "threads"
_MOST_BYTES = 2 * 1024 * 1024
_LONGEST_LINE = 1 << 13
"""In characters."""
_MOST_MARKS = 300_000
"""Quotes and backslashes in a file, on which parsing spends most of its time: 100 in each of 3,000 tasks."""
_TASK = re.compile(r"^[^\S\n]*[^\s#].*", re.MULTILINE)
"""A line that is neither empty nor a comment."""


# Options


def parser(kind: Kind) -> Parser:
    if kind == "comparison":
        made = Parser(
            "compare",
            "Run the same command in variants, one after another on the same devices, and compare time,\n"
            "steps per second, memory and utilization. Every variant is a job with a log; the devices stay\n"
            "claimed until the last one has ended. What --vary can name: a launch option of `gputui run`\n"
            "(launcher, processes, python, threads, numa-binding=on,off …), env:NAME, arg:--OPTION, arg:KEY\n"
            "or word:NAME of the command, n=1,2,4, or gpus=0+1,2+3. Braces such as {1,2} in the command\n"
            "vary it, too, as with `gputui each`.",
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
            "Run many tasks, each on devices of its own. The next one starts when there are devices for\n"
            "it, and waits in line like any other. In the words of COMMAND, {1..8} and {0.1,0.01} make a\n"
            "task for each value, several make every combination. Quote them: bash would expand them into\n"
            "one long command. --vary varies launch options and variables, as with `gputui compare`.",
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
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print a line per run as CSV")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--resume", metavar="ID", help=f"go on with a {kind}: run all that has not ended well")
    what.add_argument("--list", action="store_true", help=f"list the {kind}s that are kept")
    what.add_argument("--show", metavar="ID", help=f"show a {kind} again")
    what.add_argument("--forget", metavar="ID", help=f"remove a {kind}; its jobs stay")
    add_launch_options(made, exclusive=kind == "comparison")
    return made


def _add_what_runs(made: Parser) -> None:
    made.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="what is varied; several make every combination",
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
        help="one task per line, in shell words, instead of COMMAND; - is stdin",
    )
    made.add_argument(
        "--before",
        default="",
        metavar="COMMAND",
        help="what a shell runs before each run: 'rm -r out'; {run}, here and in the command, is a folder"
        " of the run's own",
    )
    made.add_argument(
        "--repeat",
        type=_whole(1, 1000),
        default=1,
        metavar="N",
        help="run every variant N times: median and spread",
    )
    made.add_argument(
        "--warm-up",
        action="store_true",
        help="run the first variant once before, uncounted: it fills caches for all",
    )
    made.add_argument(
        "--metric",
        type=_metric,
        metavar="REGEX",
        help="compare by the last match of REGEX's one group in the log; more is better",
    )
    made.add_argument("--less", action="store_true", help="with --metric: less is better")
    made.add_argument(
        "--timeout",
        type=duration_type(least=0.001),
        metavar="TIME",
        help="stop a run after this time (90, 30m, 2h)",
    )


def _add_how(made: Parser, kind: Kind) -> None:
    made.add_argument("--jobs", type=_whole(1, 99_999), metavar="J", help="at most J runs at once")
    made.add_argument(
        "--memory",
        type=memory,
        metavar="SIZE",
        help="runs share devices: as many on each device as have SIZE of its memory",
    )
    made.add_argument(
        "--retry",
        type=_whole(0, 1000),
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
        help="after a failed run, make the others (default)",
    )
    failed.add_argument(
        "--stop-on-failure", action="store_true", help="start no further run after one has failed"
    )
    made.add_argument("--dry-run", action="store_true", help="print every launch line, start nothing")
    made.add_argument("--detach", action="store_true", help="go on as a background job and print its id")
    (add_wait_option if kind == "comparison" else add_window_option)(made)
    add_force(made)
    made.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Return an argparse type for integers from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 6) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return read


def _metric(text: str) -> str:
    try:
        return read_metric(text).pattern
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# The variants


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant before it has devices. `prepared` is its launch as if the variant were a call of `gputui
    run`."""

    settings: tuple[Setting, ...]
    label: str
    values: tuple[str, ...]
    words: tuple[str, ...]
    prepared: PreparedLaunch


def shown(axis: Axis, value: str) -> str:
    """Return a value for records and tables. A value that looks like a secret is replaced by its number on
    the axis."""
    words = (axis.key, value) if axis.key[:1] == "-" else (f"{axis.key}={value}",)
    secret = axis.kind in ("env", "arg") and secret_word(words) is not None
    return f"{MARK}{axis.values.index(value) + 1}" if secret else value


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid call: its axes as names and headings, the command, the variants, and the request for devices
    that are held for all of them. `secret_axes` are the names of axes with a value that looks like a
    secret."""

    args: argparse.Namespace
    axes: tuple[tuple[str, str], ...]
    command: tuple[str, ...]
    every: tuple[Variant, ...]
    request: Request | None
    secret_axes: tuple[str, ...] = ()


def prepared(
    kind: Kind, words: Sequence[str], command: Sequence[str] | None, rows: Sequence[Row] = ()
) -> Prepared:
    """Parse a call and prepare its variants, without claiming devices. `rows` are the recorded tasks of an
    experiment that is resumed, with their commands. Raises WrongCallError, RequestError."""
    args = parser(kind).parse_args(words)
    if args.from_file is not None and command is not None:
        raise WrongCallError("tasks come from --from-file or from a command: give only one of them")
    if not command and args.saved is None and args.from_file is None and not rows:
        name = "compare --vary …" if kind == "comparison" else "each -n 1"
        more = "" if kind == "comparison" else " --seed '{1..8}'"
        raise WrongCallError(
            f"no command: put it after --, as in `gputui {name} -- python train.py{more}`,"
            " or use --from-file FILE"
        )
    axes = _axes(args)
    base = tuple(command or ())
    if args.saved is not None:
        base = launch_request(args, base).options.command
    names, every = _combinations(args, axes, base, rows)
    if not names and kind == "comparison":
        raise WrongCallError(NOTHING_VARIED)
    if not names and len(every) == 1 and not rows and args.from_file is None:
        raise WrongCallError(
            "this is one task only: put braces such as '{1..8}' in quotes (the shell expands them into"
            " one command otherwise), or use `gputui run`"
        )
    secret = tuple(axis.name for axis in axes if any(shown(axis, each) != each for each in axis.values))
    tell = Once()
    made = tuple(_variant(kind, args, *each, names, tell) for each in every)
    return Prepared(args, names, base, made, _for_all(made) if kind == "comparison" else None, secret)


class Once:
    """Prints each sentence once, even if it applies to several variants."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


def _combinations(
    args: argparse.Namespace, axes: Sequence[Axis], command: tuple[str, ...], rows: Sequence[Row]
) -> tuple[tuple[tuple[str, str], ...], list[tuple[tuple[Setting, ...], Expansion]]]:
    """Return the axes by name and heading, those of braces last, and the combinations of settings and tasks.
    Raises AxisError, WrongCallError."""
    names = [(axis.name, axis.heading) for axis in axes]
    if rows:
        tasks = [Expansion(row.words, row.label) for row in rows]
    elif args.from_file is not None:
        tasks = _tasks_of_file(args.from_file)
    else:
        headings, tasks = expanded(command)
        names += zip(headings, headings, strict=True)
    settings = variants(axes)
    if len(settings) * len(tasks) > MOST_TASKS:
        raise TooManyTasksError
    pairs = list(itertools.product(settings, tasks))
    values = [(*(value for _, value in each), *task.values) for each, task in pairs]
    without = left_out(args.left_out, names, values)
    kept = [pair for pair, own in zip(pairs, values, strict=True) if own not in without]
    if not kept:
        raise WrongCallError("--except leaves every combination out")
    return tuple(names), kept


def variants_of(words: Sequence[str]) -> int:
    """Count the variants that the options of a call of `compare` span. Raises AxisError, WrongCallError."""
    axes = _axes(parser("comparison").parse_args(words))
    if not axes:
        raise WrongCallError(NOTHING_VARIED)
    return len(variants(axes))


def with_vary(words: Sequence[str]) -> list[str]:
    """Insert `--vary` into words that a user typed in a field for variants: each NAME=A,B and each arg:--NAME
    is varied, and the others are options of the call."""
    every = parser("comparison")._actions
    valued = {option for each in every if each.nargs != 0 for option in each.option_strings}
    found: list[str] = []
    for word in words:
        vary = not word.startswith("-") and ("=" in word or word.startswith("arg:"))
        own = bool(found) and found[-1] in valued
        found += ["--vary", word] if vary and not own else [word]
    return found


def says_devices(words: Sequence[str]) -> bool:
    """Whether a call specifies devices by -n or --gpus, or varies them. Raises AxisError, WrongCallError."""
    args = parser("comparison").parse_args(words)
    varied = any(axis.kind in ("n", "gpus") for axis in _axes(args))
    return varied or args.n is not None or args.gpus is not None


def _axes(args: argparse.Namespace) -> tuple[Axis, ...]:
    """Parse and check the axes of `--vary`. Raises AxisError, WrongCallError."""
    if args.less and args.metric is None:
        raise WrongCallError("--less is for --metric")
    axes = tuple(read_axis(text, (*_names(), _THREADS)) for text in args.vary)
    variants(axes)
    if any(axis.kind in ("n", "gpus") for axis in axes) and (args.n is not None or args.gpus is not None):
        raise WrongCallError("the devices are varied: leave -n and --gpus out")
    return axes


def _names() -> dict[str, str]:
    """Map the names that --vary has for launch options to their fields."""
    return {each.flag.lstrip("-"): name for name, each in table().items() if name not in _NOT_VARIED}


def _tasks_of_file(name: str) -> list[Expansion]:
    """Read a task from each line that is neither empty nor a comment. Raises WrongCallError."""
    shown = "stdin" if name == STDIN else repr(name)
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1) if sys.stdin is not None else b""
        else:
            with Path(name).open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise WrongCallError(f"cannot read {shown}: {why}") from None
    if len(data) > _MOST_BYTES:
        raise WrongCallError(f"{shown} is too long")
    if sum(map(data.count, (b"'", b'"', b"\\"))) > _MOST_MARKS:
        raise WrongCallError(f"{shown} has more than {_MOST_MARKS} quotes and backslashes")
    tasks = list[Expansion]()
    text = os.fsdecode(data)
    for match in _TASK.finditer(text):
        if len(tasks) == MOST_TASKS:
            raise TooManyTasksError
        try:
            tasks.append(Expansion(_words_of(match[0]), ""))
        except ValueError as error:
            number = text.count("\n", 0, match.start()) + 1
            raise WrongCallError(f"line {number} of {shown}: {error}") from None
    if not tasks:
        raise WrongCallError(f"{shown} has no tasks: write one command per line")
    return tasks


def _words_of(line: str) -> tuple[str, ...]:
    """Split a line into the words of a command. Raises ValueError."""
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"it has more than {_LONGEST_LINE} characters")
    if "\0" in line:
        raise ValueError("it has a NUL")
    if (syntax := shell_syntax(line)) is not None:
        raise ValueError(f"{syntax} needs a shell: write bash -c '…', or quote it")
    return split(line)


# The launches of the variants


def _variant(
    kind: Kind,
    args: argparse.Namespace,
    settings: tuple[Setting, ...],
    task: Expansion,
    axes: Sequence[tuple[str, str]],
    tell: Once,
) -> Variant:
    """Make the variant of a combination of settings and a task. Raises AxisError, WrongCallError."""
    varied = copy.copy(args)
    varied.env = list(args.env)
    defaults: dict[str, object] = {}
    for axis, value in settings:
        try:
            if axis.kind == "env" and value:
                varied.env.append((axis.key, value))
            elif axis.kind == "n":
                varied.n = count(value)
            elif axis.kind == "gpus":
                varied.gpus = value.replace(JOIN, ",")
            elif axis.kind == "option" and axis.key == _THREADS:
                varied.threads = value if value == NEAR else count(value)
            elif axis.kind == "option":
                field = _names()[axis.key]
                option = table()[field]
                made = _switched(value) if option.kind == "switch" else option.typed(value)
                setattr(varied, field, made)
                if made == option.default:
                    defaults[field] = made
        except (OptionError, argparse.ArgumentTypeError) as error:
            raise AxisError(f"{axis.name}: {error}") from None
    values = (*(shown(axis, value) for axis, value in settings), *task.values)
    if settings:
        name = label([(heading, value) for (_, heading), value in zip(axes, values, strict=True)])
    else:
        own = task.label.split(" ") if task.label else [*map(quote, without_secrets(task.words)[0])]
        name = " ".join(without_secrets(own)[0])
    words = given = varied_command(task.words, settings)
    if args.saved is not None:
        # `args.saved` is the saved launch itself, with its name already resolved.
        varied.saved, given = replace(args.saved, command=words), ()
    asked = launch_request(varied, given)
    # An option with its default value does not override a saved launch, but a varied value must.
    asked = replace(asked, options=replace(asked.options, **defaults))  # type: ignore[arg-type]
    if not asked.options.command:
        raise AxisError(f"{name}: no command after the variables")
    if kind == "comparison" and asked.options.nodes > 1:
        raise WrongCallError("a launch on several machines cannot be compared from one of them")
    try:
        prepared = _prepared(kind, asked, args.memory, tell)
    except (NamingError, RequestError, WrongCallError) as error:
        raise WrongCallError(f"{name}: {error}") from None
    return Variant(settings, name, values, words, prepared)


def _switched(text: str) -> bool:
    if text not in (ON, OFF):
        raise OptionError(f"{text!r} is neither {ON} nor {OFF}")
    return text == ON


def _prepared(kind: Kind, asked: LaunchRequest, memory: int | None, tell: Once) -> PreparedLaunch:
    """Prepare the launch of a variant. For tasks, `--gpus` names the devices from which theirs are picked.
    Raises NamingError, RequestError, WrongCallError."""
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
        devices = replace(devices, min_free=memory)
    found = prepared_call(replace(asked, devices=devices), own_job(), tell)
    if pool is not None:
        if found.request.names is not None:
            raise WrongCallError("its command names its devices: leave --gpus out")
        found = replace(found, request=replace(found.request, names=pool))
    if memory is not None and kind == "sweep" and not found.request.picks:
        raise WrongCallError("--memory is for devices that gputui picks")
    return found


def _for_all(every: Sequence[Variant]) -> Request:
    """Return one request for all variants: for the largest number of devices of a variant, or for all that
    they name. Raises WrongCallError."""
    requests = [variant.prepared.request for variant in every]
    kinds = {axis.kind for axis, _ in every[0].settings}
    found = max(requests, key=lambda each: each.count or 0) if "n" in kinds else requests[0]
    if "gpus" in kinds:
        words = (word for each in requests if each.names for word in each.names.split(","))
        found = replace(found, names=",".join(dict.fromkeys(words)), count=None)
    elif "n" not in kinds:
        for variant in every:
            own = variant.prepared.request
            if (own.names, own.count) != (found.names, found.count):
                raise WrongCallError(
                    f"{variant.label}: its command asks for other devices than the first variant's:"
                    " say -n or --gpus, or vary n"
                )
    return replace(found, facts=functools.reduce(Want.__or__, (each.facts for each in requests)))


_ONCE, _ONCE_WITH_VALUE = ("--detach", "--json", "--csv", "-q", "--quiet"), ("--resume", "--from-file")
"""Options that are not recorded for a later `--resume`."""


def kept_words(prepared: Prepared, words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the options of a call that a later `--resume` repeats, without secrets, and the names of those
    withheld."""
    found = [word for word in without_options(words, *_ONCE_WITH_VALUE) if word not in _ONCE]
    withheld = list(prepared.secret_axes)
    for place, word in enumerate(found):
        text = word.removeprefix("--vary=")
        name = next((each for each in prepared.secret_axes if text.startswith(f"{each}=")), None)
        if name is not None:
            found[place] = f"{word.partition(name)[0]}{name}={MARK}"
    known, names = without_secrets(found)
    return known, [*withheld, *names]
