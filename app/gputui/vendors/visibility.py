"""Reads and writes the environment variables that limit a program to some devices.

A vendor sets the attributes of `Visibility`. A vendor whose list follows other rules overrides the methods:
here, for example, an entry that names no device ends the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal

from gputui.inventory.device import Device, one_model
from gputui.inventory.formatting import is_digits
from gputui.inventory.light_dataclasses import frozen
from gputui.system.environment import Assignments, Environ, Variables

Ids = Literal["index", "uuid"]
"""How a program is told which devices: by the vendor's own index, or by UUID."""

Confine = Literal["auto", "always", "never"]
"""Whether a program is kept from opening other devices.

auto    where confinement is proved to work and nothing speaks against it
always  always; the program is not started where it cannot be confined
never   never
"""

CONFINE: tuple[Confine, ...] = ("auto", "always", "never")

CONFINED = "GPUTUI_CONFINED"
"""The variable that marks a program as confined: a gputui inside counts devices as the driver does."""

Change = tuple[str, str | None]
"""A variable and its new value; None unsets it."""

Changes = tuple[Change, ...]
"""Changes to an environment in display order."""


def with_changes(environ: Variables, changes: Iterable[Change]) -> dict[str, str]:
    """Return the environment with the changes made."""
    return {name: value for name, value in {**environ, **dict(changes)}.items() if value is not None}


@frozen
class Inherited:
    """Lists of devices that were set when gputui started (by Slurm, a container, a shell). They limit gputui.

    settings  the variables and their values as they were found
    keys      the devices that are left to gputui (`Device.key`), in the order of the lists
    warning   the part of a list that does not mean what it seems to mean; None where there is none
    note      which devices the list means, where its indices are not `Device.index`; else None
    unknown   why the devices of the list cannot be known, and the remedy; `keys` then has every device
    """

    settings: Assignments
    keys: tuple[str, ...]
    warning: str | None = None
    note: str | None = None
    unknown: str | None = None

    @property
    def words(self) -> str:
        """The settings in shell syntax: "NAME=2,0"."""
        return " ".join(f"{name}={text}" for name, text in self.settings)

    @property
    def unset(self) -> str:
        """The command prefix that unsets the variables for one command: "env -u NAME"."""
        return " ".join(["env", *(f"-u {name}" for name, _ in self.settings)])


@frozen
class Listed:
    """What a list of devices means to the program that reads it.

    devices  in the program's order, up to the entry where its reader stops
    warning  the part of the list that does not mean what it seems to mean; None where there is none
    unknown  why the devices behind its indices cannot be known; None where they are known; without `devices`
    """

    devices: tuple[Device, ...]
    warning: str | None = None
    unknown: str | None = None


class Visibility:
    """The variables of one vendor. Stateless.

    variable       the list of visible devices; "" where the vendor has none
    order          the variable and its value that make an index in the list mean `Device.index`; None where
                   an index always means that
    none           the value of the list that shows no device
    none_in_words  such a value that is not empty, for shells that cannot set a variable to the empty string
    order_in_words the meaning of the list's order, where programs do not count its devices in that order
    uuid_prefixes  how a UUID in the list begins; () where the list takes indices only
    begins_with    whether a leading number is read as the index ("1gpu" is 1), as strtoul(3) reads it
    slurm          the variable that Slurm sets for a job; "" where that is `variable`
    also           other variables that determine the devices, in a container for example
    reader         the name of the list's reader, in a sentence
    """

    variable: str = ""
    order: tuple[str, str] | None = None
    none: str = ""
    none_in_words: str = "-1"
    order_in_words: str = ""
    uuid_prefixes: tuple[str, ...] = ()
    begins_with: bool = False
    slurm: str = ""
    also: tuple[str, ...] = ()
    reader: str = "the driver"

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that a launch sets: the list, and the variable for its counting order."""
        listed = (self.variable,) if self.variable else ()
        return (*listed, self.order[0]) if self.order else listed

    def identifiers(self, devices: Sequence[Device], ids: Ids = "index") -> str:
        """Return the devices as the list names them: no spaces, no mixed forms, instances always by UUID."""
        if self.uuid_prefixes and (
            any(device.parent for device in devices)
            or (ids == "uuid" and all(d.name_by_uuid for d in devices))
        ):
            # A device can be named only by its index if it failed before its UUID was read,
            # or if it shares the UUID.
            return ",".join(device.uuid for device in devices)
        return ",".join(str(self.number(device)) for device in devices)

    def number(self, device: Device) -> int:
        """Return the number by which the list names a device."""
        return device.index

    def changes(self, devices: Sequence[Device], ids: Ids = "index") -> Changes:
        """Return the changes that make exactly `devices` visible, in this order; () means CPU only."""
        if not self.variable:
            return ()
        text = self.identifiers(devices, ids) if devices else self.none
        if self.order and devices and text[0].isdigit():
            return (self.order, (self.variable, text))
        return ((self.variable, text),)

    def changes_beside_own_list(self, devices: Sequence[Device]) -> Changes:
        """Return the changes for a command that names `devices` by index itself and must not have a list."""
        order = (self.order,) if self.order else ()
        return (*order, (self.variable, None)) if self.variable else order

    def changes_here(self, environ: Environ) -> Changes:
        """Return the changes to make before `changes` in this environment: they unset lists that the runtime
        applies before ours."""
        return ()

    def lists_in(self, environ: Environ) -> bool:
        """Return whether the environment has a list that the vendor's runtime reads."""
        return bool(self.variable) and self.variable in environ

    def list_among(self, variables: Variables) -> tuple[str, str | None] | None:
        """Return the list among the variables that a command sets (None: unsets), as written, and its entries
        by our indices; None where there is none."""
        if not self.variable or self.variable not in variables:
            return None
        text = variables[self.variable]
        return f"-u {self.variable}" if text is None else f"{self.variable}={text}", text

    def means_our_indices(self, changes: Variables) -> bool:
        """Return whether an index means `Device.index` to a program that is started with these changes."""
        return self.order is None or self.order[0] in changes

    def entries(self, text: str) -> tuple[str, ...]:
        """Return the entries of a list up to the first that can name no device: the reader stops there."""
        entries = map(str.strip, text.split(","))
        return tuple(takewhile(lambda entry: is_digits(entry) or self._looks_like_uuid(entry), entries))

    def names_these(self, text: str, devices: Sequence[Device]) -> bool:
        """Return whether a list names exactly these devices, in any order."""
        left = list(devices)
        for entry in self.entries(text):
            found = next((device for device in left if self._is_named(device, entry)), None)
            if found is None:
                return False
            left.remove(found)
        return not left

    def names_in_order(self, text: str | None, devices: Sequence[Device]) -> bool:
        """Return whether a list names exactly these devices, in this order; None is no list."""
        entries = self.entries(text or "")
        return (
            text is not None
            and len(entries) == len(devices)
            and all(self._is_named(device, entry) for device, entry in zip(devices, entries, strict=True))
        )

    def names_others(self, text: str, devices: Sequence[Device], by_index: bool = True) -> bool:
        """Return whether a list names a device that is not among these.

        `by_index`: whether its numbers mean `Device.index`; otherwise the devices behind them are not known.
        """
        return any(
            (entry.isdigit() and not by_index) or not any(self._is_named(device, entry) for device in devices)
            for entry in self.entries(text)
        )

    def may_count_otherwise(self, text: str, environ: Environ) -> bool:
        """Return whether a list names devices by indices that may not be `Device.index` in that environment.

        `Want.ORDER` reads what they are.
        """
        first = text.partition(",")[0].strip()
        return self.order is not None and is_digits(first) and environ.get(self.order[0]) != self.order[1]

    def own_order(self, gpus: Sequence[Device]) -> tuple[Device | None, ...]:
        """Return GPUs of several models in the runtime's own order, which holds unless `order` is set.

        None for each place whose GPU is not known.
        """
        return (None,) * len(gpus)

    def listed(
        self, text: str, environ: Environ, devices: Sequence[Device], words: str | None = None
    ) -> Listed:
        """Return the devices that a list means to a program with this environment.

        `devices` are all devices of the vendor, read with `Want.ORDER` where the list `may_count_otherwise`.
        `words` names the list in a message ("--gpu_ids 0,1"); None: the variable.
        """
        setting = words or f"{self.variable}={text}"
        counted = self._counted(text, environ, devices)
        found: list[Device] = []
        entries = self._split(text) if text.strip() else []
        first = self._form(entries[0]) if entries else ""
        alike = list(takewhile(lambda entry: self._form(entry) == first, entries if first else ()))
        for place, entry in enumerate(alike):
            if entry in alike[:place]:
                # The list's reader checks for duplicates before it looks up the devices.
                return Listed((), f"{setting}: {entry!r} appears twice; {self.reader} then sees no device")
        for entry in entries:
            if counted and is_digits(entry):
                number = entry.lstrip("0") or "0"
                device = counted.get(number)
                if device is None and number in counted:
                    return Listed((), unknown=self._unknown(setting, entry))
            else:
                device = self._device(entry, devices)
            why = None
            if device is None:
                # The first entry that names nothing ends the list, as it does for the reader.
                why = f"{setting}: {entry!r} names no device of this box; {self.reader} stops there"
            elif self._form(entry) != self._form(entries[0]):
                why = f"{setting}: {entry!r} has another form than the first entry; {self.reader} stops there"
            elif device in found:
                why = f"{setting}: {entry!r} appears twice; {self.reader} then sees no device"
                found = []
            if device is None or why is not None:
                return Listed(tuple(found), why)
            found.append(device)
        read = (
            f"{setting}: {given.strip()!r} is read as {entry}"
            for given, entry in zip(text.split(","), entries, strict=False)
            if given.strip() not in (entry, "") and given.strip().lstrip("0") != entry.lstrip("0")
        )
        return Listed(tuple(found), next(read, None))

    def _split(self, text: str) -> list[str]:
        """Return the entries of a list, an index in digits. Spaces may surround an index, but not a UUID."""
        entries = text.split(",")
        if self._form(entries[0]) in self.uuid_prefixes:
            return entries
        found = []
        for entry in entries:
            number = _NUMBER.match(entry.strip())
            if number is None or not (self.begins_with or number[0] == entry.strip()):
                found.append(entry)
            else:
                found.append(number[1].lstrip("0") or "0")
        return found

    def _counted(self, text: str, environ: Environ, devices: Sequence[Device]) -> dict[str, Device | None]:
        """Return the GPUs by the indices that a list counts them by, None where a GPU is not known.

        {} where those indices are `Device.index`.
        """
        gpus = [device for device in devices if device.parent is None]
        if not self.may_count_otherwise(text, environ) or one_model(gpus):
            return {}
        return {str(place): gpu for place, gpu in enumerate(self.own_order(gpus))}

    def _unknown(self, setting: str, entry: str) -> str:
        assert self.order is not None  # else every index is `Device.index`
        name, value = self.order
        return (
            f"{setting} counts the fastest device first, because {name} is not {value};"
            f" it is unknown which device is number {entry}"
        )

    def inherited(self, environ: Environ, devices: Sequence[Device]) -> Inherited | None:
        """Return which of the vendor's `devices` the environment leaves to gputui; None where no list is set.

        The devices must be read with `Want.ORDER` where the list `may_count_otherwise`.
        """
        text = environ.get(self.variable) if self.variable else None
        if text is None:
            return None
        settings = ((self.variable, text),)
        listed = self.listed(text, environ, devices)
        if listed.unknown is not None and self.order is not None:
            gpus = tuple(device for device in devices if device.parent is None)
            # A list of every GPU means every GPU in any order.
            everything = self.names_these(text, gpus)
            remedy = f"`{self.order[0]}={self.order[1]} gputui …` counts in bus order; or name them by UUID"
            unknown = None if everything else f"{listed.unknown}; {remedy}"
            return Inherited(settings, tuple(device.key for device in devices), unknown=unknown)
        keys = tuple(device.key for device in listed.devices)
        note = None
        if self.may_count_otherwise(text, environ) and not self.names_in_order(
            ",".join(self.entries(text)[: len(keys)]), listed.devices
        ):
            numbers = ",".join(str(device.index) for device in listed.devices)
            note = (
                f"{self.variable}={text} is GPU {numbers} here: {self.reader} counts the fastest device first"
            )
        return Inherited(settings, keys, listed.warning, note)

    def _looks_like_uuid(self, entry: str) -> bool:
        return bool(re.fullmatch("[0-9A-Za-z/-]+", entry)) and any(
            entry.startswith(prefix) and entry != prefix for prefix in self.uuid_prefixes
        )

    def _is_named(self, device: Device, entry: str) -> bool:
        if is_digits(entry):
            return device.parent is None and str(device.index) == (entry.lstrip("0") or "0")
        return bool(self._form(entry)) and device.uuid.startswith(entry)

    def _form(self, entry: str) -> str:
        """Return the kind of name of an entry: a list ends at the first entry of another kind."""
        if entry.isdigit():
            return "index"
        return next((prefix for prefix in self.uuid_prefixes if entry.startswith(prefix)), "")

    def _device(self, entry: str, devices: Sequence[Device]) -> Device | None:
        found = [device for device in devices if self._is_named(device, entry)]
        return found[0] if len(found) == 1 else None


_NUMBER = re.compile(r"(?:\+|-(?=0+(?![0-9])))?([0-9]+)", re.ASCII)
"""A number that is not negative; "-0" counts as 0."""
