"""ZE_AFFINITY_MASK, and the other variables that Level Zero reads.

The mask selects devices but sets no order: the selected devices are counted in Level Zero's own order, and a
number that no device has is ignored (Level Zero specification, "Environment Variables" and "Affinity Mask").
`Device.index` is that order unless ZE_ENABLE_PCI_ID_DEVICE_ORDER is 1, which counts by bus id alone, so that
an integrated GPU (00:02.0) comes first.

ZE_FLAT_DEVICE_HIERARCHY selects whether tiles or cards are counted, before the mask is read. Its default
depends on the model, so a launch sets it wherever that matters.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.device import Device
from gputui.system.environment import Environ
from gputui.vendors.intel.names import MAX, ONE_TILE
from gputui.vendors.visibility import Changes, Ids, Inherited, Listed, Visibility

MASK, BY_BUS, SELECTOR = "ZE_AFFINITY_MASK", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ONEAPI_DEVICE_SELECTOR"
HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"


class LevelZeroVisibility(Visibility):
    """Indices of devices. Tiles that are devices are named together with the hierarchy that
    makes them devices."""

    variable = MASK
    # A number that no device has, because an empty mask counts as no mask.
    none = none_in_words = "9999"
    order_in_words = (
        f"Level Zero does not keep the order of {MASK}: it counts discrete GPUs first, each in bus order"
        f" ({BY_BUS}=1 counts by bus alone, and an integrated GPU at 00:02.0 becomes 0)"
    )
    reader = "Level Zero"

    def changes(self, devices: Sequence[Device], ids: Ids = "index") -> Changes:
        return (*_hierarchy(devices), *super().changes(devices, ids))

    def changes_beside_own_list(self, devices: Sequence[Device]) -> Changes:
        return (*_hierarchy(devices), *super().changes_beside_own_list(devices))

    def changes_here(self, environ: Environ) -> Changes:
        # With these variables, gputui's numbers would mean other devices.
        return tuple(
            (name, None)
            for name, counts in ((BY_BUS, _by_bus(environ)), (SELECTOR, bool(environ.get(SELECTOR))))
            if counts
        )

    def lists_in(self, environ: Environ) -> bool:
        return bool(environ.get(MASK))

    def listed(
        self, text: str, environ: Environ, devices: Sequence[Device], words: str | None = None
    ) -> Listed:
        counted = self._counted_here(environ, devices)
        setting = words or f"{MASK}={text}"
        found: set[str] = set()
        wrong: list[str] = []
        for entry in map(str.strip, text.split(",")) if text.strip() else ():
            number, dot, tile = entry.partition(".")
            numbers = [part for part in (number, tile) if part]
            known = number.isascii() and all(part.isdigit() and len(part) < 6 for part in numbers)
            device = counted.get(int(number)) if known and number else None
            if device is None or (dot and device.partition is not None):
                wrong.append(f"{entry!r} names no device of this box; {self.reader} skips it")
                continue
            if dot:
                wrong.append(f"{entry!r} is one tile of GPU {device.index}, which gputui shows as a whole")
            found.add(device.key)
        warning = f"{setting}: {'; '.join(wrong)}" if wrong else None
        return Listed(tuple(device for device in devices if device.key in found), warning)

    def inherited(self, environ: Environ, devices: Sequence[Device]) -> Inherited | None:
        text = environ.get(MASK)
        if not text:
            return None
        listed = self.listed(text, environ, devices)
        note = None
        if _by_bus(environ):
            numbers = ",".join(str(device.index) for device in listed.devices) or "none"
            note = f"{MASK}={text} is GPU {numbers} here: with {BY_BUS}=1 it counts by bus id"
        keys = tuple(device.key for device in listed.devices)
        return Inherited(((MASK, text),), keys, listed.warning, note)

    def _counted_here(self, environ: Environ, devices: Sequence[Device]) -> dict[int, Device]:
        offered = [device for device in devices if device.index >= 0]
        if _by_bus(environ):
            offered.sort(key=lambda device: (device.pci_bus_id or "", device.index))
            return dict(enumerate(offered))
        return {device.index: device for device in offered}


def _hierarchy(devices: Sequence[Device]) -> Changes:
    """Return the variable that selects tiles or cards, where the default of the devices' model differs."""
    if any(device.partition is not None for device in devices):
        return ((HIERARCHY, "FLAT"),)
    return ((HIERARCHY, "COMPOSITE"),) if any(map(_is_divided_by_default, devices)) else ()


def _is_divided_by_default(device: Device) -> bool:
    """Return whether a card's tiles are devices unless a program asks otherwise."""
    model = (device.pci_id or "").partition(":")[2]
    return device.partition is None and model in MAX - ONE_TILE


def _by_bus(environ: Environ) -> bool:
    return environ.get(BY_BUS, "0").strip() not in ("", "0")
