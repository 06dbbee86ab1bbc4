"""Which devices to take, and in which order: those that can be had, and of them the best. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gputui.choosing.best import MOST, Best, as_ordered, best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import MEASURES, Order, measured
from gputui.choosing.verdict import Verdict
from gputui.inventory.device import Device
from gputui.inventory.formatting import size
from gputui.inventory.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Constraints:
    """What is asked for: `count` devices, each with at least `min_free` bytes free and at most `max_util` %.

    `within` limits the choice to these keys, None to nothing; devices outside are not "short", just not ours.
    `job` is what they will do; `order` how they are to stand: by the fastest or the emptiest first it also
    decides which are taken. `required` are taken in any case; `most` sets are told. `never` are not taken;
    `prefer` are taken before others, the first of them first, and links decide among equals only.
    """

    count: int = 1
    min_free: int | None = None
    max_util: int | None = None
    within: Collection[str] | None = None
    job: Grouping = ALL_REDUCE
    order: Order = "best"
    required: Collection[str] = ()
    most: int = MOST
    never: Collection[str] = ()
    prefer: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Picked:
    """The answer: enough devices, in order; or too few, and then why each of the others is not one.

    `alternatives` are the best sets, the taken one first; () where there are too few.
    """

    devices: tuple[Device, ...]
    refused: tuple[tuple[Device, str], ...]
    alternatives: tuple[Best, ...] = ()

    def enough(self, constraints: Constraints) -> bool:
        return len(self.devices) >= constraints.count


def available(snapshot: Snapshot, verdicts: Mapping[str, Verdict], constraints: Constraints) -> Picked:
    """Every device that can be had, in the box's order, and why the others cannot."""
    good: list[Device] = []
    refused: list[tuple[Device, str]] = []
    for device in snapshot.devices:
        if device.key not in constraints.required:
            if constraints.within is not None and device.key not in constraints.within:
                continue
            why = _why_not(device, verdicts[device.key], constraints)
            if why:
                refused.append((device, why))
                continue
        good.append(device)
    vendor = _vendor_taken(good, constraints)
    others = [device for device in good if device.vendor != vendor]
    refused += [(device, f"free, but a command runs on one vendor's devices ({vendor})") for device in others]
    return Picked(tuple(device for device in good if device.vendor == vendor), tuple(refused))


def _vendor_taken(good: Sequence[Device], constraints: Constraints) -> str | None:
    """Of several vendors the one of the required devices, else the first that has enough, else the most."""
    counts = Counter(device.vendor for device in good)
    required = [device.vendor for device in good if device.key in constraints.required]
    enough = [vendor for vendor, count in counts.items() if count >= constraints.count]
    return next(iter((*required, *enough)), None) or max(counts, key=lambda name: counts[name], default=None)


def pick(snapshot: Snapshot, verdicts: Mapping[str, Verdict], constraints: Constraints) -> Picked:
    """The best `wish.count` devices, or all that would do when there are not as many."""
    there = available(snapshot, verdicts, constraints)
    if not there.enough(constraints):
        return there
    candidates = there.devices
    required = set(constraints.required)
    measure = MEASURES.get(constraints.order) or (
        _preference(constraints.prefer) if constraints.prefer else None
    )
    if measure is not None:
        # All that are faster (emptier) than the last one taken, and of those like it the best joined.
        last = sorted(map(measure, candidates))[constraints.count - 1]
        required |= {device.key for device in candidates if measure(device) < last}
        candidates = tuple(d for d in candidates if measure(d) <= last or d.key in constraints.required)
        required = set(constraints.required) if len(required) > constraints.count else required
    alternatives = best(snapshot, candidates, constraints.count, constraints.job, required, constraints.most)
    if not alternatives:
        return Picked((), there.refused)
    if constraints.order == "best":
        return Picked(alternatives[0].devices, there.refused, alternatives)
    chosen = tuple(sorted(alternatives[0].devices, key=candidates.index))
    if constraints.order in MEASURES:
        chosen = measured(constraints.order, chosen)
    return Picked(
        chosen,
        there.refused,
        (as_ordered(snapshot, there.devices, chosen, constraints.job), *alternatives[1:]),
    )


def _preference(prefer: Sequence[str]) -> Callable[[Device], tuple[int, ...]]:
    """A device's place in the list of those that are to be taken first."""
    places = {key: place for place, key in enumerate(prefer)}
    return lambda device: (places.get(device.key, len(places)),)


def _why_not(device: Device, verdict: Verdict, constraints: Constraints) -> str | None:
    if not verdict.free:
        return f"{verdict.state}: {verdict.reason}"
    if device.key in constraints.never:
        return "free, but never taken (your settings, --never)"
    if device.parent is not None and constraints.count > 1:
        return "a MIG instance: a process can use one only"
    if constraints.min_free is not None and (
        device.memory_free is None or device.memory_free < constraints.min_free
    ):
        free = "unknown" if device.memory_free is None else size(device.memory_free)
        return f"{free} free, less than {size(constraints.min_free)}"
    if constraints.max_util is not None and (
        device.utilization is None or device.utilization > constraints.max_util
    ):
        return f"utilization {'unknown' if device.utilization is None else f'{device.utilization} %'}"
    return None
