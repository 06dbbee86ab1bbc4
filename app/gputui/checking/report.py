"""The report of a check: what was chosen, what was seen, and whether that is the same. Immutable and pure."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.checking.compare import Place, compare
from gputui.checking.remedies import of_driver, of_torch
from gputui.checking.seen import Seen
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

CUDA_BUILD = "install a build for CUDA: https://pytorch.org/get-started/locally"


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that the launch changes: as the launch says, and as the interpreter has it."""

    name: str
    launch: str | None
    seen: str | None

    @property
    def equal(self) -> bool:
        return self.launch == self.seen


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found.

    argv       how the interpreter was started, without our script
    doubt      why it may not be the one that will train
    seen       what it answered; None where there is no answer, and `trouble` says why
    ranks      how many processes of the launcher answered, all of them alike; 1 without a launcher
    """

    devices: tuple[Device, ...]
    snapshot: Snapshot
    argv: tuple[str, ...] = ()
    doubt: str | None = None
    seen: Seen | None = None
    trouble: str | None = None
    variables: tuple[Variable, ...] = ()
    ranks: int = 1

    @property
    def places(self) -> tuple[Place, ...]:
        """Each `cuda:n`; () where nothing was answered."""
        return compare(self.devices, self.seen.devices, self.snapshot) if self.seen else ()

    @property
    def equal(self) -> bool:
        """Whether it is proved that the interpreter sees the chosen devices, in the chosen order."""
        if self.seen is None or self.trouble is not None or self._broken:
            return False
        same = all(place.state == "equal" for place in self.places)
        return same and all(variable.equal for variable in self.variables)

    @property
    def status(self) -> str:
        """equal, differs, or failed: that there was no answer to compare."""
        return "equal" if self.equal else "failed" if self.seen is None else "differs"

    @property
    def _broken(self) -> bool:
        """A torch that cannot be imported trains nowhere, on no device either."""
        return self.seen is not None and self.seen.torch is not None and self.seen.torch.version is None

    @property
    def conclusion(self) -> str:
        """The check in one sentence, with the remedy where there is one."""
        if self.seen is None or self.trouble is not None:
            return f"not proved: {self.trouble or 'the interpreter did not answer'}"
        if self._broken:
            error = self.seen.torch.error if self.seen.torch else None
            return f"not equal: torch cannot be imported: {error}"
        wrong = [variable for variable in self.variables if not variable.equal]
        bad = [place for place in self.places if place.state != "equal"]
        if wrong and (bad or not self.devices or len(wrong) == len(self.variables)):
            return f"not equal: {_changed(wrong[0])}"
        if bad:
            return f"not equal: {self._nothing_seen or self._first_difference}"
        if wrong:
            return f"not equal: {_changed(wrong[0])}"
        if not self.devices:
            return f"equal: {self.seen.who} sees no device, as chosen (CPU only)"
        count = len(self.devices)
        devices = "the chosen device" if count == 1 else f"the {count} chosen devices, in the chosen order"
        return f"equal: {self.seen.who} sees {devices}"

    @property
    def _nothing_seen(self) -> str | None:
        """Why no device at all is seen, and what helps; None where some are."""
        if self.seen is None or self.seen.devices or not self.devices:
            return None
        torch, driver = self.seen.torch, self.seen.driver
        if torch is not None and torch.cpu_build:
            text = f"this torch ({torch.version}) is a CPU build: it sees no CUDA device; {CUDA_BUILD}"
            there = compare(self.devices, driver.devices, self.snapshot)
            if all(place.state == "equal" for place in there):
                text += ". (The CUDA driver itself shows the chosen devices, in their order)"
            return text
        reason = of_driver(driver) or (of_torch(torch) if torch else None)
        return f"no device is seen: {reason or 'the driver has none for this environment'}"

    @property
    def _first_difference(self) -> str:
        number, place = next((n, p) for n, p in enumerate(self.places) if p.state != "equal")
        chosen, seen = len(self.devices), len(self.seen.devices) if self.seen else 0
        more = f"; {chosen} chosen, {seen} seen" if chosen != seen else ""
        return f"cuda:{number} {place.why}{more}"


def _changed(variable: Variable) -> str:
    said = "unset" if variable.launch is None else f"{variable.launch!r}"
    has = "not set" if variable.seen is None else f"{variable.seen!r}"
    return f"the launch says {variable.name} {said}, the interpreter has it {has}; something changes it"
