"""The most devices of a box that a job could get if nobody used any. Pure.

Waiting for more devices is useless, and a job that waits for more does not hold up others.
"""

from __future__ import annotations

from gputui.choosing.pick import Constraints, available
from gputui.choosing.verdict import Divided, Idle, Verdict
from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter


def most_ever(snapshot: Snapshot, constraints: Constraints) -> int:
    """The number of devices that meet the constraints when empty. A GPU in MIG mode is never given out."""
    constraints = replace(constraints, max_util=None)
    empty = tuple(
        replace(device, memory_free=_memory_of(device, constraints.min_free)) for device in snapshot.devices
    )
    as_free = {
        device.key: Verdict("busy", Divided(0)) if device.mig else Verdict("free", Idle()) for device in empty
    }
    return len(available(replace(snapshot, devices=empty), as_free, constraints).devices)


def can_never_start(waiter: Waiter, snapshot: Snapshot | None) -> bool:
    """Whether a waiting job asks for more devices than the box has, or for devices that it does not have.

    Every process on the box gets the same answer: devices that are in use, lost or prohibited may become
    available later. MIG instances do not count where several devices are asked for without names: a process
    can use one instance only.
    """
    if snapshot is None or not snapshot.devices:
        return False
    could = [
        device
        for device in snapshot.devices
        # A device whose UUID cannot be read now may be any device.
        if not device.mig
        and (waiter.wants_of([device.key]) or not device.uuid)
        and (waiter.devices is not None or waiter.count == 1 or not device.parent)
    ]
    return len(could) < waiter.count


def waits_for_ever(count: int, can: int) -> str:
    """The text that waiting for `count` devices does not help where at most `can` could be had."""
    would = f"only {devices_text(can)} here" if can else "no device here"
    return (
        f"{devices_text(count)} asked for, but {would} would do, even if all were free: waiting does not help"
    )


def _memory_of(device: Device, asked: int | None) -> int | None:
    """The free memory of an empty device in bytes; the amount asked for where its total is not known."""
    return asked if device.memory_total is None else device.memory_total
