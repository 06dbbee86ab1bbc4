"""`gputui compare`: the same command in variants, one after another on the same devices, as a table."""

from __future__ import annotations

import argparse
import copy
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import RequestError
from gputui.allocating.request import Request
from gputui.choosing.named_devices import NamingError, devices_named
from gputui.cli.common import (
    DONE,
    Parser,
    WrongCallError,
    duration_type,
    elsewhere,
    opened,
    output_width,
    print_line,
    say,
)
from gputui.cli.launch_call import (
    NEAR,
    add_force,
    add_launch_options,
    allocated,
    launch_on,
    options_of,
    own_job,
    request_for,
)
from gputui.cli.request_options import add_wait_option, constraints_of, count, request_of
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, duration, printable
from gputui.inventory.text_table import aligned, cut
from gputui.jobs import FOLDER
from gputui.jobs.compare import Comparing, Planned, Reading
from gputui.jobs.comparisons import COMPARISONS
from gputui.jobs.job import JobError
from gputui.jobs.kept_records import Kept, KeptError, Unreadable
from gputui.jobs.queued import call_job
from gputui.jobs.record import without_secrets_of
from gputui.jobs.start import detached
from gputui.launching.intent import Asked, ContradictionError, Intent, settle
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, OptionError, table
from gputui.launching.quoting import quote
from gputui.launching.read_intent import read_intent
from gputui.launching.secrets import MARK, is_secret, program_and_script, without_secrets
from gputui.launching.start import StartError
from gputui.library.agreement import agreement
from gputui.planning.comparison import Comparison, Row, Run, as_csv, document, summaries
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
from gputui.planning.comparison_text import how, lines, seconds
from gputui.sources.source import NoSourceError, Source, Want
from gputui.system.ending_signals import EndedError, until_a_signal
from gputui.system.environment import given_environment

NONE_WENT_WELL = 1
"""The exit status where no run of any variant went well."""
_NOT_VARIED = ("nodes", "rendezvous")
"""A launch on several machines waits for the others: they would have to be varied, too."""
_THREADS = "threads"
_MOST_REPEATS = 1000
_WIDTH = 100
"""Columns where the output is no terminal."""


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
        help="compare by what the one group of REGEX finds last in the log; more is better",
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


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    try:
        if args.list or args.show is not None or args.forget is not None:
            if command is not None or args.vary:
                raise WrongCallError(
                    "--list, --show and --forget start nothing: leave --vary and COMMAND out"
                )
            return _kept(args)
        return _compare(words, command)
    except (KeptError, JobError) as error:
        raise WrongCallError(str(error)) from None


# What is kept


def _kept(args: argparse.Namespace) -> int:
    known = COMPARISONS.kept(os.environ)
    if args.list:
        return _list(known, args)
    found = COMPARISONS.find(args.forget if args.show is None else args.show, known)
    if args.forget is not None:
        COMPARISONS.forget(found, os.environ)
        say(f"comparison {found.id} is removed; its jobs and their logs stay (`gputui jobs`)")
        return DONE
    if isinstance(found, Unreadable):
        raise COMPARISONS.unreadable(found)
    _print(found, args)
    return DONE


def _list(known: Kept[Comparison], args: argparse.Namespace) -> int:
    for each in known.unreadable:
        say(f"warning: {COMPARISONS.unreadable(each)}")
    if args.csv:
        raise WrongCallError("--csv is for one comparison: --show ID --csv")
    if args.json:
        import json

        print(json.dumps({"schema": 1, "comparisons": [document(each) for each in known.records]}))
    elif not known.records:
        say("no comparisons; `gputui compare -n 2 --vary launcher=python,torchrun -- train.py` makes one")
    else:
        now = time.time()
        rows = [("ID", "STATE", "RUNS", "BEGAN", "VARIED", "BEST", "COMMAND")]
        rows += [list_row(each, now) for each in known.records]
        print_line("\n".join(cut(line, output_width()) for line in aligned(rows)))
    return DONE


def list_row(comparison: Comparison, now: float) -> tuple[str, str, str, str, str, str, str]:
    """A comparison as a row of the list."""
    best = next((each for each in summaries(comparison) if each.difference == 0), None)
    return (
        comparison.id,
        comparison.state,
        f"{comparison.made}/{len(comparison.rows) * comparison.repeat}",
        f"{duration(max(0.0, now - comparison.created))} ago",
        printable(comparison.title),
        UNKNOWN if best is None else printable(comparison.label(best.row)),
        " ".join(map(quote, comparison.command)),
    )


def _print(comparison: Comparison, args: argparse.Namespace) -> None:
    if args.json:
        import json

        print(json.dumps(document(comparison)))
    elif args.csv:
        sys.stdout.write(as_csv(comparison))
    else:
        print_line("\n".join(lines(comparison, output_width(), _ascii())))


def _ascii() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") != "utf8"


# A new comparison


@dataclass(frozen=True, slots=True)
class _Variant:
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
    secret = axis.kind == "env" and is_secret(axis.key, value)
    if axis.kind == "arg":
        secret = bool(
            without_secrets((axis.key, value) if axis.key[0] == "-" else (f"{axis.key}={value}",))[1]
        )
    return f"{MARK}{axis.values.index(value) + 1}" if secret else value


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that can be meant: its axes, the command without them, the variants, and the request."""

    args: argparse.Namespace
    axes: tuple[Axis, ...]
    base: LaunchOptions
    every: tuple[_Variant, ...]
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


def _compare(words: Sequence[str], command: Sequence[str] | None) -> int:
    call = prepared(words, command)
    args, every = call.args, call.every
    if args.detach and not args.dry_run:
        return _detach(words, command or (), args.quiet)
    approve = _approve(every, call.request)
    allocation = allocated(args, call.request, holds=not args.dry_run, approve=approve)
    try:
        launches = _launches(every, allocation)
        if args.dry_run:
            for variant, launch in zip(every, launches, strict=True):
                say(printable(variant.label))
                print_line(launch.line)
            return DONE
        return _run(call, launches, allocation)
    finally:
        allocation.release()


def _detach(words: Sequence[str], command: Sequence[str], quiet: bool) -> int:
    """Start a job that is this very call without `--detach`."""
    environ = given_environment()
    environ.pop(FOLDER, None)
    try:
        job = call_job("compare", [word for word in words if word != "--detach"], command, environ)
    except StartError as error:
        say(str(error))
        return error.status
    print_line(job.id)
    if not quiet:
        say(f"job {job.id} compares: `gputui jobs log -f {job.id}` follows it")
    return DONE


def _variant(
    args: argparse.Namespace,
    command: Sequence[str],
    settings: tuple[Setting, ...],
) -> _Variant:
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
    return _Variant(settings, varied, options, read_intent(options, os.environ))


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


def _request(args: argparse.Namespace, every: Sequence[_Variant]) -> Request:
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
    if named:
        asked = Asked(None, holding.gpus, holding.group)
        facts = Want.VERDICT | Want.TOPOLOGY if holding.threads == NEAR else Want.VERDICT
        request = request_of(
            holding, program_and_script(first.options.command), facts, job=own_job(), asked=asked
        )
    else:
        request = request_for(holding, first.options, first.intent, own_job())
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


def _own(variant: _Variant, devices: Sequence[Device], allocation: Allocation | None) -> tuple[Device, ...]:
    """The devices of a variant among those that are held."""
    for axis, value in variant.settings:
        if axis.kind == "n":
            return tuple(devices[: int(value)])
        if axis.kind == "gpus" and allocation is not None:
            try:
                found = devices_named(
                    value.replace(JOIN, ","), allocation.snapshot, allocation.request.vendor
                )
            except NamingError as error:
                raise RequestError(f"{variant.label}: {error}") from None
            held = {device.key for device in devices}
            return tuple(device for device in found if device.key in held)
    return tuple(devices)


def _approve(every: Sequence[_Variant], request: Request) -> Approve:
    """What every variant's command says to the devices."""
    checks = [(variant, agreement(variant.options, variant.intent, request, os.environ)) for variant in every]

    def approve(devices: Sequence[Device] | int, box: object) -> None:
        for variant, check in checks:
            if any(axis.kind == "gpus" for axis, _ in variant.settings):
                # (Which of them it gets is known with the allocation.)
                continue
            own = devices if isinstance(devices, int) else _own(variant, devices, None)
            if isinstance(devices, int) and variant.args.n is not None:
                own = min(devices, variant.args.n)
            try:
                check(own, box)  # type: ignore[arg-type]
            except RequestError as error:
                raise RequestError(f"{variant.label}: {error}") from None

    return approve


def _launches(every: Sequence[_Variant], allocation: Allocation) -> list[Launch]:
    """The launch of every variant; what there is to say of them is said once. Raises RequestError."""
    found: list[Launch] = []
    told: dict[str, list[str]] = {}
    for variant in every:
        own = allocation._replace(devices=_own(variant, allocation.devices, allocation))
        launch = launch_on(own, variant.options, variant.intent, near=variant.args.threads == NEAR)
        if launch.refusal is not None:
            raise RequestError(f"{variant.label}: {launch.refusal}")
        launch = detached(launch, os.environ)
        found.append(launch)
        for text in (
            *(f"warning: {each}" for each in launch.warnings),
            *map("note: {}".format, launch.remarks),
        ):
            told.setdefault(text, []).append(variant.label)
    for text, labels in told.items():
        whose = "" if len(labels) == len(every) else f" ({labels[0]}{' …' if len(labels) > 1 else ''})"
        say(f"{text}{whose}")
    return found


def _run(call: Prepared, launches: Sequence[Launch], allocation: Allocation) -> int:
    args, axes, every = call.args, call.axes, call.every
    new = COMPARISONS.new(os.environ)
    environ = given_environment()
    # (It is for this very process.)
    environ.pop(FOLDER, None)
    if elsewhere(args):
        say("warning: not this machine's devices (--demo, --from, --root); the commands start anyway")
    snapshot = allocation.snapshot
    comparison = Comparison(
        id=new,
        state="running",
        created=time.time(),
        command=without_secrets(call.base.command)[0],
        devices=allocation.labels,
        axes=tuple((axis.name, axis.heading) for axis in axes),
        rows=tuple(
            Row(
                tuple(shown(axis, value) for axis, value in variant.settings),
                without_secrets_of(launch).line,
                tuple(map(snapshot.label, launch.devices)),
            )
            for variant, launch in zip(every, launches, strict=True)
        ),
        repeat=args.repeat,
        metric=args.metric,
        less=args.less,
    )
    planned = [Planned(launch, variant.options) for variant, launch in zip(every, launches, strict=True)]
    reader = _Reader(args) if allocation.devices and not elsewhere(args) else None
    progress = _Progress(args.quiet)
    comparing = Comparing(
        comparison,
        planned,
        environ,
        progress,
        allocation.lease,
        reader.read if reader is not None else None,
        args.timeout,
        constraints_of(args),
        args.warm_up,
    )
    number = 0
    try:
        with until_a_signal():
            try:
                # (The variant that runs is ended first.)
                comparing.run()
            except EndedError as error:
                number = error.number
    except (JobError, KeptError) as error:
        say(str(error))
        number = -1
    finally:
        if reader is not None:
            reader.close()
    found = comparing.comparison
    if number > 0:
        which = signal.Signals(number).name
        say(
            f"{which}: ended after {found.made} of {len(found.rows) * found.repeat} runs;"
            " the rows so far are kept"
        )
    _print(found, args)
    if not args.quiet:
        say(f"comparison {found.id} is kept: `gputui compare --show {found.id}`; its logs: `gputui jobs`")
    if number > 0:
        return 128 + number
    went_well = any(run.state == "done" for row in found.rows for run in row.runs)
    return DONE if went_well and number == 0 else NONE_WENT_WELL


class _Progress:
    """Keeps a comparison as it goes on, and tells of it on stderr."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def changed(self, comparison: Comparison) -> None:
        COMPARISONS.keep(comparison, os.environ)

    def begins(self, comparison: Comparison, row: int, run: Run) -> None:
        if not self._quiet:
            say(f"{self._place(comparison, row, run)}: job {run.job}")

    def ended(self, comparison: Comparison, row: int, run: Run) -> None:
        if self._quiet:
            return
        if run.state != "done":
            say(f"{self._place(comparison, row, run)}: {how(run)}")
            return
        time = run.wall if run.runtime is None else run.runtime
        say(f"{self._place(comparison, row, run)}: {UNKNOWN if time is None else seconds(time)}")

    def _place(self, comparison: Comparison, row: int, run: Run) -> str:
        if run.round == 0:
            return f"warm-up {comparison.label(comparison.rows[row])}"
        place = (run.round - 1) * len(comparison.rows) + row + 1
        return f"{place}/{len(comparison.rows) * comparison.repeat} {comparison.label(comparison.rows[row])}"


class _Reader:
    """Reads memory and utilization of devices; says once why it cannot."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._opened = opened(args)
        self._source: Source | None = None
        self._gone = False

    def read(self, keys: Collection[str]) -> Sequence[Reading]:
        if self._gone:
            return ()
        try:
            if self._source is None:
                self._source = self._opened.__enter__()
            snapshot = self._source.read(Want.LOAD | Want.HOST)
        except NoSourceError as error:
            self._gone = True
            say(f"warning: memory and utilization are not measured any more: {error}")
            return ()
        there = [snapshot.by_key[key] for key in keys if key in snapshot.by_key]
        return [
            Reading(snapshot.memory(device)[0], device.utilization)
            for device in there
            if device.fault is None
        ]

    def close(self) -> None:
        if self._source is not None:
            self._opened.__exit__(None, None, None)
