"""A Slurm cluster as lines: the places that a job can request, the user's jobs, and the launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.formatting import printable
from gputui.launching.launch import Launch
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.slurm.places import JOBS, NOTE, PLACE, PLACE_FACTS, Place
from gputui.tui.views.text import Line, clip, prompt_lines, table_lines, title, told_lines, wrap

_LAUNCH_LINES = 4
"""The most lines of the launch line, which is then cut."""


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
    columns = (PLACE, *PLACE_FACTS, NOTE)
    return [clip(line, width) for line in table_lines(columns, places, heading=True, before="   ")]


def job_lines(cluster: Cluster, width: int) -> list[Line]:
    """The user's own jobs, below their own rule; nothing where there are none."""
    if not cluster.jobs:
        return []
    rows = [clip(line, width) for line in table_lines(JOBS, cluster.jobs, before="   ")]
    return [title("your jobs", width, "squeue and scancel act on them"), *rows]


def launch_lines(
    launch: Launch | str, form: str, count: int, order: Sequence[int], notes: Sequence[str], width: int
) -> list[Line]:
    """What would run in this form (srun or sbatch), or why nothing would, on so many devices."""
    ordered = f", in the order {','.join(map(str, order))}" if list(order) != sorted(order) else ""
    other = "sbatch" if form == "srun" else "srun"
    what = f"launch: {form}, {count} device{'s' * (count != 1)}{ordered}"
    lines = [title(what, width, f"tab {other}")]
    if isinstance(launch, str):
        return [*lines, *told_lines(launch, "warn", width)]
    pieces = wrap(printable(launch.line), width - 4)
    if len(pieces) > _LAUNCH_LINES:
        pieces = [*pieces[: _LAUNCH_LINES - 1], f"{pieces[_LAUNCH_LINES - 1][: max(0, width - 6)]} …"]
    lines += [*prompt_lines(pieces), *told_lines(printable(launch.remarks[-1]), "dim", width)]
    return [*lines, *(line for note in notes for line in told_lines(note, "warn", width))]
