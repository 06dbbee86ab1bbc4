"""The time to choose the best set, and the distance of the quick search for large boxes from the best set."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.report import row
from gputui.choosing import sets
from gputui.choosing.best import best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.pair_scores import PairScores
from gputui.choosing.sets import RankedSet, approximate, ranked
from gputui.inventory.link import LinkMatrix
from gputui.inventory.matrix_text import Printed, read
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import sockets

TOPOLOGIES = sorted((Path(__file__).parents[1] / "data" / "topologies").glob("*.txt"))
JOBS = (
    ALL_REDUCE,
    Grouping(tensor=2),
    Grouping(tensor=4),
    Grouping(tensor=2, pipeline=2),
    Grouping(pipeline=4),
)
WORDS = ("SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV4", "NV12")


def rows() -> Iterator[str]:
    """The times, and the distances from the optimum."""
    recorded = [_box(read(file.read_text())) for file in TOPOLOGIES]
    chance = random.Random(16)
    anything = [_random(chance, 16) for _ in range(5)]
    yield _timed("best of recorded boxes, every n and job", recorded, "at most 50 ms")
    yield _timed("best of 16 at random, every n and job, exact", anything, "at most 50 ms")
    yield _timed("best of 16 behind NVSwitches", [_box(_made((16,), "NV18", "SYS"))], "at most 50 ms")
    large = [_box(_made((36, 36), "NV18", "SYS")), _box(_made((4,) * 18, "NV18", "PIX")), _random(chance, 72)]
    yield _timed("best of 72, some n", large, "at most 200 ms", counts=(2, 4, 8, 16, 32, 36, 64, 72))
    twenty = [_random(chance, 20) for _ in range(2)]
    for name, boxes in (("recorded", recorded), ("20 at random", twenty)):
        weakest, worth, tried = _distances(boxes)
        yield row(
            f"quick search, {name}: weakest link as good",
            f"{100 * weakest / tried:.0f} %",
            f"of {tried} choices",
        )
        yield row(
            f"quick search, {name}: sum of links, mean, worst",
            f"{100 * statistics.mean(worth):.1f}, {100 * min(worth):.0f} %",
            "of the best's",
        )


def _timed(what: str, boxes: list[Snapshot], budget: str, counts: tuple[int, ...] | None = None) -> str:
    taken = []
    for snapshot in boxes:
        for count in counts or range(1, len(snapshot.devices) + 1):
            for job in JOBS:
                if count <= len(snapshot.devices) and job.fits(count):
                    began = time.perf_counter()
                    best(snapshot, snapshot.devices, count, job)
                    taken.append(time.perf_counter() - began)
    median, worst = statistics.median(taken) * 1000, max(taken) * 1000
    return row(f"{what}: median, worst", f"{median:.1f}, {worst:.0f} ms", f"{len(taken)} choices", budget)


def _distances(boxes: list[Snapshot]) -> tuple[int, list[float], int]:
    """The number of cases in which the quick search finds the best weakest link, its share of the best sum in
    each of these, and the number of cases."""
    same, worth, tried = 0, [], 0
    for snapshot in boxes:
        pairs = PairScores.of(snapshot, snapshot.devices)
        for count in range(2, min(12, len(pairs)) + 1):
            for job in JOBS:
                if not job.fits(count):
                    continue
                tried += 1
                # The exact search has no limit but its time.
                exact, quick = next(_exactly(pairs, count, job)), next(approximate(pairs, count, job))
                if exact.weakest == quick.weakest:
                    same += 1
                    worth.append(
                        pairs.score_within(quick.members) / max(1, pairs.score_within(exact.members))
                    )
    return same, worth, tried


def _exactly(pairs: PairScores, count: int, job: Grouping) -> Iterator[RankedSet]:
    """The best set of a box, also where the program itself would not look at every set."""
    before, sets.MAX_EXACT = sets.MAX_EXACT, 20
    try:
        yield next(ranked(pairs, count, job))
    finally:
        sets.MAX_EXACT = before


def _box(printed: Printed) -> Snapshot:
    return at(box_of(printed, "bench"), 0.0, 0.0)


def _made(sizes: tuple[int, ...], inside: str, across: str) -> Printed:
    """A box of groups of GPUs."""
    count = sum(sizes)
    return Printed(
        tuple(f"GPU{n}" for n in range(count)), sockets(sizes, inside, across), (Locality((), ()),) * count
    )


def _random(chance: random.Random, count: int) -> Snapshot:
    """A box in which each pair is joined by a random link."""
    cells = [["X"] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            cells[i][j] = cells[j][i] = chance.choice(WORDS)
    links: LinkMatrix = tuple(map(tuple, cells))
    # No real box is like that. The simulated driver could not show it, but choosing accepts it.
    whole = _box(_made((count,), "PHB", "PHB"))
    return replace(whole, links=links, pcie=links, peers=())
