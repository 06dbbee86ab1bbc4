"""HIP_VISIBLE_DEVICES, and the two other lists that ROCm reads.

ROCr filters first, by ROCR_VISIBLE_DEVICES, and renumbers the rest. HIP filters those by HIP_VISIBLE_DEVICES
or, where that is unset or empty, by CUDA_VISIBLE_DEVICES (ROCm/clr, rocdevice.cpp; ROCR-Runtime,
amd_filter_device.cpp). A launch by gputui names devices as the whole machine numbers them, so it unsets a
ROCR list; a CUDA list is not read when gputui's list is set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.inventory.device import Device
from gputui.inventory.formatting import is_digits
from gputui.inventory.light_dataclasses import replace
from gputui.system.environment import Environ, Variables
from gputui.vendors.visibility import Changes, Ids, Inherited, Listed, Visibility

HIP, ROCR, CUDA = "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


class HipVisibility(Visibility):
    """HIP's indices, or UUIDs where each UUID names one device only. "-1" shows no device, because an empty
    list counts as no list."""

    variable = HIP
    none = "-1"
    uuid_prefixes = ("GPU-",)
    # gres.conf, AutoDetect=rsmi.
    slurm = ROCR
    also = (ROCR,)
    reader = "HIP"

    def identifiers(self, devices: Sequence[Device], ids: Ids = "index") -> str:
        named = all(device.name_by_uuid and reads_uuids(device) is not False for device in devices)
        if ids == "uuid" and devices and named:
            return ",".join(device.uuid for device in devices)
        return ",".join(str(device.index) for device in devices)

    def changes_here(self, environ: Environ) -> Changes:
        # With this list, gputui's numbers would count what the list leaves.
        return ((ROCR, None),) if environ.get(ROCR) is not None else ()

    def lists_in(self, environ: Environ) -> bool:
        return any(_list_of(environ, name) is not None for name in (HIP, ROCR, CUDA))

    def list_among(self, variables: Variables) -> tuple[str, str | None] | None:
        """Return HIP's list, or CUDA's where that is unset, resolved through the ROCr list
        where that is set."""
        rocr = variables.get(ROCR)
        name = next((name for name in (HIP, CUDA) if name in variables), None)
        if rocr is None:
            if name is not None:
                text = variables[name]
                return f"-u {name}" if text is None else f"{name}={text}", text
            return (f"-u {ROCR}", None) if ROCR in variables else None
        inner = variables[name] if name is not None else None
        if name is None or not inner:
            return f"{ROCR}={rocr}", rocr
        left = rocr.split(",")
        places = [int(entry) for entry in self.entries(inner) if entry.isdigit() and int(entry) < len(left)]
        return f"{ROCR}={rocr} {name}={inner}", ",".join(left[place].strip() for place in places)

    def listed(
        self, text: str, environ: Environ, devices: Sequence[Device], words: str | None = None
    ) -> Listed:
        """Return the devices as HIP reads a list: the first entry that names nothing ends it,
        a repeat is skipped."""
        return _hip(text, words or f"{self.variable}={text}", devices)

    def inherited(self, environ: Environ, devices: Sequence[Device]) -> Inherited | None:
        visible = [device for device in devices if device.index >= 0]
        settings: list[tuple[str, str]] = []
        said: list[str | None] = []
        notes: list[str] = []
        rocr, hip, cuda = (_list_of(environ, name) for name in (ROCR, HIP, CUDA))
        if rocr is not None:
            settings.append((ROCR, rocr))
            found = _rocr(rocr, visible)
            visible, warning = list(found.devices), found.warning
            said.append(warning)
            visible_of_hip = [replace(device, index=place) for place, device in enumerate(visible)]
        else:
            visible_of_hip = visible
        name, text = (HIP, hip) if hip is not None else (CUDA, cuda)
        if text is not None:
            settings.append((name, text))
            found = _hip(text, f"{name}={text}", visible_of_hip)
            keys = {device.key: place for place, device in enumerate(visible_of_hip)}
            visible = [visible[keys[device.key]] for device in found.devices]
            # CUDA's list may be meant for another vendor's devices.
            said.append(found.warning if name == HIP else None)
            if rocr is not None:
                numbers = ",".join(str(device.index) for device in visible) or "none"
                notes.append(f"{name}={text} counts within {ROCR}={rocr}: GPU {numbers} here")
            elif name == CUDA:
                notes.append(f"ROCm obeys {CUDA}={text} where {HIP} is not set")
        if not settings:
            return None
        if hip is not None and cuda is not None:
            notes.append(f"ROCm does not read {CUDA}={cuda} where {HIP} is set")
        return Inherited(
            tuple(settings),
            tuple(device.key for device in visible),
            "; ".join(filter(None, said)) or None,
            "; ".join(notes) or None,
        )

    def _is_named(self, device: Device, entry: str) -> bool:
        if not device.uuid_usable and not entry.isdigit():
            return False
        return super()._is_named(device, entry)


def reads_uuids(device: Device) -> bool | None:
    """Return whether the machine's ROCm reads UUIDs in HIP_VISIBLE_DEVICES: 6.2 and newer;
    None: not known."""
    found = _VERSION.match(device.runtime or "")
    return (int(found[1]), int(found[2])) >= (6, 2) if found else None


_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?!\d)")


def _list_of(environ: Environ, name: str) -> str | None:
    """Return a list that takes effect: ROCr's even where it is empty (no device), the others'
    only if not empty."""
    text = environ.get(name)
    return text if text or (name == ROCR and text is not None) else None


def _hip(text: str, setting: str, devices: Sequence[Device]) -> Listed:
    found: list[Device] = []
    for entry in text.split(","):
        device = next((d for d in devices if _hip_means(d, entry)), None)
        if device is None:
            none = entry in ("-1", "") and not found
            stops = f"{setting}: {entry!r} names no device of this box; HIP stops there"
            return Listed(tuple(found), None if none else stops)
        if device not in found:
            found.append(device)
    return Listed(tuple(found))


def _hip_means(device: Device, entry: str) -> bool:
    if is_digits(entry):
        return device.index == int(entry) if len(entry) < 10 else False
    # Of partitions that share a UUID, HIP takes the first.
    return bool(device.uuid) and entry == device.uuid


def _rocr(text: str, devices: Sequence[Device]) -> Listed:
    """Return the devices of ROCr's list, which may hold prefixes of UUIDs in either case.

    A repeat and an ambiguous prefix end the list.
    """
    found: list[Device] = []
    for entry in map(str.strip, text.split(",")) if text.strip() else ():
        if is_digits(entry):
            named = [d for d in devices if len(entry) < 10 and d.index == int(entry)]
        else:
            named = [d for d in devices if len(entry) > 4 and d.uuid.lower().startswith(entry.lower())]
        if len(named) != 1 or named[0] in found:
            why = (
                "names no device of this box" if not named else "names several devices, or one a second time"
            )
            return Listed(tuple(found), f"{ROCR}={text}: {entry!r} {why}; ROCr stops there")
        found.append(named[0])
    return Listed(tuple(found))
