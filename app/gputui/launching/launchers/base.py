"""What a launcher is: the base of all, and of those that start Python scripts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.launching.argument_vector import Arguments, OptionTable, read_options, whole_number
from gputui.launching.host_environment import HostEnvironment
from gputui.launching.intent import CommandContext, DeviceCount, Intent
from gputui.launching.launch import OwnDevices
from gputui.launching.launch_options import Meeting
from gputui.launching.launchers.entrypoint import Entrypoint, of_launcher
from gputui.launching.python_command import started_program, words_of_start
from gputui.vendors.registry import default_vendor
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Visibility


@dataclass(frozen=True, slots=True)
class LauncherRequest:
    """A command of the launcher's own that is to be completed, and all that this depends on.

    devices     what it will run on, in order; none is CPU only
    by_uuid     whether devices are named by UUID
    environ     what the command will inherit, the user's additions among it
    typed       the variables that are written before the command: nothing unsets them
    processes   how many the user wants started, None for one a device
    logs        a directory for a log a rank, None for none
    numa        whether processes shall be bound to the CPUs near their devices
    nodes       machines; `rendezvous` is HOST[:PORT] of the first, `meeting` what they have agreed on
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
    meeting: Meeting | None = None
    prefix: tuple[str, ...] = ()
    directory: str | None = None
    vendor: Vendor = field(default_factory=default_vendor)
    typed: frozenset[str] = frozenset()

    def of(self, command: tuple[str, ...]) -> LauncherRequest:
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

    @property
    def one_each(self) -> bool:
        """Whether a process can use one of the devices only, however many it sees: several, with parts."""
        return (
            len(self.devices) > 1
            and bool(self.vendor.one_part)
            and any(device.parent for device in self.devices)
        )


Visible = Literal["variable", "command", "elsewhere"]
"""Where the devices are named: in the variable; by the command itself, which then must not have the variable
besides; or elsewhere (a container, another machine), where ours is not seen."""


@dataclass
class Completed:
    """The command as it will be executed, and what there is to say about it: collected while it is completed.

    warnings   about what the user gave; it is kept as it is
    remarks    about what gputui did on its own account, and why
    own        what the user gave that asks for other devices and cannot be rewritten; its warning is among
               the warnings
    visible    where the devices are named
    changes    variables besides, that the launcher needs set or unset
    ranked     whether the launcher gives its processes every variable of ranks: old ones of a shell (RANK,
               WORLD_SIZE) do not reach them
    refused    why it must not be started, None where nothing speaks against it
    names      whether the command's own words name the devices beside the variable
    settings   what the launcher reads from a configuration file of the user's, None for none
    """

    argv: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    visible: Visible = "variable"
    own: OwnDevices | None = None
    changes: list[tuple[str, str | None]] = field(default_factory=list)
    ranked: bool = False
    refused: str | None = None
    names: bool = False
    settings: Mapping[str, Any] | None = None

    def warn(self, text: str) -> None:
        """A sentence about what the user gave; it is kept as it is."""
        self.warnings.append(text)

    def refuse(self, text: str) -> None:
        """Why it must not be started; the first reason counts."""
        self.refused = self.refused or text

    def remark(self, text: str) -> None:
        """A sentence about what gputui does on its own account, and why."""
        self.remarks.append(text)

    def asks_for_others(self, words: str, warning: str, listed: str | None = None) -> None:
        """Take down that the command asks for other devices than the selected ones (as in `OwnDevices`)."""
        self.warn(warning)
        self.own = self.own or OwnDevices(words, warning, listed)

    def rewritten(self, words: Iterable[str]) -> None:
        """Say that words which name other devices are not in the line any more."""
        self.remark(f"{' '.join(words)} replaced by the selected devices")

    def as_argv(
        self, argv: tuple[str, ...], visible: Visible = "variable", ranked: bool = False
    ) -> Completed:
        """The same with the command."""
        self.argv, self.visible, self.ranked = argv, visible, ranked
        return self


class Launcher(ABC):
    """Makes of the user's command one that starts on the selected devices. Pure.

    name  the word on the screen and of `--launcher`
    chooses_devices  whether it chooses devices itself unless told otherwise, so that only what its processes
                     see proves anything
    """

    name: str
    chooses_devices: bool = False

    @abstractmethod
    def recognises(self, command: Sequence[str]) -> bool:
        """Whether the command starts with this launcher already."""

    @abstractmethod
    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        """What a command of this launcher's own starts."""

    @abstractmethod
    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        """What a command of this launcher's own says of devices; not what the entrypoint says."""

    @abstractmethod
    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        """A command of this launcher's own that starts the entrypoint, without options."""

    @abstractmethod
    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        """A command of this launcher's own, started by that interpreter."""

    @abstractmethod
    def complete(self, request: LauncherRequest) -> Completed:
        """The command for the devices, never doubling what the user gave.

        The devices of the request win: options that name others are rewritten or left out, and a remark says
        so. A number of processes stays as it was typed, with a warning where it is not that of the devices.
        """

    def lost_with_another(self, request: LauncherRequest) -> str | None:
        """What a command of this launcher's own would lose if another one started the same: "FSDP of c.yaml".

        None for nothing that changes the training.
        """
        return None


class ScriptLauncher(Launcher):
    """A launcher of Python scripts: its options, then a script, a module or another program.

    options    its options; among them "module" and "no-python", which say that no script follows
    starts     how its commands begin, the usual way first: "accelerate launch"
    modules    the modules that `python -m` starts it as, the usual one first
    as_module  the option that says that a module follows;  as_program: that another program does
    """

    options: OptionTable
    starts: tuple[str, ...]
    modules: tuple[str, ...]
    as_module: str = "--module"
    as_program: str = "--no_python"

    def split(self, command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words that start the launcher itself (none of another command), and the others."""
        own = words_of_start(command, started_program(command), self.starts, self.modules)
        return tuple(command[:own]), tuple(command[own:])

    def given(self, words: Sequence[str], starter: Sequence[str] = ()) -> Arguments:
        """The words behind the starter, read: the launcher's options, and the script with its own."""
        return read_options(words, self.options)

    def recognises(self, command: Sequence[str]) -> bool:
        return bool(self.split(command)[0])

    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        starter, rest = self.split(command)
        given = self.given(rest, starter)
        left_out = given.without(("module", "no-python")).option_words
        if "no-python" in given:
            return of_launcher(command, "program", given.operands, left_out)
        module = given.operands and "module" in given
        return of_launcher(command, "module" if module else "script", given.operands, left_out)

    def for_script(self, command: Sequence[str], script: Sequence[str]) -> tuple[str, ...]:
        """The same launch of a script in place of what the command starts."""
        starter, rest = self.split(command)
        given = self.given(rest, starter).without(("module", "no-python"))
        return (*starter, *given.option_words, *script)

    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        # (An interpreter that was named has the user's torch.)
        named = entrypoint.python is not None
        starter = entrypoint.by_module(self.modules[0]) if named else tuple(self.starts[0].split())
        if entrypoint.kind == "script":
            return (*starter, *entrypoint.words)
        kind = self.as_module if entrypoint.kind == "module" else self.as_program
        return (*starter, kind, *entrypoint.words)

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        if started_program(command).module is not None:
            # What else the user gave the interpreter stays.
            return (python, *command[1:])
        return (python, "-m", self.modules[0], *self.split(command)[1])


def count_in(given: Arguments, *names: str) -> DeviceCount | None:
    """The number of processes, with a device each, that the last of these options says; None: no number."""
    options = given.named(names)
    number = whole_number(options[-1].value) if options else None
    return DeviceCount(" ".join(options[-1].words), number) if number else None


def contradiction(flag: str, asked: int, devices: int) -> str:
    """That the command asks for another number of processes than there are devices."""
    return f"the command asks for {flag}={asked} on {devices_text(devices)}"
