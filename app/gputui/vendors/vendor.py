"""The vendor port: what gputui asks of a maker of accelerators, in addition to the facts of a device itself.

A vendor is a subclass of `Vendor` with one instance, `VENDOR` in its module. The vendors that gputui ships
are folders next to this file. Any other vendor is found through the entry point group `gputui.vendors` of a
distribution whose name begins with `gputui-` (`registry.py`). The rest of gputui knows vendors by this class
only.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.system.environment import Environ
from gputui.system.namespaces import in_initial_namespace
from gputui.vendors.visibility import Changes, Visibility

if TYPE_CHECKING:
    from pathlib import Path

    from gputui.sources.source import Source
    from gputui.system.root import Root

Trouble = Literal["held", "memory", "prohibited", "reset"]
"""A problem that a person can do something about.

held        memory is in use by no process that can be seen
memory      the memory in use is not reported
prohibited  the compute mode lets no program use the device
reset       the device must be reset
"""


class Containers(ABC):
    """How a container is given a vendor's devices. `by_uuid`: the container needs their UUIDs."""

    by_uuid: bool = True

    @abstractmethod
    def docker(self, devices: Sequence[Device]) -> list[str]:
        """Return the words of `docker run` for these devices."""

    @abstractmethod
    def podman(self, devices: Sequence[Device]) -> list[str]:
        """Return the words of `podman run` for these devices."""

    @abstractmethod
    def gives_devices(self, option: str, value: str) -> bool:
        """Return whether an option of `run` (long name, no dashes) gives a container the vendor's devices."""

    def named_by(self, option: str, value: str) -> tuple[str, ...]:
        """Return the devices that such an option, except docker's `--gpus`, names: indices, UUIDs, "all"."""
        return ()

    def changes(self, devices: Sequence[Device], visibility: Visibility, by_number: bool = False) -> Changes:
        """Return the variables that make a program in a container count `devices` in their order.

        A container has only its own devices. It counts them from 0 in bus order, whatever the order in which
        they were given. `by_number`: for programs that cannot read a UUID.
        """
        if not devices:
            return visibility.changes(())
        alike = len({device.name for device in devices}) == 1
        in_bus_order = (visibility.order,) if visibility.order and not alike else ()
        instances = any(device.parent for device in devices)
        if len(devices) == 1 or (not instances and counted_inside(devices) == tuple(devices)):
            return in_bus_order
        if by_number:
            # Instances have no numbers; a program uses the first instance.
            return () if instances else visibility.changes(renumbered(devices))
        return visibility.changes(devices, "uuid")


def counted_inside(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices in bus order, the order in which a container counts them."""
    return tuple(sorted(devices, key=lambda device: device.index))


def renumbered(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices with the indices that they have in a container of their own."""
    inside = [device.key for device in counted_inside(devices)]
    return tuple(replace(device, index=inside.index(device.key)) for device in devices)


RARELY_TOLD = (
    *("SM active", "SM occupancy", "tensor cores", "video", "bandwidth", "energy", "memory, fan", "memory"),
    *("state", "throttling", "PCIe", "PCIe traffic", "NVLink", "ECC errors", "bad memory", "driver error"),
)
"""Facts of the device page (`Vendor.fact_names`) that NVIDIA's driver reports and most others do not."""


class Vendor:
    """One maker of accelerators. Stateless; nothing here opens a library before `source` is opened.

    name               `Device.vendor` of its devices: one lower-case word
    title              its name for people
    runtime            the name, for people, of the software that runs programs on the devices
    device_type        the device type in torch (`torch.device`): a program calls the n-th selected device
                       "TYPE:n", and `torch.TYPE` is the module for it
    uuid_prefixes      how a UUID of its devices begins
    visibility         the variables that make devices visible
    containers         how a container is given devices; None where gputui does not know
    environment_hints  variables that are worth offering with a launch: name, value, effect
    remedies           by problem, the remedy in the vendor's own commands: a clause of a sentence. {bus}
                       names the device, as does {index}, which is the bus where no index is known
    gres               Slurm's name for the devices in `--gres`, where that is not "gpu"
    kernel_module      the kernel's module of the driver, where a file has its version; "" where none has
    kubernetes         the name of the devices' resource in Kubernetes (its device plugin's); "" where it is
                       not known
    one_part           why a process that sees several parts of devices uses only one of them; "" where it
                       uses all
    facts              what `fact_names` returns, where it is the same for all devices
    data_parallel      whether the Trainer of transformers, in one process, uses all devices that it sees
                       (DataParallel); otherwise it uses the first (transformers, training_args.py)

    For `check`, which asks the command's own interpreter:
    backend            the backend of torch.distributed for the devices' collectives
    driver             the name of the driver's own interface, in a sentence
    driver_probe       a script for Python 3.8 and newer, without imports of gputui, whose `driver()` returns
                       {"error", "code", "version", "devices": [{"uuid", "bus", "name", "memory"}]} as
                       the driver itself reports them (asked_driver.py has the code that CUDA and HIP share):
                       driver_probe.py beside the vendor's module; None: only torch is asked
    same_names         whether programs see `Device.name`; other runtimes have names of their own
    torch_build        the remedy where torch is a build for the CPU
    other_builds       the remedies for tensorflow and jax, by their names
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
    kernel_module: str = ""
    kubernetes: str = ""
    one_part: str = ""
    facts: Mapping[str, str] = {}
    data_parallel: bool = False
    backend: str = "gloo"
    driver: str = "the driver"
    same_names: bool = False
    torch_build: str = "see https://pytorch.org/get-started/locally"
    other_builds: Mapping[str, str] = {}

    @property
    def driver_probe(self) -> Path | None:
        from pathlib import Path

        beside = Path(sys.modules[type(self).__module__].__file__ or "").with_name("driver_probe.py")
        return beside if beside.is_file() else None

    def source(self, root: Root) -> Source:
        """Return the source, not open yet, of the vendor's devices on the machine whose files `root` has.

        Libraries and ioctls are used on this machine only (`root.here`); programs are those of
        `root.program`.
        """
        raise NotImplementedError

    def maybe_there(self, root: Root) -> bool:
        """Return whether the machine may have the vendor's devices.

        Look at one or two files only, as every call pays for it.

        Not used for the vendors that the registry knows by their files (`registry._SIGNS`).
        """
        return True

    def device(self, number: int) -> str:
        """Return a program's name for the selected device of that number, counted from 0."""
        return f"{self.device_type}:{number}"

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        """Return the warnings for a launch on these devices; `by_index`: whether it names them by index."""
        return ()

    def by_uuid_warning(self, devices: Sequence[Device]) -> str:
        """Return the warning for a launch that names these devices by UUID; "" where the
        runtime reads UUIDs."""
        return ""

    def refused(self, devices: Sequence[Device]) -> str | None:
        """Return why no program can be given these devices together; None where a program can."""
        return None

    def part_warnings(self, devices: Sequence[Device], environ: Environ) -> tuple[str, ...]:
        """Return the warning for several cooperating processes, each on a part of a GPU."""
        return ()

    def nodes(self, device: Device, root: Root) -> tuple[str, ...]:
        """Return the device files that a program needs to use the device; () where they are not known.

        Without a method of the vendor: the render node and what belongs to it. The device is read with
        `Want.NODES`.
        """
        # Imported here: only a confined launch asks.
        from gputui.system.drm import nodes_of

        return nodes_of(root, device.render)

    def all_nodes(self, root: Root) -> tuple[str, ...]:
        """Return the device files that each open one device, or a part of one.

        Devices that cannot be read are included. The caller adds the files of `nodes`.
        """
        return ()

    def unready_to_confine(self, root: Root) -> str | None:
        """Return why the driver cannot start in a process that can open only some devices; None: it can."""
        return None

    def driver_here(self, root: Root) -> str:
        """Return the version of the loaded kernel driver; "" where no file has it."""
        file = f"/sys/module/{self.kernel_module}/version"
        return root.text(file, 256) or "" if self.kernel_module else ""

    def remedy(self, trouble: Trouble, device: Device) -> str:
        """Return the remedy for a device's problem; "" where there is none."""
        text, bus = self.remedies.get(trouble, ""), device.pci_bus_id
        if trouble == "held" and text and not in_initial_namespace():
            # A container has no other container's processes.
            text = f"on its host: {text}"
        return text.format(index=bus if device.index < 0 else device.index, bus=bus or device.index)

    def driver_trouble(self, code: int | None, error: str | None) -> str | None:
        """Return why the driver gives no device, and the remedy; None where it reports no reason.

        `code` and `error` are the answer of `driver_probe`.
        """
        return error

    def build(self, framework: str) -> str:
        """Return the remedy where a framework is a build for the CPU."""
        if framework == "torch":
            return self.torch_build
        return self.other_builds.get(framework, f"install a build of {framework} for {self.runtime}")

    def bare_uuid(self, uuid: str) -> str:
        """Return a UUID, as a program reports it, in the form that is used for comparison."""
        lower = uuid.lower()
        for prefix in self.uuid_prefixes:
            lower = lower.removeprefix(prefix.lower())
        return lower

    def fact_names(self, device: Device) -> Mapping[str, str]:
        """Return other names of facts on the device page (`inventory/device_facts.py`).

        "" marks a fact that is never reported for such a device: it is left out where it is not known.
        """
        return self.facts

    def untold(self, device: Device) -> str:
        """Return what cannot be known about the device, and why: a clause, or "" for nothing."""
        return ""

    def place_of(self, uuid: str) -> tuple[str, int | None] | None:
        """Return the bus id in a runtime's UUID, and the number of the device's part there (None: the whole
        device).

        None for a UUID that holds no place.
        """
        return None


class UnknownVendor(Vendor):
    """A vendor that is only a word in a recording: its devices are shown, but nothing makes them visible."""

    def __init__(self, name: str) -> None:
        self.name = self.title = self.runtime = self.device_type = name

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        return (f"no vendor {self.name!r} is installed: the command is not given these devices",)
