"""The launch: argv, environment changes, directory. One object that is shown, copied, exported, executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.launching.quoting import Quoting, assignment, quote, quote_program
from gputui.vendors.registry import vendor_named, vendor_of
from gputui.vendors.vendor import Vendor


@dataclass(frozen=True, slots=True)
class OwnDevices:
    """Words of a command that ask for other devices than those it is to run on, and cannot be rewritten.

    words    as they were typed: "--hostfile hosts"
    warning  what comes of it, as a sentence; it is among the launch's warnings
    listed   the devices that they name, as the vendor's variable would; None where they name none ("-u …")
    option   the option of gputui that asks for the same devices, None where none does
    """

    words: str
    warning: str
    listed: str | None = None
    option: str | None = None

    @property
    def refusal(self) -> str:
        """Why nothing is started, and what to do: devices are not claimed for a command that uses others."""
        remedy = f"use {self.option} in its place" if self.option else "leave it out"
        return (
            f"{self.words} asks for other devices than gputui would claim: {remedy}"
            " (gputui cannot rewrite it, and so --force does not help)"
        )


@dataclass(frozen=True, slots=True)
class Inside:
    """How a launch is started where it is confined (confine.py): its devices have other numbers there.

    argv, changes  as those of the launch, with the numbers that the devices have where there are no others
    left_out       the device files that it cannot open
    sees           what it sees, in words
    """

    argv: tuple[str, ...]
    changes: tuple[tuple[str, str | None], ...]
    left_out: tuple[str, ...]
    sees: str


@dataclass(frozen=True, slots=True)
class Launch:
    """What will run. `changes` are (name, value) in the order shown; a value of None unsets the variable.

    warnings   sentences about what the user gave and what the launcher does with it; they change nothing
    remarks    sentences about what gputui did on its own account, and why
    devices    what it runs on, in order: the n-th is the n-th that the program counts; empty is
               CPU only
    launcher   the name of the launcher that made it
    vendor_name  `Device.vendor` of the devices; of a launch without devices, whose they would have been
    own        what in the command asks for other devices than these and cannot be rewritten, None where
               nothing does
    refused    why it must not be started for another reason, None where nothing speaks against it
    names      whether the command's own words name the devices, and not the variable alone (deepspeed)
    settings   what the launcher reads from a configuration file of the user's (accelerate), None for none
    inside     how it is started confined to its devices, None where it is not confined: `started` is what is
               executed, and everything else here what is shown, copied and exported, for other places
    unconfined why it is not confined though it was to be, None where it is or was not to be
    """

    argv: tuple[str, ...]
    changes: tuple[tuple[str, str | None], ...] = ()
    directory: str | None = None
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    launcher: str = "python"
    own: OwnDevices | None = None
    vendor_name: str = ""
    refused: str | None = None
    names: bool = False
    settings: Mapping[str, Any] | None = field(default=None, compare=False)
    inside: Inside | None = None
    unconfined: str | None = field(default=None, compare=False)

    @property
    def started(self) -> Launch:
        """What is executed. Its numbers mean these devices only where `left_out` cannot be opened."""
        if self.inside is None:
            return self
        return replace(self, argv=self.inside.argv, changes=self.inside.changes)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The device files that it cannot open."""
        return self.inside.left_out if self.inside is not None else ()

    def with_changes(self, *changes: tuple[str, str | None]) -> Launch:
        """The launch with further changes to the environment, however it is started."""
        inside = self.inside and replace(self.inside, changes=(*self.inside.changes, *changes))
        return replace(self, changes=(*self.changes, *changes), inside=inside)

    @property
    def refusal(self) -> str | None:
        """Why it must not be started, None where nothing speaks against it."""
        return self.refused or (self.own.refusal if self.own is not None else None)

    @property
    def vendor(self) -> Vendor:
        """Whose variables say which devices are visible."""
        return vendor_named(self.vendor_name) if self.vendor_name else vendor_of(self.devices)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with the changes made; `base` itself stays as it is."""
        environment = dict(base)
        for name, value in self.changes:
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        return environment

    @property
    def line(self) -> str:
        """The launch as one line for bash or zsh that can be shown, pasted and run.

        Characters that a screen could not show as they are, are written as `$'\\n'`.
        """
        return self.render(quote)

    def render(self, form: Quoting, program: Callable[[str, Quoting], str] = quote_program) -> str:
        """The line with another way of quoting a word (`quoting.posix` for a plain sh), and the first one."""
        unset = [name for name, value in self.changes if value is None]
        words = [
            *(["env", *(word for name in unset for word in ("-u", name))] if unset else []),
            *(assignment(name, value, form) for name, value in self.changes if value is not None),
            # `env` takes a program's name with "=" in it for an assignment whatever the quotes.
            *(form(word) if unset else program(word, form) for word in self.argv[:1]),
            *(form(word) for word in self.argv[1:]),
        ]
        line = " ".join(words)
        if not self.directory:
            return line
        # A path that does not begin with "/" could mean the last directory ("-") or one of CDPATH.
        place = self.directory if self.directory.startswith("/") else f"./{self.directory}"
        return f"cd -- {form(place)} && {line}"
