"""The time to plan all strategies of a model, and the slowest of all families."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from bench.report import row
from gputui.inventory.light_dataclasses import replace
from gputui.planning.box import Box
from gputui.planning.closed_forms import FAMILIES, closed_form
from gputui.planning.fields import Fields
from gputui.planning.model import PlanningError
from gputui.planning.serving import ENGINES, Serving
from gputui.planning.serving_plan import plan_for
from gputui.planning.workload import Workload

_TIMES = 5
_REMEDIED = Workload(64, 8192, "autocast")
"""A plan seeks remedies for it."""


def rows() -> Iterator[str]:
    for count in (8, 72):
        box = _box(count)
        slowest = max(_milliseconds(kind, box) for kind in FAMILIES)
        yield row(f"plan, {count} devices, the slowest family", f"{slowest:.1f} ms", budget="at most 20 ms")
    box = replace(_box(8), memory_total=24 * 1024**3)
    slowest = max(_milliseconds(kind, box, Serving(name)) for kind in FAMILIES for name in ENGINES)
    yield row("plan of a server, 8 devices, the slowest family", f"{slowest:.1f} ms", budget="at most 20 ms")


def _box(count: int) -> Box:
    return Box(
        uuids=tuple(f"GPU-{place}" for place in range(count)),
        memory_free=(24 * 1024**3,) * count,
        links=tuple(tuple("X" if i == j else "NV18" for j in range(count)) for i in range(count)),
        bandwidths=tuple(tuple(None if i == j else 370.8 for j in range(count)) for i in range(count)),
    )


def _milliseconds(kind: str, box: Box, work: Workload | Serving = _REMEDIED) -> float:
    """The best of several times, with the closed form."""
    took = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        with suppress(PlanningError):  # an encoder is not served
            plan_for(closed_form(Fields({"model_type": kind}, "config.json"), kind), work, box)
        took.append(1000 * (time.perf_counter() - began))
    return min(took)
