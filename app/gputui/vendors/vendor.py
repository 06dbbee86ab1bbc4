"""The vendor port: what gputui asks of a maker of accelerators, beside the facts that a device itself has.

A vendor is a subclass of `Vendor` with one instance, `VENDOR` in its module. Those that gputui brings are
folders beside this file; any other is found through the entry point group `gputui.vendors` of a distribution
whose name begins with `gputui-` (`registry.py`). Everything else of gputui knows vendors by this class only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.vendors.visibility import Visibility

if TYPE_CHECKING:
    from pathlib import Path

    from gputui.sources.source import Source


class Containers(ABC):
    """How a container is given a vendor's devices."""

    @abstractmethod
    def docker(self, devices: Sequence[Device]) -> list[str]:
        """The words of `docker run` for these devices."""

    @abstractmethod
    def podman(self, devices: Sequence[Device]) -> list[str]:
        """The words of `podman run` for these devices."""

    @abstractmethod
    def gives_devices(self, option: str, value: str) -> bool:
        """Whether an option of `run` (its long name, no dashes) gives a container the vendor's devices."""


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

    For `check`, which asks the command's own interpreter:
    backend            of torch.distributed, that the devices' collectives run on
    driver             the name of the driver's own interface, in a sentence
    driver_probe       a script for Python 3.8 and newer, without imports of gputui, whose `driver()` returns
                       {"error", "code", "version", "devices": [{"uuid", "bus", "name", "memory"}]} as
                       the driver itself has them; None: only torch is asked
    torch_build        what to do where torch is a build for the CPU
    """

    name: str = ""
    title: str = ""
    runtime: str = ""
    device_type: str = ""
    uuid_prefixes: tuple[str, ...] = ()
    visibility: Visibility = Visibility()
    containers: Containers | None = None
    environment_hints: tuple[tuple[str, str, str], ...] = ()
    backend: str = "gloo"
    driver: str = "the driver"
    torch_build: str = "see https://pytorch.org/get-started/locally"

    @property
    def driver_probe(self) -> Path | None:
        return None

    def source(self) -> Source:
        """Where facts of the vendor's devices on this machine come from; not open yet."""
        raise NotImplementedError

    def device(self, number: int) -> str:
        """What a program calls the selected device of that number, counted from 0."""
        return f"{self.device_type}:{number}"

    def launch_warnings(
        self, devices: Sequence[Device], environ: Mapping[str, str], by_index: bool
    ) -> tuple[str, ...]:
        """What a launch on these devices must be warned of; `by_index`: whether it names them by index."""
        return ()

    def driver_trouble(self, code: int | None, error: str | None) -> str | None:
        """Why the driver gives no device, and what helps; None where it does not say.

        `code` and `error` are what `driver_probe` answered.
        """
        return error

    def bare_uuid(self, uuid: str) -> str:
        """A UUID as programs tell it, in the one form in which two are compared."""
        lower = uuid.lower()
        for prefix in self.uuid_prefixes:
            lower = lower.removeprefix(prefix.lower())
        return lower


class UnknownVendor(Vendor):
    """A vendor that is only a word in a recording: its devices are shown, nothing makes them visible."""

    def __init__(self, name: str) -> None:
        self.name = self.title = self.runtime = self.device_type = name

    def launch_warnings(
        self, devices: Sequence[Device], environ: Mapping[str, str], by_index: bool
    ) -> tuple[str, ...]:
        return (f"no vendor {self.name!r} is installed: the command is not given these devices",)
