"""A snapshot as JSON, schema 1: what `ls --json` prints and `record` writes.

`document_reader.py` reads it back, strictly, as a recording may come from a stranger. Bytes, percent, °C, W,
MHz, ISO 8601; unknown is null. Beside the keys of the contract a device has `mig`,
`claim`, `cores`, `max_sm_clock`, `compute_mode`, `display`, `unified`, `uuid_usable`, `partition`, `apart`,
`render`, `pci_id`, `runtime`, `module` and `memory_idle`, a process has `note`, `container`
and `ancestors`, a claim has the `pids` of its processes on devices, and the box has `pcie`, `peers`,
`link_weights`, `link_bandwidths`, `topology` and `waiters`. `parent` is the UUID of a MIG instance's GPU, and
the bus id of the GPU of a partition with an index of its own. With details the box also has `host_load`, a
device `telemetry`, and a process `sm`, `host_cpu` and `host_memory`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.light_dataclasses import fields
from gputui.inventory.link import LinkMatrix, NumberMatrix
from gputui.inventory.process import Process
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.inventory.topology import Topology, ranges
from gputui.inventory.waiter import Waiter

if TYPE_CHECKING:
    from gputui.inventory.telemetry import Telemetry

SCHEMA = 1

DEVICE_FACTS: tuple[str, ...] = (
    "index",
    "uuid",
    "uuid_usable",
    "name",
    "vendor",
    "pci_bus_id",
    "parent",
    "partition",
    "apart",
    "render",
    "pci_id",
    "runtime",
    "module",
    "mig",
    "memory_total",
    "memory_used",
    "memory_free",
    "memory_idle",
    "utilization",
    "memory_utilization",
    "temperature",
    "power",
    "power_limit",
    "sm_clock",
    "compute_capability",
    "cores",
    "max_sm_clock",
    "compute_mode",
    "display",
    "unified",
    "numa_node",
)
"""The keys of a device whose JSON value is the attribute's value, in the order in which they are written."""


LOAD_FACTS: tuple[str, ...] = tuple(fact.name for fact in fields(HostLoad))
ACTIVITY_FACTS = ("sm", "host_cpu", "host_memory")
"""Of a process."""


def to_document(
    snapshot: Snapshot, verdicts: Mapping[str, tuple[str, str]], details: bool = False
) -> dict[str, Any]:
    """The snapshot as JSON-ready values; `verdicts` gives (state, reason) by `Device.key`."""
    document = _document(snapshot, verdicts)
    if not details:
        return document
    load = snapshot.host.load
    document["host_load"] = None if load is None else {name: getattr(load, name) for name in LOAD_FACTS}
    for device, written in zip(snapshot.devices, document["devices"], strict=True):
        written["telemetry"] = None if device.telemetry is None else _telemetry(device.telemetry)
        for process, row in zip(device.processes or (), written["processes"] or (), strict=True):
            row |= {name: getattr(process, name) for name in ACTIVITY_FACTS}
    return document


def _telemetry(telemetry: Telemetry) -> dict[str, Any]:
    facts = {fact.name: getattr(telemetry, fact.name) for fact in fields(telemetry)}
    facts["throttle"] = None if telemetry.throttle is None else list(telemetry.throttle)
    facts["xid_at"] = None if telemetry.xid_at is None else iso(telemetry.xid_at)
    return facts


def _document(snapshot: Snapshot, verdicts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "host": snapshot.host.name,
        "time": iso(snapshot.time),
        "driver": snapshot.host.driver,
        "cuda": snapshot.host.cuda,
        "devices": [_device(snapshot, device, verdicts[device.key]) for device in snapshot.devices],
        "links": _rows(snapshot.links),
        "pcie": _rows(snapshot.pcie),
        "peers": _rows(snapshot.peers),
        "link_weights": _rows(snapshot.link_weights),
        "link_bandwidths": _rows(snapshot.link_bandwidths),
        "topology": topology_document(snapshot.topology) if snapshot.topology else None,
        "waiters": waiters_document(snapshot.waiters),
        "errors": [
            *({"device": None, "kind": "error", "message": text, "since": None} for text in snapshot.errors),
            *(_fault(place, d.fault) for place, d in enumerate(snapshot.devices) if d.fault),
        ],
    }


def iso(moment: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="milliseconds")


def _device(snapshot: Snapshot, device: Device, verdict: tuple[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(device, name) for name in DEVICE_FACTS}
    facts["uuid"] = device.uuid or None
    facts["index"] = None if device.index < 0 else device.index
    facts["parent"] = device.parent or device.board
    facts["verdict"] = {"state": verdict[0], "reason": verdict[1]}
    facts["claim"] = _claim(snapshot.claimed.get(device.key))
    facts["processes"] = None if device.processes is None else [_process(p) for p in device.processes]
    return facts


def _claim(claim: Claim | None) -> dict[str, Any] | None:
    if claim is None:
        return None
    return {
        "user": claim.user,
        "own": claim.own,
        "since": None if claim.since is None else iso(claim.since),
        "command": as_text(claim.command),
        "pid": claim.pid,
        "job": claim.job,
        "pids": None if claim.pids is None else list(claim.pids),
    }


def waiters_document(line: Sequence[Waiter]) -> list[dict[str, Any]]:
    """Those in line, the first one first, as JSON-ready values. `devices` null means any."""
    return [
        {
            "place": place,
            "user": waiter.user,
            "count": waiter.count,
            "devices": None if waiter.devices is None else sorted(map(str, map(as_text, waiter.devices))),
            "since": None if waiter.since is None else iso(waiter.since),
            "command": as_text(waiter.command),
            "job": as_text(waiter.job),
            "ours": waiter.ours,
            "silent": waiter.silent,
            "step": waiter.step,
        }
        for place, waiter in enumerate(line, 1)
    ]


def _rows(matrix: LinkMatrix | NumberMatrix) -> list[list[Any]]:
    return [list(row) for row in matrix]


def topology_document(topology: Topology) -> dict[str, Any]:
    """How the box is wired, as JSON-ready values."""
    return {
        "places": [
            {
                "cpus": None if place.cpus is None else ranges(place.cpus),
                "memory_nodes": None if place.memory_nodes is None else ranges(place.memory_nodes),
                "own_node": place.own_node,
                "switched": place.switched,
                "pcie_generation": place.pcie_generation,
                "pcie_width": place.pcie_width,
            }
            for place in topology.localities
        ],
        "nics": [
            {"name": nic.name, "pci_bus_id": nic.pci_bus_id, "numa_node": nic.numa_node}
            for nic in topology.nics
        ],
        "nic_links": _rows(topology.nic_links),
        "between_cpus": topology.between_cpus,
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "user": process.user,
        "kind": process.kind,
        "memory": process.memory,
        "command": as_text(process.command),
        "started": None if process.started is None else iso(process.started),
        "note": process.note,
        "container": process.container,
        "ancestors": [{"pid": each.pid, "command": as_text(each.command)} for each in process.ancestors],
    }


def as_text(words: str | None) -> str | None:
    """A command line may have bytes that are no text; JSON can have only text."""
    return words and words.encode(errors="backslashreplace").decode()


def _fault(place: int, fault: Fault) -> dict[str, Any]:
    return {
        "device": place,
        "kind": fault.kind,
        "message": fault.message,
        "since": None if fault.since is None else iso(fault.since),
    }
