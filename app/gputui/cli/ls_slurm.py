"""`gputui ls --slurm`: the nodes of a Slurm cluster as boxes, and the caller's own jobs there."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from gputui.choosing.verdict import State
from gputui.cli.boxes import entry
from gputui.cli.common import DONE, print_json
from gputui.inventory.columns import printed
from gputui.inventory.device import Device
from gputui.inventory.document import to_document
from gputui.inventory.formatting import printable
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.text_table import cut
from gputui.inventory.typed_json import SCHEMA, Json, OrNull, View
from gputui.sources.simulated.boxes import simulated_cluster
from gputui.sources.slurm.cluster import Cluster, Gpus, Job, Node, Partition, free_of
from gputui.sources.slurm.places import JOBS, NOTE, PARTITIONS, PLACE, PLACE_FACTS, places_of_nodes
from gputui.sources.slurm.read import Slurm

_GPUS = View(Gpus, "type total used indices free", free=int)
NODE = View(
    Node,
    "state states usable reason partitions gpus jobs",
    reason=OrNull,
    gpus=_GPUS.list,
    jobs=tuple[str, ...],
)
_PARTITION = View(Partition, "name up default limit")
_JOB = View(
    Job,
    "id name state partition nodes count reason devices",
    reason=OrNull,
    devices=dict[str, tuple[int, ...]],
)
CLUSTER = View(Cluster, "partitions jobs errors", partitions=_PARTITION.list, jobs=_JOB.list)


def list_nodes(as_json: bool, width: int | None, demo: bool) -> int:
    """Print the cluster; in a demo, a simulated one. Raises NoSourceError where there is no Slurm."""
    cluster = simulated_cluster() if demo else Slurm().read()
    if as_json:
        print_json(document(cluster, time.time()))
    else:
        print(table(cluster, width), end="")
    return DONE


def document(cluster: Cluster, now: float) -> Json:
    """Return the nodes as JSON-ready values: each as a box in `ls --json`, with further facts from Slurm."""
    return {
        "schema": SCHEMA,
        "boxes": [_box(node, cluster, now) for node in cluster.nodes],
        "slurm": CLUSTER.write(
            cluster, jobs=[_JOB.write(job, devices=dict(job.devices)) for job in cluster.jobs]
        ),
    }


def _box(node: Node, cluster: Cluster, now: float) -> Json:
    devices = tuple(
        Device(index=index, uuid="", name=kind or None) for index, kind in enumerate(node.device_types())
    )
    snapshot = Snapshot(Host(name=node.name), now, devices)
    used = node.in_use()
    own = to_document(snapshot, {each.key: _state(each.index, node, used, cluster.jobs) for each in devices})
    for device in own["devices"]:
        # Slurm knows the site's names of device types, and no vendors.
        device["vendor"] = None
    about = NODE.write(
        node,
        gpus=[_GPUS.write(each, free=free_of(node, each)) for each in node.gpus],
        jobs=[job.id for job in cluster.jobs if node.name in job.nodes],
    )
    return {**entry(node.name, None, own, hostname=node.name), "slurm": about}


def _state(index: int, node: Node, used: Collection[int] | None, jobs: Sequence[Job]) -> tuple[State, str]:
    """Return the state of a device by Slurm, and the reason; `used` are the node's devices in use."""
    mine = next((job for job in jobs if index in job.indices_on(node.name)), None)
    if mine is not None:
        return "busy", f"your Slurm job {mine.id} ({printable(mine.name)})"
    if used is None:
        return "unknown", "Slurm reports how many are in use here, but not which"
    if index in used:
        return "busy", "in use by a Slurm job"
    if not node.usable:
        why = f"{node.state} ({printable(node.reason)})" if node.reason else node.state
        return "unknown", f"Slurm starts nothing here: {why}"
    return "free", "no Slurm job uses it"


def table(cluster: Cluster, width: int | None) -> str:
    """Return a line for each device type of each node, and one for each of the caller's jobs."""
    lines = printed((PLACE, *PLACE_FACTS, PARTITIONS, NOTE), [*places_of_nodes(cluster)], width)
    if cluster.jobs:
        lines += ["", *printed(JOBS, cluster.jobs, width)]
    lines += [f"partition {printable(each.name)} is not up" for each in cluster.partitions if not each.up]
    lines += [printable(error) for error in cluster.errors]
    if not cluster.nodes:
        lines.append("no nodes")
    return "".join(f"{cut(line, width)}\n" for line in lines)
