"""The vendor port: what gputui asks of a maker of accelerators, beside the facts that a device itself has.

A vendor is a subclass of `Vendor` with one instance, `VENDOR` in its module. Those that gputui brings are
folders beside this file; any other is found through the entry point group `gputui.vendors` of a distribution
whose name begins with `gputui-` (`registry.py`). Everything else of gputui knows vendors by this class only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.vendors.visibility import Changes, Visibility

if TYPE_CHECKING:
    from pathlib import Path

    from gputui.sources.source import Source
    from gputui.system.root import Root

Trouble = Literal["held", "memory", "prohibited", "reset"]
"""What a person can do something about: memory is in use by no process that can be seen; the memory in
use is not told; the compute mode lets no program use the device; the device must be reset."""


class Containers(ABC):
    """How a container is given a vendor's devices; `by_uuid`: not without their UUIDs."""

    by_uuid: bool = True

    @abstractmethod
    def docker(self, devices: Sequence[Device]) -> list[str]:
        """The words of `docker run` for these devices."""

    @abstractmethod
    def podman(self, devices: Sequence[Device]) -> list[str]:
        """The words of `podman run` for these devices."""

    @abstractmethod
    def gives_devices(self, option: str, value: str) -> bool:
        """Whether an option of `run` (its long name, no dashes) gives a container the vendor's devices."""

    def named_by(self, option: str, value: str) -> tuple[str, ...]:
        """The devices that such an option names, other than docker's own `--gpus`: indices, UUIDs, "all"."""
        return ()

    def changes(self, devices: Sequence[Device], visibility: Visibility, by_number: bool = False) -> Changes:
        """The variables with which a program in a container counts `devices` in their order.

        A container has only its own devices, and counts them from 0 in bus order, in whatever order it was
        given them. `by_number`: for programs that cannot read a UUID.
        """
        if not devices:
            return visibility.changes(())
        alike = len({device.name for device in devices}) == 1
        in_bus_order: Changes = (visibility.order,) if visibility.order and not alike else ()
        instances = any(device.parent for device in devices)
        if len(devices) == 1 or (not instances and counted_inside(devices) == tuple(devices)):
            return in_bus_order
        if by_number:
            # Instances have no numbers; a program uses the first of them.
            return () if instances else visibility.changes(renumbered(devices))
        return visibility.changes(devices, "uuid")


def counted_inside(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices in the order in which a container counts them: that of the bus."""
    return tuple(sorted(devices, key=lambda device: device.index))


def renumbered(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices with the indices that they have in a container of their own."""
    inside = [device.key for device in counted_inside(devices)]
    return tuple(replace(device, index=inside.index(device.key)) for device in devices)


RARELY_TOLD = (
    *("SM active", "SM occupancy", "tensor cores", "video", "bandwidth", "energy", "memory, fan", "memory"),
    *("state", "throttling", "PCIe", "PCIe traffic", "NVLink", "ECC errors", "bad memory", "XID"),
)
"""Facts of the device's page (`Vendor.fact_names`) that NVIDIA's driver tells, and most others do not."""


class Vendor:
    """One maker of accelerators. Stateless; nothing here opens a library before `source` is opened.

    name               `Device.vendor` of its devices: one lower-case word
    title              its name for people
    runtime            the name of what runs programs on the devices, for people
    device_type        of torch (`torch.device`): the n-th selected device is "TYPE:n" in a program, and
                       `torch.TYPE` is the module that knows it
    uuid_prefixes      how a UUID of its devices begins
    visibility         the variables that make devices visible
    containers         how a container is given devices; None where gputui does not know
    environment_hints  variables that are worth offering beside a launch: name, value, what it does
    remedies           what helps, in the vendor's own commands, by what is wrong: a clause of a sentence
    gres               what Slurm calls the devices in `--gres`, where that is not "gpu"
    one_part           why a process uses one only of several parts of devices that it sees; "" where it uses
                       them all
    data_parallel      whether the Trainer of transformers, in one process, uses all devices that it sees
                       (DataParallel); elsewhere it uses the first one (transformers, training_args.py)

    For `check`, which asks the command's own interpreter:
    backend            of torch.distributed, that the devices' collectives run on
    driver             the name of the driver's own interface, in a sentence
    driver_probe       a script for Python 3.8 and newer, without imports of gputui, whose `driver()` returns
                       {"error", "code", "version", "devices": [{"uuid", "bus", "name", "memory"}]} as
                       the driver itself has them (asked_driver.py has what CUDA's and HIP share); None: only
                       torch is asked
    same_names         whether programs are told `Device.name`; other runtimes have names of their own
    torch_build        what to do where torch is a build for the CPU
    other_builds       the same for tensorflow and jax, by their names
    """

    name: str = ""
    title: str = ""
    runtime: str = ""
    device_type: str = ""
    uuid_prefixes: tuple[str, ...] = ()
    visibility: Visibility = Visibility()
    containers: Containers | None = None
    environment_hints: tuple[tuple[str, str, str], ...] = ()
    remedies: Mapping[Trouble, str] = {}
    gres: str = "gpu"
    one_part: str = ""
    data_parallel: bool = False
    backend: str = "gloo"
    driver: str = "the driver"
    same_names: bool = False
    torch_build: str = "see https://pytorch.org/get-started/locally"
    other_builds: Mapping[str, str] = {}

    @property
    def driver_probe(self) -> Path | None:
        return None

    def source(self, root: Root) -> Source:
        """Where facts of the vendor's devices come from, on the machine whose files `root` has; not open yet.

        Libraries and ioctls are asked on this machine only (`root.here`), and programs are `root.program`'s.
        """
        raise NotImplementedError

    def maybe_there(self, root: Root) -> bool:
        """Whether the machine may have the vendor's devices: a look at a file or two, as every call takes it.

        Not for the vendors that the registry knows by their files (`registry._SIGNS`).
        """
        return True

    def device(self, number: int) -> str:
        """What a program calls the selected device of that number, counted from 0."""
        return f"{self.device_type}:{number}"

    def launch_warnings(
        self, devices: Sequence[Device], environ: Mapping[str, str], by_index: bool
    ) -> tuple[str, ...]:
        """What a launch on these devices must be warned of; `by_index`: whether it names them by index."""
        return ()

    def by_uuid_warning(self, devices: Sequence[Device]) -> str:
        """What a launch that names these devices by UUID must be warned of; "" where the runtime reads
        UUIDs."""
        return ""

    def refused(self, devices: Sequence[Device]) -> str | None:
        """Why no program can be given these devices together, None where one can."""
        return None

    def part_warnings(self, devices: Sequence[Device], environ: Mapping[str, str]) -> tuple[str, ...]:
        """The warning for several processes that work together on a part of a GPU each."""
        return ()

    def nodes(self, device: Device, root: Root) -> tuple[str, ...]:
        """The device files without which no program can use the device; () where they are not
        known. The device is read with `Want.NODES`."""
        return ()

    def all_nodes(self, root: Root) -> tuple[str, ...]:
        """Device files that each open one device or a part of one, also of devices that cannot be read; those
        of `nodes` are added to them."""
        return ()

    def unready_to_confine(self, root: Root) -> str | None:
        """Why the driver could not start in a process that can open some devices only; None where it can."""
        return None

    def driver_here(self, root: Root) -> str:
        """The version of the kernel's driver that is loaded, "" where no file tells it."""
        return ""

    def driver_trouble(self, code: int | None, error: str | None) -> str | None:
        """Why the driver gives no device, and what helps; None where it does not say.

        `code` and `error` are what `driver_probe` answered.
        """
        return error

    def build(self, framework: str) -> str:
        """What to do where a framework is a build for the CPU."""
        if framework == "torch":
            return self.torch_build
        return self.other_builds.get(framework, f"install a build of {framework} for {self.runtime}")

    def bare_uuid(self, uuid: str) -> str:
        """A UUID as programs tell it, in the one form in which two are compared."""
        lower = uuid.lower()
        for prefix in self.uuid_prefixes:
            lower = lower.removeprefix(prefix.lower())
        return lower

    def fact_names(self, device: Device) -> Mapping[str, str]:
        """Other names of facts on the device's page (`inventory/device_facts.py`); "" for those that are told
        of no such device, which are left out where they are not known."""
        return {}

    def untold(self, device: Device) -> str:
        """What of the device cannot be known, and why: a clause. "" where there is nothing to say."""
        return ""

    def place_of(self, uuid: str) -> tuple[str, int | None] | None:
        """The bus id that a runtime's UUID is made of, and the number of the device's part there (None: the
        whole); None for a UUID that says nothing of a place."""
        return None


class UnknownVendor(Vendor):
    """A vendor that is only a word in a recording: its devices are shown, nothing makes them visible."""

    def __init__(self, name: str) -> None:
        self.name = self.title = self.runtime = self.device_type = name

    def launch_warnings(
        self, devices: Sequence[Device], environ: Mapping[str, str], by_index: bool
    ) -> tuple[str, ...]:
        return (f"no vendor {self.name!r} is installed: the command is not given these devices",)
