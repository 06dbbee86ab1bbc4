"""How many devices of a box could ever be had, if nobody used any: more are not worth waiting for. Pure."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.pick import Constraints, available
from gputui.choosing.verdict import Divided, Idle, Verdict
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot


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


def waits_for_ever(count: int, can: int) -> str:
    """Why nobody need wait for `count` devices where only `can` would ever do."""
    asked = "1 device" if count == 1 else f"{count} devices"
    would = "no device here" if not can else "only 1 device here" if can == 1 else f"only {can} devices here"
    return f"{asked} asked for, but {would} would do, even if all were free: waiting does not help"


def _memory_of(device: Device, asked: int | None) -> int | None:
    """The free memory of an empty device in bytes; as much as is asked for where that is not known."""
    return asked if device.memory_total is None else device.memory_total
