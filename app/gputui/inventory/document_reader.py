"""Reads a snapshot from JSON: strict, because a recording may come from a stranger.

Wrong types, huge numbers, missing keys and unknown words raise one `DocumentError` that names the place.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Sequence
from typing import Any

from gputui.inventory.claim import Claim
from gputui.inventory.device import UUID, Device, Fault
from gputui.inventory.document import BOX, Trouble
from gputui.inventory.formatting import MIB
from gputui.inventory.link import SELF
from gputui.inventory.others_files import parse_json
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.typed_json import DocumentError, Json
from gputui.inventory.waiter import Waiter, Waiters

MOST_READING = 2 * MIB
"""The most bytes of a reading of another box; one of 72 busy devices has 200 KiB."""
MOST_VALUES = 70_000
"""The most values of such a reading, of which 108 bytes each are kept at worst; 72 busy devices with all
matrices have 35,000, and 5,000 processes 50,000."""
MOST_DEVICES = 256
"""The most devices of a box: 16 GPUs with 7 instances each are 128. The cost of a plan grows with the square
of their number: 256 with links of random kinds cost 1.5 s of CPU."""

_WITHOUT_REFERENCES = 2
"""The version of marshal that writes equal values of equal types as the same bytes."""

_UUID = re.compile(UUID)
_VENDOR = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}", re.ASCII | re.IGNORECASE)
_BUS_ID = re.compile(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]")
"""The bus id of the GPU of a partition; a MIG instance has its GPU's UUID in the same field."""


_EMPTY: Json = {
    **{key: [] for key in ("links", "pcie", "peers", "link_weights", "link_bandwidths", "waiters")},
    "topology": None,
}
"""The parts that are reused where they are unchanged, and their placeholders in that case."""


def from_json(text: str | bytes) -> Snapshot:
    """The snapshot that `text` describes. Raises DocumentError, and nothing else, when it is not one."""
    try:
        document = parse_json(text)
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}") from None
    return from_document(document)


def from_document(document: Any, before: tuple[Json, Snapshot] | None = None) -> Snapshot:
    """The snapshot in JSON-ready values. Raises DocumentError when they are invalid.

    `before` is an earlier document of the same box with its snapshot: unchanged parts of it are reused.
    """
    known: Json = {}
    if before is not None and document.__class__ is dict:
        known = {
            key: getattr(before[1], key) for key in _EMPTY if _same(document.get(key), before[0].get(key))
        }
    facts = BOX.facts({**document, **{key: _EMPTY[key] for key in known}} if known else document) | known
    troubles: tuple[Trouble, ...] = facts.pop("errors")
    faults = _faults(troubles)
    rows: tuple[Json, ...] = facts.pop("devices")
    if len(rows) > MOST_DEVICES:
        raise DocumentError(f"{len(rows)} entries, at most {MOST_DEVICES} are read", "devices")
    claims = [row.pop("claim", None) for row in rows]
    devices = tuple(_device(row, faults.pop(place, None), place) for place, row in enumerate(rows))
    if faults:
        raise DocumentError(f"there is no device {min(faults)}", "errors")
    if len({device.key for device in devices}) < len(devices):
        raise DocumentError("two of them have the same uuid", "devices")
    _check_family(devices)
    snapshot = Snapshot(
        Host(facts.pop("host"), facts.pop("driver"), facts.pop("cuda"), facts.pop("host_load", None)),
        devices=devices,
        errors=tuple(each.message for each in troubles if each.device is None),
        claims=tuple(
            Claim(device.key, **claim) for device, claim in zip(devices, claims, strict=True) if claim
        ),
        waiters=known.get("waiters") or _waiters(facts.get("waiters", ())),
        **{key: value for key, value in facts.items() if key not in ("schema", "waiters")},
    )
    _check_shapes(snapshot)
    return snapshot


def _same(value: Any, before: Any) -> bool:
    """Whether two JSON values are the same, including their types: Python's 1 equals true."""
    one, other = (marshal.dumps(each, _WITHOUT_REFERENCES) for each in (value, before))
    return one == other


def _faults(troubles: tuple[Trouble, ...]) -> dict[int, Fault]:
    """The faults of devices, by their places."""
    found: dict[int, Fault] = {}
    for place, each in enumerate(troubles):
        if each.device in found:
            raise DocumentError("expected one error per device", "errors", place)
        if each.device is not None:
            found[each.device] = Fault(each.kind, each.message, each.since)
    return found


def _device(facts: Json, fault: Fault | None, place: int) -> Device:
    if facts["index"] is None:
        if facts.get("apart") is None:
            raise DocumentError("expected a whole number, found null", "devices", place, "index")
        # Its place in the list identifies it.
        facts["index"] = -1 - place
    of, telemetry = facts["parent"], facts.get("telemetry")
    if of is not None and _BUS_ID.fullmatch(of):
        facts |= {"parent": None, "board": of}
    if telemetry is not None:
        # From the same reading, and only once in the document.
        facts["throttled"] = telemetry.throttle
    facts.pop("verdict", None)
    return Device(**{**facts, "uuid": facts["uuid"] or "", "fault": fault})


def _waiters(rows: tuple[Json, ...]) -> Waiters:
    for place, row in enumerate(rows, 1):
        if row["place"] != place:
            raise DocumentError(f"expected {place}, its place in the list", "waiters", place - 1, "place")
        row["place"] = place, ""
    return tuple(Waiter(**row) for row in rows)


def _check_family(devices: tuple[Device, ...]) -> None:
    """Check that UUIDs and names of vendors can be put into a list, and that each instance is listed once,
    after its GPU."""
    whole: set[str] = set()
    places: set[tuple[str, str | None, int]] = set()
    for place, device in enumerate(devices):
        if device.uuid and not _UUID.fullmatch(device.uuid):
            raise DocumentError("expected a UUID (GPU-…, MIG-…)", "devices", place, "uuid")
        if not device.uuid_usable and device.pci_bus_id and not _BUS_ID.fullmatch(device.pci_bus_id):
            raise DocumentError("expected a bus id (00000000:57:00.0)", "devices", place, "pci_bus_id")
        if not _VENDOR.fullmatch(device.vendor):
            raise DocumentError("expected the name of a vendor", "devices", place, "vendor")
        if device.parent is None:
            whole.add(device.uuid)
        elif device.parent not in whole or not device.uuid:
            raise DocumentError("no device before it has this uuid", "devices", place, "parent")
        if (device.vendor, device.parent, device.index) in places:
            raise DocumentError("appears twice", "devices", place, "index")
        places.add((device.vendor, device.parent, device.index))


def _check_shapes(snapshot: Snapshot) -> None:
    """Check that each matrix has a row and a column for each device, or is empty."""
    devices, topology = len(snapshot.devices), snapshot.topology
    for name in ("links", "pcie", "peers", "link_weights", "link_bandwidths"):
        _check_shape(getattr(snapshot, name), devices, devices, name)
    if topology is not None:
        if len(topology.localities) != devices:
            raise DocumentError(f"expected one place for each of the {devices} devices", "topology", "places")
        nics = len(topology.nics)
        if nics and not topology.nic_links:
            raise DocumentError("expected a row for each device and network device", "topology", "nic_links")
        _check_shape(topology.nic_links, devices + nics, nics, "topology", "nic_links")


def _check_shape(matrix: Sequence[Sequence[object]], rows: int, columns: int, *name: str) -> None:
    if matrix and len(matrix) != rows:
        raise DocumentError(f"expected {rows} rows", *name)
    for place, row in enumerate(matrix):
        if len(row) != columns:
            raise DocumentError(f"expected {columns} cells", *name, place)
        for column, cell in enumerate(row):
            # The rows of network devices come after those of the devices.
            if cell == SELF and column != place - (rows - columns):
                raise DocumentError("expected X only where a device meets itself", *name, place, column)
