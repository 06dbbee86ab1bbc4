"""Slurm jobs: the place in the cluster, the launch that starts a job there, and its submission."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from gputui.allocating.errors import NotEnoughError
from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text, printable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.quoting import quote
from gputui.jobs.start import detached
from gputui.launching.compose import compose, launcher_of
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.slurm_launch import SlurmError, SlurmRequest, output_of, through_slurm
from gputui.launching.start import run_child
from gputui.sources.slurm.cluster import Cluster, Node, Partition
from gputui.system.environment import Environ
from gputui.vendors.vendor import Vendor

_SUBMITTED = re.compile(r"([0-9]+)(?:;([A-Za-z0-9_.-]+))?")
_MOST_TEXT = 64 * 1024


def named_place(cluster: Cluster, text: str) -> tuple[Node | None, Partition | None, str]:
    """The node, else the partition, and the type of devices that "[NODE|PARTITION][:TYPE]" names, None and ""
    for any. A name that both a node and a partition have means the node. Raises SlurmError for another name.
    """
    where, _, kind = text.partition(":")
    node, partition = cluster.node(where), cluster.partition(where)
    if where and node is None and partition is None:
        places = [*(each.name for each in cluster.partitions), *(each.name for each in cluster.nodes)]
        more = ", …" if len(places) > 12 else ""
        raise SlurmError(f"Slurm has no node or partition {where!r}: {', '.join(places[:12])}{more}")
    return node, partition if node is None else None, kind


def request_at(
    cluster: Cluster, node: Node | None, partition: Partition | None, kind: str, count: int
) -> tuple[SlurmRequest, tuple[str, ...]]:
    """The request for `count` devices of this type on a node, else on any node of a partition; and notes for
    the user. None and "" stand for any.

    Raises SlurmError for an unknown type, NotEnoughError where no node there has `count` devices.
    """
    notes: list[str] = []
    if node is not None:
        partition = _partition_of(node, cluster)
        nodes = [node]
    else:
        partition = partition or next((each for each in cluster.partitions if each.default), None)
        nodes = [each for each in cluster.nodes if partition is None or partition.name in each.partitions]
    known = sorted({gpus.type for each in nodes for gpus in each.gpus if gpus.type})
    if kind and kind not in known:
        raise SlurmError(f"no devices of type {kind!r} there: {', '.join(known) or 'no types'}")
    able = [each for each in nodes if each.total(kind) >= count]
    if not able:
        best = max((each.total(kind) for each in nodes), default=0)
        there = f"no node of {partition.name if partition else 'Slurm'} has more than"
        there = f"{node.name} has" if node is not None else there
        raise NotEnoughError(f"{devices_text(count)} asked for, and {there} {best}")
    if partition is not None and not partition.up:
        notes.append(f"partition {partition.name} is not up: the job waits in Slurm's queue")
    elif not any(each.free(kind) >= count for each in able):
        notes.append(f"{_shortage(able, kind, count)}: the job waits in Slurm's queue")
    if not kind and len(known) == 1 and all(gpus.type for each in able for gpus in each.gpus):
        kind = known[0]
    elif not kind and len(known) > 1:
        notes.append(f"any type will do ({', '.join(known)}); PLACE:TYPE asks for one")
    request = SlurmRequest(
        node=node.name if node is not None else "",
        partition=partition.name if partition is not None and not partition.default else "",
        type=kind,
        whole=node is not None and node.total() == count,
    )
    return request, tuple(notes)


def _partition_of(node: Node, cluster: Cluster) -> Partition | None:
    """The default partition if the node is in it, else the first partition that is up, else any; None if the
    node has no partition."""
    of_it = [each for each in cluster.partitions if each.name in node.partitions]
    of_it.sort(key=lambda each: (not each.default, not each.up))
    return of_it[0] if of_it else None


def _shortage(nodes: Sequence[Node], kind: str, count: int) -> str:
    """The reason that none of these nodes has `count` free devices, as text."""
    if len(nodes) > 1:
        return f"none of the {len(nodes)} nodes has {devices_text(count)} free"
    node = nodes[0]
    if node.usable:
        return f"{node.name} has {node.free(kind)} of {devices_text(node.total(kind))} free"
    return f"{node.name} is {node.state}{f' ({node.reason})' if node.reason else ''}"


def slurm_launch(
    options: LaunchOptions, count: int, request: SlurmRequest, environ: Environ, vendor: Vendor
) -> Launch:
    """The launch on `count` devices, which Slurm will select. Raises SlurmError."""
    if options.nodes > 1:
        raise SlurmError("several Slurm nodes need a script: `gputui export --as sbatch --nodes N` writes it")
    if options.processes is not None and launcher_of(options).name == "python":
        # srun starts the processes.
        request, options = replace(request, processes=options.processes), replace(options, processes=None)
    devices = [Device(index=place, uuid="", vendor=vendor.name) for place in range(count)]
    launch = compose(devices, options, environ, box=(vendor,))
    if request.detach:
        launch = detached(launch, environ)
    return through_slurm(launch, request)


@frozen
class Submitted:
    """The outcome of the submission of a batch job.

    status  sbatch's own exit status
    text    its output, sanitized for a screen: the job id
    errors  the lines of its stderr, sanitized for a screen
    advice  how to follow the job and to end it, "" where it has no id
    """

    status: int
    text: str
    errors: tuple[str, ...] = ()
    advice: str = ""


def submit(launch: Launch, environ: Environ) -> Submitted:
    """Run the sbatch of a launch. Raises StartError."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = run_child(launch, environ, outputs=(output.fileno(), errors.fileno()))
        text, said = (_read(file).strip() for file in (output, errors))
    # --parsable prints the id, and the cluster where there are several.
    job = _SUBMITTED.fullmatch(text)
    lines = tuple(printable(line) for line in said.splitlines() if line.strip())
    if status != 0 or job is None:
        return Submitted(status if status >= 0 else 128 - status, printable(text), lines)
    which = f"-M {job[2]} " if job[2] else ""
    log = quote(str(Path(launch.directory or "", output_of(launch, job[1]))))
    advice = (
        f"job {job[1]} is in Slurm's queue: `squeue {which}-j {job[1]}` shows it,"
        f" `tail -F {log}` follows its output, `scancel {which}{job[1]}` ends it"
    )
    return Submitted(status, printable(text), lines, advice)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_TEXT).decode(errors="replace")
