"""`gputui compare` and `gputui each`: start, resume, show, list and remove experiments."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.allocating.request import Notice, Request
from gputui.choosing.named_devices import NamingError, devices_named
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import (
    DONE,
    WrongCallError,
    elsewhere,
    opened,
    output_width,
    print_json,
    print_line,
    say,
)
from gputui.cli.experiment_call import (
    STDIN,
    Once,
    Prepared,
    Variant,
    kept_words,
    parser,
    prepared,
)
from gputui.cli.hosts_options import without_options
from gputui.cli.launch_call import allocated, allocated_for
from gputui.cli.run_as_job import print_job
from gputui.inventory.device import Device
from gputui.inventory.formatting import printable
from gputui.inventory.job import JobError
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.text_table import cut
from gputui.jobs import FOLDER
from gputui.jobs.experiments import store
from gputui.jobs.experiments.axes import JOIN
from gputui.jobs.experiments.record import LISTS, Experiment, Kind, Row, Run, as_csv, document
from gputui.jobs.experiments.runner import Limits, Planned, Runner, RunsElsewhereError, as_it_stands
from gputui.jobs.experiments.store import SUBCOMMANDS
from gputui.jobs.experiments.table import Place, how, lines, list_rows, took
from gputui.jobs.queued import call_job
from gputui.jobs.record import without_secrets_of
from gputui.jobs.record_folders import Unreadable
from gputui.jobs.start import detached
from gputui.jobs.store import jobs_folder, stored
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.secrets import without_secrets
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.sources.source import NoSourceError, Source
from gputui.system.ending_signals import EndedError, until_a_signal
from gputui.system.environment import given_environment

FAILED = 1
"""The exit status if a task is not done, if no run of a comparison is done, or after an error."""


def main(kind: Kind, words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser(kind).parse_args(words)
    if args.list or args.show is not None or args.forget is not None:
        if command is not None or args.vary or args.from_file is not None:
            raise WrongCallError("--list, --show and --forget start nothing: leave COMMAND out")
        return _kept(kind, args)
    if args.resume is not None:
        return _resume(kind, args, words, command)
    return _new(kind, words, command)


# Recorded experiments


def _kept(kind: Kind, args: argparse.Namespace) -> int:
    if args.list:
        return _list(kind, args)
    found = store.find(kind, args.forget if args.show is None else args.show, os.environ)
    if args.forget is not None:
        store.forget(found, os.environ)
        say(f"{kind} {found.id} is removed; its jobs and their logs stay (`gputui jobs`)")
        return DONE
    _print(_as_it_stands(_readable(kind, found)), args)
    return DONE


def _as_it_stands(found: Experiment) -> Experiment:
    return found if found.state == "running" else as_it_stands(found, stored(os.environ))


def _readable(kind: Kind, found: Experiment | Unreadable) -> Experiment:
    if isinstance(found, Unreadable):
        raise store.cannot_read(kind, found)
    return found


def _list(kind: Kind, args: argparse.Namespace) -> int:
    known = store.kept(os.environ, None, kind)
    for each in known.unreadable:
        say(f"warning: {store.cannot_read(kind, each)}")
    if args.csv:
        raise WrongCallError(f"--csv is for one {kind}: --show ID --csv")
    found = [_as_it_stands(each) for each in known.records]
    if args.json:
        jobs = jobs_folder(os.environ)
        print_json(LISTS[kind].write(**{f"{kind}s": [document(each, jobs) for each in found]}))
    elif not found:
        made = "compare -n 2 --vary launcher=python,torchrun -- train.py"
        made = made if kind == "comparison" else "each -n 1 -- python train.py --seed '{1..8}'"
        say(f"no {kind}s; `gputui {made}` makes one")
    else:
        print_line("\n".join(cut(line, output_width()) for line in list_rows(found, time.time())))
    return DONE


def _print(found: Experiment, args: argparse.Namespace) -> None:
    jobs = jobs_folder(os.environ)
    if args.json:
        print_json(document(found, jobs))
    elif args.csv:
        sys.stdout.write(as_csv(found))
    else:
        home = os.environ.get("HOME")
        ascii_only = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") != "utf8"
        place = Place(jobs, Path(home) if home else None, time.time())
        print_line("\n".join(lines(found, output_width(), place, ascii_only)))


# Start and resume


def _new(kind: Kind, words: Sequence[str], command: Sequence[str] | None) -> int:
    call = prepared(kind, words, command)
    args = call.args
    if kind == "sweep" and not args.dry_run:
        _check_here(args)
    if args.detach and kind == "comparison" and not args.dry_run:
        return _detached(kind, words, command or (), args, "compares: `gputui compare --list` shows it")
    allocation = _allocation(call, holds=not args.dry_run)
    try:
        if args.dry_run:
            return _dry_run(call, allocation)
        launches = _launches(call, lambda _: allocation) if allocation is not None else []
        experiment = _experiment(kind, call, words, allocation, launches)
        if args.detach:
            if experiment.withheld and args.from_file is not None:
                raise WrongCallError(
                    f"--from-file with --detach: {experiment.withheld[0]} looks like a secret, which is not"
                    " kept; leave one of them out"
                )
            again = list(words) if experiment.withheld else []
            experiment = _begun(experiment)
            return _resumed_as_a_job(experiment, again, command or () if experiment.withheld else (), args)
        return _run(call, _begun(experiment), allocation)
    finally:
        if allocation is not None:
            allocation.release()


def _begun(experiment: Experiment) -> Experiment:
    """Give the experiment an id and write its record. Raises JobError."""
    experiment = replace(experiment, id=store.new(experiment.kind, os.environ))
    store.keep(experiment, os.environ)
    return experiment


def _resume(kind: Kind, args: argparse.Namespace, words: Sequence[str], command: Sequence[str] | None) -> int:
    """Resume a recorded experiment, with its recorded options and command unless the call gives a command or
    a file."""
    found = _readable(kind, store.find(kind, args.resume, os.environ))
    if args.dry_run:
        raise WrongCallError("--resume has no --dry-run: --show says what is left")
    if found.state == "running":
        raise store.runs_already(found)
    again = command is not None or args.from_file is not None
    if found.withheld and not again:
        raise WrongCallError(
            f"{found.withheld[0]} of {kind} {found.id} looks like a secret, which is not kept:"
            f" give the whole call again, with --resume {found.id}"
        )
    if not found.directory:
        raise JobError(f"{kind} {found.id} was kept by an earlier gputui, which did not keep its call")
    if args.detach:
        if args.from_file == STDIN:
            raise WrongCallError("--from-file - with --resume has no --detach: stdin ends with this call")
        return _resumed_as_a_job(found, without_options(words, "--resume"), command or (), args)
    try:
        # Relative paths in its words are relative to that directory.
        os.chdir(found.directory)
    except OSError as error:
        raise JobError(f"cannot change to {found.directory!r}: {error.strerror}") from None
    if again:
        call = prepared(kind, words, command)
    else:
        rows = () if found.command else found.rows
        call = prepared(kind, [*found.call, *words], found.command or None, rows)
    of_call = [(each.values, without_secrets(each.words)[0]) for each in call.every]
    of_record = [(row.values, row.words) for row in found.rows]
    if of_call != of_record and [words for _, words in of_call] != [words for _, words in of_record]:
        raise WrongCallError(f"these are not the {_rows(kind)} of {kind} {found.id}: leave them out")
    _check_here(call.args)
    allocation = _allocation(_on_the_same_devices(call, found), holds=True)
    try:
        if allocation is not None:
            _launches(call, lambda _: allocation)
        return _run(call, found, allocation)
    finally:
        if allocation is not None:
            allocation.release()


def _rows(kind: Kind) -> str:
    return "variants" if kind == "comparison" else "tasks"


def _on_the_same_devices(call: Prepared, found: Experiment) -> Prepared:
    """Request the devices on which the variants were compared before, as other devices may differ in
    speed."""
    if call.request is None or not found.devices:
        return call
    return replace(call, request=replace(call.request, names=",".join(found.devices), count=None))


def _check_here(args: argparse.Namespace) -> None:
    if elsewhere(args):
        raise WrongCallError(
            "tasks run on this machine's devices: --demo, --from and --root go with --dry-run"
        )


def _resumed_as_a_job(
    found: Experiment, words: Sequence[str], command: Sequence[str], args: argparse.Namespace
) -> int:
    """Start a job that resumes the experiment. `words` and `command` are given if the record does not have
    them."""
    show = f"runs {found.kind} {found.id}: `gputui {SUBCOMMANDS[found.kind]} --show {found.id}` shows how far"
    return _detached(found.kind, ["--resume", found.id, *words], command, args, f"{show} it is")


def _detached(
    kind: Kind, words: Sequence[str], command: Sequence[str], args: argparse.Namespace, told: str
) -> int:
    """Start a job that runs the same call without `--detach`."""
    environ = given_environment()
    environ.pop(FOLDER, None)
    words = [word for word in words if word != "--detach"]
    job = call_job(SUBCOMMANDS[kind], words, command, environ)
    print_job(job, args.json)
    if not args.quiet:
        say(f"job {job.id} {told}")
    return DONE


def _experiment(
    kind: Kind,
    call: Prepared,
    words: Sequence[str],
    allocation: Allocation | None,
    launches: Sequence[Launch],
) -> Experiment:
    """Make the experiment of a call, without an id, runs and secrets. Raises WrongCallError."""
    try:
        directory = str(Path.cwd())
    except OSError as error:
        raise WrongCallError(f"there is no current folder: {error.strerror}") from None
    options, withheld = kept_words(call, words)
    command, more = without_secrets(call.command)
    withheld += more
    rows = []
    for number, variant in enumerate(call.every):
        known, names = without_secrets(variant.words)
        withheld += names
        devices: tuple[str, ...] = ()
        line = ""
        if launches and allocation is not None:
            line = without_secrets_of(launches[number]).line
            devices = tuple(map(allocation.snapshot.label, launches[number].devices))
        rows.append(Row(variant.values, line, devices, (), known, variant.label))
    return Experiment(
        id="",
        state="stopped",
        created=time.time(),
        command=() if call.args.from_file is not None else command,
        devices=allocation.labels if allocation is not None else (),
        axes=call.axes,
        rows=tuple(rows),
        repeat=call.args.repeat,
        metric=call.args.metric,
        less=call.args.less,
        kind=kind,
        directory=directory,
        call=options,
        withheld=tuple(dict.fromkeys(withheld)),
    )


# Devices and launches


def _allocation(call: Prepared, holds: bool) -> Allocation | None:
    """Allocate the devices for all variants, or return None where each gets its own."""
    if call.request is None:
        return None
    devices = call.every[0].prepared.asked.devices
    return allocated_for(devices, call.request, holds, _approve(call.every, call.request))


def _approve(every: Sequence[Variant], request: Request) -> Approve:
    """Combine the checks of all variants whether their commands accept the devices."""
    checks = [(each, replace(each.prepared, request=request).approve(os.environ)) for each in every]

    def approve(devices: Sequence[Device] | int, box: object) -> None:
        for variant, check in checks:
            if any(axis.kind == "gpus" for axis, _ in variant.settings):
                # Its own devices are known only with the allocation.
                continue
            own = devices if isinstance(devices, int) else _own(variant, devices, None)
            number = variant.prepared.asked.devices.count
            if isinstance(devices, int) and number is not None:
                own = min(devices, number)
            try:
                check(own, box)  # type: ignore[arg-type]
            except RequestError as error:
                raise RequestError(f"{variant.label}: {error}") from None

    return approve


def _own(variant: Variant, devices: Sequence[Device], allocation: Allocation | None) -> tuple[Device, ...]:
    """The devices of a variant among those that are held."""
    for axis, value in variant.settings:
        if axis.kind == "n":
            return tuple(devices[: int(value)])
        if axis.kind == "gpus" and allocation is not None:
            names = value.replace(JOIN, ",")
            try:
                found = devices_named(names, allocation.snapshot, allocation.request.vendor)
            except NamingError as error:
                raise RequestError(f"{variant.label}: {error}") from None
            held = {device.key for device in devices}
            return tuple(device for device in found if device.key in held)
    return tuple(devices)


def _launch(prepared: PreparedLaunch, allocation: Allocation, prove: bool) -> Launch:
    """The launch of a variant on these devices. Raises RequestError."""
    launch = prepared.launch(allocation, os.environ, prove=prove)
    if launch.refusal is not None:
        raise RequestError(launch.refusal)
    return detached(launch, os.environ)


def _said(launch: Launch) -> list[str]:
    return [*(f"warning: {each}" for each in launch.warnings), *(f"note: {each}" for each in launch.remarks)]


def _launches(call: Prepared, on: Callable[[Variant], Allocation]) -> list[Launch]:
    """Make the launch of every variant on its devices, and print each warning and remark once. Raises
    RequestError."""
    found: list[Launch] = []
    told: dict[str, list[str]] = {}
    for variant in call.every:
        held = on(variant)
        try:
            own = held._replace(devices=_own(variant, held.devices, held))
            found.append(_launch(variant.prepared, own, prove=not call.args.dry_run))
        except RequestError as error:
            raise RequestError(f"{variant.label}: {error}") from None
        for text in _said(found[-1]):
            told.setdefault(text, []).append(variant.label)
    for text, labels in told.items():
        whose = "" if len(labels) == len(call.every) else f" ({labels[0]}{' …' if len(labels) > 1 else ''})"
        say(f"{text}{whose}")
    return found


def _dry_run(call: Prepared, held: Allocation | None) -> int:
    """Print every launch line: on the devices that would be held, or on those that the first variant with the
    same request would get now."""
    known = dict[tuple[object, ...], Allocation]()

    def on(variant: Variant) -> Allocation:
        if held is not None:
            return held
        request = variant.prepared.request
        key = (request.count, request.names, request.group, request.order)
        if key not in known:
            known[key] = allocated(variant.prepared, holds=False)
        return known[key]._replace(request=request)

    launches = [*zip(call.every, _launches(call, on), strict=True)]
    if call.args.json:
        from gputui.launching.exports.json_document import dry_run_document

        print_json(dry_run_document((variant.label, launch) for variant, launch in launches))
        return DONE
    for variant, launch in launches:
        if held is not None:
            say(printable(variant.label))
        print_line(launch.line)
    return DONE


def _run(call: Prepared, experiment: Experiment, allocation: Allocation | None) -> int:
    args, kind = call.args, experiment.kind
    environ = given_environment()
    # This variable is for the present process only.
    environ.pop(FOLDER, None)
    tell = Once()

    def planned(variant: Variant) -> Planned:
        prepared = replace(variant.prepared, request=call.request or variant.prepared.request)

        def launch(on: Allocation, options: LaunchOptions) -> Launch:
            own = on._replace(devices=_own(variant, on.devices, on)) if allocation is not None else on
            asked = replace(prepared.asked, options=options)
            found = _launch(replace(prepared, asked=asked), own, prove=True)
            # For held devices, `_launches` has printed them before.
            for text in _said(found) if allocation is None else ():
                tell(text)
            return found

        return Planned(prepared.request, prepared.approve(os.environ), launch, prepared.asked)

    def source(cpu_only: bool) -> AbstractContextManager[Source]:
        return opened(args, cpu_only)

    if elsewhere(args):
        say("warning: not this machine's devices (--demo, --from, --root); the commands start anyway")
    cpu_only = any(each.prepared.request.cpu_only for each in call.every)
    # On the CPU, nothing else limits the number of runs at the same time.
    most = args.jobs or (1 if cpu_only or (allocation is not None and not allocation.devices) else None)
    reads = not elsewhere(args) and not cpu_only and (allocation is None or bool(allocation.devices))
    runner = Runner(
        experiment,
        [planned(variant) for variant in call.every],
        os.environ,
        environ,
        source,
        _Progress(tell, args),
        Limits(most, args.memory, args.retry, args.stop_on_failure, args.timeout, args.warm_up, args.before),
        allocation,
        reads,
    )
    number, trouble = 0, None
    with store.running_alone(experiment, os.environ), until_a_signal():
        try:
            runner.run()
        except EndedError as error:
            number = error.number
        except RunsElsewhereError:
            raise
        except (NotEnoughError, RequestError, NoSourceError, JobError) as error:
            trouble = error
    found = runner.experiment
    command = f"gputui {SUBCOMMANDS[kind]}"
    if number:
        going = "what runs goes on" if found.count("running") else "what ran is stopped"
        say(f"{signal.Signals(number).name}: {going}; `{command} --resume {found.id}` goes on")
    _print(found, args)
    if not args.quiet:
        say(f"{kind} {found.id} is kept: `{command} --show {found.id}`; its logs: `gputui jobs`")
    if number:
        return 128 + number
    if trouble is not None:
        # Not raised: the call has answered already.
        say(str(trouble))
        return FAILED if isinstance(trouble, JobError) else trouble.status
    return DONE if found.went_well else FAILED


class _Progress(AllocationListener):
    """Keeps the record of a running experiment, and reports on stderr."""

    def __init__(self, tell: Once, args: argparse.Namespace) -> None:
        super().__init__(args.why)
        self._tell, self._quiet = tell, args.quiet

    def notice(self, notice: Notice) -> None:
        """Print each notice once, as many tasks have the same; reasons are handled as for any allocation."""
        if notice.kind == "reason":
            super().notice(notice)
            return
        self._clear_progress()
        self._tell(f"warning: {notice.text}" if notice.kind == "warning" else notice.text)

    def waited(self, allocation: Allocation | None, seconds: float) -> None:
        """Clear the progress line. The user is not notified of each task that gets its devices."""
        self._clear_progress()

    def changed(self, experiment: Experiment) -> None:
        """Write the record. If that fails for a while, the records of the jobs have the same information."""
        try:
            store.keep(experiment, os.environ)
        except JobError as error:
            self._tell(f"warning: {error}")

    def remark(self, text: str) -> None:
        """Print a warning once, even if it applies to several runs."""
        self._tell(f"warning: {text}")

    def begins(self, experiment: Experiment, place: int, run: Run) -> None:
        """Print a line with the devices and the job of a run."""
        devices = experiment.rows[place].devices
        on = f"on GPU {','.join(devices)}" if devices else "on the CPU"
        self._line(experiment, place, run, f"{on}: job {run.job}")

    def ended(self, experiment: Experiment, place: int, run: Run) -> None:
        """Print a line with the outcome of a run."""
        self._line(experiment, place, run, f"{how(run)} after {took(run)}" if run.started else how(run))

    def _line(self, experiment: Experiment, place: int, run: Run, text: str) -> None:
        if self._quiet:
            return
        self._clear_progress()
        number = f"{(run.round - 1) * len(experiment.rows) + place + 1}/{experiment.wanted}"
        label = printable(cut(experiment.label(experiment.rows[place]), 60))
        say(f"{number if run.round else 'warm-up'} {label}: {text}")
