"""Resolves the names that a user gives (`--gpus 2,0`, the beginning of a UUID, `none`) to devices."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gputui.inventory.device import Device
from gputui.inventory.errors import RequestError
from gputui.inventory.formatting import is_digits
from gputui.inventory.snapshot import Snapshot
from gputui.vendors.registry import vendors

NONE = "none"
_INSTANCE = re.compile("[0-9]+:[0-9]+", re.ASCII)
_RANGE = re.compile("([0-9]{1,2})-([0-9]{1,2})")
_LEAST_DIGITS = 8
"""The fewest digits of a shortened UUID: a device that is added later will hardly begin with the same."""


class NamingError(RequestError):
    """An entry names no device, several devices, or a device a second time. The message is one line."""


def devices_named(text: str, snapshot: Snapshot, vendor: str | None = None) -> tuple[Device, ...]:
    """The devices that the comma-separated `text` names, in its order; () for "none". Raises NamingError.

    With `vendor`, only devices of that vendor match.

    An entry is an index ("nvidia:0" where vendors share it), a MIG instance as `ls` shows it ("0:1"), a UUID,
    or the beginning of exactly one UUID.
    """
    devices: list[Device] = []
    for entry in entries_of(text):
        device = _device_named(entry, text, snapshot, vendor)
        if device in devices:
            label = snapshot.label(device)
            raise NamingError(f"--gpus {text}: {entry} names GPU {label} a second time")
        devices.append(device)
    return tuple(devices)


def entries_of(text: str) -> tuple[str, ...]:
    """The entries of a list of devices; () for "none". Raises NamingError for an empty entry."""
    entries = tuple(part.strip() for part in text.split(","))
    if not all(entries):
        raise NamingError(f"--gpus {text!r} has an empty entry; CPU only is --gpus {NONE}")
    return () if entries == (NONE,) else entries


def keys_named(words: Iterable[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The keys of the devices that the words name, in their order, each once.

    The words are lists in settings, which serve several boxes: a word may name no device, the beginning of
    several UUIDs names all of them, and a GPU in MIG mode also names its instances.
    """
    keys: list[str] = []
    for word in words:
        found = {device.key for device in _matches(word, snapshot)}
        keys += [device.key for device in snapshot.devices if device.key in found or device.parent in found]
    return tuple(dict.fromkeys(keys))


def short_names(keys: Iterable[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The shortest names that identify the devices with these keys on this box, for a command line.

    A name is the beginning of a UUID, with at least eight digits, or the key of a device without a UUID.
    """
    return tuple(_short_name(snapshot.by_key[key], snapshot) for key in keys)


def _short_name(device: Device, snapshot: Snapshot) -> str:
    uuid = device.uuid
    if device.key != uuid:
        return device.key
    others = [each.uuid for each in snapshot.devices if each is not device]
    beginnings = (uuid[:length] for length in range(uuid.find("-") + 1 + _LEAST_DIGITS, len(uuid)))
    own = (each for each in beginnings if not any(other.startswith(each) for other in others))
    return next((each for each in own if each[-1] != "-"), uuid)


def could_name(word: str) -> bool:
    """Whether a word could name a device of some box: an index, an instance, or the beginning of a UUID."""
    index = _index(word)
    if _INSTANCE.fullmatch(word):
        return True
    if index is not None:
        return not index[0] or any(index[0] == vendor.name for vendor in vendors())
    return any(word.startswith(prefix) for vendor in vendors() for prefix in vendor.uuid_prefixes)


def no_name(word: str, text: str) -> str:
    """Why a word of the list `text` names no device of any box. For a range, the message has the list to type
    instead."""
    if found := _RANGE.fullmatch(word):
        first, last = map(int, found.groups())
        if first < last:
            listed = ",".join(map(str, range(first, last + 1)))
            return f"{word!r} is a range: type {text.replace(word, listed)}"
    return f"{word!r} is neither an index nor a UUID (GPU-…, MIG-…)"


def _index(word: str) -> tuple[str, str] | None:
    """The vendor and the index of "nvidia:0"; ("", "0") for "0", which matches any vendor; else None."""
    vendor, colon, number = word.rpartition(":")
    if not is_digits(number) or (colon and not vendor.isidentifier()):
        return None
    return vendor, number.lstrip("0") or "0"


def _matches(word: str, snapshot: Snapshot) -> list[Device]:
    index = _index(word)
    if index is not None:
        vendor, number = index
        gpus = [d for d in snapshot.devices if d.parent is None and str(d.index) == number]
        return [d for d in gpus if vendor in ("", d.vendor)]
    if _INSTANCE.fullmatch(word):
        return [d for d in snapshot.devices if d.parent is not None and snapshot.label(d) == word]
    whole = [d for d in snapshot.devices if d.uuid == word or (d.key == word and not d.uuid_usable)]
    # A prefix contains at least the kind of the UUID, so "a" does not match every UUID that begins with it.
    return whole or [d for d in snapshot.devices if "-" in word and d.uuid.startswith(word)]


def _device_named(entry: str, text: str, snapshot: Snapshot, vendor: str | None) -> Device:
    found = [device for device in _matches(entry, snapshot) if vendor in (None, device.vendor)]
    if len(found) > 1 and entry.isdigit():
        found = [device for device in found if device.apart is None] or found
    labels = list(map(snapshot.label, found))
    if not found and not could_name(entry):
        why = no_name(entry, f"--gpus {text}")
    elif not found:
        offered = ", ".join(snapshot.label(d) for d in snapshot.devices if d.index >= 0)
        has = offered or ("no device to select" if snapshot.devices else "no devices")
        why = f"unknown device {entry!r}; this box has {has}"
    elif len(found) > 1 and entry.isdigit():
        why = f"{entry} is the index of {' and '.join(labels)}"
    elif len(found) > 1:
        uuids = ", ".join(device.uuid for device in found)
        why = f"{entry!r} is the beginning of {len(found)} UUIDs: {uuids}"
    elif found[0].index < 0:
        why = f"{entry} cannot be given to a program"
    elif found[0].mig:
        instances = ", ".join(map(snapshot.label, snapshot.instances(found[0]))) or "none"
        why = f"GPU {found[0].index} is divided into MIG instances; name one of {instances}"
    else:
        return found[0]
    raise NamingError(f"--gpus {text}: {why}")
