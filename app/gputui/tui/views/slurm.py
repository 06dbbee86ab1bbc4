"""A Slurm cluster as lines: the places that a job can ask for, the caller's jobs, and the launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.formatting import UNKNOWN, printable
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.topology import ranges
from gputui.launching.launch import Launch
from gputui.sources.slurm.cluster import Cluster, Gpus, Node, Partition, free_of
from gputui.tui.views.text import Line, clip, fit, title, wrap

_WIDEST = 24
"""The columns of names at most."""
_LAUNCH_LINES = 4
"""Of the launch line, before it is cut."""


@dataclass(frozen=True, slots=True)
class Place:
    """What `run --slurm` can be given: any node of a partition, or the devices of one type of a node.

    text   as the option has it: "big", "n1:h100"
    most   the most devices that a node of it has
    free   how many a job could have now on one node
    """

    text: str
    most: int
    free: int
    partition: Partition | None = None
    node: Node | None = None
    gpus: Gpus | None = None


def places_of(cluster: Cluster, only_free: bool) -> tuple[Place, ...]:
    """The partitions, the default one first, then the nodes with a place for each type of device."""
    found = [
        _any_node(each, cluster) for each in sorted(cluster.partitions, key=lambda each: not each.default)
    ]
    for node in cluster.nodes:
        for gpus in node.gpus:
            text = f"{node.name}:{gpus.type}" if gpus.type else node.name
            found.append(Place(text, gpus.total, free_of(node, gpus), node=node, gpus=gpus))
    return tuple(each for each in found if each.most and (each.free or not only_free))


def _any_node(partition: Partition, cluster: Cluster) -> Place:
    nodes = [node for node in cluster.nodes if partition.name in node.partitions]
    free = max((node.free() for node in nodes), default=0) if partition.up else 0
    return Place(partition.name, max((node.total() for node in nodes), default=0), free, partition)


def headline(cluster: Cluster | None, only_free: bool, width: int) -> Line:
    """The rule at the top."""
    if cluster is None:
        return title("Slurm", width)
    free = [node.free() for node in cluster.nodes]
    total = sum(node.total() for node in cluster.nodes)
    tail = f"{sum(free)} of {total} devices free  on {sum(map(bool, free))} of {len(free)} nodes"
    return title("Slurm: free only" if only_free else "Slurm", width, tail)


def place_lines(places: Sequence[Place], width: int) -> list[Line]:
    """The heads of the columns, then a line for each place."""
    wide = min(_WIDEST, max((len(_name(each)) for each in places), default=0))
    heads = f"   {fit('PLACE', wide)}  {fit('FREE', 20)}  {fit('STATE', 10)}  IN USE"
    previous, lines = "", [clip(((heads, "dim"),), width)]
    for each in places:
        name = _name(each)
        state, why = _state(each, previous)
        previous = each.node.name if each.node is not None else ""
        counts = f"{each.free:>3} free of {each.most:<3}"
        if each.partition is not None:
            counts = f"{each.free:>3} free on one node" if each.free else f"  0 free of {each.most:<3}"
        look = "free" if each.free else "dim"
        lines.append(
            clip(
                (
                    (f"   {fit(name, wide)}  ", ""),
                    (fit(counts, 20), look),
                    (f"  {fit(state, 10)}", "dim"),
                    (f"  {_in_use(each)}", "dim"),
                    (f"  {why}" if why else "", "warn"),
                ),
                width,
            )
        )
    return lines


def _name(place: Place) -> str:
    if place.partition is not None:
        return f"any node of {printable(place.text)}"
    return printable(place.text)


def _state(place: Place, previous: str) -> tuple[str, str]:
    """In Slurm's words, and why somebody has taken the node out; once for each node."""
    if place.partition is not None:
        words = "default" if place.partition.default else ""
        return (words, "") if place.partition.up else ("down", "the partition is not up")
    assert place.node is not None
    if place.node.name == previous:
        return "", ""
    return printable(place.node.state), printable(place.node.reason)


def _in_use(place: Place) -> str:
    if place.gpus is None:
        limit = place.partition.limit if place.partition is not None else ""
        return f"at most {printable(limit)}" if limit and limit != "UNLIMITED" else ""
    indices = place.gpus.indices
    used = f"{place.gpus.used} in use"
    return used + (f" ({ranges(indices)})" if place.gpus.used and indices else "")


def job_lines(cluster: Cluster, width: int) -> list[Line]:
    """The caller's own jobs, below a rule of their own; nothing where there are none."""
    jobs = [job for job in cluster.jobs if not job.ended]
    if not jobs:
        return []
    lines = [title("your jobs", width, "squeue and scancel act on them")]
    for job in jobs:
        where = " ".join(
            f"{name}:{ranges(index for each in gpus for index in each.indices or ())}".rstrip(":")
            for name, gpus in job.devices
        ) or ",".join(job.nodes)
        count = UNKNOWN if job.count is None else str(job.count)
        waits = f"  {printable(job.reason)}" if job.reason and not job.nodes else ""
        state = printable(job.state.lower())
        facts = (
            f"   {fit(printable(job.id), 10)} {fit(printable(job.name), 20)} {fit(state, 10)} {count:>3} GPUs"
        )
        lines.append(clip(((facts, ""), (f"  {printable(where)}", "dim"), (waits, "warn")), width))
    return lines


def launch_lines(launch: Launch | str, count: int, width: int) -> list[Line]:
    """What would run, or why nothing would, with how many devices."""
    how = "sbatch" if isinstance(launch, Launch) and launch.argv[0] == "sbatch" else "srun"
    lines = [title(f"launch: {how}, {count} device{'s' * (count != 1)}", width)]
    if isinstance(launch, str):
        return [*lines, *(((f" {piece}", "warn"),) for piece in wrap(launch, width - 2))]
    pieces = wrap(printable(launch.line), width - 4)
    if len(pieces) > _LAUNCH_LINES:
        pieces = [*pieces[: _LAUNCH_LINES - 1], f"{pieces[_LAUNCH_LINES - 1][: max(0, width - 6)]} …"]
    lines += [((" $ " if not place else "   ", "prompt"), (piece, "")) for place, piece in enumerate(pieces)]
    return [*lines, *(clip(((f" {printable(remark)}", "dim"),), width) for remark in launch.remarks[-1:])]
