"""Boxes by their wiring, random ones for Hypothesis, and slow, reliable answers about rings, chains and
groups.

This file takes only the names of jobs from `gputui.choosing`: the tests compare it with that package.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gputui.choosing.best import Alternative, best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.device import Device
from gputui.inventory.link import LinkMatrix
from gputui.inventory.matrix_text import read
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from unit.builders import GIB, MIB, NOW, box, gpu

PCIE = ("SYS", "NODE", "PHB", "PXB", "PIX")
WORDS = (*PCIE, "NV1", "NV2", "NV4", "NV12", "NV18")
INDEPENDENT = Grouping(independent=True)
JOBS = (
    ALL_REDUCE,
    Grouping(2),
    Grouping(4),
    Grouping(1, 2),
    Grouping(1, 4),
    INDEPENDENT,
    Grouping(3),
    Grouping(1, 3),
    Grouping(2, 2),
)
TOPOLOGIES = Path(__file__).parents[1] / "data" / "topologies"

H100 = {"compute_capability": "9.0", "cores": 16896, "max_sm_clock": 1980}
A100 = {"name": "NVIDIA A100", "compute_capability": "8.0", "cores": 6912, "max_sm_clock": 1410}
L4 = {"name": "NVIDIA L4", "compute_capability": "8.9", "cores": 7424, "max_sm_clock": 2040}
L4_OC = {**L4, "max_sm_clock": 2100}
"""The same model: a manufacturer's own clock does not make it another model."""
UNREAD = {"name": None, "compute_capability": None}

Rank = Callable[[int, int], Any]
"""The strength of the link of two devices, by their numbers."""

Key = tuple[Any, ...]
"""The key by which sets are compared, as in `choosing/sets.py`."""


def matrix(count: int, cells: Sequence[str | None]) -> LinkMatrix:
    """The symmetric matrix with these cells below its diagonal, row by row."""
    rows: list[list[str | None]] = [["X"] * count for _ in range(count)]
    given = iter(cells)
    for i in range(count):
        for j in range(i):
            rows[i][j] = rows[j][i] = next(given)
    return tuple(map(tuple, rows))


def wired(links: LinkMatrix, peer: str | None = "OK", **facts: Any) -> Snapshot:
    """A box of equal GPUs with these links; `peer` is between all."""
    count = len(links)
    peers = matrix(count, [peer] * (count * count))
    return replace(box(*(gpu(i, **facts) for i in range(count)), links=links), peers=peers)


def recorded(stem: str) -> Snapshot:
    """The box of a recording in tests/data/topologies, idle."""
    return at(box_of(read((TOPOLOGIES / f"{stem}.txt").read_text()), stem), 0, NOW)


def indices(devices: Sequence[Device]) -> list[int]:
    return [device.index for device in devices]


def best_of(
    snapshot: Snapshot, count: int, job: Grouping = ALL_REDUCE, required: Collection[int] = ()
) -> list[Alternative]:
    """The best sets of `count` devices."""
    keys = {snapshot.devices[i].key for i in required}
    return list(best(snapshot, snapshot.devices, count, job, keys))


def sets_of(alternatives: Sequence[Alternative]) -> list[tuple[int, ...]]:
    """Each set by its indices, ascending."""
    return [tuple(sorted(indices(way.devices))) for way in alternatives]


@st.composite
def links(draw: st.DrawFn, count: int, words: Sequence[str | None]) -> LinkMatrix:
    """Links drawn cell by cell, or groups that are joined within and across with a few cells changed."""
    palette = draw(st.lists(st.sampled_from(words), min_size=1, max_size=4, unique=True))
    word = st.sampled_from(palette)
    pairs = count * (count - 1) // 2
    if draw(st.booleans()):
        return matrix(count, draw(st.lists(word, min_size=pairs, max_size=pairs)))
    group = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    inside, across = draw(word), draw(word)
    cells = [inside if group[i] == group[j] else across for i in range(count) for j in range(i)]
    for _ in range(draw(st.integers(0, 3)) if pairs else 0):
        cells[draw(st.integers(0, pairs - 1))] = draw(word)
    return matrix(count, cells)


@st.composite
def boxes(draw: st.DrawFn, least: int = 2, most: int = 8, known: bool = False) -> Snapshot:
    """Random links, peer access, PCIe classes, NUMA nodes, free memory, displays and models. `known`: all
    links and peers are known, and every pair has peer access."""
    count = draw(st.integers(least, most))
    pairs = count * (count - 1) // 2
    words = draw(links(count, WORDS if known else (*WORDS, None)))
    palette = draw(st.sampled_from((("OK",), ("OK", "CNS"), ("OK", None), ("OK", "GNS", None), (None,))))
    peers = draw(st.lists(st.sampled_from(("OK",) if known else palette), min_size=pairs, max_size=pairs))
    classes: LinkMatrix = ()
    if known or draw(st.booleans()):
        under = st.sampled_from(PCIE if known else (*PCIE, None))
        below = [words[i][j] for i in range(count) for j in range(i)]
        classes = matrix(count, [word if word in PCIE else draw(under) for word in below])
    nodes = draw(st.lists(st.sampled_from((0, 0, 1, None)), min_size=count, max_size=count))
    sizes = (80 * GIB, 80 * GIB, 80 * GIB - 300 * MIB, 40 * GIB, None)
    free = draw(st.lists(st.sampled_from(sizes), min_size=count, max_size=count))
    palette_of_models = draw(st.sampled_from(((H100,), (H100,), (H100, L4), (A100, L4, UNREAD), (L4, L4_OC))))
    models = draw(st.lists(st.sampled_from(palette_of_models), min_size=count, max_size=count))
    display = draw(st.sampled_from((None, 0, count - 1)))
    devices = (
        gpu(i, numa_node=nodes[i], memory_free=free[i], display=i == display, **models[i])
        for i in range(count)
    )
    return replace(box(*devices, links=words), pcie=classes, peers=matrix(count, peers))


def renumbered(snapshot: Snapshot, order: Sequence[int]) -> Snapshot:
    """The same box with its devices in another order, under new indices."""

    def moved(cells: LinkMatrix) -> LinkMatrix:
        return tuple(tuple(cells[i][j] for j in order) for i in order) if cells else ()

    return replace(
        snapshot,
        devices=tuple(replace(snapshot.devices[old], index=new) for new, old in enumerate(order)),
        links=moved(snapshot.links),
        pcie=moved(snapshot.pcie),
        peers=moved(snapshot.peers),
    )


def strong(snapshot: Snapshot, one: int, other: int) -> tuple[int, ...]:
    """The strength of a link: known at all, usable at all, the kind, the number of links."""
    word, peer = snapshot.links[one][other], snapshot.peers[one][other]
    if word is None:
        return (0,)
    usable = int(peer == "OK")
    return (1, usable, PCIE.index(word), 0) if word in PCIE else (1, usable, len(PCIE), int(word[2:]))


def best_ring(rank: Rank, members: Sequence[int]) -> Any:
    """The weakest link of the best ring through all members: every ring is tried."""
    first, *rest = members
    return max(
        min(rank(a, b) for a, b in zip((first, *way), (*way, first), strict=True))
        for way in permutations(rest)
    )


def best_chain(rank: Rank, members: Sequence[int]) -> Any:
    """The weakest link of the best chain through all members: every chain is tried."""
    return max(min(rank(a, b) for a, b in pairwise(way)) for way in permutations(members))


def partitions(members: Sequence[int], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to part the members into sets of `size`."""
    if not members:
        yield ()
        return
    for others in combinations(members[1:], size - 1):
        part = (members[0], *others)
        for rest in partitions([i for i in members if i not in part], size):
            yield (part, *rest)


def weakest_of(rank: Rank, members: Sequence[int], job: Grouping) -> Any:
    """The weakest link that the job runs over in the best use of the members, None for none."""
    if job.independent or len(members) < 2:
        return None
    if job.tensor > 1:
        size, of = job.tensor, best_ring
    elif job.pipeline > 1:
        size, of = job.pipeline, best_chain
    else:
        size, of = len(members), best_ring
    worth = {part: of(rank, part) for part in combinations(sorted(members), size)}
    return max(min(worth[part] for part in parts) for parts in partitions(sorted(members), size))


def worth_of(snapshot: Snapshot, one: int, other: int) -> int:
    """The score of NVIDIA's go-gpuallocator: the PCIe class, and 100 for each NVLink."""
    word = snapshot.links[one][other] or ""
    under = snapshot.pcie[one][other] if snapshot.pcie else None
    nvlinks = int(word[2:]) if word.startswith("NV") else 0
    classes = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}
    return classes.get(under or word, 0) + 100 * nvlinks


def nodes_of(snapshot: Snapshot, candidates: Sequence[int]) -> dict[int, Any]:
    """The NUMA node of each device: by its number, or by a link nearer than SYS where one of two has none."""
    told = {i: snapshot.devices[i].numa_node for i in candidates}

    def together(one: int, other: int) -> bool:
        if None not in (told[one], told[other]):
            return told[one] == told[other]
        return bool(snapshot.pcie) and snapshot.pcie[one][other] in PCIE[1:]

    node: dict[int, Any] = {}
    for start in candidates:
        alternatives = [] if start in node else [start]
        while alternatives:
            here = alternatives.pop()
            node[here] = start
            alternatives += [i for i in candidates if i not in node and together(here, i)]
    return node


def keys_of(snapshot: Snapshot, candidates: Sequence[int], job: Grouping) -> Callable[[Sequence[int]], Key]:
    """The keys by which sets are compared, larger is better, without the lowest numbers."""
    nodes = nodes_of(snapshot, candidates)
    worth = {pair: worth_of(snapshot, *pair) for pair in combinations(candidates, 2)}
    devices = snapshot.devices
    names = [devices[i].name for i in candidates]
    # A device of an unknown model is like no other.
    unlike = len(names) > 1 and (len(set(names)) > 1 or None in names)
    # The models of these boxes, the slowest first.
    slowest_first = (None, "NVIDIA A100", "NVIDIA L4", "NVIDIA H100 80GB HBM3")

    def slow(chosen: Sequence[int]) -> Key:
        return tuple(-sum(devices[i].name == name for i in chosen) for name in slowest_first)

    def least(chosen: Sequence[int]) -> int:
        # Free memory of these boxes: 80 GiB, or 300 MiB less; half of that; unknown.
        return min((devices[i].memory_free or 0) // (39 * GIB) for i in chosen)

    def total(some: Sequence[int]) -> int:
        return sum(worth[pair] for pair in combinations(some, 2))

    def key(chosen: Sequence[int]) -> Key:
        weakest = weakest_of(lambda a, b: strong(snapshot, a, b), chosen, job)
        left = total([i for i in candidates if i not in chosen])
        memory = sum(round((devices[i].memory_free or 0) / GIB) for i in chosen)
        shown = -sum(bool(devices[i].display) for i in chosen)
        last: Key = (least(chosen), slow(chosen), left, shown, memory) if unlike else (left, shown, memory)
        if job.independent:
            return (weakest, *last)
        return (weakest, total(chosen), -len({nodes[i] for i in chosen}), *last)

    return key


def every_set(
    snapshot: Snapshot, candidates: Sequence[int], count: int, job: Grouping, required: Collection[int] = ()
) -> list[tuple[Key, tuple[int, ...]]]:
    """Every set with its key, the best first; of equal sets the one with the lowest numbers first."""
    key = keys_of(snapshot, candidates, job)
    every = [
        (key(chosen), tuple(-i for i in chosen))
        for chosen in combinations(candidates, count)
        if set(required) <= set(chosen)
    ]
    return [(key, tuple(-i for i in chosen)) for key, chosen in sorted(every, reverse=True)]


@st.composite
def jobs_and_counts(draw: st.DrawFn, jobs: Sequence[Grouping], most: int) -> tuple[Grouping, int]:
    """A job and a number of devices that it fits."""
    job = draw(st.sampled_from([job for job in jobs if job.unit <= most]))
    return job, job.unit * draw(st.integers(1, most // job.unit))
