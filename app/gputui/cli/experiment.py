"""`gputui compare` and `gputui each`: start, resume, show, list and remove experiments."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import (
    DONE,
    Call,
    WrongCallError,
    elsewhere,
    opened,
    output_width,
    print_json,
    print_line,
    print_lines,
    say,
    warn,
    warn_elsewhere,
)
from gputui.cli.experiment_call import Prepared, parsed, prepared
from gputui.cli.launch_call import allocated, allocated_for
from gputui.cli.run_as_job import print_job
from gputui.inventory.columns import printed
from gputui.inventory.device import Device
from gputui.inventory.formatting import Tell, printable
from gputui.inventory.job import JobError
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.text_table import cut
from gputui.jobs import FOLDER
from gputui.jobs.experiments import store
from gputui.jobs.experiments.record import LISTS, Change, Experiment, Row, Run, as_csv, document
from gputui.jobs.experiments.request import SUBCOMMANDS, ExperimentRequest, Kind, without_secrets
from gputui.jobs.experiments.runner import (
    Runner,
    RunsElsewhereError,
    launch_on,
    most_devices,
    own_devices,
    varies_names,
    with_outcomes,
)
from gputui.jobs.experiments.table import Place, experiment_columns, how, lines, took
from gputui.jobs.queued import experiment_job
from gputui.jobs.record_folders import Unreadable
from gputui.jobs.store import stored
from gputui.launching.launch import Launch
from gputui.sources.source import NoSourceError, Source
from gputui.system.ending_signals import EndedError, until_a_signal
from gputui.system.environment import given_environment
from gputui.vendors.vendor import Vendor

FAILED = 1
"""The exit status if a task is not done, if no run of a comparison is done, or after an error."""


def main(kind: Kind, args: Call) -> int:
    if args.list or args.show is not None or args.forget is not None:
        if args.argv is not None or args.vary or args.from_file is not None:
            raise WrongCallError("--list, --show and --forget start nothing; leave COMMAND out")
        return _kept(kind, args)
    if args.resume is not None:
        return _resume(kind, args)
    return start(*parsed(kind, args.words, args.argv))


# Recorded experiments


def _kept(kind: Kind, args: Call) -> int:
    if args.list:
        return _list(kind, args)
    found = store.find(kind, args.forget if args.show is None else args.show, os.environ)
    if args.forget is not None:
        store.forget(found)
        say(f"{kind} {found.id} is removed; its jobs and their logs stay (`gputui jobs`)")
        return DONE
    (shown,) = with_outcomes([_readable(kind, found)], lambda: stored(os.environ))
    _print(shown, args)
    return DONE


def _readable(kind: Kind, found: Experiment | Unreadable) -> Experiment:
    if isinstance(found, Unreadable):
        raise store.cannot_read(kind, found)
    return found


def _list(kind: Kind, args: Call) -> int:
    known = store.kept(os.environ, None, kind)
    for each in known.unreadable:
        warn(store.cannot_read(kind, each))
    if args.csv:
        raise WrongCallError(f"--csv is for one {kind}: --show ID --csv")
    found = with_outcomes(known.records, lambda: stored(os.environ))
    if args.json:
        print_json(LISTS[kind].write(**{f"{kind}s": [document(each) for each in found]}))
    elif not found:
        made = "compare -n 2 --vary launcher=python,torchrun -- train.py"
        made = made if kind == "comparison" else "each -n 1 -- python train.py --seed '{1..8}'"
        say(f"no {kind}s; `gputui {made}` makes one")
    else:
        print_lines(printed(experiment_columns(time.time()), found, output_width()))
    return DONE


def _print(found: Experiment, args: Call) -> None:
    if args.json:
        print_json(document(found))
    elif args.csv:
        sys.stdout.write(as_csv(found))
    else:
        home = os.environ.get("HOME")
        place = Place(Path(home) if home else None, time.time())
        print_lines(lines(found, output_width(), place))


# Start and resume


def _resume(kind: Kind, args: Call) -> int:
    """Resume a recorded experiment, with its recorded request unless the call gives a command or tasks."""
    found = _readable(kind, store.find(kind, args.resume, os.environ))
    if args.dry_run:
        raise WrongCallError("--dry-run cannot be used with --resume; --show lists what is left")
    if found.state == "running":
        raise store.runs_already(found)
    again = args.argv is not None or args.from_file is not None or args.request is not None
    if found.withheld and not again:
        raise WrongCallError(
            f"{found.withheld[0]} of {found.name} looks like a secret, which is not kept:"
            f" give the whole call again, with --resume {found.id}"
        )
    # Relative paths in its words are relative to that directory.
    enter(found.directory or ".")
    return start(*parsed(kind, args.words, args.argv, found.request), found)


def enter(directory: str) -> None:
    """Change to the directory of an earlier call. Raises JobError."""
    try:
        os.chdir(directory)
    except OSError as error:
        raise JobError(f"cannot change to {directory!r}: {error.strerror}") from None


def start(args: Call, request: ExperimentRequest, found: Experiment | None = None) -> int:
    """Start an experiment, or resume the recorded one: here, or as a job."""
    # Each sentence is printed once, even if it applies to several variants.
    tell = cache(say)
    call = prepared(request, tell)
    if request.kind == "sweep" and not args.dry_run and elsewhere(args):
        raise WrongCallError("--demo, --from and --root need --dry-run: tasks run on this machine's devices")
    made = new_experiment(request, call)
    if found is not None and _rows(made) != _rows(found):
        what = "variants" if request.kind == "comparison" else "tasks"
        raise WrongCallError(f"these are not the {what} of {found.name}: leave them out")
    if args.detach and not args.dry_run:
        return _detached(found or store.begin(made, os.environ), request, args)
    allocation = _allocation(call, request, found, holds=not args.dry_run)
    try:
        if allocation is not None and not args.dry_run:
            # Nothing starts where a variant cannot.
            _launches(call, allocation, prove=True)
        if args.dry_run:
            return _dry_run(call, allocation, args)
        recorded = found or store.begin(made, os.environ)
        own = replace(recorded, job=Path(os.environ.get(FOLDER, "")).name)
        return _run(call, request, own, allocation, args, tell)
    finally:
        if allocation is not None:
            allocation.release()


def _dry_run(call: Prepared, allocation: Allocation | None, args: Call) -> int:
    labels = [variant.label for variant, _ in call.planned]
    found = list(zip(labels, _launches(call, allocation, prove=False), strict=True))
    if args.json:
        from gputui.launching.exports.json_document import dry_run_document

        print_json(dry_run_document(found))
        return DONE
    for label, launch in found:
        if allocation is not None:
            say(printable(label))
        print_line(launch.line)
    return DONE


def _rows(experiment: Experiment) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(row.values, row.words) for row in experiment.rows]


def new_experiment(request: ExperimentRequest, call: Prepared) -> Experiment:
    """Make an experiment without an id, devices, runs and secrets. Raises WrongCallError."""
    try:
        directory = str(Path.cwd())
    except OSError as error:
        raise WrongCallError(f"the working directory cannot be found: {error.strerror}") from None
    kept, withheld = without_secrets(request)
    rows = (Row(each.values, each.label, each.words) for each, _ in call.planned)
    return Experiment(
        Path(), "stopped", time.time(), kept, call.axes, tuple(rows), directory=directory, withheld=withheld
    )


def _detached(found: Experiment, request: ExperimentRequest, args: Call) -> int:
    """Start a job that runs the recorded experiment."""
    environ = given_environment()
    environ.pop(FOLDER, None)
    forms = [f"--{name}" for name in ("json", "csv", "quiet") if getattr(args, name)]
    job = experiment_job(found, request, environ, forms)
    print_job(job, args.json)
    if not args.quiet:
        show = f"gputui {SUBCOMMANDS[request.kind]} --show {found.id}"
        say(f"job {job.id} runs {found.name}: `{show}` shows how far it is")
    return DONE


# Devices and launches


def _allocation(
    call: Prepared, request: ExperimentRequest, found: Experiment | None, holds: bool
) -> Allocation | None:
    """Allocate the devices for all variants, or return None where each gets its own. A resumed comparison
    gets the devices that it had before, because others may differ in speed."""
    held = call.held
    if held is None:
        return None
    if found is not None and found.devices:
        held = replace(held, names=",".join(found.devices), count=None)
    return allocated_for(request.launch.devices, held, holds, _approve(call))


def _approve(call: Prepared) -> Approve:
    """Combine the checks of all variants whether their commands accept the devices."""
    checks = [(each, each.prepared.approve(os.environ)) for each in call.planned]

    def approve(devices: Sequence[Device] | int, box: Sequence[Vendor]) -> None:
        for planned, check in checks:
            most = most_devices(planned)
            # Devices that a variant names itself are known only with the allocation.
            if not varies_names(planned.variant):
                try:
                    check(min(devices, most or devices) if isinstance(devices, int) else devices[:most], box)
                except RequestError as error:
                    raise RequestError(f"{planned.variant.label}: {error}") from None

    return approve


def _launches(call: Prepared, held: Allocation | None, prove: bool) -> list[Launch]:
    """Make the launch of every variant, and print each warning and remark once: on its devices among those
    that are held, or on those that the first variant with the same request would get now. Raises
    RequestError."""
    found: list[Launch] = []
    told: dict[str, list[str]] = {}
    known = dict[tuple[object, ...], Allocation]()
    for planned in call.planned:
        variant, prepared = planned
        try:
            if held is not None:
                on = own_devices(planned, held)
            else:
                request = prepared.request
                key = (request.count, request.names, request.group, request.order)
                if key not in known:
                    known[key] = allocated(prepared, holds=False)
                on = known[key]._replace(request=request)
            found.append(launch_on(planned, on, os.environ, prove=prove))
        except RequestError as error:
            raise RequestError(f"{variant.label}: {error}") from None
        for text in found[-1].notes:
            told.setdefault(text, []).append(variant.label)
    for text, labels in told.items():
        whose = "" if len(labels) == len(call.planned) else f" ({labels[0]}{' …' if len(labels) > 1 else ''})"
        say(f"{text}{whose}")
    return found


def _run(
    call: Prepared,
    request: ExperimentRequest,
    experiment: Experiment,
    allocation: Allocation | None,
    args: Call,
    tell: Tell,
) -> int:
    environ = given_environment()
    # This variable is for the present process only.
    environ.pop(FOLDER, None)

    def source(cpu_only: bool) -> AbstractContextManager[Source]:
        return opened(args, cpu_only)

    warn_elsewhere(args, "; the commands really run on this machine")
    if allocation is not None:
        experiment = replace(experiment, devices=allocation.labels)
    progress, reads = _Progress(tell, args), not elsewhere(args)
    runner = Runner(
        experiment, request, call.planned, os.environ, environ, source, progress, allocation, reads
    )
    number, trouble = 0, None
    with store.running_alone(experiment), until_a_signal():
        try:
            runner.run()
        except EndedError as error:
            number = error.number
        except RunsElsewhereError:
            raise
        except (NotEnoughError, RequestError, NoSourceError, JobError) as error:
            trouble = error
    found = runner.experiment
    command = f"gputui {SUBCOMMANDS[request.kind]}"
    if number:
        going = "what is running continues" if found.count("running") else "what was running is stopped"
        say(f"{signal.Signals(number).name}: {going}; `{command} --resume {found.id}` continues it")
    _print(found, args)
    if not args.quiet:
        say(f"{found.name} is kept: `{command} --show {found.id}`; its logs: `gputui jobs`")
    if number:
        return 128 + number
    if trouble is not None:
        # Not raised: the call has answered already.
        say(str(trouble))
        return FAILED if isinstance(trouble, JobError) else trouble.status
    return DONE if found.went_well else FAILED


class _Progress(AllocationListener):
    """Keeps the record of a running experiment, and reports on stderr: each warning and note once, as
    many tasks have the same."""

    def __init__(self, tell: Tell, args: Call) -> None:
        super().__init__(args.why, tell)
        self._quiet = args.quiet

    def waited(self, allocation: Allocation | None, seconds: float) -> None:
        """Clear the progress line. The user is not notified of each task that gets its devices."""
        self._clear_progress()

    def changed(self, experiment: Experiment, change: Change | None) -> None:
        """Write the record. If that fails for a while, the records of the jobs have the same information."""
        try:
            store.keep(experiment, change)
        except JobError as error:
            self._tell(f"warning: {error}")

    def remark(self, text: str) -> None:
        """Print a warning or a note once, even if it applies to several runs."""
        self._clear_progress()
        self._tell(text)

    def begins(self, experiment: Experiment, place: int, run: Run, devices: Sequence[str]) -> None:
        """Print a line with the devices and the job of a run."""
        on = f"on GPU {','.join(devices)}" if devices else "on the CPU"
        self._line(experiment, place, run, f"{on}: job {run.job}")

    def ended(self, experiment: Experiment, place: int, run: Run) -> None:
        """Print a line with the outcome of a run."""
        self._line(experiment, place, run, f"{how(run)} after {took(run)}" if run.started else how(run))

    def _line(self, experiment: Experiment, place: int, run: Run, text: str) -> None:
        if self._quiet:
            return
        self._clear_progress()
        number = f"{(run.round - 1) * len(experiment.rows) + place + 1}/{experiment.runs_in_all}"
        label = printable(cut(experiment.rows[place].label, 60))
        say(f"{number if run.round else 'warm-up'} {label}: {text}")
