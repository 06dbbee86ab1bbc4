"""The places of a Slurm cluster that a job can request, and the columns of lists of places and of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.inventory.columns import Column
from gputui.inventory.formatting import UNKNOWN, number, printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.topology import ranges
from gputui.sources.slurm.cluster import Cluster, Gpus, Job, Node, Partition, free_of


@frozen
class Place:
    """An argument of `run --slurm`: any node of a partition, or the devices of one type of a node.

    text   the value of the option: "big", "n1:h100"
    most   the most devices of a node of it; 0 for a node without devices, where no job can run
    free   the number of devices that a job could have now on one node
    first  whether it is the first place of its node, which shows what all places of the node share
    """

    text: str
    most: int
    free: int
    partition: Partition | None = None
    node: Node | None = None
    gpus: Gpus | None = None
    first: bool = True

    @property
    def key(self) -> tuple[bool, str]:
        """Its identity among places: a node may have the name of a partition."""
        return self.partition is not None, self.text


def places_of(cluster: Cluster) -> tuple[Place, ...]:
    """Return the partitions, the default first, then the places of the nodes."""
    partitions = sorted(cluster.partitions, key=lambda each: not each.default)
    return (*(_any_node(each, cluster) for each in partitions), *places_of_nodes(cluster))


def places_of_nodes(cluster: Cluster) -> Iterator[Place]:
    """Yield a place for each type of device of each node, and one for a node without devices."""
    for node in cluster.nodes:
        for gpus in node.gpus:
            text = f"{node.name}:{gpus.type}" if gpus.type else node.name
            yield Place(
                text, gpus.total, free_of(node, gpus), node=node, gpus=gpus, first=gpus is node.gpus[0]
            )
        if not node.gpus:
            yield Place(node.name, 0, 0, node=node)


def _any_node(partition: Partition, cluster: Cluster) -> Place:
    nodes = [node for node in cluster.nodes if partition.name in node.partitions]
    free = max((node.free() for node in nodes), default=0) if partition.up else 0
    return Place(partition.name, max((node.total() for node in nodes), default=0), free, partition)


PLACE: Column[Place] = Column(
    "PLACE", lambda place: ("any node of " if place.partition else "") + printable(place.text), most=24
)
PARTITIONS: Column[Place] = Column(
    "PARTITIONS",
    lambda place: printable(",".join(place.node.partitions)) if place.node and place.first else "",
)
PLACE_FACTS: tuple[Column[Place], ...] = (
    Column("FREE", lambda place: _free(place), lambda place: "free" if place.free else "dim", least=8),
    Column("STATE", lambda place: _state(place), "dim", least=10),
    Column("IN USE", lambda place: _in_use(place.gpus), "dim", least=8),
)
NOTE: Column[Place] = Column(
    "NOTE", lambda place: _note(place), lambda place: "dim" if place.free or place.partition else "warn"
)


def _free(place: Place) -> str:
    if place.partition is not None:
        return f"up to {place.free}"
    return f"{place.free} of {place.most}" if place.most else "none"


def _state(place: Place) -> str:
    """Return the state in Slurm's words, once for each node."""
    if place.partition is not None:
        return "up" if place.partition.up else "down"
    return printable(place.node.state) if place.node and place.first else ""


def _in_use(gpus: Gpus | None) -> str:
    """Return the number of devices that jobs have, and their indices: "6 (0-5)"."""
    if gpus is None or not gpus.used:
        return ""
    return f"{gpus.used} ({ranges(gpus.indices)})" if gpus.indices else str(gpus.used)


def _note(place: Place) -> str:
    """Return a partition's limit, or why a node was taken out of service, once for each node."""
    if place.partition is None:
        node = place.node
        usable = node is None or node.usable
        return (node and place.first and printable(node.reason)) or ("" if usable else "not available")
    limit = printable(place.partition.limit)
    notes = ["default"] if place.partition.default else []
    return ", ".join([*notes, *([f"limit {limit}"] if limit and limit != "UNLIMITED" else [])])


JOBS: tuple[Column[Job], ...] = (
    Column("JOB", lambda job: printable(job.id), least=10),
    Column("NAME", lambda job: printable(job.name)[:32], most=20),
    Column("STATE", lambda job: printable(job.state.lower()), most=10),
    Column("DEVICES", lambda job: number(job.count, " GPUs"), right=True),
    Column("NODES", lambda job: _where(job), "dim"),
    Column("WHY", lambda job: printable(job.reason), "warn"),
)


def _where(job: Job) -> str:
    """Return its nodes, with its devices there where Slurm reports them: "dgx-1:4-5"."""
    devices = " ".join(f"{name}:{ranges(indices)}" for name, indices in job.devices if indices)
    return printable(devices or ",".join(job.nodes) or UNKNOWN)
