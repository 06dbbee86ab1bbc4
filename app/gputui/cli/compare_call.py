"""What a call of `gputui compare` means: its options, axes, variants, and the one request for all of them."""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable, Sequence

from gputui.allocating.request import Request
from gputui.choosing.named_devices import NamingError
from gputui.cli.common import Parser, WrongCallError, duration_type
from gputui.cli.launch_call import (
    NEAR,
    add_force,
    add_launch_options,
    how_confined_here,
    options_of,
    own_job,
    request_for,
)
from gputui.cli.request_options import add_wait_option, count, request_of
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.launching.intent import Asked, ContradictionError, Intent, settle
from gputui.launching.launch_options import LaunchOptions, OptionError, table
from gputui.launching.secrets import MARK, program_and_script, secret_word
from gputui.library.agreement import heard
from gputui.planning.comparison_axes import (
    JOIN,
    OFF,
    ON,
    Axis,
    AxisError,
    Setting,
    label,
    read_axis,
    variants,
    varied_command,
)
from gputui.planning.comparison_log import read_metric
from gputui.sources.source import Want

_NOT_VARIED = ("nodes", "rendezvous")
"""A launch on several machines waits for the others: they would have to be varied, too."""
_THREADS = "threads"
_MOST_REPEATS = 1000


def parser() -> Parser:
    made = Parser(
        "compare",
        "Run the same command in variants, one after another on the same devices, and compare time, steps\n"
        "per second, memory and utilization. Every variant is a job with a log; the devices stay claimed\n"
        "until the last one has ended. What --vary can name: a launch option of `gputui run` (launcher,\n"
        "processes, python, threads, numa-binding=on,off …), env:NAME, arg:--OPTION, arg:KEY or word:NAME\n"
        "of the command, n=1,2,4, or gpus=0+1,2+3.",
        epilog="gputui compare -n 2 --vary launcher=python,torchrun --vary env:NCCL_P2P_DISABLE=0,1 -- t.py",
    )
    made.usage = (
        "gputui compare [-n N | --gpus LIST] --vary NAME=A,B… [--repeat N] [--metric REGEX] -- COMMAND…\n"
        "       gputui compare --list | --show ID | --forget ID"
    )
    made.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="what is varied; several make every combination",
    )
    made.add_argument(
        "--repeat", type=_repeats, default=1, metavar="N", help="run every variant N times: median and spread"
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
    made.add_argument(
        "--dry-run", action="store_true", help="print every variant's launch line, start nothing"
    )
    made.add_argument("--detach", action="store_true", help="go on as a background job and print its id")
    add_wait_option(made)
    add_force(made)
    made.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print a line per run as CSV")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the comparisons that are kept")
    what.add_argument("--show", metavar="ID", help="show a comparison again")
    what.add_argument("--forget", metavar="ID", help="remove a comparison; its jobs stay")
    add_launch_options(made)
    return made


def _repeats(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MOST_REPEATS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST_REPEATS}")
    return int(text)


def _metric(text: str) -> str:
    try:
        return read_metric(text).pattern
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant before it has devices: `args` is the call as if it were a `gputui run` of this variant."""

    settings: tuple[Setting, ...]
    args: argparse.Namespace
    options: LaunchOptions
    intent: Intent

    @property
    def label(self) -> str:
        return label([(axis.heading, shown(axis, value)) for axis, value in self.settings])


def shown(axis: Axis, value: str) -> str:
    """A value as it may be kept and shown: of what looks like a secret only which one it is."""
    words = (axis.key, value) if axis.key[:1] == "-" else (f"{axis.key}={value}",)
    secret = axis.kind in ("env", "arg") and secret_word(words) is not None
    return f"{MARK}{axis.values.index(value) + 1}" if secret else value


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that can be meant: its axes, the command without them, the variants, and the request."""

    args: argparse.Namespace
    axes: tuple[Axis, ...]
    base: LaunchOptions
    every: tuple[Variant, ...]
    request: Request


def prepared(words: Sequence[str], command: Sequence[str] | None) -> Prepared:
    """What a call asks for; nothing is claimed yet. Raises WrongCallError, RequestError."""
    args = parser().parse_args(words)
    if not command and args.saved is None:
        raise WrongCallError(
            "no command: put it after --, as in `gputui compare --vary … -- python train.py`"
        )
    axes, planned = _axes(args)
    base = options_of(args, command or ())
    if not base.command:
        raise WrongCallError("no command after the variables")
    if base.nodes > 1:
        raise WrongCallError("a launch on several machines cannot be compared from one of them")
    try:
        every = tuple(_variant(args, command or (), settings) for settings in planned)
    except AxisError as error:
        raise WrongCallError(str(error)) from None
    return Prepared(args, axes, base, every, _request(args, every))


def variants_of(words: Sequence[str]) -> int:
    """How many variants these words of a call span. Raises WrongCallError."""
    return len(_axes(parser().parse_args(words))[1])


def with_vary(words: Sequence[str]) -> list[str]:
    """Words as a person types them where only `--vary` is asked for: each NAME=A,B, and each arg:--NAME, is
    varied; the others are options of the call."""
    valued = {option for each in parser()._actions if each.nargs != 0 for option in each.option_strings}
    found: list[str] = []
    for word in words:
        vary = not word.startswith("-") and ("=" in word or word.startswith("arg:"))
        own = bool(found) and found[-1] in valued
        found += ["--vary", word] if vary and not own else [word]
    return found


def says_devices(words: Sequence[str]) -> bool:
    """Whether a call says itself which devices, or varies them. Raises WrongCallError."""
    args = parser().parse_args(words)
    varied = any(axis.kind in ("n", "gpus") for axis in _axes(args)[0])
    return varied or args.n is not None or args.gpus is not None


def _axes(args: argparse.Namespace) -> tuple[tuple[Axis, ...], list[tuple[Setting, ...]]]:
    """The axes and every combination of their values. Raises WrongCallError."""
    if args.less and args.metric is None:
        raise WrongCallError("--less is for --metric")
    try:
        axes = tuple(read_axis(text, (*_names(), _THREADS)) for text in args.vary)
        planned = variants(axes)
    except AxisError as error:
        raise WrongCallError(str(error)) from None
    if any(axis.kind in ("n", "gpus") for axis in axes) and (args.n is not None or args.gpus is not None):
        raise WrongCallError("the devices are varied: leave -n and --gpus out")
    return axes, planned


def _names() -> dict[str, str]:
    """The launch options that can be varied: what --vary calls them, and their fields."""
    return {each.flag.lstrip("-"): name for name, each in table().items() if name not in _NOT_VARIED}


def _variant(
    args: argparse.Namespace,
    command: Sequence[str],
    settings: tuple[Setting, ...],
) -> Variant:
    """Raises AxisError, WrongCallError for a variant that cannot be meant."""
    varied = copy.copy(args)
    varied.env = list(args.env)
    defaults: dict[str, object] = {}
    for axis, value in settings:
        if axis.kind == "env" and value:
            varied.env.append((axis.key, value))
        elif axis.kind == "n":
            varied.n = _typed(axis, value, count)
        elif axis.kind == "gpus":
            varied.gpus = value.replace(JOIN, ",")
        elif axis.kind == "option" and axis.key == _THREADS:
            varied.threads = NEAR if value == NEAR else _typed(axis, value, count)
        elif axis.kind == "option":
            name = _names()[axis.key]
            setattr(varied, name, _option(axis, value, name))
            if getattr(varied, name) == table()[name].default:
                defaults[name] = table()[name].default
    words = command
    if args.saved is not None:
        # (It has been read: `options_of` puts the launch in place of its name.)
        varied.saved = replace(args.saved, command=varied_command(args.saved.command, settings))
    else:
        words = varied_command(command, settings)
    # (In a call, an option's default says nothing about a saved launch; here it was asked for.)
    options = replace(options_of(varied, words), **defaults)  # type: ignore[arg-type]
    if not options.command:
        raise AxisError("a variant has no command")
    return Variant(settings, varied, options, heard(options, os.environ, how_confined_here(args, options)))


def _option(axis: Axis, value: str, name: str) -> object:
    """The value of a launch option. Raises AxisError."""
    if table()[name].kind == "switch":
        if value not in (ON, OFF):
            raise AxisError(f"{axis.name}={value}: {ON} or {OFF}")
        return value == ON
    try:
        return table()[name].typed(value)
    except OptionError as error:
        raise AxisError(f"{axis.name}: {error}") from None


def _typed(axis: Axis, value: str, read: Callable[[str], int]) -> int:
    try:
        return read(value)
    except argparse.ArgumentTypeError as error:
        raise AxisError(f"{axis.name}: {error}") from None


def _request(args: argparse.Namespace, every: Sequence[Variant]) -> Request:
    """One request for all variants: the most devices that one of them has, or all that they name."""
    holding, first = copy.copy(args), every[0]
    counts = [variant.args.n for variant in every if variant.args.n is not None and args.n is None]
    named = [variant.args.gpus for variant in every if variant.args.gpus is not None and args.gpus is None]
    if counts:
        largest = max(every, key=lambda variant: variant.args.n)
        holding.n, first = largest.args.n, largest
    if named:
        holding.gpus = ",".join(dict.fromkeys(word for names in named for word in names.split(",")))
    if any(variant.options.ids == "uuid" for variant in every):
        # (Else a dry run would not read them.)
        holding.ids = "uuid"
    holding.threads = next((v.args.threads for v in every if v.args.threads == NEAR), args.threads)
    confine = how_confined_here(holding, first.options)
    if named:
        asked = Asked(None, holding.gpus, holding.group)
        facts = Want.VERDICT | Want.TOPOLOGY if holding.threads == NEAR else Want.VERDICT
        facts |= Want.NODES if confine != "never" else Want(0)
        request = request_of(
            holding, program_and_script(first.options.command), facts, job=own_job(), asked=asked
        )
    else:
        request = request_for(holding, first.options, first.intent, own_job(), confine=confine)
    for variant in every:
        asked = Asked(variant.args.n, variant.args.gpus, variant.args.group)
        try:
            settled = settle(asked, variant.intent, args.force)
        except (ContradictionError, NamingError) as error:
            raise WrongCallError(f"{variant.label}: {error}") from None
        if counts or named:
            continue
        number = None if settled.names is not None and settled.count is None else settled.count
        own = settled.group.unit if settled.group is not None else 1
        if settled.names != request.names or (request.picks and (number or own) != request.count):
            raise WrongCallError(
                f"{variant.label}: its command asks for other devices than the first variant's:"
                " say -n or --gpus, or vary n"
            )
    return request
