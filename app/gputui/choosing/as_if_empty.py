"""The box as if its devices in use were empty: to plan for more devices than are free now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gputui.choosing.verdict import State, Verdict
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot

IN_USE: tuple[State, ...] = ("busy", "held", "claimed", "cooling")
"""States that end by themselves. One that is unknown or lost may never be free."""


def as_if_empty(
    snapshot: Snapshot, verdicts: Mapping[str, Verdict], also: Collection[State] = ()
) -> tuple[Snapshot, dict[str, Verdict]]:
    """The same with all memory of the devices in use free, and those devices free; free, as they are, are
    those in the states `also`, too."""
    used = {d.key for d in snapshot.devices if verdicts[d.key].state in IN_USE and not d.mig}
    devices = tuple(_emptied(device) if device.key in used else device for device in snapshot.devices)
    free: dict[str, Verdict] = {
        key: replace(verdict, state="free")
        for key, verdict in verdicts.items()
        if key in used or verdict.state in also
    }
    return replace(snapshot, devices=devices), {**verdicts, **free}


def _emptied(device: Device) -> Device:
    """With what an idle device has in use. (Of a memory of unknown size nothing is known then, either.)"""
    if device.memory_total is None:
        return replace(device, processes=())
    idle = device.memory_idle or 0
    return replace(device, processes=(), memory_used=idle, memory_free=device.memory_total - idle)
