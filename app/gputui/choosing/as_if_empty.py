"""The box as if its devices in use were empty, for plans with more devices than are free now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gputui.choosing.verdict import State, Verdict
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot

IN_USE: tuple[State, ...] = ("busy", "held", "claimed", "cooling")
"""States that end by themselves. A device that is unknown or lost may never become free."""


def as_if_empty(
    snapshot: Snapshot, verdicts: Mapping[str, Verdict], also: Collection[State] = ()
) -> tuple[Snapshot, dict[str, Verdict]]:
    """Return the snapshot and the verdicts with all devices in use empty and free.

    Devices in the states `also` become free too; their memory stays as it is.
    """
    used = {d.key for d in snapshot.devices if verdicts[d.key].state in IN_USE and not d.mig}
    devices = tuple(_emptied(device) if device.key in used else device for device in snapshot.devices)
    free: dict[str, Verdict] = {
        key: replace(verdict, state="free")
        for key, verdict in verdicts.items()
        if key in used or verdict.state in also
    }
    return replace(snapshot, devices=devices), {**verdicts, **free}


def _emptied(device: Device) -> Device:
    """The device with the memory use of an idle one. Where its total is unknown, its use stays as it was."""
    if device.memory_total is None:
        return replace(device, processes=())
    idle = device.memory_idle or 0
    return replace(device, processes=(), memory_used=idle, memory_free=device.memory_total - idle)
