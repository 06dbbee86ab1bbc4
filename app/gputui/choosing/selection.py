"""The selection: the selected devices in their order, by UUID, and which of them are not free. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputui.choosing.verdict import State, Verdict, Verdicts
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.vendors.registry import vendor_of, vendors_of


@frozen
class Selection:
    """An immutable order of devices; the n-th device is a program's n-th.

    `keys` are `Device.key`s, each once. `cpu_only`: no device, on purpose. Raises ValueError for a repeated
    key, and for keys with `cpu_only`.
    """

    keys: tuple[str, ...] = ()
    cpu_only: bool = False

    def __post_init__(self) -> None:
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("a device is selected twice")
        if self.cpu_only and self.keys:
            raise ValueError("CPU only, and devices")

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    @property
    def decided(self) -> bool:
        """Whether a launch is possible: devices are selected, or no device on purpose."""
        return bool(self.keys) or self.cpu_only

    def rank(self, key: str) -> int | None:
        """The number that a program gives the device; None for a device that is not selected."""
        return self.keys.index(key) if key in self.keys else None

    def toggle(self, key: str) -> Selection:
        """The selection with the device added as the last one, or without it if it was selected."""
        if key in self.keys:
            return Selection(tuple(k for k in self.keys if k != key))
        return Selection((*self.keys, key))

    def move(self, key: str, by: int) -> Selection:
        """The selection with the device moved `by` places (back if negative), stopping at the ends."""
        if key not in self.keys:
            return self
        rest = [k for k in self.keys if k != key]
        place = min(max(self.keys.index(key) + by, 0), len(rest))
        return Selection((*rest[:place], key, *rest[place:]))

    def clear(self) -> Selection:
        """The empty selection: nothing is decided."""
        return Selection()

    def toggle_cpu_only(self) -> Selection:
        """The selection of no device, on purpose, for a run on the CPU; empty if it was that already."""
        return Selection(cpu_only=not self.cpu_only)

    def prune(self, present: Iterable[str]) -> Selection:
        """The selection without the devices that are not `present` any more."""
        left = set(present)
        if all(key in left for key in self.keys):
            return self
        return Selection(tuple(key for key in self.keys if key in left))


@frozen
class NotFree:
    """A selected device that is not free; it would be a program's device number `rank`.

    `vendor` is the name of the vendor of the selected devices. `device` and `verdict` are None if the device
    has vanished from the box. `before` is its state when it was selected, None where that is not known.
    """

    rank: int
    vendor: str
    device: Device | None
    verdict: Verdict | None
    before: State | None


def not_free(
    selection: Selection, selected_as: Verdicts, now: Snapshot, verdicts: Verdicts
) -> dict[str, NotFree]:
    """Every selected device that is not free now, by its key; `selected_as` has the verdicts at selection.

    Raises MixedVendorsError for devices of several vendors.
    """
    found = {}
    present = [now.by_key[key] for key in selection if key in now.by_key]
    vendor = vendor_of(present, vendors_of(now.devices)).name
    for rank, key in enumerate(selection):
        device, before = now.by_key.get(key), selected_as.get(key)
        verdict = verdicts[key] if device else None
        if verdict is None or not verdict.free:
            found[key] = NotFree(rank, vendor, device, verdict, before.state if before else None)
    return found
