"""Which devices a program sees: the variables that make it so, and those that were there already.

Rules of CUDA_VISIBLE_DEVICES: CUDA C++ Programming Guide, "CUDA Environment Variables"; its odd values as
torch's own parser reads them (torch/cuda/__init__.py, `_parse_visible_devices`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gputui.choosing.naming import NONE
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

Ids = Literal["index", "uuid"]

VISIBLE, ORDER, BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def identifiers(devices: Sequence[Device], ids: Ids = "index") -> str:
    """The devices as CUDA_VISIBLE_DEVICES names them: no spaces, no mixed forms, MIG always by UUID."""
    if any(device.parent for device in devices) or (ids == "uuid" and all(d.uuid for d in devices)):
        # (A device that failed before its UUID was read can be named by its index only.)
        return ",".join(device.uuid for device in devices)
    return ",".join(str(device.index) for device in devices)


def variables(devices: Sequence[Device], ids: Ids = "index") -> tuple[tuple[str, str | None], ...]:
    """The environment changes that make exactly `devices` visible, in this order; none means CPU only."""
    text = identifiers(devices, ids)
    if text and text[0].isdigit():
        # CUDA counts the fastest first unless told to count as NVML does.
        return ((ORDER, BY_BUS), (VISIBLE, text))
    return ((VISIBLE, text),)


def names_these(text: str, devices: Sequence[Device]) -> bool:
    """Whether a list, read as CUDA reads CUDA_VISIBLE_DEVICES, names exactly these devices, in any order."""
    left = list(devices)
    for entry in _entries(text):
        found = next((device for device in left if _is_named(device, entry)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def names_in_order(text: str | None, devices: Sequence[Device]) -> bool:
    """Whether such a list names exactly these devices, in this order; None is no list."""
    entries = _entries(text or "")
    return (
        text is not None
        and len(entries) == len(devices)
        and all(_is_named(device, entry) for device, entry in zip(devices, entries, strict=True))
    )


def listed_keys(text: str, snapshot: Snapshot) -> tuple[str, ...]:
    """The keys of the devices that such a list names, as far as this box has them."""
    found = (_device(entry, snapshot) for entry in _entries(text))
    return tuple(device.key for device in found if device is not None)


def names_others(text: str, devices: Sequence[Device], by_index: bool = True) -> bool:
    """Whether such a list names a device that is none of these.

    `by_index`: whether its numbers mean NVML's, as they do beside CUDA_DEVICE_ORDER=PCI_BUS_ID; otherwise
    nobody knows which devices they are.
    """
    return any(
        (entry.isdigit() and not by_index) or not any(_is_named(device, entry) for device in devices)
        for entry in _entries(text)
    )


def names_none(text: str) -> bool:
    """Whether such a list names no device at all: empty, "-1", "NoDevFiles"."""
    return not _entries(text)


def named_again(text: str) -> str | None:
    """The option of gputui that names the devices of such a list: "--gpus 2,0"; None where none can, because
    one of them is named twice."""
    entries = _entries(text)
    if len(set(entries)) < len(entries):
        return None
    return f"--gpus {','.join(entries) or NONE}"


def _entries(text: str) -> tuple[str, ...]:
    """What a list names, as far as CUDA reads it: to the first entry that can name no device."""
    found: list[str] = []
    for entry in map(str.strip, text.split(",")):
        if not (entry.isascii() and entry.isdigit()) and not re.fullmatch("(GPU|MIG)-[0-9A-Za-z/-]+", entry):
            break
        found.append(entry)
    return tuple(found)


def _is_named(device: Device, entry: str) -> bool:
    if entry.isascii() and entry.isdigit():
        return device.parent is None and str(device.index) == (entry.lstrip("0") or "0")
    return entry.startswith(("GPU-", "MIG-")) and device.uuid.startswith(entry)


@dataclass(frozen=True, slots=True)
class Inherited:
    """A CUDA_VISIBLE_DEVICES that was set when gputui started (Slurm, a container, a shell): our limits.

    `keys` are the devices it names, in its order; `warning` says what in it is not what it seems.
    """

    text: str
    keys: tuple[str, ...]
    warning: str | None = None


def inherited(environ: Mapping[str, str], snapshot: Snapshot) -> Inherited | None:
    """What the environment gives us already; None when the variable is not set, and all is ours."""
    text = environ.get(VISIBLE)
    if text is None:
        return None
    keys: list[str] = []
    warning = None
    # Spaces are allowed around an index, not around a UUID.
    entries = [e.strip() if e.strip().isdigit() else e for e in text.split(",")] if text.strip() else []
    for entry in entries:
        found = _device(entry, snapshot)
        if found is None:
            # The first entry that names nothing ends the list, for CUDA too.
            warning = f"{VISIBLE}={text}: {entry!r} names no device of this box; CUDA stops there"
            break
        if _form(entry) != _form(entries[0]):
            warning = f"{VISIBLE}={text}: {entry!r} is of another form than the first; CUDA stops there"
            break
        if found.key in keys:
            warning = f"{VISIBLE}={text}: {entry!r} is there twice; CUDA then sees no device"
            keys = []
            break
        keys.append(found.key)
    by_index = bool(entries) and entries[0].isdigit()
    names = {device.name for device in snapshot.devices if device.parent is None}
    if not warning and by_index and environ.get(ORDER) != BY_BUS and len(names) > 1:
        warning = (
            f"{VISIBLE}={text} counts the fastest device first, as {ORDER} is not {BY_BUS};"
            " it is read here in bus order"
        )
    return Inherited(text, tuple(keys), warning)


def _form(entry: str) -> str:
    return "index" if entry.isdigit() else entry[:4]


def _device(entry: str, snapshot: Snapshot) -> Device | None:
    found = [device for device in snapshot.devices if _is_named(device, entry)]
    return found[0] if len(found) == 1 else None
