"""What was chosen against what an interpreter sees. Pure.

A device is recognised by its UUID; where that is not told, by its bus id; by its name and memory never, as
there may be eight alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gputui.checking.seen import SeenDevice, bare, same_bus
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

State = Literal["equal", "differs", "missing", "extra", "unsure"]
"""missing: chosen and not seen; extra: seen and not chosen; unsure: it may be the device or one like it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One number of `cuda:n`: what was chosen for it, what is seen there, and whether they are the same.

    why  the sentence's end where they are not: "is GPU 3, GPU 5 is cuda:1"
    """

    chosen: Device | None
    seen: SeenDevice | None
    state: State
    why: str = ""


def compare(chosen: Sequence[Device], seen: Sequence[SeenDevice], box: Snapshot) -> tuple[Place, ...]:
    """Place by place. `box` has all devices, so that a wrong one can be named."""
    places: list[Place] = []
    for number in range(max(len(chosen), len(seen))):
        wanted = chosen[number] if number < len(chosen) else None
        found = seen[number] if number < len(seen) else None
        if wanted is None or found is None:
            state: State = "missing" if found is None else "extra"
            places.append(Place(wanted, found, state, _elsewhere(wanted, found, seen, box)))
            continue
        same = is_same(wanted, found)
        if same is None:
            places.append(Place(wanted, found, *_by_looks(wanted, found)))
        elif same:
            places.append(Place(wanted, found, "equal"))
        else:
            places.append(Place(wanted, found, "differs", _elsewhere(wanted, found, seen, box)))
    return tuple(places)


def is_same(device: Device, seen: SeenDevice) -> bool | None:
    """Whether this is that device; None where it cannot be told."""
    if seen.uuid is not None and device.uuid:
        if seen.uuid == bare(device.uuid):
            return True
        if device.parent is not None and seen.uuid == bare(device.parent):
            # An older driver and torch tell the GPU of an instance only.
            return None
        return False
    if seen.bus is not None and device.pci_bus_id is not None:
        if not same_bus(seen.bus, device.pci_bus_id):
            return False
        # All instances of a GPU have its bus id.
        return None if device.parent is not None else True
    return None


def _by_looks(device: Device, seen: SeenDevice) -> tuple[State, str]:
    """Without UUID and bus id: another name or size is another device, the same ones prove nothing."""
    if device.name is not None and seen.name is not None and device.name != seen.name:
        return "differs", f"is called {seen.name}"
    if device.memory_total and seen.memory and not 0.8 < seen.memory / device.memory_total <= 1.05:
        return "differs", "has another amount of memory"
    return "unsure", "cannot be told: neither its UUID nor its bus id says which it is"


def _elsewhere(
    wanted: Device | None, found: SeenDevice | None, seen: Sequence[SeenDevice], box: Snapshot
) -> str:
    """What is there instead, and where the wanted one is."""
    parts = []
    if found is not None:
        there = next((device for device in box.devices if is_same(device, found)), None)
        parts.append(f"is {called(there, box)}" if there else "is no device of this box")
    if wanted is not None:
        place = next((n for n, each in enumerate(seen) if is_same(wanted, each)), None)
        where = "not seen" if place is None else f"cuda:{place}"
        parts.append(f"{called(wanted, box)} is {where}" if found or place is not None else f"is {where}")
    return ", ".join(parts)


def called(device: Device, box: Snapshot) -> str:
    """The device as a person names it."""
    return f"GPU {box.label(device)}"
