"""How many devices of a box could ever be had, if nobody used any: more are not worth waiting for, and who
waits for more holds nobody up. Pure."""

from __future__ import annotations

from gputui.choosing.pick import Constraints, available
from gputui.choosing.verdict import Divided, Idle, Verdict
from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter


def most_ever(snapshot: Snapshot, constraints: Constraints) -> int:
    """How many devices meet the constraints when they are empty. (A GPU in MIG mode is never given out.)"""
    constraints = replace(constraints, max_util=None)
    empty = tuple(
        replace(device, memory_free=_memory_of(device, constraints.min_free)) for device in snapshot.devices
    )
    as_free = {
        device.key: Verdict("busy", Divided(0)) if device.mig else Verdict("free", Idle()) for device in empty
    }
    return len(available(replace(snapshot, devices=empty), as_free, constraints).devices)


def can_never_start(waiter: Waiter, snapshot: Snapshot | None) -> bool:
    """Whether one in line asks for more than the box has, or for devices that are not there.

    Whoever looks at the box sees that alike: devices that are in use, lost or prohibited may be had later. Of
    several devices none is a MIG instance, unless they are named: a process can use one only.
    """
    if snapshot is None or not snapshot.devices:
        return False
    could = [
        device
        for device in snapshot.devices
        # (One whose UUID cannot be read just now may be any.)
        if not device.mig
        and (waiter.wants_of([device.key]) or not device.uuid)
        and (waiter.devices is not None or waiter.count == 1 or not device.parent)
    ]
    return len(could) < waiter.count


def waits_for_ever(count: int, can: int) -> str:
    """Why nobody need wait for `count` devices where only `can` would ever do."""
    would = f"only {devices_text(can)} here" if can else "no device here"
    return (
        f"{devices_text(count)} asked for, but {would} would do, even if all were free: waiting does not help"
    )


def _memory_of(device: Device, asked: int | None) -> int | None:
    """The free memory of an empty device in bytes; as much as is asked for where that is not known."""
    return asked if device.memory_total is None else device.memory_total
