"""A snapshot out of JSON: strict, because a recording may come from a stranger.

Wrong types, huge numbers, missing keys, unknown words: one `DocumentError` that names the place.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from gputui.inventory.claim import Claim
from gputui.inventory.device import (
    APARTS,
    COMPUTE_MODES,
    FAULT_KINDS,
    UUID,
    Apart,
    ComputeMode,
    Device,
    Fault,
    FaultKind,
)
from gputui.inventory.document import ACTIVITY_FACTS, LOAD_FACTS, SCHEMA
from gputui.inventory.light_dataclasses import fields, replace
from gputui.inventory.link import PEER_WORDS, SELF, LinkMatrix, NumberMatrix, is_link
from gputui.inventory.others_files import parse_json
from gputui.inventory.process import KINDS, Ancestor, Kind, Process
from gputui.inventory.snapshot import Host, HostLoad, Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.topology import Locality, Nic, Topology, from_ranges
from gputui.inventory.untrusted_json import MOST_NUMBER, DocumentError, JsonValue
from gputui.inventory.waiter import Waiter

T = TypeVar("T")

MOST_BYTES = 32 * 1024 * 1024
"""A recording of 72 busy devices is 200 KiB; a larger file than this is not a recording."""
MOST_DEVICES = 1024
MOST_PROCESSES = 65_536
MOST_ANCESTORS = 64
MOST_WAITERS = 10_000
MOST_NUMBERS = 262_144
"""CPUs and NUMA nodes of all devices together: 72 devices of a machine with 3,600."""

_WITHOUT_REFERENCES = 2
"""The version of marshal that writes equal values of equal types as the same bytes."""

_UUID = re.compile(UUID)


def from_json(text: str | bytes) -> Snapshot:
    """The snapshot that `text` describes. Raises DocumentError, and nothing else, when it is not one."""
    if len(text) > MOST_BYTES:
        raise DocumentError(f"file: {len(text)} bytes, a recording has at most {MOST_BYTES}")
    try:
        document = parse_json(text)
    except ValueError as error:
        raise DocumentError(f"file: not JSON: {error}") from None
    return from_document(document)


def from_document(document: Any, before: tuple[dict[str, Any], Snapshot] | None = None) -> Snapshot:
    """The snapshot in JSON-ready values. Raises DocumentError when they are not one.

    `before` is an earlier document of that box and what was read from it: what is as it was is not read once
    more.
    """
    root = JsonValue(document, "file")
    schema = root["schema"]
    if schema.value != SCHEMA or type(schema.value) is not int:
        raise schema.wrong(f"schema {SCHEMA} of this gputui")
    faults, errors = _errors(root["errors"])
    nodes = root["devices"].items(MOST_DEVICES)
    if before is not None and len(nodes) != len(before[1].devices):
        before = None
    devices = _devices(nodes, faults, before)
    if faults:
        raise DocumentError(f"errors: there is no device {min(faults)}")
    keys = [device.key for device in devices]
    if len(set(keys)) < len(keys):
        raise DocumentError("devices: two of them have the same uuid")
    _check_family(devices)
    if before is not None and keys != [device.key for device in before[1].devices]:
        before = None

    def unless_same(key: str, read: Callable[[], T]) -> T:
        if before is not None and key in document and _same(document[key], before[0].get(key)):
            return cast(T, getattr(before[1], key))
        return read()

    def matrix(key: str, check: Callable[[JsonValue], object]) -> LinkMatrix:
        return unless_same(key, lambda: _matrix(root.get(key, []), len(devices), len(devices), check))

    def numbers(key: str) -> NumberMatrix:
        return unless_same(key, lambda: _number_matrix(root.get(key, []), len(devices)))

    texts = (root[key] for key in ("host", "driver", "cuda"))
    name, driver, cuda = (node.text() if node.known else None for node in texts)
    return Snapshot(
        host=Host(name, driver, cuda, _load(root.get("host_load", None))),
        time=root["time"].moment(),
        devices=devices,
        links=unless_same("links", lambda: _matrix(root["links"], len(devices), len(devices), _link)),
        errors=errors,
        pcie=matrix("pcie", _link),
        peers=matrix("peers", _peer),
        link_weights=numbers("link_weights"),
        link_bandwidths=numbers("link_bandwidths"),
        topology=unless_same("topology", lambda: _topology(root.get("topology", None), len(devices))),
        claims=_claims(nodes, devices, before),
        waiters=unless_same("waiters", lambda: _waiters(root)),
    )


def _same(value: Any, before: Any) -> bool:
    """Whether a value of JSON is as it was, with its types: Python's 1 equals true."""
    if not isinstance(value, list | dict):
        return type(value) is type(before) and bool(value == before)
    return bool(value == before) and marshal.dumps(value, _WITHOUT_REFERENCES) == marshal.dumps(
        before, _WITHOUT_REFERENCES
    )


def _devices(
    nodes: Sequence[JsonValue], faults: dict[int, Fault], before: tuple[dict[str, Any], Snapshot] | None
) -> tuple[Device, ...]:
    """All devices; what is wrong with them is taken out of `faults`."""
    if before is None:
        return tuple(_device(node, faults.pop(place, None), place) for place, node in enumerate(nodes))
    known = zip(before[0]["devices"], before[1].devices, strict=True)
    return tuple(
        _device_after(values, device, node, faults.pop(place, None), place)
        for place, (node, (values, device)) in enumerate(zip(nodes, known, strict=True))
    )


def _claims(
    nodes: Sequence[JsonValue],
    devices: Sequence[Device],
    before: tuple[dict[str, Any], Snapshot] | None,
) -> tuple[Claim, ...]:
    found = [node.get("claim", None) for node in nodes]
    if before is not None:
        earlier = [values.get("claim") for values in before[0]["devices"]]
        if _same([node.value for node in found], earlier):
            return before[1].claims
    claims = (_claim(node, device) for node, device in zip(found, devices, strict=True))
    return tuple(claim for claim in claims if claim is not None)


def _waiters(root: JsonValue) -> tuple[Waiter, ...]:
    nodes = root.get("waiters", []).items(MOST_WAITERS)
    return tuple(_waiter(node, place) for place, node in enumerate(nodes, 1))


def _check_family(devices: tuple[Device, ...]) -> None:
    """UUIDs that can be put into a list, and instances that are parts of a GPU before them, each once."""
    whole: set[str] = set()
    places: set[tuple[str, str | None, int]] = set()
    for place, device in enumerate(devices):
        if device.uuid and not _UUID.fullmatch(device.uuid):
            raise DocumentError(f"devices[{place}].uuid: a UUID expected (GPU-…, MIG-…)")
        if not device.uuid_usable and device.pci_bus_id and not _BUS_ID.fullmatch(device.pci_bus_id):
            raise DocumentError(f"devices[{place}].pci_bus_id: a bus id expected (00000000:57:00.0)")
        if device.parent is None:
            whole.add(device.uuid)
        elif device.parent not in whole or not device.uuid:
            raise DocumentError(f"devices[{place}].parent: no device before it has this uuid")
        if (device.vendor, device.parent, device.index) in places:
            raise DocumentError(f"devices[{place}].index: appears twice")
        places.add((device.vendor, device.parent, device.index))


_BUS_ID = re.compile(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]")
"""Of the GPU that a partition is a part of; a MIG instance has its GPU's UUID in the same place."""


_MOVES: dict[str, Callable[[JsonValue], int | float]] = {
    **dict.fromkeys(
        ("memory_used", "memory_free", "utilization", "memory_utilization", "sm_clock"), JsonValue.whole
    ),
    "temperature": lambda node: node.whole(least=-273),
    "power": JsonValue.number,
}
"""The keys of a device that change from reading to reading while nothing happens to it."""
_NOT_OF_DEVICE = frozenset(("verdict", "claim"))
_NESTED = (list, dict)


def _device_after(
    before: dict[str, Any], device: Device, node: JsonValue, fault: Fault | None, place: int
) -> Device:
    """The device as `_device` reads it; `before` are the values that the same place had, and `device` is what
    was read from them."""
    values = node.value
    if not isinstance(values, dict) or values.keys() != before.keys() or fault != device.fault:
        return _device(node, fault, place)
    # (Written out: of twenty boxes some five thousand values come in a second, nearly all as they were.)
    changed = {
        key
        for key, value in values.items()
        if value is not (was := before[key])
        and (
            value != was or type(value) is not type(was) or (type(value) in _NESTED and not _same(value, was))
        )
    } - _NOT_OF_DEVICE
    if not changed:
        return device
    if not changed <= _MOVES.keys():
        return _device(node, fault, place)
    moved: dict[str, Any] = {key: None if values[key] is None else _MOVES[key](node[key]) for key in changed}
    return replace(device, **moved)


def _device(node: JsonValue, fault: Fault | None, place: int) -> Device:
    def maybe_text(key: str) -> str | None:
        found = node[key]
        return found.text() if found.known else None

    def maybe_whole(key: str) -> int | None:
        found = node[key]
        return found.whole() if found.known else None

    def maybe_number(key: str) -> float | None:
        found = node[key]
        return found.number() if found.known else None

    def later_whole(key: str) -> int | None:
        """A fact that recordings of older versions do not have."""
        found = node.get(key, None)
        return found.whole() if found.known else None

    def later_text(key: str) -> str | None:
        found = node.get(key, None)
        return found.text() if found.known else None

    mig, processes = node.get("mig", None), node["processes"]
    telemetry = _telemetry(node.get("telemetry", None))
    mode, display = node.get("compute_mode", None), node.get("display", None)
    unified = node.get("unified", None)
    usable, apart = node.get("uuid_usable", True), node.get("apart", None)
    of = maybe_text("parent")
    is_board = of is not None and _BUS_ID.fullmatch(of) is not None
    return Device(
        # (One that has no index is told apart from others by its place here.)
        index=-1 - place if not node["index"].known and apart.known else node["index"].whole(),
        uuid=maybe_text("uuid") or "",
        uuid_usable=usable.yes(),
        name=maybe_text("name"),
        vendor=node["vendor"].text(),
        pci_bus_id=maybe_text("pci_bus_id"),
        parent=None if is_board else of,
        board=of if is_board else None,
        partition=later_whole("partition"),
        apart=cast(Apart, apart.word(APARTS)) if apart.known else None,
        render=later_text("render"),
        pci_id=later_text("pci_id"),
        runtime=later_text("runtime"),
        module=later_whole("module"),
        mig=mig.yes() if mig.known else None,
        memory_total=maybe_whole("memory_total"),
        memory_used=maybe_whole("memory_used"),
        memory_free=maybe_whole("memory_free"),
        memory_idle=later_whole("memory_idle"),
        utilization=maybe_whole("utilization"),
        memory_utilization=maybe_whole("memory_utilization"),
        temperature=node["temperature"].whole(least=-273) if node["temperature"].known else None,
        power=maybe_number("power"),
        power_limit=maybe_number("power_limit"),
        sm_clock=maybe_whole("sm_clock"),
        compute_capability=maybe_text("compute_capability"),
        cores=later_whole("cores"),
        max_sm_clock=later_whole("max_sm_clock"),
        compute_mode=cast(ComputeMode, mode.word(COMPUTE_MODES)) if mode.known else None,
        display=display.yes() if display.known else None,
        unified=unified.yes() if unified.known else None,
        numa_node=maybe_whole("numa_node"),
        # (Of the same reading, and in the document once.)
        throttled=telemetry.throttle if telemetry else None,
        telemetry=telemetry,
        processes=tuple(_process(each) for each in processes.items(MOST_PROCESSES))
        if processes.known
        else None,
        fault=fault,
    )


_TEMPERATURES = tuple(fact.name for fact in fields(Telemetry) if fact.name.endswith("_temperature"))
_NUMBERS = (
    *("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received"),
    *("sm_active", "sm_occupancy", "tensor_active", "energy"),
)
_MOST_REASONS = 32


def _telemetry(node: JsonValue) -> Telemetry | None:
    if not node.known:
        return None
    facts: dict[str, Any] = {}
    for name in (fact.name for fact in fields(Telemetry)):
        value = node.get(name, None)
        if not value.known:
            continue
        if name == "throttle":
            facts[name] = tuple(each.text() for each in value.items(_MOST_REASONS))
        elif name == "xid_at":
            facts[name] = value.moment()
        elif name == "persistence":
            facts[name] = value.yes()
        elif name in _NUMBERS:
            facts[name] = value.number(MOST_NUMBER)
        else:
            facts[name] = value.whole(least=-273 if name in _TEMPERATURES else 0)
    return Telemetry(**facts)


def _load(node: JsonValue) -> HostLoad | None:
    if not node.known:
        return None
    facts = {name: node.get(name, None) for name in LOAD_FACTS}
    return HostLoad(
        **{
            name: value.number() if name in ("cpu", "load") else value.whole()
            for name, value in facts.items()
            if value.known
        }  # type: ignore[arg-type]
    )


def _claim(node: JsonValue, device: Device) -> Claim | None:
    if not node.known:
        return None
    since, command, pid, job = (node[key] for key in ("since", "command", "pid", "job"))
    pids, own = node.get("pids", None), node.get("own", None)
    return Claim(
        key=device.key,
        user=node["user"].text(),
        since=since.moment() if since.known else None,
        command=command.text() if command.known else None,
        pid=pid.whole() if pid.known else None,
        job=job.text() if job.known else None,
        pids=tuple(each.whole() for each in pids.items(MOST_PROCESSES)) if pids.known else None,
        own=own.known and own.yes(),
    )


def _waiter(node: JsonValue, place: int) -> Waiter:
    if node["place"].whole() != place:
        raise node["place"].wrong(f"{place}, its place in the list,")
    devices, since, command, job = (node[key] for key in ("devices", "since", "command", "job"))
    silent = node.get("silent", None)
    return Waiter(
        place=(place, ""),
        user=node["user"].text(),
        count=node["count"].whole(least=1),
        devices=frozenset(each.text() for each in devices.items(MOST_DEVICES)) if devices.known else None,
        since=since.moment() if since.known else None,
        command=command.text() if command.known else None,
        job=job.text() if job.known else None,
        ours=node["ours"].yes(),
        silent=silent.known and silent.yes(),
        step=node["step"].whole(),
    )


def _process(node: JsonValue) -> Process:
    user, memory, command, started = (node[key] for key in ("user", "memory", "command", "started"))
    note, container = node.get("note", None), node.get("container", None)
    sm, host_cpu, host_memory = (node.get(key, None) for key in ACTIVITY_FACTS)
    return Process(
        pid=node["pid"].whole(),
        kind=cast(Kind, node["kind"].word(KINDS)),
        user=user.text() if user.known else None,
        memory=memory.whole() if memory.known else None,
        command=command.text() if command.known else None,
        started=started.moment() if started.known else None,
        note=note.text() if note.known else None,
        container=container.text() if container.known else None,
        ancestors=tuple(_ancestor(each) for each in node.get("ancestors", []).items(MOST_ANCESTORS)),
        sm=sm.whole() if sm.known else None,
        host_cpu=host_cpu.number() if host_cpu.known else None,
        host_memory=host_memory.whole() if host_memory.known else None,
    )


def _ancestor(node: JsonValue) -> Ancestor:
    command = node["command"]
    return Ancestor(node["pid"].whole(), command.text() if command.known else None)


def _topology(node: JsonValue, devices: int) -> Topology | None:
    if not node.known:
        return None
    places, between = node["places"].items(MOST_DEVICES), node["between_cpus"]
    if len(places) != devices:
        raise node["places"].wrong(f"one place for each of the {devices} devices")
    near: list[Locality] = []
    numbers = 0
    for each in places:
        near.append(_locality(each))
        numbers += len(near[-1].cpus or ()) + len(near[-1].memory_nodes or ())
        if numbers > MOST_NUMBERS:
            raise node["places"].wrong(f"at most {MOST_NUMBERS} CPUs and nodes in all")
    nics = tuple(_nic(each) for each in node["nics"].items(MOST_DEVICES))
    if nics and not node["nic_links"].items(1 + 2 * MOST_DEVICES):
        raise node["nic_links"].wrong("a row for each device and network device")
    return Topology(
        localities=tuple(near),
        nics=nics,
        nic_links=_matrix(node["nic_links"], devices + len(nics), len(nics), _link) if nics else (),
        between_cpus=between.number() if between.known else None,
    )


def _locality(node: JsonValue) -> Locality:
    own, switched, generation, width = (
        node[key] for key in ("own_node", "switched", "pcie_generation", "pcie_width")
    )
    return Locality(
        cpus=_numbers(node["cpus"]),
        memory_nodes=_numbers(node["memory_nodes"]),
        own_node=own.whole() if own.known else None,
        switched=switched.yes() if switched.known else None,
        pcie_generation=generation.whole() if generation.known else None,
        pcie_width=width.whole() if width.known else None,
    )


def _numbers(node: JsonValue) -> tuple[int, ...] | None:
    if not node.known:
        return None
    if not node.text():
        return ()
    try:
        return from_ranges(node.text())
    except ValueError:
        raise node.wrong("a list of numbers (0-3,8)") from None


def _nic(node: JsonValue) -> Nic:
    bus, numa = node["pci_bus_id"], node["numa_node"]
    return Nic(
        name=node["name"].text(),
        pci_bus_id=bus.text() if bus.known else None,
        numa_node=numa.whole() if numa.known else None,
    )


def _matrix(node: JsonValue, rows: int, columns: int, check: Callable[[JsonValue], object]) -> LinkMatrix:
    found = node.items(2 * MOST_DEVICES)
    if not found:
        return ()
    if len(found) != rows:
        raise node.wrong(f"{rows} rows")
    matrix = []
    for place, row in enumerate(found):
        cells = row.items(MOST_DEVICES)
        if len(cells) != columns:
            raise row.wrong(f"{columns} cells")
        for column, cell in enumerate(cells):
            if cell.known:
                check(cell)
            # (Of network devices the rows come after those of the devices.)
            if cell.value == SELF and column != place - (rows - columns):
                raise cell.wrong("no X but where a device meets itself")
        matrix.append(tuple(cell.value for cell in cells))
    return tuple(matrix)


def _number_matrix(node: JsonValue, count: int) -> NumberMatrix:
    return cast(NumberMatrix, _matrix(node, count, count, lambda cell: cell.whole()))


def _link(cell: JsonValue) -> None:
    if not is_link(cell.text()):
        raise cell.wrong("a link (X, NVn, XGMI, MDF, XLn, XL*, PIX, PXB, PHB, NODE, SYS)")


def _peer(cell: JsonValue) -> None:
    cell.word((SELF, *PEER_WORDS))


def _errors(node: JsonValue) -> tuple[dict[int, Fault], tuple[str, ...]]:
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
