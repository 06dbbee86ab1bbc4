"""Finds the devices that a person has named: `--gpus 2,0`, `--gpus GPU-4890,MIG-5bfc`, `--gpus none`."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

NONE = "none"


class NamingError(ValueError):
    """An entry names no device, several, or one a second time. The message is one line."""


def devices_named(text: str, snapshot: Snapshot) -> tuple[Device, ...]:
    """The devices that the comma-separated `text` names, in its order; () for "none". Raises NamingError.

    An entry is an NVML index, a UUID, or the beginning of exactly one UUID.
    """
    if text.strip() == NONE:
        return ()
    devices: list[Device] = []
    for entry in (part.strip() for part in text.split(",")):
        device = _device_named(entry, text, snapshot)
        if device in devices:
            raise NamingError(f"--gpus {text}: {entry} names {_label(device, snapshot)} a second time")
        devices.append(device)
    return tuple(devices)


def keys_named(words: Iterable[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The keys of the devices that the words name, in their order, each once.

    For lists in settings, which are made for several boxes: a word may name no device, the beginning of
    several UUIDs names all of them, and a GPU in MIG mode its instances, too.
    """
    keys: list[str] = []
    for word in words:
        found = {device.key for device in _matches(word, snapshot)}
        keys += [device.key for device in snapshot.devices if device.key in found or device.parent in found]
    return tuple(dict.fromkeys(keys))


def could_name(word: str) -> bool:
    """Whether a word could name a device of some box: an index, or the beginning of a UUID."""
    return (word.isascii() and word.isdigit()) or word.startswith(("GPU-", "MIG-"))


def _matches(word: str, snapshot: Snapshot) -> list[Device]:
    if word.isascii() and word.isdigit():
        index = word.lstrip("0") or "0"
        return [d for d in snapshot.devices if d.parent is None and str(d.index) == index]
    if not could_name(word):
        return []
    whole = [d for d in snapshot.devices if d.uuid == word]
    return whole or [d for d in snapshot.devices if d.uuid.startswith(word)]


def _device_named(entry: str, text: str, snapshot: Snapshot) -> Device:
    if not entry:
        raise NamingError(f"--gpus {text!r} has an empty entry; CPU only is --gpus none")
    if not could_name(entry):
        raise NamingError(f"--gpus {text}: {entry!r} is neither an index nor a UUID (GPU-…, MIG-…)")
    found = _matches(entry, snapshot)
    if not found:
        labels = ", ".join(snapshot.label(d) for d in snapshot.devices) or "no devices"
        raise NamingError(f"--gpus {text}: there is no device {entry!r}; this box has {labels}")
    if len(found) > 1:
        uuids = ", ".join(d.uuid for d in found)
        raise NamingError(f"--gpus {text}: {entry!r} is the beginning of {len(found)} UUIDs: {uuids}")
    if found[0].mig:
        uuids = ", ".join(d.uuid for d in snapshot.instances(found[0])) or "none"
        raise NamingError(
            f"--gpus {text}: GPU {found[0].index} is divided into MIG instances; name one of {uuids}"
        )
    return found[0]


def _label(device: Device, snapshot: Snapshot) -> str:
    return f"GPU {snapshot.label(device)}"
