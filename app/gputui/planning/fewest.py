"""The least number of devices that a training run needs, for `-n auto`. Pure.

The strategies are those that a file for accelerate or DeepSpeed applies to any training program: replicas,
ZeRO, FSDP. Tensor parallelism and pipelines need a program that is made for them, and the host's memory is
slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.choosing.best import best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.device import GROUP_SIZES, Device
from gputui.inventory.formatting import devices_text, size
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.planning.box import Box, box_of
from gputui.planning.memory import needed
from gputui.planning.model import Model
from gputui.planning.serving import Serving
from gputui.planning.serving_plan import serving_plan
from gputui.planning.strategies import Strategy, for_any_program
from gputui.planning.workload import Workload

_NEVER = 1 << 62
"""More bytes than any device has."""


@frozen
class Fewest:
    """Sufficient devices, in order. `strategy` needs the least of each device: `needed` bytes."""

    devices: tuple[Device, ...]
    strategy: Strategy
    needed: int

    @property
    def words(self) -> str:
        """ "2 devices, fsdp2 needs 12.0G of each"."""
        each = " of each" if len(self.devices) > 1 else ""
        return f"{devices_text(len(self.devices))}, {self.strategy.name} needs {size(self.needed)}{each}"


def fewest(
    model: Model,
    workload: Workload | Serving,
    snapshot: Snapshot,
    candidates: Sequence[Device],
    grouping: Grouping = ALL_REDUCE,
    counts: Iterable[int] | None = None,
) -> Fewest | None:
    """The smallest sufficient set of the candidates (in the box's order), the best connected of its size.

    `snapshot` has their links. `counts` are the possible numbers of devices, None for all; a number that does
    not fit the grouping is skipped. None where no set suffices. Raises PlanningError as `needed` does.
    """
    if isinstance(workload, Workload):
        workload = workload.for_model(model)
    known = [device for device in candidates if snapshot.memory_free(device) is not None]
    neighbours = any(device.module is not None for device in known)
    for count in range(1, len(known) + 1) if counts is None else counts:
        if not 1 <= count <= len(known) or not grouping.fits(count):
            continue
        if neighbours and count > 1 and count not in GROUP_SIZES:
            continue
        # A process can use one MIG instance only.
        able = known if count == 1 else [device for device in known if device.parent is None]
        found = _of(model, workload, snapshot, able, grouping, count)
        if found is not None:
            return found
    return None


def _of(
    model: Model,
    workload: Workload | Serving,
    snapshot: Snapshot,
    known: Sequence[Device],
    grouping: Grouping,
    count: int,
) -> Fewest | None:
    """The best set of `count` devices that have the memory; None where there is none."""
    least = _least(model, workload, count)
    while True:
        # The search for the best set of many devices takes longest, so devices that cannot fit are left out.
        roomy = [device for device in known if (snapshot.memory_free(device) or 0) >= least]
        sets = best(snapshot, roomy, count, grouping, limit=1) if len(roomy) >= count else ()
        if not sets:
            return None
        devices = sets[0].devices
        strategy, need = cheapest(model, workload, box_of(snapshot, devices))
        if all((snapshot.memory_free(device) or 0) >= need for device in devices):
            return Fewest(devices, strategy, need)
        if need <= least:
            return None
        least = need


def _served(model: Model, serving: Serving, box: Box) -> tuple[Strategy, int]:
    """The first way to serve on all devices of the box that fits, and the bytes that must be free; more than
    any device has where there is none."""
    count = len(box)
    for row in serving_plan(model, serving, box).rows if serving.sizes(model, count) else ():
        # A command that says its sizes may start several replicas; it does not say stages by itself.
        all_used = serving.tensor is not None or row.strategy.devices == count
        stages = row.strategy.pipeline_parallel
        if row.fits and all_used and (stages == (serving.pipeline or 1) or serving.of.layers):
            return row.strategy, int(serving.taken * box.memory_total) or row.bytes.total
    return Strategy("serve", count), _NEVER


def cheapest(model: Model, workload: Workload | Serving, box: Box) -> tuple[Strategy, int]:
    """The strategy on all devices of the box that needs the least of each, and its bytes."""
    if isinstance(workload, Serving):
        return _served(model, workload, box)
    return _cheapest(model, workload, len(box), box.fixed(len(box)))


def _cheapest(model: Model, workload: Workload, count: int, fixed: int) -> tuple[Strategy, int]:
    workload, able = workload.on(count), for_any_program(count)
    amounts = [needed(model, workload, each, fixed).total for each in able]
    least = min(range(len(able)), key=amounts.__getitem__)
    return able[least], amounts[least]


def _least(model: Model, workload: Workload | Serving, count: int) -> int:
    """The bytes that must be free on each of `count` devices, whichever they are; more than any device has
    where no number of free bytes is enough."""
    if isinstance(workload, Serving):
        return 0 if workload.sizes(model, count) else _NEVER
    return _cheapest(model, workload, count, 0)[1]
