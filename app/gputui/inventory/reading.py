"""A snapshot out of JSON: strict, because a recording may come from a stranger.

Wrong types, huge numbers, missing keys, unknown words: one `DocumentError` that names the place.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any, cast

from gputui.inventory.device import FAULT_KINDS, Device, Fault, FaultKind
from gputui.inventory.document import SCHEMA
from gputui.inventory.link import LinkMatrix, is_link
from gputui.inventory.process import KINDS, Kind, Process
from gputui.inventory.snapshot import Host, Snapshot

MOST_BYTES = 32 * 1024 * 1024
"""A recording of 72 busy devices is 200 KiB; a larger file than this is not a recording."""
MOST_DEVICES = 1024
MOST_PROCESSES = 65_536
MOST_TEXT = 128 * 1024
"""Linux's limit on one argument (MAX_ARG_STRLEN)."""
MOST_NUMBER = 2**63 - 1
MOST_WATTS = 1e9

_UUID = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9/-]{1,120}")
"""As CUDA_VISIBLE_DEVICES takes it: nothing in it may end an entry, or move a cursor."""
LAST_MOMENT = 253_402_214_400
"""The last day of the year 9999: in every time zone a date that can be written."""

_REQUIRED: Any = object()


class DocumentError(ValueError):
    """The JSON is not a snapshot; the message is one line that names the place and what is wrong."""


class _Node:
    """A value with its place in the document, so that every complaint can name it."""

    def __init__(self, value: Any, place: str) -> None:
        self.value, self.place = value, place

    def wrong(self, want: str) -> DocumentError:
        if isinstance(self.value, (dict, list)):
            # Not what is inside: it may be nested too deep to be shown.
            return DocumentError(f"{self.place}: {want} expected, found a list or an object")
        shown = json.dumps(self.value)
        shown = shown if len(shown) <= 40 else shown[:37] + "…"
        return DocumentError(f"{self.place}: {want} expected, found {shown}")

    def __getitem__(self, key: str) -> _Node:
        return self.get(key, _REQUIRED)

    def get(self, key: str, default: Any) -> _Node:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        value = self.value.get(key, default)
        if value is _REQUIRED:
            raise DocumentError(f"{self.place}: '{key}' is missing")
        return _Node(value, f"{self.place}.{key}" if self.place != "file" else key)

    def items(self, most: int) -> list[_Node]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        if len(self.value) > most:
            raise DocumentError(f"{self.place}: {len(self.value)} entries, at most {most} are read")
        return [_Node(value, f"{self.place}[{place}]") for place, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or len(self.value) > MOST_TEXT:
            raise self.wrong("a text")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            raise DocumentError(f"{self.place}: not valid Unicode") from None
        return self.value

    def whole(self, least: int = 0) -> int:
        if type(self.value) is not int or not least <= self.value <= MOST_NUMBER:
            raise self.wrong("a whole number")
        return self.value

    def number(self) -> float:
        if type(self.value) not in (int, float) or not 0 <= self.value <= MOST_WATTS:
            raise self.wrong("a number")
        return float(self.value)

    def yes(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def moment(self) -> float:
        try:
            moment = datetime.fromisoformat(self.text().replace("Z", "+00:00"))
            # A time without an offset would mean another moment on every machine that reads it.
            seconds = moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
        except (ValueError, OverflowError):
            raise self.wrong("a time (ISO 8601)") from None
        if not 0 <= seconds <= LAST_MOMENT:
            raise self.wrong("a time from 1970 to 9999")
        return seconds

    def word(self, words: tuple[str, ...]) -> str:
        if self.value not in words:
            raise self.wrong(" or ".join(words))
        return cast(str, self.value)

    @property
    def known(self) -> bool:
        return self.value is not None


def from_json(text: str | bytes) -> Snapshot:
    """The snapshot that `text` describes. Raises DocumentError, and nothing else, when it is not one."""
    if len(text) > MOST_BYTES:
        raise DocumentError(f"file: {len(text)} bytes, a recording has at most {MOST_BYTES}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"file: not JSON: {error}") from None
    return from_document(document)


def from_document(document: Any) -> Snapshot:
    """The snapshot in JSON-ready values. Raises DocumentError when they are not one."""
    root = _Node(document, "file")
    schema = root["schema"]
    if schema.value != SCHEMA or type(schema.value) is not int:
        raise schema.wrong(f"schema {SCHEMA} of this gputui")
    faults, errors = _errors(root["errors"])
    devices = tuple(
        _device(node, faults.pop(place, None))
        for place, node in enumerate(root["devices"].items(MOST_DEVICES))
    )
    if faults:
        raise DocumentError(f"errors: there is no device {min(faults)}")
    keys = {device.key for device in devices}
    if len(keys) < len(devices):
        raise DocumentError("devices: two of them have the same uuid")
    _check_family(devices)
    host, driver, cuda = (root[key] for key in ("host", "driver", "cuda"))
    return Snapshot(
        host=Host(*(node.text() if node.known else None for node in (host, driver, cuda))),
        time=root["time"].moment(),
        devices=devices,
        links=_links(root["links"], len(devices)),
        errors=errors,
    )


def _check_family(devices: tuple[Device, ...]) -> None:
    """UUIDs that can be given to CUDA, and instances that are parts of a GPU before them, each once."""
    whole: set[str] = set()
    places: set[tuple[str | None, int]] = set()
    for place, device in enumerate(devices):
        if device.uuid and not _UUID.fullmatch(device.uuid):
            raise DocumentError(f"devices[{place}].uuid: GPU-… or MIG-… expected")
        if device.parent is None:
            whole.add(device.uuid)
        elif device.parent not in whole or not device.uuid:
            raise DocumentError(f"devices[{place}].parent: no device before it has this uuid")
        if (device.parent, device.index) in places:
            raise DocumentError(f"devices[{place}].index: it is there twice")
        places.add((device.parent, device.index))


def _device(node: _Node, fault: Fault | None) -> Device:
    def maybe_text(key: str) -> str | None:
        return node[key].text() if node[key].known else None

    def maybe_whole(key: str) -> int | None:
        return node[key].whole() if node[key].known else None

    def maybe_number(key: str) -> float | None:
        return node[key].number() if node[key].known else None

    mig, processes = node.get("mig", None), node["processes"]
    return Device(
        index=node["index"].whole(),
        uuid=maybe_text("uuid") or "",
        name=maybe_text("name"),
        vendor=node["vendor"].text(),
        pci_bus_id=maybe_text("pci_bus_id"),
        parent=maybe_text("parent"),
        mig=mig.yes() if mig.known else None,
        memory_total=maybe_whole("memory_total"),
        memory_used=maybe_whole("memory_used"),
        memory_free=maybe_whole("memory_free"),
        utilization=maybe_whole("utilization"),
        memory_utilization=maybe_whole("memory_utilization"),
        temperature=node["temperature"].whole(least=-273) if node["temperature"].known else None,
        power=maybe_number("power"),
        power_limit=maybe_number("power_limit"),
        sm_clock=maybe_whole("sm_clock"),
        compute_capability=maybe_text("compute_capability"),
        numa_node=maybe_whole("numa_node"),
        processes=tuple(_process(each) for each in processes.items(MOST_PROCESSES))
        if processes.known
        else None,
        fault=fault,
    )


def _process(node: _Node) -> Process:
    user, memory, command, started = (node[key] for key in ("user", "memory", "command", "started"))
    note = node.get("note", None)
    return Process(
        pid=node["pid"].whole(),
        kind=cast(Kind, node["kind"].word(KINDS)),
        user=user.text() if user.known else None,
        memory=memory.whole() if memory.known else None,
        command=command.text() if command.known else None,
        started=started.moment() if started.known else None,
        note=note.text() if note.known else None,
    )


def _links(node: _Node, devices: int) -> LinkMatrix:
    rows = node.items(MOST_DEVICES)
    if not rows:
        return ()
    matrix = []
    for row in rows:
        cells = row.items(MOST_DEVICES)
        if len(cells) != devices:
            raise row.wrong(f"one link for each of the {devices} devices")
        for cell in cells:
            if cell.known and not is_link(cell.text()):
                raise cell.wrong("a link (X, NVn, PIX, PXB, PHB, NODE, SYS)")
        matrix.append(tuple(cell.value for cell in cells))
    if len(matrix) != devices:
        raise node.wrong(f"one row for each of the {devices} devices")
    return tuple(matrix)


def _errors(node: _Node) -> tuple[dict[int, Fault], tuple[str, ...]]:
    faults: dict[int, Fault] = {}
    errors: list[str] = []
    for each in node.items(MOST_PROCESSES):
        device, message, since = each["device"], each["message"].text(), each.get("since", None)
        if not device.known:
            errors.append(message)
            continue
        if device.whole() in faults:
            raise device.wrong("one error a device")
        kind = cast(FaultKind, each["kind"].word(FAULT_KINDS))
        faults[device.whole()] = Fault(kind, message, since.moment() if since.known else None)
    return faults, tuple(errors)
