"""The devices of a plan: selected ones, then free ones, then devices in use as if they were empty. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gputui.choosing.best import best
from gputui.choosing.grouping import Grouping
from gputui.choosing.pick import Constraints, available, pick
from gputui.choosing.verdict import State, Verdicts
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, short_name
from gputui.inventory.light_dataclasses import dataclass, frozen, replace
from gputui.inventory.snapshot import Snapshot
from gputui.planning.fewest import Fewest, fewest
from gputui.planning.model import Model
from gputui.planning.serving import Serving
from gputui.planning.workload import Workload

_IN_USE: tuple[State, ...] = ("busy", "held", "claimed", "cooling")
"""States that end by themselves. A device that is unknown or lost may never become free."""

Origin = Literal["selected", "free", "as if empty", "perhaps in use"]


@dataclass(frozen=True)
class PlannedDevices:
    """Devices in the order of a launch, in a snapshot that has their links and memory.

    how     "as if empty": some devices are in use, and the plan treats them as empty; "perhaps in use": the
            use of some devices cannot be known
    in_use  the devices in use
    reason  why these are the best devices of their number
    """

    snapshot: Snapshot
    devices: tuple[Device, ...]
    how: Origin = "selected"
    in_use: tuple[Device, ...] = ()
    reason: str = ""

    @property
    def names(self) -> str:
        """The names of the devices' models."""
        return ", ".join(sorted({short_name(device.name or UNKNOWN) for device in self.devices}))

    def within(self, snapshot: Snapshot | None) -> PlannedDevices:
        """The same devices in a newer snapshot, if it contains all of them."""
        if snapshot is None or snapshot is self.snapshot:
            return self
        found = [snapshot.by_key.get(device.key) for device in self.devices]
        there = tuple(device for device in found if device is not None)
        return replace(self, snapshot=snapshot, devices=there) if len(there) == len(found) else self


@frozen
class Candidates:
    """The devices that a plan may use.

    constraints  the limits on the choice; its count is the least number of devices
    selected     the devices that the user has selected or named, in this order: a plan uses them first
    """

    snapshot: Snapshot
    verdicts: Verdicts
    constraints: Constraints
    selected: tuple[Device, ...] = ()

    @property
    def free(self) -> tuple[Device, ...]:
        """All devices that are free and may be used."""
        return available(self.snapshot, self.verdicts, self.constraints).devices

    def emptied(self, *also: State) -> Candidates:
        """The candidates as if each device in use were empty and free. Devices in the states `also` become
        free too; their memory stays as it is."""
        verdicts = self.verdicts
        used = {d.key for d in self.snapshot.devices if verdicts[d.key].state in _IN_USE and not d.mig}
        devices = tuple(_emptied(d) if d.key in used else d for d in self.snapshot.devices)
        free: Verdicts = {
            key: replace(verdict, state="free")
            for key, verdict in verdicts.items()
            if key in used or verdict.state in also
        }
        snapshot = replace(self.snapshot, devices=devices)
        return replace(self, snapshot=snapshot, verdicts={**verdicts, **free})

    @property
    def together(self) -> tuple[Device, ...]:
        """The selected and the free devices that can work together: several devices, or a MIG instance."""
        required = [device.key for device in self.selected]
        one, several = (
            available(
                self.snapshot, self.verdicts, replace(self.constraints, count=count, required=required)
            ).devices
            for count in (1, 2)
        )
        return several or one[:1]

    @property
    def most(self) -> int:
        """The greatest number of devices of a plan."""
        return len(self._perhaps_free().together)

    def _perhaps_free(self) -> Candidates:
        # Where the use of devices cannot be known, as on WSL, their memory is known all the same.
        return self.emptied("unknown")

    def planned(self, count: int | None = None) -> PlannedDevices | None:
        """The devices of a plan for `count` devices; None where they are too few, or cannot work together.

        Without a count: the selected devices, else all free ones, else all. Selected devices are filled up
        with the best free ones. Where too few are free, devices in use are taken as if they were empty.
        """
        selected, snapshot = [device.key for device in self.selected], self.snapshot
        if selected and (count is None or count <= len(selected)):
            devices = self.selected
            if count is not None and count < len(selected):
                in_box = tuple(device for device in snapshot.devices if device.key in selected)
                devices = best(snapshot, in_box, count, limit=1)[0].devices
            return PlannedDevices(snapshot, devices)
        emptied, together = self._perhaps_free(), self.together
        counts = [count] if count is not None else range(len(emptied.together), 0, -1)
        counts = [number for number in counts if self.constraints.grouping.fits(number)]
        free = [device.key for device in together if device.parent is None]
        of_free = (self._picked(self, number, selected) for number in counts if number <= len(together))
        of_all = (
            self._picked(emptied, number, kept)
            for number in counts
            for kept in ((*selected, *free), selected)
        )
        return next(filter(None, of_free), None) or next(filter(None, of_all), None)

    def _picked(self, box: Candidates, count: int, kept: Iterable[str]) -> PlannedDevices | None:
        """The best `count` devices of the box (itself, or emptied) with all of `kept`; None without such."""
        required, selected = set(kept), [device.key for device in self.selected]
        if len(required) > count:
            return None
        found = pick(box.snapshot, box.verdicts, replace(self.constraints, count=count, required=required))
        if not found.alternatives:
            return None
        picked = [device.key for device in found.devices]
        ordered = [*filter(picked.__contains__, selected), *(key for key in picked if key not in selected)]
        devices = tuple(box.snapshot.by_key[key] for key in ordered)
        how: Origin = "free"
        in_use: tuple[Device, ...] = ()
        if box is not self:
            states = [self.verdicts[key].state for key in ordered]
            in_use = tuple(d for d, state in zip(devices, states, strict=True) if state in _IN_USE)
            how = "as if empty" if in_use else "perhaps in use" if "unknown" in states else "free"
        return PlannedDevices(box.snapshot, devices, how, in_use, found.alternatives[0].reason)

    def fewest(
        self,
        model: Model,
        workload: Workload | Serving,
        in_use: bool = False,
        grouping: Grouping | None = None,
        counts: Iterable[int] | None = None,
    ) -> Fewest | None:
        """The fewest free devices that hold a training; where none do and with `in_use`, the fewest of all
        devices as if empty. Raises PlanningError."""
        for box in (self, self.emptied()) if in_use else (self,):
            found = fewest(
                model, workload, box.snapshot, box.free, grouping or box.constraints.grouping, counts
            )
            if found is not None:
                return found
        return None


def _emptied(device: Device) -> Device:
    """The device with the memory use of an idle one. Where its total is unknown, its use stays as it was."""
    if device.memory_total is None:
        return replace(device, processes=())
    idle = device.memory_idle or 0
    return replace(device, processes=(), memory_used=idle, memory_free=device.memory_total - idle)
