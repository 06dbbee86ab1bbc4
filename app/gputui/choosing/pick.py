"""Which free devices to take: free by verdict, most free memory, lowest index. Pure.

(The best connected set is to follow; this is the rule without links.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gputui.choosing.verdict import Verdict
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.wording import GIB, size


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: `count` devices, each with at least `min_free` bytes free and at most `max_util` %.

    `within` limits the choice to these keys, None to nothing; devices outside are not "short", just not ours.
    """

    count: int = 1
    min_free: int | None = None
    max_util: int | None = None
    within: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Picked:
    """The answer: enough devices, in order; or too few, and then why each of the others is not one."""

    devices: tuple[Device, ...]
    refused: tuple[tuple[Device, str], ...]

    def enough(self, wish: Wish) -> bool:
        return len(self.devices) >= wish.count


def pick(snapshot: Snapshot, verdicts: Mapping[str, Verdict], wish: Wish) -> Picked:
    """The best `wish.count` devices, or all that would do when there are not as many."""
    good: list[Device] = []
    refused: list[tuple[Device, str]] = []
    for device in snapshot.devices:
        if wish.within is not None and device.key not in wish.within:
            continue
        why = _why_not(device, verdicts[device.key], wish)
        if why:
            refused.append((device, why))
        else:
            good.append(device)
    return Picked(tuple(sorted(good, key=_preference)[: wish.count]), tuple(refused))


def _preference(device: Device) -> int:
    # To the nearest GiB: a few MiB that a driver keeps on one of two equal GPUs are no reason for an order.
    # The sort is stable, so that of equals the lowest index comes first.
    return -round((device.memory_free or 0) / GIB)


def _why_not(device: Device, verdict: Verdict, wish: Wish) -> str | None:
    if not verdict.free:
        return f"{verdict.state}: {verdict.reason}"
    if device.parent is not None and wish.count > 1:
        return "a MIG instance: a process can use one only"
    if wish.min_free is not None and (device.memory_free is None or device.memory_free < wish.min_free):
        free = "unknown" if device.memory_free is None else size(device.memory_free)
        return f"{free} free, less than {size(wish.min_free)}"
    if wish.max_util is not None and (device.utilization is None or device.utilization > wish.max_util):
        return f"utilization {'unknown' if device.utilization is None else f'{device.utilization} %'}"
    return None
