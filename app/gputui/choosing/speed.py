"""Compares the speed and the memory of devices of several models. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.device import Device, one_model
from gputui.inventory.formatting import short_name, size


def slowness(device: Device) -> tuple[int, ...]:
    """A sort key, fastest first: compute capability, then cores times clock. Unknown counts as slowest."""
    major, minor = device.capability or (0, 0)
    return -major, -minor, -(device.cores or 0) * (device.max_sm_clock or 0)


def unlike(devices: Sequence[Device]) -> str | None:
    """What devices of several models mean for a program that runs on all of them; None for one model, or
    where the models are not known."""
    models = [*dict.fromkeys(short_name(device.name) for device in devices if device.name)]
    if len(models) < 2:
        return None
    memory = {device.memory_total for device in devices if device.memory_total is not None}
    limit = f", {size(min(memory))} memory the limit" if len(memory) > 1 else ""
    return f"unlike devices: the slowest sets the pace{limit} ({', '.join(models)})"


_AS_MUCH = 0.9
"""A device with at least this share of another's free memory counts as equal: 22 of 24 GiB do."""


def memory_tiers(devices: Sequence[Device], free_gib: Sequence[int]) -> tuple[int, ...]:
    """A number for each device: 0 for the most free memory, -1 for clearly less, and so on.

    All 0 where they are of one model: memory in use on one of them is no reason to take another model.
    """
    if one_model(devices):
        return (0,) * len(devices)
    found: dict[int, int] = {}
    tier, before = 0, max(free_gib)
    for free in sorted(set(free_gib), reverse=True):
        tier -= free < _AS_MUCH * before
        found[free], before = tier, free
    return tuple(found[free] for free in free_gib)


def slowness_weights(devices: Sequence[Device]) -> tuple[int, ...]:
    """A number for each device: the slower its model, the larger. All 0 if they are of one model.

    Of all sets with the same number of devices, the one with the smallest sum has the fewest devices of the
    slowest model, then the fewest of the second slowest, and so on. Devices of one model count as equally
    fast, whatever clock their makers gave them. A device of an unknown model counts as a model of its own.
    """
    if one_model(devices):
        return (0,) * len(devices)
    models: dict[str, tuple[int, ...]] = {}
    names = [device.name or device.key for device in devices]
    for name, device in zip(names, devices, strict=True):
        models[name] = min(models.get(name, slowness(device)), slowness(device))
    classes = sorted(set(models.values()))
    # The base is larger than any number of devices, so one slower device outweighs all faster ones.
    return tuple((len(devices) + 1) ** classes.index(models[name]) for name in names)
