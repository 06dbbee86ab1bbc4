"""What a launcher is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from gputui.inventory.device import Device
from gputui.launching.host_environment import HostEnvironment
from gputui.launching.launch import OwnDevices
from gputui.launching.launchers.payload import Payload
from gputui.vendors.registry import default_vendor
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Visibility


@dataclass(frozen=True, slots=True)
class Request:
    """A command of the launcher's own that is to be completed, and all that this depends on.

    devices     what it will run on, in order; none is CPU only
    by_uuid     whether devices are named by UUID
    environ     what the command will inherit, the user's additions among it
    processes   how many the user wants started, None for one a device
    logs        a directory for a log a rank, None for none
    numa        whether processes shall be bound to the CPUs near their devices
    nodes       machines; `rendezvous` is HOST[:PORT] of the first
    prefix      what stands before the command (`uv run`)
    directory   where it is started, None for here
    vendor      of the devices: whose variables count
    """

    command: tuple[str, ...]
    devices: tuple[Device, ...]
    environ: Mapping[str, str]
    host_environment: HostEnvironment
    by_uuid: bool = False
    processes: int | None = None
    logs: str | None = None
    numa: bool = False
    nodes: int = 1
    rendezvous: str | None = None
    prefix: tuple[str, ...] = ()
    directory: str | None = None
    vendor: Vendor = field(default_factory=default_vendor)

    def of(self, command: tuple[str, ...]) -> Request:
        """The same for another command."""
        return replace(self, command=command)

    @property
    def count(self) -> int:
        """How many processes to start: what the user says, else one a device, and one without a device."""
        return self.processes or max(1, len(self.devices))

    @property
    def path(self) -> str | None:
        """The path of the program that the command starts; None where that cannot be told.

        Behind `uv run` and its like the PATH is another.
        """
        name = self.command[0] if self.command else ""
        if "/" in name:
            name = os.path.join(self.directory or "", name)  # noqa: PTH118 - "./x" stays "./x"
        elif not name or self.prefix:
            return None
        return self.host_environment.program(name, self.environ)

    @property
    def visibility(self) -> Visibility:
        """The variables that make the devices visible."""
        return self.vendor.visibility

    @property
    def by_index(self) -> bool:
        """Whether the devices can be named, and are to be, by their indices."""
        return not self.by_uuid and not any(device.parent for device in self.devices)


@dataclass(frozen=True, slots=True)
class Completed:
    """The command as it will be executed, and what there is to say about it.

    warnings   about what the user gave; it is kept as it is
    remarks    about what the launcher did of itself, and why
    own        what the user gave that asks for other devices; its warning is among the warnings
    visible    where the devices are named: in the variable, or by the command itself, which then must not
               have the variable besides
    """

    argv: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    visible: Literal["variable", "command"] = "variable"
    own: OwnDevices | None = None


class Launcher(Protocol):
    """Makes of the user's command one that starts on the chosen devices. Pure."""

    @property
    def name(self) -> str:
        """The word on the screen and of `--launcher`."""

    def recognises(self, command: Sequence[str]) -> bool:
        """Whether the command starts with this launcher already."""

    def payload(self, command: Sequence[str]) -> Payload:
        """What a command of this launcher's own starts."""

    def start(self, payload: Payload) -> tuple[str, ...]:
        """A command of this launcher's own that starts the payload, without options."""

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        """A command of this launcher's own, started by that interpreter."""

    def complete(self, request: Request) -> Completed:
        """The command for the devices, never doubling what the user gave.

        What contradicts the selection is kept and named in a warning, not mended in silence.
        """


@dataclass
class Saying:
    """Collects what a launcher has to say while it completes a command."""

    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    own: OwnDevices | None = None

    def asks_for_others(
        self,
        words: str,
        warning: str,
        listed: str | None = None,
        option: str | None = None,
        ignored: bool = False,
    ) -> None:
        """Take down that the command asks for other devices than the selected ones (as in `OwnDevices`)."""
        self.warnings.append(warning)
        self.own = self.own or OwnDevices(words, warning, listed, option, ignored)


def devices_text(count: int) -> str:
    """ "1 device", "2 devices"."""
    return "1 device" if count == 1 else f"{count} devices"


def contradiction(flag: str, asked: int, devices: int) -> str:
    """That the command asks for another number of processes than there are devices."""
    return f"the command asks for {flag}={asked} on {devices_text(devices)}"
