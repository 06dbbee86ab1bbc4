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
"""The column of places at most."""
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

    @property
    def key(self) -> tuple[bool, str]:
        """What tells it from others: a node may have the name of a partition."""
        return self.partition is not None, self.text


def places_of(cluster: Cluster, only_free: bool) -> tuple[Place, ...]:
    """The partitions, the default one first, then the nodes with a place for each type of device."""
    partitions = sorted(cluster.partitions, key=lambda each: not each.default)
    found = [_any_node(each, cluster) for each in partitions]
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
    return title("Slurm: with free devices" if only_free else "Slurm", width, tail)


def place_lines(places: Sequence[Place], width: int) -> list[Line]:
    """The heads of the columns, then a line for each place."""
    wide = min(_WIDEST, max((len(_name(each)) for each in places), default=0))
    heads = f"   {fit('PLACE', wide)}  {fit('FREE', 8)}  {fit('STATE', 10)}  {fit('IN USE', 8)}  NOTE"
    previous, lines = "", [clip(((heads, "dim"),), width)]
    for each in places:
        state, note = _state(each, previous)
        previous = each.node.name if each.node is not None else ""
        free = f"{each.free} of {each.most}" if each.gpus is not None else f"up to {each.free}"
        line = (
            (f"   {fit(_name(each), wide)}  ", ""),
            (fit(free, 8), "free" if each.free else "dim"),
            (f"  {fit(state, 10)}  {fit(_in_use(each), 8)}", "dim"),
            (f"  {note}", "dim" if each.free or each.partition else "warn"),
        )
        lines.append(clip(line, width))
    return lines


def _name(place: Place) -> str:
    if place.partition is not None:
        return f"any node of {printable(place.text)}"
    return printable(place.text)


def _state(place: Place, previous: str) -> tuple[str, str]:
    """The state in Slurm's words, and a note: a partition's limit, or why somebody has taken the node out.
    Once for each node."""
    if place.partition is not None:
        limit = printable(place.partition.limit)
        notes = ["default"] if place.partition.default else []
        notes += [f"limit {limit}"] if limit and limit != "UNLIMITED" else []
        return "up" if place.partition.up else "down", ", ".join(notes)
    assert place.node is not None
    if place.node.name == previous:
        return "", ""
    return printable(place.node.state), printable(place.node.reason)


def _in_use(place: Place) -> str:
    """Which ones jobs have, or how many."""
    if place.gpus is None or not place.gpus.used:
        return ""
    return ranges(place.gpus.indices) if place.gpus.indices else f"{place.gpus.used}"


def job_lines(cluster: Cluster, width: int) -> list[Line]:
    """The caller's own jobs, below a rule of their own; nothing where there are none."""
    if not cluster.jobs:
        return []
    lines = [title("your jobs", width, "squeue and scancel act on them")]
    for job in cluster.jobs:
        has = (f"{name}:{ranges(indices)}".rstrip(":") for name, indices in job.devices)
        where = " ".join(has) or ",".join(job.nodes)
        count = UNKNOWN if job.count is None else str(job.count)
        state = printable(job.state.lower())
        facts = (
            f"   {fit(printable(job.id), 10)} {fit(printable(job.name), 20)} {fit(state, 10)} {count:>3} GPUs"
        )
        waits = (printable(job.reason), "warn") if job.reason and not job.nodes else (printable(where), "dim")
        lines.append(clip(((f"{facts}  ", ""), waits), width))
    return lines


def launch_lines(
    launch: Launch | str, form: str, count: int, order: Sequence[int], notes: Sequence[str], width: int
) -> list[Line]:
    """What would run in this form (srun or sbatch), or why nothing would, on so many devices."""
    ordered = f", in the order {','.join(map(str, order))}" if list(order) != sorted(order) else ""
    other = "sbatch" if form == "srun" else "srun"
    what = f"launch: {form}, {count} device{'s' * (count != 1)}{ordered}"
    lines = [title(what, width, f"tab {other}")]
    if isinstance(launch, str):
        return [*lines, *(((f" {piece}", "warn"),) for piece in wrap(launch, width - 2))]
    pieces = wrap(printable(launch.line), width - 4)
    if len(pieces) > _LAUNCH_LINES:
        pieces = [*pieces[: _LAUNCH_LINES - 1], f"{pieces[_LAUNCH_LINES - 1][: max(0, width - 6)]} …"]
    lines += [((" $ " if not place else "   ", "prompt"), (piece, "")) for place, piece in enumerate(pieces)]
    lines += [((f" {piece}", "dim"),) for piece in wrap(printable(launch.remarks[-1]), width - 2)]
    return [*lines, *(((f" {piece}", "warn"),) for note in notes for piece in wrap(note, width - 2))]
