"""What an interpreter answered: the devices that it sees, as its torch and as the CUDA driver tell them."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.inventory.untrusted_json import Node

_MOST_DEVICES = 1024


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """One device of an interpreter: its place in the list is the n of `cuda:n`. None: not told.

    uuid    without "GPU-" and "MIG-", in lower case
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

    cuda, hip  the version that it was built for; both None: a CPU build
    """

    version: str | None
    cuda: str | None = None
    hip: str | None = None
    error: str | None = None
    devices: tuple[SeenDevice, ...] = ()

    @property
    def cpu_build(self) -> bool:
        """Whether this torch cannot use any device, whatever the environment says."""
        return self.version is not None and not self.cuda and not self.hip


@dataclass(frozen=True, slots=True)
class Driver:
    """The CUDA driver as any program of that environment meets it; `code` is a CUresult that is not 0.

    version  as the driver counts: 12040 is CUDA 12.4
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
        return tuple(_together(one, other) for one, other in pairs)

    @property
    def who(self) -> str:
        """Who saw it: "torch 2.8.0+cu128", or the driver."""
        return f"torch {self.torch.version}" if self.torch and self.torch.version else "the CUDA driver"


def _together(told: SeenDevice, driver: SeenDevice) -> SeenDevice:
    """torch's device, completed by the driver's of the same number (of one process they are the same).

    The driver knows more of a UUID: a MIG instance's own one, where a runtime may tell its GPU's.
    """
    if told.bus is not None and driver.bus is not None and not same_bus(told.bus, driver.bus):
        return told
    if told.bus is None and told.uuid is not None and driver.uuid is not None and told.uuid != driver.uuid:
        return told
    return SeenDevice(
        driver.uuid or told.uuid,
        told.bus or driver.bus,
        told.name or driver.name,
        told.memory or driver.memory,
    )


def same_bus(one: str, other: str) -> bool:
    """Whether two bus ids name one place; the domain has four digits or eight."""
    return _bus(one) == _bus(other)


def _bus(text: str) -> tuple[str, ...]:
    return tuple(part.lstrip("0").lower() for part in text.replace(".", ":").split(":"))


def read(node: Node) -> Seen:
    """The probe's answer. Raises DocumentError where it is not one."""
    environment = node["environment"].value
    if not isinstance(environment, dict):
        raise node["environment"].wrong("an object")
    told, driver = node["torch"], node["driver"]
    return Seen(
        python=node["python"].text(),
        executable=_maybe(node["executable"]),
        environment=tuple((name, _maybe(node["environment"][name])) for name in environment),
        torch=_torch(told) if told.known else None,
        driver=Driver(
            error=_maybe(driver["error"]),
            code=driver["code"].whole() if driver["code"].known else None,
            version=driver["version"].whole() if driver["version"].known else None,
            devices=_devices(driver["devices"]),
        ),
    )


def _torch(node: Node) -> Torch:
    return Torch(
        version=_maybe(node["version"]),
        cuda=_maybe(node["cuda"]),
        hip=_maybe(node["hip"]),
        error=_maybe(node["error"]),
        devices=_devices(node["devices"]),
    )


def _devices(node: Node) -> tuple[SeenDevice, ...]:
    return tuple(
        SeenDevice(
            uuid=_uuid(_maybe(each["uuid"])),
            bus=_maybe(each["bus"]),
            name=_maybe(each["name"]),
            memory=each["memory"].whole() if each["memory"].known else None,
        )
        for each in node.items(_MOST_DEVICES)
    )


def _uuid(text: str | None) -> str | None:
    return None if text is None else bare(text)


def bare(uuid: str) -> str:
    """A UUID as it is compared: torch and the driver tell it without the kind of the device."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _maybe(node: Node) -> str | None:
    return node.text() if node.known else None
