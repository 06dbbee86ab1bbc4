"""What an interpreter answered: the devices that its torch sees, and those that the vendor's driver has."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.inventory.untrusted_json import JsonValue
from gputui.vendors.vendor import Vendor

_MOST_DEVICES = 1024


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """One device of an interpreter: its place in the list is its number in a program. None: not known.

    uuid    in the form in which two are compared (`Vendor.bare_uuid`)
    bus     "00000000:57:00.0"
    memory  bytes
    """

    uuid: str | None = None
    bus: str | None = None
    name: str | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch of an interpreter. `version` is None where it cannot be imported; `error` says why.

    cuda, hip  the version of CUDA or ROCm that it was built for
    built      whether it was built for the vendor's devices at all
    """

    version: str | None
    cuda: str | None = None
    hip: str | None = None
    built: bool = False
    error: str | None = None
    devices: tuple[SeenDevice, ...] = ()

    @property
    def cpu_build(self) -> bool:
        """Whether this torch cannot use any device, whatever the environment says."""
        return self.version is not None and not self.built


@dataclass(frozen=True, slots=True)
class Driver:
    """The vendor's driver as any program of that environment meets it.

    code     its error, where it has one (CUresult of CUDA)
    version  as the driver counts (CUDA's: 12040 is 12.4)
    """

    error: str | None = None
    code: int | None = None
    version: int | None = None
    devices: tuple[SeenDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """All that one interpreter said. `environment` are the variables it was asked for; None: not set."""

    python: str
    executable: str | None
    environment: tuple[tuple[str, str | None], ...]
    torch: Torch | None
    driver: Driver

    @property
    def devices(self) -> tuple[SeenDevice, ...]:
        """What counts: torch's list where there is a torch, with what the driver adds to it."""
        if self.torch is None:
            return self.driver.devices
        if len(self.torch.devices) != len(self.driver.devices):
            return self.torch.devices
        pairs = zip(self.torch.devices, self.driver.devices, strict=True)
        return tuple(_completed(one, other) for one, other in pairs)


def _completed(torch: SeenDevice, driver: SeenDevice) -> SeenDevice:
    """torch's device, completed by the driver's of the same number (of one process they are the same).

    The driver knows more of a UUID: a MIG instance's own one, where a runtime may tell its GPU's.
    """
    if torch.bus is not None and driver.bus is not None and not same_bus(torch.bus, driver.bus):
        return torch
    if torch.bus is None and torch.uuid is not None and driver.uuid is not None and torch.uuid != driver.uuid:
        return torch
    return SeenDevice(
        driver.uuid or torch.uuid,
        torch.bus or driver.bus,
        torch.name or driver.name,
        torch.memory or driver.memory,
    )


def same_bus(one: str, other: str) -> bool:
    """Whether two bus ids name one place; the domain has four digits or eight."""
    return _bus(one) == _bus(other)


def _bus(text: str) -> tuple[str, ...]:
    return tuple(part.lstrip("0").lower() for part in text.replace(".", ":").split(":"))


def read(node: JsonValue, vendor: Vendor) -> Seen:
    """The probe's answer, of devices of that vendor. Raises DocumentError where it is not one."""
    environment = node["environment"].value
    if not isinstance(environment, dict):
        raise node["environment"].wrong("an object")
    torch, driver = node["torch"], node["driver"]
    return Seen(
        python=node["python"].text(),
        executable=_maybe(node["executable"]),
        environment=tuple((name, _maybe(node["environment"][name])) for name in environment),
        torch=_torch(torch, vendor) if torch.known else None,
        driver=_driver(driver, vendor) if driver.known else Driver(),
    )


def _driver(node: JsonValue, vendor: Vendor) -> Driver:
    return Driver(
        error=_maybe(node["error"]),
        code=node["code"].whole() if node["code"].known else None,
        version=node["version"].whole() if node["version"].known else None,
        devices=_devices(node["devices"], vendor),
    )


def _torch(node: JsonValue, vendor: Vendor) -> Torch:
    return Torch(
        version=_maybe(node["version"]),
        cuda=_maybe(node["cuda"]),
        hip=_maybe(node["hip"]),
        built=node["built"].yes(),
        error=_maybe(node["error"]),
        devices=_devices(node["devices"], vendor),
    )


def _devices(node: JsonValue, vendor: Vendor) -> tuple[SeenDevice, ...]:
    return tuple(
        SeenDevice(
            uuid=_uuid(_maybe(each["uuid"]), vendor),
            bus=_maybe(each["bus"]),
            name=_maybe(each["name"]),
            memory=each["memory"].whole() if each["memory"].known else None,
        )
        for each in node.items(_MOST_DEVICES)
    )


def _uuid(text: str | None, vendor: Vendor) -> str | None:
    return None if text is None else vendor.bare_uuid(text)


def _maybe(node: JsonValue) -> str | None:
    return node.text() if node.known else None
