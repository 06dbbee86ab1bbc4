"""The proof that confinement works on this machine.

A process that can open only the files of one device asks the driver which devices there are: the driver must
report exactly that device. The proof holds for one boot, kernel and driver, and either for whole GPUs or for
instances. The answer is kept in the state folder, so that the driver starts for it once (0.2 to 2 s). A
failed proof is repeated after an hour, or by hand (`gputui check --confine`)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import DocumentError, Epoch, Record, loads
from gputui.system.environment import Environ
from gputui.system.files import NoHomeError, private_folder, read_own, state_folder, write_private
from gputui.system.root import Root
from gputui.vendors.registry import vendor_of, vendors_maybe_on
from gputui.vendors.vendor import Vendor

if TYPE_CHECKING:
    from gputui.vendors.driver_process import DriverDevice

SECONDS = 20.0
"""Timeout of the driver's start: without the persistence daemon it first initializes the device."""

_AGAIN = 3600.0
"""Seconds after which a failed proof is repeated."""
_MOST, _LARGEST = 64, 2**16
"""The most answers that are kept, and the most bytes of their file."""

NOT_YET = "it has not been proved on this machine yet (`gputui check --confine`)"


def left_out(devices: Sequence[Device], snapshot: Snapshot, root: Root) -> tuple[str, ...] | None:
    """Return the device files that a program on these devices must not open; None where a file that it needs,
    or must not open, is not known. For no devices: the files of all that may be here."""
    if not devices:
        found = [vendor.all_nodes(root) for vendor in vendors_maybe_on(root)]
        return None if () in found else tuple(chain.from_iterable(found))
    vendor = vendor_of(devices)
    keys = {device.key for device in devices}
    every, own = dict.fromkeys(vendor.all_nodes(root)), set[str]()
    told = bool(every)
    for device in (*(each for each in devices if each.key not in snapshot.by_key), *snapshot.devices):
        nodes = vendor_of((device,)).nodes(device, root)
        if device.key in keys:
            own.update(nodes)
        if not nodes and (device.key in keys or (device.vendor == vendor.name and not told)):
            return None
        every |= dict.fromkeys(nodes)
    return tuple(node for node in every if node not in own)


def subject(vendor: Vendor, instances: bool, root: Root) -> str:
    """Return the key of a proof with a device of this vendor, an instance or a whole one."""
    boot = root.text("/proc/sys/kernel/random/boot_id", 64) or ""
    kind = "instances" if instances else "whole"
    return " ".join((vendor.name, vendor.driver_here(root), kind, os.uname().release, boot))


def proved(
    device: Device,
    snapshot: Snapshot,
    environ: Environ,
    root: Root,
    ask: bool = True,
    again: bool = False,
    asking: Callable[[], object] | None = None,
) -> str | None:
    """Return None where confinement is proved on this machine for devices like this one; otherwise why not.

    `ask`: whether the driver may be asked where no answer is kept; `again`: ignore the kept answer. `asking`
    is called before the driver is asked.
    """
    of = subject(vendor_of((device,)), device.parent is not None, root)
    kept = None if again else _kept(environ).get(of)
    if kept is not None and (kept.why is None or abs(time.time() - kept.time) < _AGAIN):
        return kept.why
    if not ask:
        return NOT_YET
    if asking is not None:
        asking()
    why = _tried(device, snapshot, environ, root)
    _keep(environ, _Proof(of, why, time.time()))
    return why


def is_proved(vendor: Vendor, environ: Environ, root: Root) -> bool:
    """Whether confinement is already proved for whole devices of this vendor. Starts no driver."""
    kept = _kept(environ).get(subject(vendor, False, root))
    return kept is not None and kept.why is None


def _tried(device: Device, snapshot: Snapshot, environ: Environ, root: Root) -> str | None:
    # Most launches find a kept proof, and each import delays them.
    from gputui.vendors.driver_process import NoAnswerError, ask_driver

    vendor = vendor_of((device,))
    if vendor.driver_probe is None:
        return f"gputui cannot ask {vendor.driver} what a confined process sees"
    others = left_out((device,), snapshot, root)
    if others is None:
        return "the device files are not known"
    asking = {name: text for name, text in environ.items() if name not in vendor.visibility.names}
    try:
        answer = ask_driver(vendor.driver_probe, asking, SECONDS, others)
    except NoAnswerError as failed:
        return f"{vendor.driver} did not answer a confined process: {failed}"
    seen = answer.devices
    if len(seen) == 1 and _is(seen[0], device):
        return None
    trouble = vendor.driver_trouble(answer.code, answer.error) if not seen else None
    shown = trouble or f"{len(seen)} device{'s' if len(seen) != 1 else ', and another one'}"
    return f"a process that can open only GPU {snapshot.label(device)} was shown {shown}"


def _is(seen: DriverDevice, device: Device) -> bool:
    """Whether the driver's device is this one: by UUID, or by bus ID where the driver reports no UUID."""
    vendor = vendor_of((device,))
    if seen.uuid is not None and device.name_by_uuid:
        return vendor.bare_uuid(seen.uuid) == vendor.bare_uuid(device.uuid)
    place = (device.pci_bus_id or "").lower()
    # The driver may write the domain with fewer digits.
    found = (seen.bus or "").lower()
    return ":" in found and place.endswith(found) and device.parent is None


@frozen
class _Proof:
    """The key of a proof, why it failed (None: it did not), and when it was made."""

    of: str
    why: str | None
    time: Epoch


@frozen
class _Proofs:
    proofs: tuple[_Proof, ...]


_PROOFS = Record(_Proofs)


def _file(environ: Environ) -> Path:
    return state_folder(environ) / "confinement.json"


def _kept(environ: Environ) -> dict[str, _Proof]:
    """Return the kept proofs by key, the newest last."""
    try:
        data = read_own(_file(environ), _LARGEST + 1)
        return {each.of: each for each in _PROOFS.read(loads(data)).proofs[-_MOST:]}
    except (OSError, NoHomeError, DocumentError):
        return {}


def _keep(environ: Environ, proof: _Proof) -> None:
    """Keep a proof. Where that fails, the next launch asks the driver again."""
    proofs = tuple({**_kept(environ), proof.of: proof}.values())[-_MOST:]
    try:
        file = _file(environ)
        private_folder(file.parent)
        write_private(file, json.dumps(_PROOFS.write(_Proofs(proofs))))
    except (OSError, NoHomeError):
        return
