"""The most devices of a box that a job could get if nobody used any. Pure.

Waiting for more devices is useless, and a job that waits for more does not hold up others.
"""

from __future__ import annotations

from gputui.choosing.pick import Constraints, available
from gputui.choosing.verdict import Divided, Idle, Verdict
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter


def most_ever(snapshot: Snapshot, constraints: Constraints) -> int:
    """The number of devices that meet the constraints when empty. A GPU in MIG mode is never given out."""
    constraints = replace(constraints, max_util=None)
    empty = tuple(
        # The amount asked for where the total is not known.
        replace(device, memory_free=device.memory_total or constraints.min_free)
        for device in snapshot.devices
    )
    as_free = {
        device.key: Verdict("busy", Divided(0)) if device.mig else Verdict("free", Idle()) for device in empty
    }
    return len(available(replace(snapshot, devices=empty), as_free, constraints).devices)


def can_never_start(waiter: Waiter, snapshot: Snapshot | None) -> bool:
    """Whether a waiting job asks for more devices than the box has, for devices that it does not have, or for
    more memory on each than they have.

    Every process on the box gets the same answer: devices that are in use, lost or prohibited may become
    available later.
    """
    if snapshot is None or not snapshot.devices:
        return False
    # A device whose UUID cannot be read now may be any device.
    could = sum(
        not device.mig
        and (would_do(waiter, device) or (not device.uuid and _is_large_enough(waiter, device)))
        for device in snapshot.devices
    )
    return could < waiter.count


def would_do(waiter: Waiter, device: Device) -> bool:
    """Whether a waiting job asks for such a device. No MIG instance is one of several devices, unless it is
    named: a process can use one instance only."""
    among_several = waiter.devices is None and waiter.count > 1 and device.parent is not None
    return not among_several and waiter.wants_of([device.key]) and _is_large_enough(waiter, device)


def _is_large_enough(waiter: Waiter, device: Device) -> bool:
    """Whether the device, when empty, has the memory that a waiting job asks for, as far as that is known."""
    return waiter.min_free is None or device.memory_total is None or device.memory_total >= waiter.min_free
