"""Picks the best of the devices that are free and meet the constraints. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from gputui.choosing.best import MAX_ALTERNATIVES, Alternative, best, describe_order
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import SORT_KEYS, Order, sorted_by
from gputui.choosing.speed import slowness_weights
from gputui.choosing.verdict import Verdict, Verdicts
from gputui.inventory.device import GROUP_SIZES, Among, Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot


@frozen
class Constraints:
    """The constraints of a request for devices.

    count      how many devices
    min_free   bytes that must be free on each
    max_util   the largest utilization of each, in percent
    within     the keys of the devices that may be picked, None for all; others are not listed as refused
    grouping   how the devices will work together, which decides which links matter
    order      the order of the devices; "fastest" and "emptiest" also decide which devices are picked
    required   keys of devices that are always picked
    limit      the maximum number of alternatives that are returned
    never      keys of devices that are not picked
    vendor     the vendor whose devices may be picked, None for any single vendor; others are not listed
    prefer     keys of devices that are picked before others, in this order; links decide among equals
    listed     keys in the order of the list that gputui was started with, kept where no other order is better
    """

    count: int = 1
    min_free: int | None = None
    max_util: int | None = None
    within: Among = None
    grouping: Grouping = ALL_REDUCE
    order: Order = "best"
    required: Collection[str] = ()
    limit: int = MAX_ALTERNATIVES
    never: Collection[str] = ()
    prefer: Sequence[str] = ()
    listed: Sequence[str] = ()
    vendor: str | None = None


class NeverTaken(NamedTuple):
    """The rules say that this device is never taken."""


class SingleInstance(NamedTuple):
    """The device is a MIG instance, but several devices are required: a process can use one instance only."""


class TooLittleMemory(NamedTuple):
    """`free` bytes are free, None where that is not known, but `least` are required."""

    free: int | None
    least: int


class TooMuchLoad(NamedTuple):
    """The utilization is `percent`, None where that is not known, but at most `limit` is allowed."""

    percent: int | None
    limit: int


class OtherVendor(NamedTuple):
    """The device is free, but a command runs on devices of one vendor, and those of `vendor` are picked."""

    vendor: str


class OutsideGroup(NamedTuple):
    """The device is free, but it works with others only in aligned groups of 2, 4 or 8, and no group of
    `size` is free."""

    size: int


Refusal = Verdict | OutsideGroup | NeverTaken | SingleInstance | TooLittleMemory | TooMuchLoad | OtherVendor
"""Why a device is not picked: its verdict, or a constraint. `verdict_text.refusal` makes the text."""

Refusals = tuple[tuple[Device, Refusal], ...]
"""Devices that are not picked, each with its refusal."""


@frozen
class PickResult:
    """Enough devices, in order, or all that meet the constraints, and why each of the others is refused.

    `alternatives` are the best sets, the picked one first; () where there are too few devices.
    """

    devices: tuple[Device, ...]
    refused: Refusals
    alternatives: tuple[Alternative, ...] = ()

    def enough(self, constraints: Constraints) -> bool:
        return len(self.devices) >= constraints.count


def of_own_lease(snapshot: Snapshot, within: Among) -> set[str] | None:
    """The keys of the devices to pick from, None for all: inside a lease, only the devices of the lease.

    `within` are the keys to choose among, None for all. Where none of them is in the lease, the user has
    explicitly asked for other devices, and may have them.
    """
    if not snapshot.own_lease:
        return None if within is None else set(within)
    own = set(snapshot.own_lease)
    return own if within is None else (own & set(within) or set(within))


def available(snapshot: Snapshot, verdicts: Verdicts, constraints: Constraints) -> PickResult:
    """All devices that are free and meet the constraints, and why each of the others is refused.

    They are in the order that they keep where no other order is better: the order of the list that gputui was
    started with, else the fastest model first, else the box's order.
    """
    good: list[Device] = []
    refused: list[tuple[Device, Refusal]] = []
    for device in snapshot.devices:
        if device.index < 0 or constraints.vendor not in (None, device.vendor):
            continue
        if device.key not in constraints.required:
            if constraints.within is not None and device.key not in constraints.within:
                continue
            why = _why_not(snapshot, device, verdicts[device.key], constraints)
            if why is not None:
                refused.append((device, why))
                continue
        good.append(device)
    vendor = _vendor_taken(good, constraints)
    if vendor is not None:
        refused += [(device, OtherVendor(vendor)) for device in good if device.vendor != vendor]
    good = [device for device in good if device.vendor == vendor]
    if constraints.listed:
        good.sort(key=_preference(constraints.listed))
    elif constraints.order != "given" and good:
        slowness = dict(zip((device.key for device in good), slowness_weights(good), strict=True))
        good.sort(key=lambda device: slowness[device.key])
    return PickResult(tuple(good), tuple(refused))


def _vendor_taken(good: Sequence[Device], constraints: Constraints) -> str | None:
    """The vendor to pick from: that of the required devices, else the first with enough, else the most."""
    counts = Counter(device.vendor for device in good)
    required = [device.vendor for device in good if device.key in constraints.required]
    enough = [vendor for vendor, count in counts.items() if count >= constraints.count]
    return next(iter((*required, *enough)), None) or max(counts, key=lambda name: counts[name], default=None)


def pick(snapshot: Snapshot, verdicts: Verdicts, constraints: Constraints) -> PickResult:
    """The best `constraints.count` devices, or all that are available where there are fewer."""
    found = available(snapshot, verdicts, constraints)
    if not found.enough(constraints):
        return found
    candidates = found.devices
    if _works_in_groups(candidates, constraints):
        return _pick_group(snapshot, found, constraints)
    required = set(constraints.required)
    sort_key = SORT_KEYS.get(constraints.order) or (
        _preference(constraints.prefer) if constraints.prefer else None
    )
    if sort_key is not None:
        # All devices better than the last one picked are required; links decide among those equal to it.
        last = sorted(map(sort_key, candidates))[constraints.count - 1]
        required |= {device.key for device in candidates if sort_key(device) < last}
        candidates = tuple(d for d in candidates if sort_key(d) <= last or d.key in constraints.required)
        required = set(constraints.required) if len(required) > constraints.count else required
    alternatives = best(
        snapshot, candidates, constraints.count, constraints.grouping, required, constraints.limit
    )
    if not alternatives:
        return PickResult((), found.refused)
    if constraints.order == "best":
        return PickResult(alternatives[0].devices, found.refused, alternatives)
    picked = tuple(sorted(alternatives[0].devices, key=candidates.index))
    if constraints.order in SORT_KEYS:
        picked = sorted_by(constraints.order, picked)
    return PickResult(
        picked,
        found.refused,
        (describe_order(snapshot, found.devices, picked, constraints.grouping), *alternatives[1:]),
    )


def _works_in_groups(candidates: Sequence[Device], constraints: Constraints) -> bool:
    return constraints.count > 1 and any(device.module is not None for device in candidates)


def _pick_group(snapshot: Snapshot, found: PickResult, constraints: Constraints) -> PickResult:
    """The best aligned group: with all required devices, then with the most preferred devices, then the one
    that leaves the largest groups to others."""
    count, candidates = constraints.count, found.devices
    by_module = {device.module: device for device in candidates if device.module is not None}
    starts = range(0, max(by_module, default=0) + 1, count) if count in GROUP_SIZES else ()
    ranges = [range(start, start + count) for start in starts]
    whole = [modules for modules in ranges if all(module in by_module for module in modules)]
    groups = [tuple(by_module[module] for module in modules) for modules in whole]
    groups = [group for group in groups if set(constraints.required) <= {device.key for device in group}]
    if not groups:
        refused = (*found.refused, *((device, OutsideGroup(count)) for device in candidates))
        return PickResult((), refused)

    def around(group: Sequence[Device]) -> tuple[int, ...]:
        module = group[0].module or 0
        liked = sum(device.key in constraints.prefer for device in group)
        free = (
            sum(start <= other < start + size for other in by_module)
            for size in GROUP_SIZES
            for start in (module // size * size,)
        )
        return (-liked, *free, module)

    groups = sorted(groups, key=around)[: constraints.limit]
    alternatives = tuple(
        describe_order(snapshot, candidates, group, constraints.grouping) for group in groups
    )
    return PickResult(groups[0], found.refused, alternatives)


def _preference(prefer: Sequence[str]) -> Callable[[Device], tuple[int, ...]]:
    """The sort key that places preferred devices first, in their own order."""
    places = {key: place for place, key in enumerate(prefer)}
    return lambda device: (places.get(device.key, len(places)),)


def _why_not(
    snapshot: Snapshot, device: Device, verdict: Verdict, constraints: Constraints
) -> Refusal | None:
    """Why a device cannot be picked, None where it can be picked."""
    if not verdict.free:
        return verdict
    if device.key in constraints.never:
        return NeverTaken()
    if device.parent is not None and constraints.count > 1:
        return SingleInstance()
    return unmet(snapshot, device, constraints.min_free, constraints.max_util)


def unmet(
    snapshot: Snapshot, device: Device, min_free: int | None, max_util: int | None
) -> TooLittleMemory | TooMuchLoad | None:
    """The condition that a device does not meet now, None where it meets both."""
    if min_free is not None:
        free = snapshot.memory_free(device)
        if free is None or free < min_free:
            return TooLittleMemory(free, min_free)
    if max_util is not None and (device.utilization is None or device.utilization > max_util):
        return TooMuchLoad(device.utilization, max_util)
    return None
