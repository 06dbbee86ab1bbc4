"""The report of a check: the selected devices against those that an interpreter sees, one by one. Pure.

A device is identified by its UUID; where that is not known, by its bus id; never by its name and memory,
because several devices may be alike. If the box has only one device of the vendor, it can be no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

from gputui.checking.answer import Framework, Seen, SeenDevice, same_bus
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.vendors.registry import vendor_named
from gputui.vendors.vendor import Vendor

State = Literal["equal", "differs", "missing", "extra", "unsure"]
"""missing: selected, not seen; extra: seen, not selected; unsure: it may be the device or one like it."""


@frozen
class Comparison:
    """One number of a program's devices: the selected device, the device there, and whether they are equal.

    why  the end of a sentence where they differ: "is GPU 3, GPU 5 is TYPE:1"
    """

    chosen: Device | None
    seen: SeenDevice | None
    state: State
    why: str = ""

    @property
    def verdict(self) -> str:
        """ "equal"; another state with its reason."""
        return self.state if self.state == "equal" else f"{self.state}: {self.why}"

    def selected_in(self, snapshot: Snapshot) -> str:
        """The selected device: "GPU 3", "none"."""
        return "none" if self.chosen is None else f"GPU {snapshot.label(self.chosen)}"


@frozen
class Variable:
    """An environment variable that the launch changes: its value in the launch and in the interpreter."""

    name: str
    launch: str | None
    seen: str | None

    @property
    def equal(self) -> bool:
        return self.launch == self.seen


@frozen
class Report:
    """The result of a check.

    argv       how the interpreter was started, without our script
    doubt      why it may not be the interpreter that will train
    vendor     the vendor of the devices; for a launch without devices, the vendor whose devices were hidden
    seen       its answer; None where there is none, and `trouble` gives the reason
    ranks      the number of the launcher's processes that answered; 1 without a launcher
    """

    devices: tuple[Device, ...]
    snapshot: Snapshot
    vendor: Vendor
    argv: tuple[str, ...] = ()
    doubt: str | None = None
    seen: Seen | None = None
    trouble: str | None = None
    variables: tuple[Variable, ...] = ()
    ranks: int = 1

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Each device by its number in a program; () without an answer."""
        return compare(self.devices, self.seen.devices, self.snapshot) if self.seen else ()

    @property
    def equal(self) -> bool:
        """Whether the interpreter provably sees the selected devices, in the selected order."""
        return self._sound and all(each.state == "equal" for each in self.comparisons)

    @property
    def status(self) -> str:
        """equal; differs; unsure: nothing differs, but the devices cannot be identified; failed: there was no
        answer to compare."""
        if self.seen is None:
            return "failed"
        return "equal" if self.equal else "unsure" if self._only_unsure else "differs"

    @property
    def _sound(self) -> bool:
        """Whether there is an answer in which only the devices can differ."""
        answered = self.seen is not None and self.trouble is None and not self._broken
        return answered and all(variable.equal for variable in self.variables)

    @property
    def _only_unsure(self) -> bool:
        """Whether the number of devices is as selected, and only the identity of some is unknown."""
        return self._sound and {each.state for each in self.comparisons} in ({"unsure"}, {"unsure", "equal"})

    @property
    def _framework(self) -> Framework | None:
        return self.seen.framework if self.seen else None

    @property
    def _who(self) -> str:
        """The program that saw the devices: "torch 2.8.0+cu128", or the driver."""
        own = self._framework
        return f"{own.name} {own.version}" if own and own.version else self.vendor.driver

    @property
    def _broken(self) -> bool:
        """A framework that cannot be imported trains on no device."""
        return self._framework is not None and self._framework.version is None

    @property
    def conclusion(self) -> str:
        """The check in one sentence, with the remedy where there is one."""
        if self.seen is None or self.trouble is not None:
            return f"not proved: {self.trouble or 'the interpreter did not answer'}"
        own = self._framework
        if own is not None and self._broken:
            return f"not equal: {own.name} cannot be imported: {own.error}"
        wrong = [variable for variable in self.variables if not variable.equal]
        bad = [each for each in self.comparisons if each.state != "equal"]
        if wrong and (bad or not self.devices or len(wrong) == len(self.variables)):
            return f"not equal: {_changed(wrong[0])}"
        if self._only_unsure:
            count = len(self.devices)
            number = "one device, as selected" if count == 1 else f"{count} GPUs, as many as selected"
            return f"not proved: {self._who} sees {number}, and reports nothing that identifies them"
        if bad:
            return f"not equal: {self._nothing_seen or self._first_difference}"
        if wrong:
            return f"not equal: {_changed(wrong[0])}"
        if not self.devices:
            return f"equal: {self._who} sees no device, as selected (CPU only)"
        count = len(self.devices)
        several = f"the {count} selected devices, in the selected order"
        devices = "the selected device" if count == 1 else several
        if self.seen.told_by_driver:
            # The framework numbers its devices as the driver does, but does not identify them.
            return f"equal: {self._who} sees {count}, and {self.vendor.driver} shows its process {devices}"
        return f"equal: {self._who} sees {devices}"

    @property
    def _nothing_seen(self) -> str | None:
        """Why no device at all is seen, and the remedy; None where some are seen."""
        if self.seen is None or self.seen.devices or not self.devices:
            return None
        own, driver = self.seen.framework, self.seen.driver
        there = compare(self.devices, driver.devices, self.snapshot)
        shown = all(each.state == "equal" for each in there)
        driver_itself = self.vendor.driver[:1].upper() + self.vendor.driver[1:]
        besides = f". ({driver_itself} itself shows the selected devices, in their order)"
        if own is not None and own.cpu_build:
            text = f"this {own.name} ({own.version}) is a CPU build: it sees no {self.vendor.title} device; "
            return f"{text}{self.vendor.build(own.name)}{besides if shown else ''}"
        reason = self.vendor.driver_trouble(driver.code, driver.error) or (own.error if own else None)
        if own is not None and driver.devices:
            remedy = None if own.name == "torch" and reason else self.vendor.build(own.name)
            why = "; ".join(part for part in (reason, remedy) if part)
            return f"{own.name} sees no device: {why}{besides if shown else ''}"
        if own is None and self.vendor.driver_probe is None:
            return "nothing is proved without a framework; --python PY names an interpreter that has one"
        return f"no device is seen: {reason or 'the driver has none for this environment'}"

    @property
    def _first_difference(self) -> str:
        number, each = next((n, c) for n, c in enumerate(self.comparisons) if c.state != "equal")
        chosen, seen = len(self.devices), len(self.seen.devices) if self.seen else 0
        more = f"; {chosen} selected, {seen} seen" if chosen != seen else ""
        return f"{self.vendor.device(number)} {each.why}{more}"


def _changed(variable: Variable) -> str:
    said = "unset" if variable.launch is None else f"{variable.launch!r}"
    has = "not set" if variable.seen is None else f"{variable.seen!r}"
    return f"the launch sets {variable.name} to {said}, but the interpreter has {has}: something changes it"


def compare(chosen: Sequence[Device], seen: Sequence[SeenDevice], box: Snapshot) -> tuple[Comparison, ...]:
    """Compare number by number. `box` has all devices, so that a wrong device can be named."""
    compared: list[Comparison] = []
    for wanted, found in zip_longest(chosen, seen):
        same = is_same(wanted, found) if wanted and found else False
        if wanted and found and same is None:
            compared.append(Comparison(wanted, found, *_by_looks(wanted, found, box)))
            continue
        state: State = "equal" if same else "differs" if wanted and found else "extra" if found else "missing"
        why = "" if same else _elsewhere(wanted, found, seen, box)
        compared.append(Comparison(wanted, found, state, why))
    return tuple(compared)


def is_same(device: Device, seen: SeenDevice) -> bool | None:
    """Whether this is the same device; None where that cannot be decided."""
    bare = vendor_named(device.vendor).bare_uuid
    if seen.uuid is not None and device.uuid:
        if device.parent is not None and seen.uuid == bare(device.parent):
            # An older driver and torch report only the GPU of an instance.
            return None
        if seen.uuid != bare(device.uuid):
            return False
        if device.uuid_usable:
            return True
        # A UUID that several devices share proves only that it may be this one; the bus id may decide.
    if seen.bus is not None and device.pci_bus_id is not None:
        if not same_bus(seen.bus, device.pci_bus_id):
            return False
        if device.partition is not None and seen.part is not None:
            return device.partition == seen.part
        # All instances and partitions of a GPU have its bus id.
        return None if device.parent is not None or device.board is not None else True
    return None


def _by_looks(device: Device, seen: SeenDevice, box: Snapshot) -> tuple[State, str]:
    """Compare without UUID and bus id: another name or size is another device; equal ones prove nothing."""
    named = vendor_named(device.vendor).same_names and device.name is not None and seen.name is not None
    if named and device.name != seen.name:
        return "differs", f"is called {seen.name}"
    if device.memory_total and seen.memory and not 0.8 < seen.memory / device.memory_total <= 1.05:
        return "differs", "has a different amount of memory"
    if [each.key for each in box.devices if each.vendor == device.vendor] == [device.key]:
        return "equal", ""
    return "unsure", "no UUID or bus id identifies it"


def _elsewhere(
    wanted: Device | None, found: SeenDevice | None, seen: Sequence[SeenDevice], box: Snapshot
) -> str:
    """The device that is there instead, and the place of the wanted one, in words."""
    parts = []
    if found is not None:
        there = next((device for device in box.devices if is_same(device, found)), None)
        parts.append(f"is {called(there, box)}" if there else "is not a device of this box")
    if wanted is not None:
        place = next((n for n, each in enumerate(seen) if is_same(wanted, each)), None)
        where = "not seen" if place is None else vendor_named(wanted.vendor).device(place)
        parts.append(f"{called(wanted, box)} is {where}" if found or place is not None else f"is {where}")
    return ", ".join(parts)


def called(device: Device, box: Snapshot) -> str:
    """The user's name for the device."""
    return f"GPU {box.label(device)}"
