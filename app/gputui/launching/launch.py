"""The launch: argv, environment changes, directory. One object is shown, copied, exported and executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.quoting import Quoting, assignment, change_directory, quote, quote_program
from gputui.system.environment import Environ
from gputui.vendors.registry import vendor_named, vendor_of
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Change, Changes, with_changes


@frozen
class OwnDevices:
    """Words of a command that ask for devices other than the selected ones, and cannot be rewritten.

    words    the words as typed: "--hostfile hosts"
    warning  the consequence, as a sentence; it is among the launch's warnings
    listed   the devices that the words name, as in the vendor's variable; None where they name none ("-u …")
    option   the option of gputui that asks for the same devices, None where none does
    """

    words: str
    warning: str
    listed: str | None = None
    option: str | None = None

    @property
    def refusal(self) -> str:
        """The reason that nothing is started, and the remedy: no device is claimed for a command that uses
        others."""
        remedy = f"use {self.option} instead" if self.option else "leave it out"
        return (
            f"{self.words} asks for other devices than gputui would claim; {remedy}"
            " (gputui cannot rewrite it, so --force does not help)"
        )


@frozen
class Inside:
    """The start of a confined launch (confine.py), in which the devices have other numbers.

    argv, changes  as those of the launch, with the numbers that the devices have when no others are visible
    left_out       the device files that it cannot open
    sees           a sentence about the devices that it sees
    """

    argv: tuple[str, ...]
    changes: Changes
    left_out: tuple[str, ...]
    sees: str


@frozen
class Launch:
    """The command that will run. `changes` are (name, value) in the order shown; None unsets the variable.

    warnings     sentences about the user's input and the launcher's treatment of it; they change nothing
    remarks      sentences about the changes that gputui made by itself, and the reasons
    devices      the devices it runs on, in the order in which the program counts them; empty is CPU only
    launcher     the name of the launcher that made it
    vendor_name  `Device.vendor` of the devices; without devices, the vendor that they would have had
    own          the words of the command that ask for other devices and cannot be rewritten, None for none
    refused      another reason that it must not be started, None where there is none
    names        whether the command's own words name the devices, and not the variable alone (deepspeed)
    settings     the values that the launcher reads from the user's configuration file (accelerate), else None
    inside       its start when confined to its devices, None where it is not confined. `started` is executed;
                 everything else here is shown, copied and exported for use elsewhere
    unconfined   the reason that a requested confinement is missing; None where it is not missing
    time_limit   the seconds after which gputui ends the command, None for no limit; not a part of the line
    """

    argv: tuple[str, ...]
    changes: Changes = ()
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
    time_limit: float | None = None

    @property
    def started(self) -> Launch:
        """The launch that is executed. Its numbers mean these devices only where `left_out` cannot be
        opened."""
        if self.inside is None:
            return self
        return replace(self, argv=self.inside.argv, changes=self.inside.changes)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The device files that it cannot open."""
        return self.inside.left_out if self.inside is not None else ()

    def with_changes(self, *changes: Change) -> Launch:
        """The launch with further changes to the environment, confined or not."""
        inside = self.inside and replace(self.inside, changes=(*self.inside.changes, *changes))
        return replace(self, changes=(*self.changes, *changes), inside=inside)

    @property
    def refusal(self) -> str | None:
        """The reason that it must not be started, None where there is none."""
        return self.refused or (self.own.refusal if self.own is not None else None)

    @property
    def script(self) -> str:
        """The file name of the command's script, or else of its program."""
        words = (word for word in self.argv if word.endswith(".py"))
        return next(words, self.argv[0]).rsplit("/", 1)[-1]

    @property
    def notes(self) -> list[str]:
        """The warnings and remarks, a message each."""
        return [*(f"warning: {each}" for each in self.warnings), *(f"note: {each}" for each in self.remarks)]

    @property
    def vendor(self) -> Vendor:
        """The vendor whose variables select the visible devices."""
        return vendor_named(self.vendor_name) if self.vendor_name else vendor_of(self.devices)

    def environment(self, base: Environ) -> dict[str, str]:
        """A copy of `base` with the changes made."""
        return with_changes(base, self.changes)

    @property
    def line(self) -> str:
        """The launch as one line for bash or zsh that can be shown, pasted and run.

        Characters that a screen cannot show are written as `$'\\n'`.
        """
        return self.render(quote)

    def render(self, form: Quoting, program: Callable[[str, Quoting], str] = quote_program) -> str:
        """The line with another quoting of words (`quoting.posix` for a plain sh) and of the program."""
        unset = [name for name, value in self.changes if value is None]
        words = [
            *(["env", *(word for name in unset for word in ("-u", name))] if unset else []),
            *(assignment(name, value, form) for name, value in self.changes if value is not None),
            # `env` takes a program's name with "=" in it as an assignment, however it is quoted.
            *(form(word) if unset else program(word, form) for word in self.argv[:1]),
            *(form(word) for word in self.argv[1:]),
        ]
        line = " ".join(words)
        if not self.directory:
            return line
        return f"{change_directory(self.directory, form)} && {line}"
