"""The interface of a launcher: the base of all launchers, and of those that start Python scripts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from gputui.inventory.device import Device, has_instances
from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import dataclass, field, frozen
from gputui.launching.argument_vector import Arguments, OptionTable, Split, read_options, whole_number
from gputui.launching.host_environment import HostEnvironment, Version, below
from gputui.launching.intent import CommandContext, DeviceCount, Intent
from gputui.launching.launch import OwnDevices
from gputui.launching.launch_options import Meeting
from gputui.launching.launchers.entrypoint import Entrypoint, of_launcher
from gputui.launching.python_command import started_program, words_of_start
from gputui.system.environment import Environ
from gputui.vendors.registry import default_vendor
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Change, Visibility


@frozen
class LauncherRequest:
    """A command of the launcher that is to be completed, and everything that the completion depends on.

    devices     the devices to run on, in order; none means CPU only
    by_uuid     whether devices are named by UUID
    environ     the environment that the command will inherit, with the user's additions
    typed       the variables written before the command, which nothing unsets
    processes   the requested number of processes, None for one per device
    logs        a directory for one log per rank, None for none
    numa        whether to bind processes to the CPUs near their devices
    nodes       machines; `rendezvous` is HOST[:PORT] of the first, `meeting` their agreement
    prefix      the words before the command (`uv run`)
    directory   where it is started, None for the current directory
    vendor      the vendor of the devices, whose variables count
    """

    command: tuple[str, ...]
    devices: tuple[Device, ...]
    environ: Environ
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

    @property
    def count(self) -> int:
        """The number of processes to start: the requested one, else one per device, and one without a
        device."""
        return self.processes or max(1, len(self.devices))

    @property
    def path(self) -> str | None:
        """The path of the program that the command starts; None where it is not known.

        After `uv run` and similar wrappers, the PATH is another one.
        """
        name = self.command[0] if self.command else ""
        if "/" in name:
            name = below(self.directory, name)
        elif not name or self.prefix:
            return None
        return self.host_environment.program(name, self.environ)

    @property
    def torch(self) -> Version | None:
        """The version of the torch that the command starts, None where it is not known."""
        return self.host_environment.version("torch", self.path) if self.path else None

    @property
    def visibility(self) -> Visibility:
        """The variables that make the devices visible."""
        return self.vendor.visibility

    @property
    def by_index(self) -> bool:
        """Whether the devices can be named by their indices, and are to be."""
        return not self.by_uuid and not has_instances(self.devices)

    @property
    def one_each(self) -> bool:
        """Whether a process can use only one of the devices, however many it sees: several devices, parts
        among them."""
        return len(self.devices) > 1 and bool(self.vendor.one_part) and has_instances(self.devices)


Visible = Literal["variable", "command", "elsewhere"]
"""Where the devices are named: in the variable; by the command itself, which then must not have the variable;
or elsewhere (a container, another machine), where our variable has no effect."""


@dataclass
class Completed:
    """The command as it will be executed, with the messages about it, which are collected while it is
    completed.

    warnings   about the user's input, which is kept as it is
    remarks    about the changes that gputui made by itself, and the reasons
    own        words of the user that ask for other devices and cannot be rewritten; their warning is among
               the warnings
    visible    where the devices are named
    changes    further variables that the launcher needs set or unset
    ranked     whether the launcher sets every variable of ranks for its processes: left-over ones of a shell
               (RANK, WORLD_SIZE) do not reach them
    refused    the reason that it must not be started, None for none
    names      whether the command's own words name the devices besides the variable
    settings   the values that the launcher reads from a configuration file of the user, None for none
    """

    argv: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    visible: Visible = "variable"
    own: OwnDevices | None = None
    changes: list[Change] = field(default_factory=list)
    ranked: bool = False
    refused: str | None = None
    names: bool = False
    settings: Mapping[str, Any] | None = None

    def warn(self, text: str) -> None:
        """Add a sentence about the user's input, which is kept as it is."""
        self.warnings.append(text)

    def refuse(self, text: str) -> None:
        """Set the reason that it must not be started; the first reason counts."""
        self.refused = self.refused or text

    def remark(self, text: str) -> None:
        """Add a sentence about a change that gputui makes by itself, and its reason."""
        self.remarks.append(text)

    def check_rank(self, words: str, rank: str, machines: int) -> None:
        """Refuse the number of a machine that is not among them: the start would wait for ever."""
        if re.fullmatch("-?[0-9]+", rank) and whole_number(rank) not in range(machines):
            self.refuse(
                f"{words}: machines are numbered from 0, and the last of {machines} is {machines - 1}"
            )

    def asks_for_others(self, words: str, warning: str, listed: str | None = None) -> None:
        """Record that the command asks for devices other than the selected ones (as in `OwnDevices`)."""
        self.warn(warning)
        self.own = self.own or OwnDevices(words, warning, listed)

    def rewritten(self, words: Iterable[str]) -> None:
        """Report that words which name other devices are no longer in the line."""
        self.remark(f"{' '.join(words)} replaced by the selected devices")

    def as_argv(
        self, argv: tuple[str, ...], visible: Visible = "variable", ranked: bool = False
    ) -> Completed:
        """Return the same with this command."""
        self.argv, self.visible, self.ranked = argv, visible, ranked
        return self


class Launcher(ABC):
    """Turns the user's command into one that starts on the selected devices. Pure.

    name             the word on the screen and of `--launcher`
    chooses_devices  whether it chooses devices itself unless told otherwise, so that only the view of its
                     processes proves anything
    """

    name: str
    chooses_devices: bool = False

    @abstractmethod
    def recognises(self, command: Sequence[str]) -> bool:
        """Whether the command already starts with this launcher."""

    @abstractmethod
    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        """Return the entrypoint of a command of this launcher."""

    @abstractmethod
    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        """Return what a command of this launcher says about devices, without what its entrypoint says."""

    @abstractmethod
    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        """Return a command of this launcher that starts the entrypoint, without options."""

    @abstractmethod
    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        """Return a command of this launcher, started by that interpreter."""

    @abstractmethod
    def complete(self, request: LauncherRequest) -> Completed:
        """Complete the command for the devices; options that the user gave are never added again.

        The devices of the request win: options that name others are rewritten or left out, and a remark says
        so. A number of processes stays as it was typed, with a warning where it is not that of the devices.
        """

    def lost_with_another(self, request: LauncherRequest) -> str | None:
        """Return what a command of this launcher would lose if another one started the same: "FSDP from
        c.yaml".

        None where nothing changes the training.
        """
        return None


class ScriptLauncher(Launcher):
    """A launcher of Python scripts: its options, then a script, a module or another program.

    options    its options; among them "module" and "no-python", which say that no script follows
    starts     the beginnings of its commands, the usual one first: "accelerate launch"
    modules    the modules by which `python -m` starts it, the usual one first
    as_module  the option that says that a module follows; `as_program`: the same for another program
    """

    options: OptionTable
    starts: tuple[str, ...]
    modules: tuple[str, ...]
    as_module: str = "--module"
    as_program: str = "--no_python"

    def split(self, command: Sequence[str]) -> Split:
        """Split off the words that start the launcher itself (none for another command)."""
        own = words_of_start(command, started_program(command), self.starts, self.modules)
        return tuple(command[:own]), tuple(command[own:])

    def given(self, words: Sequence[str], starter: Sequence[str] = ()) -> Arguments:
        """Parse the words after the start: the launcher's options, and the script with its own."""
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
        """Return the same launch with a script in place of the entrypoint."""
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
            # Other options that the user gave the interpreter stay.
            return (python, *command[1:])
        return (python, "-m", self.modules[0], *self.split(command)[1])


def count_in(given: Arguments, *names: str) -> DeviceCount | None:
    """Return the number of processes, one per device, that the last of these options gives; None: not a
    number."""
    options = given.named(names)
    number = whole_number(options[-1].value) if options else None
    return DeviceCount(" ".join(options[-1].words), number) if number else None


def contradiction(flag: str, asked: int, devices: int) -> str:
    """The warning that the command asks for another number of processes than there are devices."""
    return f"the command asks for {flag}={asked} on {devices_text(devices)}"
