"""`gputui run --slurm`: hand a launch over to Slurm, which selects the devices and has the queue."""

from __future__ import annotations

import os
import re

from gputui.allocating.request import Request
from gputui.choosing.named_devices import entries_of
from gputui.cli.become import become
from gputui.cli.common import DONE, Call, WrongCallError, elsewhere, print_line, say, say_notes
from gputui.cli.launch_call import noted, prepared_call, print_launch, remember_typed
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.slurm import named_place, request_at, slurm_launch, submit
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.slurm.read import Slurm
from gputui.system.environment import given_environment
from gputui.vendors.registry import default_vendor, vendor_named

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


_OF_THIS_BOX = (
    *("order", "never", "prefer", "mine", "ignore_user", "busy_memory", "busy_util", "window", "wait"),
    *("force", "why", "min_free", "max_util", "after", "after_ok"),
)
"""Options about the devices of this machine and about gputui's own queue."""


def run_in_slurm(args: Call, asked: LaunchRequest) -> int:
    """Become srun, or submit by sbatch (`--detach`). Raises WrongCallError, NotEnoughError,
    NoSourceError."""
    _check(args, asked)
    options = asked.options
    count, order = _count_and_order(prepared_call(asked, confine="never").request)
    vendor = vendor_named(args.vendor) if args.vendor else default_vendor()
    cluster = Slurm().places()
    place, notes = request_at(cluster, *named_place(cluster, args.slurm), count)
    say_notes(notes)
    place = replace(place, order=order, detach=args.detach, name=args.name)
    launch = noted(slurm_launch(options, count, place, os.environ, vendor))
    if "SLURM_JOB_ID" in os.environ and not args.detach:
        say(f"note: srun starts this as a step of job {os.environ['SLURM_JOB_ID']}, in which gputui runs")
    if args.dry_run:
        print_launch(launch, args.json)
        return DONE
    if not args.quiet:
        say(launch.line)
    remember_typed(options, count)
    if not args.detach:
        become(launch, given_environment())
    return _submit(launch, args.quiet)


def _submit(launch: Launch, quiet: bool) -> int:
    """Print the job id as sbatch does, and say how to follow the job. Raises StartError."""
    submitted = submit(launch, given_environment())
    for line in submitted.errors:
        say(line)
    if submitted.text:
        print_line(submitted.text)
    if submitted.advice and not quiet:
        say(submitted.advice)
    return submitted.status


def _check(args: Call, asked: LaunchRequest) -> None:
    if elsewhere(args):
        raise WrongCallError("--slurm cannot be used with --demo, --from or --root")
    for name in _OF_THIS_BOX:
        if getattr(args, name) not in (None, False):
            raise WrongCallError(
                f"--{name.replace('_', '-')} cannot be used with --slurm: Slurm selects the devices"
            )
    if asked.devices.auto or asked.near:
        raise WrongCallError(
            "-n auto and --threads near cannot be used with --slurm: they need the node's own devices"
        )
    if args.name is not None and not _NAME.fullmatch(args.name):
        raise WrongCallError(f"{args.name!r} cannot be the name of a Slurm job: letters, digits and ._- can")


def _count_and_order(request: Request) -> tuple[int, tuple[int, ...]]:
    """The number of devices, and their order among the devices that Slurm gives; () for Slurm's own order."""
    if request.cpu_only:
        raise WrongCallError("a job without devices does not need gputui: use srun")
    if request.names is None:
        return request.size, ()
    entries = entries_of(request.names)
    if sorted(entries) != [str(place) for place in range(len(entries))]:
        raise WrongCallError(
            f"Slurm selects the devices, and not by index: use -n {len(entries)}; --gpus can only order"
            " those that Slurm selects, such as 1,0"
        )
    return len(entries), tuple(map(int, entries))
