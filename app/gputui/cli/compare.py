"""`gputui compare`: the same command in variants, one after another on the same devices, as a table."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import RequestError
from gputui.allocating.request import Request
from gputui.choosing.named_devices import NamingError, devices_named
from gputui.cli.common import DONE, WrongCallError, elsewhere, opened, output_width, print_line, say
from gputui.cli.compare_call import Prepared, Variant, parser, prepared, shown
from gputui.cli.launch_call import NEAR, allocated, how_confined_here, launch_on
from gputui.cli.request_options import constraints_of
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, duration, printable
from gputui.inventory.text_table import aligned, cut
from gputui.jobs import FOLDER
from gputui.jobs.compare import Comparing, Planned, Reading
from gputui.jobs.comparisons import COMPARISONS
from gputui.jobs.job import JobError
from gputui.jobs.kept_records import Kept, KeptError
from gputui.jobs.queued import call_job
from gputui.jobs.record import without_secrets_of
from gputui.jobs.record_folders import Unreadable
from gputui.jobs.start import detached
from gputui.launching.launch import Launch
from gputui.launching.quoting import quote
from gputui.launching.secrets import without_secrets
from gputui.launching.start import StartError
from gputui.library.agreement import agreement
from gputui.planning.comparison import Comparison, Row, Run, as_csv, document, summaries
from gputui.planning.comparison_axes import JOIN
from gputui.planning.comparison_text import how, lines, seconds
from gputui.sources.source import NoSourceError, Source, Want
from gputui.system.ending_signals import EndedError, until_a_signal
from gputui.system.environment import given_environment

NONE_WENT_WELL = 1
"""The exit status where no run of any variant went well."""


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


def _own(variant: Variant, devices: Sequence[Device], allocation: Allocation | None) -> tuple[Device, ...]:
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


def _approve(every: Sequence[Variant], request: Request) -> Approve:
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


def _launches(every: Sequence[Variant], allocation: Allocation) -> list[Launch]:
    """The launch of every variant; what there is to say of them is said once. Raises RequestError."""
    found: list[Launch] = []
    told: dict[str, list[str]] = {}
    for variant in every:
        own = allocation._replace(devices=_own(variant, allocation.devices, allocation))
        near, confine = variant.args.threads == NEAR, how_confined_here(variant.args, variant.options)
        launch = launch_on(
            own, variant.options, variant.intent, near, None, confine, not variant.args.dry_run
        )
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
    args = call.args
    comparison = _comparison(call, launches, allocation)
    environ = given_environment()
    # (It is for this very process.)
    environ.pop(FOLDER, None)
    if elsewhere(args):
        say("warning: not this machine's devices (--demo, --from, --root); the commands start anyway")
    planned = [Planned(launch, variant.options) for variant, launch in zip(call.every, launches, strict=True)]
    reader = _Reader(args) if allocation.devices and not elsewhere(args) else None
    comparing = Comparing(
        comparison,
        planned,
        environ,
        _Progress(args.quiet),
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
    return _concluded(comparing.comparison, number, args)


def _comparison(call: Prepared, launches: Sequence[Launch], allocation: Allocation) -> Comparison:
    """The comparison as it begins. Raises KeptError where it has no place."""
    args, snapshot = call.args, allocation.snapshot
    return Comparison(
        id=COMPARISONS.new(os.environ),
        state="running",
        created=time.time(),
        command=without_secrets(call.base.command)[0],
        devices=allocation.labels,
        axes=tuple((axis.name, axis.heading) for axis in call.axes),
        rows=tuple(
            Row(
                tuple(shown(axis, value) for axis, value in variant.settings),
                without_secrets_of(launch).line,
                tuple(map(snapshot.label, launch.devices)),
            )
            for variant, launch in zip(call.every, launches, strict=True)
        ),
        repeat=args.repeat,
        metric=args.metric,
        less=args.less,
    )


def _concluded(found: Comparison, number: int, args: argparse.Namespace) -> int:
    """Print what a comparison has found. `number` is the signal that ended it, -1 for an error, or 0."""
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
