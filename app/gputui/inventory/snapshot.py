"""A snapshot: everything known of the box at one moment. Immutable; every screen and command reads this."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from gputui.inventory.device import Device
from gputui.inventory.link import LinkMatrix
from gputui.inventory.wording import short_name


@dataclass(frozen=True, slots=True)
class Host:
    """The machine: its name, the driver's version, and the newest CUDA that the driver supports."""

    name: str | None = None
    driver: str | None = None
    cuda: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """The box at `time` (seconds since the epoch): devices in bus order, each parent before its instances.

    `links` has one row and one column for every device; it is empty until it has been read.
    `errors` are of the box as a whole; a device's own trouble is in `Device.fault`.
    """

    host: Host
    time: float
    devices: tuple[Device, ...]
    links: LinkMatrix = ()
    errors: tuple[str, ...] = field(default=())

    @cached_property
    def by_key(self) -> dict[str, Device]:
        """Devices by `Device.key`, which is the UUID of every device that could be read."""
        return {device.key: device for device in self.devices}

    @cached_property
    def _position(self) -> dict[str, int]:
        return {device.key: place for place, device in enumerate(self.devices)}

    @cached_property
    def models(self) -> str:
        """The GPUs by model, "8× H100 80GB HBM3": how a box is called in one breath."""
        counted = Counter(short_name(d.name or "unknown GPU") for d in self.devices if d.parent is None)
        return " + ".join(f"{count}× {name}" for name, count in counted.items()) or "no devices"

    def label(self, device: Device) -> str:
        """The number that a person sees: NVML's index, "0:1" for instance 1 of GPU 0 (as nvidia-smi)."""
        if device.parent is None:
            return str(device.index)
        parent = self.by_key.get(device.parent)
        return f"{parent.index if parent else '?'}:{device.index}"

    def instances(self, device: Device) -> tuple[Device, ...]:
        """The MIG instances that `device` is divided into."""
        return tuple(other for other in self.devices if other.parent == device.uuid and device.uuid)

    def link(self, one: Device, other: Device) -> str | None:
        """What joins two devices of this snapshot, None where it is not known."""
        if not self.links:
            return None
        return self.links[self._position[one.key]][self._position[other.key]]
