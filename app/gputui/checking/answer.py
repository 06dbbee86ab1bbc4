"""The answer of an interpreter: the devices that its framework sees, and those that the driver has."""

from __future__ import annotations

from typing import Any

from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.typed_json import Record
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Changes


@frozen
class SeenDevice:
    """One device of an interpreter: its place in the list is its number in a program. None means not known.

    uuid    in the form for comparisons (`Vendor.bare_uuid`)
    bus     "00000000:57:00.0"
    memory  bytes
    part    the number of the part of the device at `bus`, where its UUID contains it (`Vendor.place_of`)
    """

    uuid: str | None = None
    bus: str | None = None
    name: str | None = None
    memory: int | None = None
    part: int | None = None


@frozen
class Framework:
    """The torch, tensorflow or jax of an interpreter.

    version    None where it cannot be imported; `error` gives the reason
    cuda, hip  the version of CUDA or ROCm that it was built for
    built      whether it was built for the vendor's devices at all
    devices    torch reports their UUIDs; tensorflow and jax report names, which are the same for equal GPUs
    """

    version: str | None
    cuda: str | None = None
    hip: str | None = None
    built: bool = False
    error: str | None = None
    devices: tuple[SeenDevice, ...] = ()
    name: str = "torch"

    @property
    def cpu_build(self) -> bool:
        """Whether it cannot use any device, whatever the environment says."""
        return self.version is not None and not self.built


@frozen
class Driver:
    """The vendor's driver, as any program in that environment sees it.

    code     its error code, where it has one (CUresult of CUDA)
    version  in the driver's own counting (CUDA's: 12040 is 12.4)
    """

    error: str | None = None
    code: int | None = None
    version: int | None = None
    devices: tuple[SeenDevice, ...] = ()


@frozen
class Seen:
    """The whole answer of one interpreter.

    environment  the requested variables; None: not set
    framework    the framework with the name `asked`; None where the interpreter has none
    """

    python: str
    executable: str | None
    environment: Changes
    framework: Framework | None
    driver: Driver
    asked: str = "torch"

    @property
    def torch(self) -> Framework | None:
        """The framework where it is torch."""
        return self.framework if self.framework is not None and self.framework.name == "torch" else None

    @property
    def devices(self) -> tuple[SeenDevice, ...]:
        """The devices to compare: the framework's, where it reports any, completed from the driver."""
        if self.framework is None:
            return self.driver.devices
        if len(self.framework.devices) != len(self.driver.devices):
            return self.framework.devices
        pairs = zip(self.framework.devices, self.driver.devices, strict=True)
        return tuple(_completed(one, other) for one, other in pairs)

    @property
    def told_by_driver(self) -> bool:
        """Whether the framework only counts its devices, so that the driver has to identify them."""
        own = self.framework.devices if self.framework is not None else ()
        return bool(own) and all(each.uuid is None and each.bus is None for each in own)


def _completed(own: SeenDevice, driver: SeenDevice) -> SeenDevice:
    """The framework's device, completed from the driver's with the same number, which is the same device.

    The driver has the more exact UUID: that of a MIG instance, where a runtime may report its GPU's.
    """
    if own.bus is not None and driver.bus is not None and not same_bus(own.bus, driver.bus):
        return own
    if own.bus is None and own.uuid is not None and driver.uuid is not None and own.uuid != driver.uuid:
        return own
    if own.bus is None and own.uuid is None and own.name and driver.name and own.name != driver.name:
        # The number of devices is the same, but not the devices.
        return own
    return SeenDevice(
        driver.uuid or own.uuid,
        own.bus or driver.bus,
        own.name or driver.name,
        own.memory or driver.memory,
        own.part if own.part is not None else driver.part,
    )


def same_bus(one: str, other: str) -> bool:
    """Whether two bus ids name one place; the domain has four digits or eight."""
    return _bus(one) == _bus(other)


def _bus(text: str) -> tuple[str, ...]:
    return tuple(part.lstrip("0").lower() for part in text.replace(".", ":").split(":"))


_DEVICE = Record(SeenDevice, "uuid bus name memory", later="")
_FRAMEWORK = Record(Framework, "version cuda hip built error devices", later="")
_DRIVER = Record(Driver, later="")
_SEEN = Record(
    Seen,
    "python executable environment framework driver asked",
    later="",
    environment=dict[str, str | None],
    driver=Driver | None,
)


def read(document: Any, vendor: Vendor) -> Seen:
    """The probe's answer, for devices of `vendor`. Raises DocumentError where it is not an answer."""
    facts = _SEEN.facts(document)
    framework, driver = facts["framework"], facts["driver"] or Driver()
    if framework is not None:
        facts["framework"] = replace(
            framework, name=facts["asked"], devices=_devices(framework.devices, vendor)
        )
    facts["environment"] = tuple(facts["environment"].items())
    facts["driver"] = replace(driver, devices=_devices(driver.devices, vendor))
    return Seen(**facts)


def _devices(told: tuple[SeenDevice, ...], vendor: Vendor) -> tuple[SeenDevice, ...]:
    found = []
    for device in told:
        bus, part = (vendor.place_of(device.uuid) if device.uuid is not None else None) or (None, None)
        uuid = None if device.uuid is None else vendor.bare_uuid(device.uuid)
        found.append(replace(device, uuid=uuid, bus=device.bus or bus, part=part))
    return tuple(found)
