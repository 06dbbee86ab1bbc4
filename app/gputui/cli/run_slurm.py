"""`gputui run --slurm`: hands a launch over to Slurm, which selects the devices and has the queue."""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gputui.allocating.errors import NotEnoughError
from gputui.allocating.request import Request
from gputui.choosing.named_devices import entries_of
from gputui.cli.become import become
from gputui.cli.common import DONE, WrongCallError, elsewhere, print_line, say
from gputui.cli.launch_call import NEAR, noted, options_of, remember_typed, request_for
from gputui.cli.request_options import AUTO
from gputui.inventory.device import Device
from gputui.inventory.formatting import printable
from gputui.launching.compose import compose, launcher_of
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.quoting import quote
from gputui.launching.read_intent import read_intent
from gputui.launching.slurm_launch import SlurmError, SlurmRequest, output_of, through_slurm
from gputui.launching.start import StartError, run_child
from gputui.sources.slurm.cluster import Cluster, Node, Partition
from gputui.sources.slurm.read import Slurm
from gputui.system.environment import given_environment
from gputui.vendors.registry import default_vendor, vendor_named

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

_SUBMITTED = re.compile(r"([0-9]+)(?:;([A-Za-z0-9_.-]+))?")
_MOST_TEXT = 64 * 1024

_OF_THIS_BOX = (
    *("order", "never", "prefer", "mine", "ignore_user", "busy_memory", "busy_util", "window", "wait"),
    *("force", "why"),
)
"""Options about the devices of the machine that we are on, and gputui's own queue."""


def run_in_slurm(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Become srun, or submit by sbatch (`--detach`). Raises WrongCallError, NotEnoughError,
    NoSourceError."""
    _check(args)
    options = options_of(args, command)
    if not options.command:
        raise WrongCallError("no command after the variables")
    if options.nodes > 1:
        raise WrongCallError("several machines of Slurm's: gputui export --as sbatch --nodes N writes it")
    kept = options
    intent = read_intent(options, os.environ)
    request = request_for(args, options, intent)
    count, order = _count_and_order(request)
    asked = _place(args.slurm, count, Slurm().places())
    processes = 1
    if options.processes is not None and launcher_of(options).name == "python":
        # (srun starts them.)
        processes, options = options.processes, replace(options, processes=None)
    launch = _composed(count, options, args)
    try:
        launch = through_slurm(
            launch,
            replace(asked, order=order, processes=processes, detach=args.detach, name=args.name),
        )
    except SlurmError as error:
        raise WrongCallError(str(error)) from None
    launch = noted(launch)
    if "SLURM_JOB_ID" in os.environ and not args.detach:
        say(f"note: srun starts this as a step of job {os.environ['SLURM_JOB_ID']}, in which we are")
    if args.dry_run:
        print_line(launch.line)
        return DONE
    if not args.quiet:
        say(launch.line)
    remember_typed(kept, count)
    try:
        if args.detach:
            return _submit(launch, args.quiet)
        become(launch, given_environment())
    except StartError as error:
        say(str(error))
        return error.status


def _submit(launch: Launch, quiet: bool) -> int:
    """Print the job id as sbatch does, and say how to follow the job. Raises StartError."""
    with tempfile.TemporaryFile() as file:
        status = run_child(launch, given_environment(), stdout=file.fileno())
        file.seek(0)
        text = file.read(_MOST_TEXT).decode(errors="replace").strip()
    if text:
        print_line(printable(text))
    # (--parsable: the id, and the cluster where there are several.)
    job = _SUBMITTED.fullmatch(text)
    if status == 0 and job is not None and not quiet:
        which = f"-M {job[2]} " if job[2] else ""
        log = quote(str(Path(launch.directory or "", output_of(launch, job[1]))))
        say(
            f"job {job[1]} is in Slurm's queue: `squeue {which}-j {job[1]}` shows it,"
            f" `tail -F {log}` follows its output, `scancel {which}{job[1]}` ends it"
        )
    return status if status >= 0 else 128 - status


def _check(args: argparse.Namespace) -> None:
    if elsewhere(args):
        raise WrongCallError("--slurm does not go with --demo, --from and --root")
    for name in _OF_THIS_BOX:
        if getattr(args, name) not in (None, False):
            raise WrongCallError(f"--{name.replace('_', '-')} does not go with --slurm, whose queue it is")
    if args.n == AUTO or args.threads == NEAR:
        raise WrongCallError("-n auto and --threads near need the node's own devices: not with --slurm")
    if args.name is not None and not _NAME.fullmatch(args.name):
        raise WrongCallError(f"{args.name!r} cannot be the name of a Slurm job: letters, digits and ._- can")


def _count_and_order(request: Request) -> tuple[int, tuple[int, ...]]:
    """How many devices, and in which order of those that Slurm gives; () for its own."""
    if request.cpu_only:
        raise WrongCallError("a job without devices needs no gputui: srun starts it")
    if request.names is None:
        return request.size, ()
    entries = entries_of(request.names)
    if sorted(entries) != [str(place) for place in range(len(entries))]:
        raise WrongCallError(
            f"Slurm selects the devices, not by index: -n {len(entries)} asks for as many; --gpus is the"
            " order of those that it gives, such as 1,0"
        )
    return len(entries), tuple(map(int, entries))


def _composed(count: int, options: LaunchOptions, args: argparse.Namespace) -> Launch:
    """The launch on as many devices as Slurm will give, which have no names yet."""
    vendor = vendor_named(args.vendor) if args.vendor else default_vendor()
    devices = [Device(index=place, uuid="", vendor=vendor.name) for place in range(count)]
    launch = compose(devices, options, os.environ, box=(vendor,))
    if args.detach:
        from gputui.jobs.start import detached

        launch = detached(launch, os.environ)
    return launch


def _place(text: str, count: int, cluster: Cluster) -> SlurmRequest:
    """Where "[NODE|PARTITION][:TYPE]" is. Raises WrongCallError for what is not there, NotEnoughError where
    no node there has so many."""
    where, _, kind = text.partition(":")
    node, partition = cluster.node(where), cluster.partition(where)
    if where and node is None and partition is None:
        places = [*(each.name for each in cluster.partitions), *(each.name for each in cluster.nodes)]
        more = ", …" if len(places) > 12 else ""
        raise WrongCallError(f"Slurm has no node or partition {where!r}: {', '.join(places[:12])}{more}")
    if node is not None:
        partition = _partition_of(node, cluster)
        nodes = [node]
    else:
        partition = partition or next((each for each in cluster.partitions if each.default), None)
        nodes = [each for each in cluster.nodes if partition is None or partition.name in each.partitions]
    known = sorted({gpus.type for each in nodes for gpus in each.gpus if gpus.type})
    if kind and kind not in known:
        raise WrongCallError(f"no devices of type {kind!r} there: {', '.join(known) or 'no types'}")
    able = [each for each in nodes if each.total(kind) >= count]
    if not able:
        best = max((each.total(kind) for each in nodes), default=0)
        there = where or (partition.name if partition else "Slurm")
        raise NotEnoughError(f"{count} devices asked for, and no node of {there} has more than {best}")
    if partition is not None and not partition.up:
        say(f"note: partition {partition.name} is not up: the job waits in Slurm's queue")
    elif not any(each.free(kind) >= count for each in able):
        say(f"note: {_shortage(able, count)}: the job waits in Slurm's queue")
    if not kind and len(known) == 1 and all(gpus.type for each in able for gpus in each.gpus):
        kind = known[0]
    elif not kind and len(known) > 1:
        say(f"note: Slurm has {', '.join(known)} there, and takes any: --slurm {where}:TYPE names one")
    return SlurmRequest(
        node=node.name if node is not None else "",
        partition=partition.name if partition is not None and not partition.default else "",
        type=kind,
        whole=node is not None and node.total() == count,
    )


def _partition_of(node: Node, cluster: Cluster) -> Partition | None:
    """The default partition where the node is in it, else the first that is up."""
    of_it = [each for each in cluster.partitions if each.name in node.partitions]
    of_it.sort(key=lambda each: (not each.default, not each.up))
    return of_it[0] if of_it else None


def _shortage(nodes: Sequence[Node], count: int) -> str:
    """Why none of these nodes has so many free."""
    if len(nodes) == 1:
        node = nodes[0]
        why = f"{node.free()} of its {node.total()} devices free" if node.usable else "no job started there"
        reason = f" ({node.reason})" if node.reason and not node.usable else ""
        return f"{node.name} is {node.state}{reason}, with {why}"
    return f"none of {len(nodes)} nodes has {count} devices free"
