"""A snapshot as JSON, schema 1: an output can be read back, and foreign input is validated strictly."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.inventory import matrix_text
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import DocumentError, from_document, from_json
from gputui.inventory.others_files import MOST_JSON
from gputui.inventory.process import ANOTHER_NAMESPACE
from gputui.inventory.snapshot import Host, HostLoad, Snapshot
from gputui.inventory.topology import Locality, Nic, Topology
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from table_tests import each_row
from unit.builders import GIB, NOW, box, document, gpu, instance, job
from unit.calling import Call

MOMENTS = (0.0, 3.5, 12.0, 61.25)
TOPOLOGIES = sorted((Path(__file__).parents[1] / "data" / "topologies").glob("*.txt"))

BOX_KEYS = {"schema", "host", "time", "driver", "cuda", "devices", "links", "errors"}
BOX_KEYS_SINCE = {"pcie", "peers", "link_weights", "link_bandwidths", "topology", "waiters"}
"""Keys that recordings of older versions do not have."""
DEVICE_KEYS = {
    *("index", "uuid", "name", "vendor", "pci_bus_id", "parent", "memory_total", "memory_used"),
    *("memory_free", "utilization", "memory_utilization", "temperature", "power", "power_limit", "sm_clock"),
    *("compute_capability", "numa_node", "verdict", "processes"),
}
DEVICE_KEYS_SINCE = {"mig", "cores", "max_sm_clock", "compute_mode", "display", "unified"} | {
    *(
        "uuid_usable",
        "partition",
        "apart",
        "render",
        "pci_id",
        "runtime",
        "module",
        "memory_idle",
        "idle_since",
    ),
}
PROCESS_KEYS = {"pid", "user", "kind", "memory", "command", "started"}
PROCESS_KEYS_SINCE = {"note", "container", "ancestors"}
TOPOLOGY_KEYS = {"places", "nics", "nic_links", "between_cpus"}
PLACE_KEYS = {"cpus", "memory_nodes", "own_node", "switched", "pcie_generation", "pcie_width"}
NIC_KEYS = {"name", "pci_bus_id", "numa_node"}


def _text(snapshot: Snapshot) -> str:
    return json.dumps(document(snapshot), allow_nan=False)


def _read_or_refused(text: str | bytes) -> Snapshot | None:
    """The snapshot, or None if it was refused with one line. Anything else fails the test."""
    try:
        snapshot = from_json(text)
    except DocumentError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 300, message
        return None
    # The snapshot can be used: judged, written, and read again.
    assert len(from_json(_text(snapshot)).devices) == len(snapshot.devices)
    return snapshot


# An output can be read back.


@each_row("name", BOXES)
def test_every_demo_box_survives_the_round_trip(name: str) -> None:
    for elapsed in MOMENTS:
        written = document(at(BOXES[name], elapsed, NOW))
        assert document(from_json(json.dumps(written))) == written


@each_row("name", BOXES)
def test_a_snapshot_read_from_json_equals_the_one_that_was_written(name: str) -> None:
    read = from_json(_text(at(BOXES[name], 12.0, NOW)))
    assert from_json(_text(read)) == read


@each_row("name", BOXES)
def test_exactly_the_keys_of_the_contract_are_there(name: str) -> None:
    for elapsed in MOMENTS:
        written = document(at(BOXES[name], elapsed, NOW))
        assert set(written) == BOX_KEYS | BOX_KEYS_SINCE
        assert written["schema"] == 1
        assert set(written["topology"]) == TOPOLOGY_KEYS
        assert all(set(place) == PLACE_KEYS for place in written["topology"]["places"])
        for device in written["devices"]:
            assert set(device) == DEVICE_KEYS | DEVICE_KEYS_SINCE | {"claim"}
            assert set(device["verdict"]) == {"state", "reason"}
            for process in device["processes"] or ():
                assert set(process) == PROCESS_KEYS | PROCESS_KEYS_SINCE


@each_row("name", BOXES)
def test_details_are_written_when_they_are_wanted_and_come_back(name: str) -> None:
    moved = detailed(at(BOXES[name], 20.0, NOW), BOXES[name], 20.0)
    first, *others = moved.devices
    if first.telemetry:
        first = replace(first, telemetry=replace(first.telemetry, xid=79, xid_at=NOW))
    load = HostLoad(cpu=12.5, load=3.5, cpus=64, memory_used=2**34, memory_total=2**40)
    snapshot = replace(moved, devices=(first, *others), host=replace(moved.host, load=load))
    judged = for_document(verdicts(snapshot), snapshot.time)
    written = json.loads(json.dumps(to_document(snapshot, judged, details=True)))
    read = from_document(written)
    assert read.host.load == load
    assert [d.telemetry for d in read.devices] == [d.telemetry for d in snapshot.devices]
    for device, shown in zip(read.devices, snapshot.devices, strict=True):
        assert [(p.sm, p.host_cpu, p.host_memory) for p in device.processes or ()] == [
            (p.sm, p.host_cpu, p.host_memory) for p in shown.processes or ()
        ]
    assert "telemetry" not in json.dumps(document(snapshot)) and "host_load" not in document(snapshot)


@each_row(
    ("key", "value"),
    [
        ("encoder", "9"),
        ("encoder", -1),
        ("sm_active", True),
        ("pcie_sent", 1e30),
        ("throttle", "power"),
        ("throttle", [1]),
        ("throttle", ["x"] * 33),
        ("xid_at", 5),
        ("energy", []),
        ("memory_temperature", -300),
    ],
)
def test_details_that_are_none_name_their_place(key: str, value: object) -> None:
    written = document(box(gpu(0)))
    written["devices"][0]["telemetry"] = {key: value}
    with pytest.raises(DocumentError, match=rf"devices\[0\]\.telemetry\.{key}"):
        from_document(written)
    for place in ("host_load", "telemetry"):
        wrong = document(box(gpu(0)))
        (wrong if place == "host_load" else wrong["devices"][0])[place] = [1]
        with pytest.raises(DocumentError, match=place):
            from_document(wrong)


@each_row("name", BOXES)
def test_the_links_are_one_row_and_one_column_a_device(name: str) -> None:
    written = document(at(BOXES[name], 0.0, NOW))
    for matrix in ("links", "pcie", "peers"):
        assert [len(row) for row in written[matrix]] == [len(written["devices"])] * len(written["devices"])
    assert len(written["topology"]["places"]) == len(written["devices"])


def test_what_is_not_known_is_null() -> None:
    written = document(Snapshot(Host(), NOW, (Device(index=3, uuid=""),)))
    device = written["devices"][0]
    known = {key for key, value in device.items() if value is not None}
    assert known == {"index", "vendor", "verdict", "uuid_usable"}
    assert (written["host"], written["driver"], written["cuda"]) == (None, None, None)
    assert (written["links"], written["pcie"], written["peers"]) == ([], [], [])
    assert written["topology"] is None


def test_what_is_zero_is_zero_and_not_null() -> None:
    device = document(box(gpu(memory_used=0, utilization=0)))["devices"][0]
    assert (device["memory_used"], device["utilization"]) == (0, 0)


def test_no_processes_and_processes_not_known_are_told_apart() -> None:
    written = document(box(gpu(0, processes=()), gpu(1, processes=None)))
    assert [device["processes"] for device in written["devices"]] == [[], None]
    read = from_document(written)
    assert [device.processes for device in read.devices] == [(), None]


def test_memory_that_the_driver_does_not_report_is_null_on_the_box_that_lacks_it() -> None:
    device = document(at(BOXES["gb10"], 0.0, NOW))["devices"][0]
    assert (device["memory_total"], device["memory_used"], device["memory_free"]) == (None, None, None)


def test_unified_memory_that_the_driver_does_not_report_is_the_hosts_where_that_was_read() -> None:
    spark = at(BOXES["gb10"], 0.0, NOW)
    read = replace(
        spark, host=replace(spark.host, load=HostLoad(memory_used=30 * GIB, memory_total=120 * GIB))
    )
    device = document(read)["devices"][0]
    sizes = device["memory_total"], device["memory_used"], device["memory_free"]
    assert sizes == (120 * GIB, 30 * GIB, 90 * GIB)


def test_times_are_iso_8601_with_their_offset() -> None:
    snapshot = box(replace(gpu(), processes=(job(started=NOW - 0.25),)), time=NOW + 0.5)
    written = document(snapshot)
    moment = datetime.fromisoformat(written["time"])
    assert moment.tzinfo is not None and moment.timestamp() == NOW + 0.5
    started = datetime.fromisoformat(written["devices"][0]["processes"][0]["started"])
    assert started.timestamp() == NOW - 0.25


def test_faults_and_errors_of_the_box_come_back() -> None:
    snapshot = box(
        gpu(0),
        gpu(1, fault=Fault("lost", "GPU is lost", NOW - 5)),
        gpu(2, fault=Fault("error", "GetMemoryInfo: Unknown Error", None)),
        errors=("the driver answers slowly",),
    )
    read = from_json(_text(snapshot))
    assert read == snapshot


def test_a_process_without_an_owner_comes_back_with_its_note() -> None:
    lonely = job(user=None, command=None, started=None, memory=None, note=ANOTHER_NAMESPACE)
    read = from_json(_text(box(gpu(processes=(lonely,)))))
    assert read.devices[0].processes == (lonely,)


def test_mig_instances_come_back_under_their_parent() -> None:
    parent = gpu(0, mig=True)
    snapshot = box(parent, instance(parent, 0), instance(parent, 1), gpu(1))
    read = from_json(_text(snapshot))
    assert [read.label(device) for device in read.devices] == ["0", "0:0", "0:1", "1"]
    assert len(read.instances(read.devices[0])) == 2


def test_a_command_line_that_is_not_utf8_is_written_as_plain_ascii() -> None:
    text = _text(box(gpu(processes=(job(command="python caf\udce9.py"),))))
    assert text.isascii()


def test_our_own_record_of_a_command_line_that_is_not_utf8_can_be_replayed() -> None:
    text = _text(box(gpu(processes=(job(command="python caf\udce9.py"),))))
    (process,) = from_json(text).devices[0].processes or ()
    assert process.command == "python caf\\udce9.py"


def test_keys_of_a_newer_gputui_are_passed_over() -> None:
    written = document(box(gpu()))
    written["weather"] = "fine"
    written["devices"][0]["colour"] = "green"
    assert from_document(written) == box(gpu())


# The wiring of the box.

WIRED = replace(
    box(gpu(0, cores=16896, max_sm_clock=1980), gpu(1), links=(("X", "NV18"), ("NV18", "X"))),
    pcie=(("X", "SYS"), ("SYS", "X")),
    peers=(("X", "OK"), ("CNS", "X")),
    topology=Topology(
        localities=(
            Locality((0, 1, 2, 8), (0, 5, 6), own_node=4, switched=True, pcie_generation=5, pcie_width=16),
            Locality((), None, switched=False),
        ),
        nics=(Nic("mlx5_0", "00000000:19:00.0", 1), Nic("mlx5_1")),
        nic_links=(("PIX", "SYS"), (None, "PXB"), ("X", None), (None, "X")),
        between_cpus=22.0,
    ),
)


def test_the_wiring_comes_back() -> None:
    assert from_json(_text(WIRED)) == WIRED


@each_row("name", BOXES)
def test_the_wiring_of_every_demo_box_comes_back(name: str) -> None:
    snapshot = at(BOXES[name], 12.0, NOW)
    read = from_json(_text(snapshot))
    assert snapshot.topology is not None
    assert (read.links, read.pcie, read.peers) == (snapshot.links, snapshot.pcie, snapshot.peers)
    assert read.topology == snapshot.topology
    assert [(d.cores, d.max_sm_clock) for d in read.devices] == [
        (d.cores, d.max_sm_clock) for d in snapshot.devices
    ]


@each_row("file", TOPOLOGIES, ids=lambda file: file.stem)
def test_the_wiring_of_every_recorded_matrix_comes_back(file: Path) -> None:
    snapshot = at(box_of(matrix_text.read(file.read_text()), file.stem), 0.0, NOW)
    # The reason for low clocks is written only with the details.
    plain = tuple(replace(device, throttled=None) for device in snapshot.devices)
    assert from_json(_text(snapshot)) == replace(snapshot, devices=plain)


def test_the_wiring_is_written_in_words_and_ranges() -> None:
    written = document(WIRED)
    assert written["pcie"] == [["X", "SYS"], ["SYS", "X"]]
    assert written["peers"] == [["X", "OK"], ["CNS", "X"]]
    assert written["topology"] == {
        "places": [
            {
                "cpus": "0-2,8",
                "memory_nodes": "0,5-6",
                "own_node": 4,
                "switched": True,
                "pcie_generation": 5,
                "pcie_width": 16,
            },
            {
                "cpus": "",
                "memory_nodes": None,
                "own_node": None,
                "switched": False,
                "pcie_generation": None,
                "pcie_width": None,
            },
        ],
        "nics": [
            {"name": "mlx5_0", "pci_bus_id": "00000000:19:00.0", "numa_node": 1},
            {"name": "mlx5_1", "pci_bus_id": None, "numa_node": None},
        ],
        "nic_links": [["PIX", "SYS"], [None, "PXB"], ["X", None], [None, "X"]],
        "between_cpus": 22.0,
    }
    assert all(set(nic) == NIC_KEYS for nic in written["topology"]["nics"])


def test_no_cpus_and_cpus_not_known_are_told_apart() -> None:
    places = (Locality(cpus=()), Locality(cpus=None))
    written = document(replace(box(gpu(0), gpu(1)), topology=Topology(places)))
    assert [place["cpus"] for place in written["topology"]["places"]] == ["", None]
    assert from_document(written).topology == Topology(places)


# Recordings of older versions.


@each_row("name", [name for name in BOXES if name != "amd-cpx"])
def test_a_recording_of_an_older_version_can_be_read(name: str) -> None:
    whole = at(BOXES[name], 12.0, NOW)
    written = document(whole)
    for key in BOX_KEYS_SINCE:
        del written[key]
    for device in written["devices"]:
        for key in DEVICE_KEYS_SINCE | {"claim"}:
            del device[key]
        for process in device["processes"] or ():
            for key in PROCESS_KEYS_SINCE:
                del process[key]
    devices = tuple(
        replace(
            d,
            mig=None,
            cores=None,
            max_sm_clock=None,
            compute_mode=None,
            display=None,
            unified=None,
            uuid_usable=True,
            partition=None,
            render=None,
            pci_id=None,
            module=None,
            memory_idle=None,
            idle_since=None,
            apart=None,
            processes=tuple(replace(p, container=None, ancestors=()) for p in d.processes or ())
            if d.processes is not None
            else None,
        )
        for d in from_json(_text(whole)).devices
    )
    assert from_document(written) == replace(
        whole,
        devices=devices,
        pcie=(),
        peers=(),
        link_weights=(),
        topology=None,
        claims=(),
        waiters=(),
        jobs=(),
    )


@each_row(
    ("key", "unknown"), [("pcie", ()), ("peers", ()), ("topology", None)], ids=["pcie", "peers", "topology"]
)
def test_one_key_of_the_wiring_that_is_missing_is_not_known(key: str, unknown: Any) -> None:
    written = document(WIRED)
    del written[key]
    assert from_document(written) == replace(WIRED, **{key: unknown})


def test_a_claim_is_written_and_read() -> None:
    claim = Claim("GPU-1", "ana", 1_700_000_000.0, "python x.py", 41, None)
    for claims in ((claim,), (replace(claim, since=None, command=None, pid=None, job="k3f9"),)):
        claimed = replace(WIRED, claims=tuple(replace(each, key=WIRED.devices[1].key) for each in claims))
        assert from_document(document(claimed)) == claimed


def test_who_is_in_line_is_written_and_read() -> None:
    line = (
        Waiter((1, ""), "ana", 4, None, 1_700_000_000.0, "python x.py", job="k3f9", ours=True),
        Waiter((2, ""), "bo", 1, frozenset({WIRED.devices[1].key}), step=1),
    )
    assert from_document(document(replace(WIRED, waiters=line))) == replace(WIRED, waiters=line)


@each_row("key", sorted(DEVICE_KEYS_SINCE - {"uuid_usable"}))
def test_one_key_of_a_device_that_is_missing_is_not_known(key: str) -> None:
    written = document(WIRED)
    del written["devices"][0][key]
    first, second = WIRED.devices
    assert from_document(written) == replace(WIRED, devices=(replace(first, **{key: None}), second))


@each_row(
    ("path", "place"),
    [
        *((("topology", key), "topology") for key in sorted(TOPOLOGY_KEYS)),
        *((("topology", "places", 0, key), "topology.places[0]") for key in sorted(PLACE_KEYS)),
        *((("topology", "nics", 0, key), "topology.nics[0]") for key in sorted(NIC_KEYS)),
    ],
)
def test_a_missing_key_of_the_topology_is_named(path: tuple[str | int, ...], place: str) -> None:
    written: Any = document(WIRED)
    inner = written
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    with pytest.raises(DocumentError) as refused:
        from_document(written)
    assert str(refused.value) == f"{place}: '{path[-1]}' is missing"


def test_a_recording_without_the_two_extra_keys_can_be_read() -> None:
    written = document(box(gpu(processes=(job(),))))
    del written["devices"][0]["mig"]
    del written["devices"][0]["processes"][0]["note"]
    assert from_document(written) == box(gpu(mig=None, processes=(job(),)))


@each_row("moment", ["2024-05-01T12:00:00Z", "2024-05-01T12:00:00", "2024-05-01T14:00:00+02:00"])
def test_a_time_means_the_same_on_every_machine(moment: str) -> None:
    written = document(box(gpu()))
    written["time"] = moment
    assert from_document(written).time == datetime(2024, 5, 1, 12, tzinfo=timezone.utc).timestamp()


# Input that is not a recording is refused with one line that names the position.


def _set(*path: str | int, to: Any) -> dict[str, Any]:
    written = document(box(gpu(0), gpu(1, processes=(job(),)), links=(("X", "NV4"), ("NV4", "X"))))
    place: Any = written
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return written


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a newer schema", _set("schema", to=2), "schema"),
    ("a schema that is true", _set("schema", to=True), "schema"),
    ("a schema that is 1.0", _set("schema", to=1.0), "schema"),
    ("a host that is a number", _set("host", to=7), "host"),
    ("a time that is a number", _set("time", to=7), "time"),
    ("a time of another calendar", _set("time", to="yesterday"), "time"),
    ("devices that are an object", _set("devices", to={}), "devices"),
    (
        "more devices than any box has",
        _set("devices", to=[document(box(gpu(0)))["devices"][0]] * 257),
        "devices: 257 entries, at most 256 are read",
    ),
    ("a device that is null", _set("devices", 0, to=None), "devices[0]"),
    ("an index that is a text", _set("devices", 0, "index", to="0"), "devices[0].index"),
    ("an index below zero", _set("devices", 0, "index", to=-1), "devices[0].index"),
    ("an index that is null", _set("devices", 0, "index", to=None), "devices[0].index"),
    ("a name that is a list", _set("devices", 0, "name", to=["H100"]), "devices[0].name"),
    ("a vendor that is null", _set("devices", 0, "vendor", to=None), "devices[0].vendor"),
    ("memory below zero", _set("devices", 0, "memory_used", to=-1), "devices[0].memory_used"),
    ("memory with a fraction", _set("devices", 0, "memory_used", to=1.5), "devices[0].memory_used"),
    ("memory that is true", _set("devices", 0, "memory_used", to=True), "devices[0].memory_used"),
    ("memory of 2^64 bytes", _set("devices", 0, "memory_used", to=2**64), "devices[0].memory_used"),
    ("N/A for null", _set("devices", 0, "utilization", to="N/A"), "devices[0].utilization"),
    ("power below zero", _set("devices", 0, "power", to=-0.5), "devices[0].power"),
    ("power that is not a number", _set("devices", 0, "power", to=float("nan")), "devices[0].power"),
    ("endless power", _set("devices", 0, "power", to=float("inf")), "devices[0].power"),
    ("power of 10^400 W", _set("devices", 0, "power", to=10**400), "devices[0].power"),
    ("mig that is 1", _set("devices", 0, "mig", to=1), "devices[0].mig"),
    ("a parent that is not there", _set("devices", 0, "parent", to="GPU-none"), "devices[0].parent"),
    ("the same uuid twice", _set("devices", 1, "uuid", to=gpu(0).uuid), "same uuid"),
    ("processes that are a text", _set("devices", 0, "processes", to="none"), "devices[0].processes"),
    ("a pid that is null", _set("devices", 1, "processes", 0, "pid", to=None), "processes[0].pid"),
    ("an unknown kind", _set("devices", 1, "processes", 0, "kind", to="quantum"), "processes[0].kind"),
    ("a kind that is a list", _set("devices", 1, "processes", 0, "kind", to=["mps"]), "processes[0].kind"),
    (
        "a start that is no time",
        _set("devices", 1, "processes", 0, "started", to="x"),
        "processes[0].started",
    ),
    ("a row too few", _set("links", to=[["X", "SYS"]]), "links"),
    ("a column too many", _set("links", 0, to=["X", "SYS", "SYS"]), "links[0]"),
    ("an unknown link", _set("links", 0, 1, to="NV0"), "links[0][1]"),
    ("a link that is a number", _set("links", 0, 1, to=4), "links[0][1]"),
    ("links that are null", _set("links", to=None), "links"),
    ("errors that are an object", _set("errors", to={}), "errors"),
    (
        "an error of a device that is not there",
        _set("errors", to=[{"device": 9, "kind": "lost", "message": "gone"}]),
        "no device 9",
    ),
    (
        "two errors of one device",
        _set("errors", to=[{"device": 0, "kind": "lost", "message": "gone"}] * 2),
        "errors[1]",
    ),
    (
        "an unknown kind of error",
        _set("errors", to=[{"device": 0, "kind": "sad", "message": "gone"}]),
        "errors[0].kind",
    ),
]


def _wired(*path: str | int, to: Any) -> dict[str, Any]:
    written = document(WIRED)
    place: Any = written
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return written


def _in_line(key: str, to: Any) -> dict[str, Any]:
    written = document(replace(WIRED, waiters=(Waiter((1, ""), "ana"),)))
    written["waiters"][0][key] = to
    return written


REFUSED += [
    ("a line that is an object", _wired("waiters", to={}), "waiters"),
    ("a waiter that is a text", _wired("waiters", to=["ana"]), "waiters[0]"),
    ("a waiter out of line", _in_line("place", 2), "waiters[0].place"),
    ("a waiter without a name", _in_line("user", None), "waiters[0].user"),
    ("a waiter for nothing", _in_line("count", 0), "waiters[0].count"),
    ("a waiter for a number", _in_line("devices", [4]), "waiters[0].devices[0]"),
    ("a waiter who may be us", _in_line("ours", None), "waiters[0].ours"),
    ("PCIe classes that are null", _wired("pcie", to=None), "pcie"),
    ("PCIe classes that are a text", _wired("pcie", to="SYS"), "pcie"),
    ("a row of PCIe classes too few", _wired("pcie", to=[["X", "SYS"]]), "pcie"),
    ("a PCIe class that is none", _wired("pcie", 0, 1, to="SOC"), "pcie[0][1]"),
    ("a row of peer access too many", _wired("peers", to=[["X"], ["X"], ["X"]]), "peers"),
    ("a peer access that there is not", _wired("peers", 1, 0, to="YES"), "peers[1][0]"),
    ("a peer access that is a link", _wired("peers", 1, 0, to="NV4"), "peers[1][0]"),
    ("a peer access that is true", _wired("peers", 1, 0, to=True), "peers[1][0]"),
    ("a topology that is a list", _wired("topology", to=[]), "topology"),
    ("a topology that is a text", _wired("topology", to="flat"), "topology"),
    ("places that are null", _wired("topology", "places", to=None), "topology.places"),
    ("a place too few", _wired("topology", "places", to=document(WIRED)["topology"]["places"][:1]), "places"),
    ("no places", _wired("topology", "places", to=[]), "topology.places"),
    ("a place that is null", _wired("topology", "places", 0, to=None), "topology.places[0]"),
    ("CPUs that are a list", _wired("topology", "places", 0, "cpus", to=[0, 1]), "places[0].cpus"),
    ("CPUs that are a number", _wired("topology", "places", 0, "cpus", to=7), "places[0].cpus"),
    ("CPUs that are words", _wired("topology", "places", 0, "cpus", to="all"), "places[0].cpus"),
    ("CPUs backwards", _wired("topology", "places", 0, "cpus", to="7-0"), "places[0].cpus"),
    ("CPUs below zero", _wired("topology", "places", 0, "cpus", to="-1"), "places[0].cpus"),
    ("more CPUs than there can be", _wired("topology", "places", 0, "cpus", to="0-65536"), "places[0].cpus"),
    ("CPUs of 10^40", _wired("topology", "places", 0, "cpus", to="1" + "0" * 40), "places[0].cpus"),
    ("nodes that are a number", _wired("topology", "places", 0, "memory_nodes", to=0), "memory_nodes"),
    ("an own node below zero", _wired("topology", "places", 0, "own_node", to=-1), "places[0].own_node"),
    ("switched by 1", _wired("topology", "places", 0, "switched", to=1), "places[0].switched"),
    ("half a generation", _wired("topology", "places", 0, "pcie_generation", to=4.5), "pcie_generation"),
    ("lanes in words", _wired("topology", "places", 0, "pcie_width", to="x16"), "places[0].pcie_width"),
    ("NICs that are an object", _wired("topology", "nics", to={}), "topology.nics"),
    ("a NIC without a name", _wired("topology", "nics", 0, "name", to=None), "topology.nics[0].name"),
    ("a NIC on no node", _wired("topology", "nics", 0, "numa_node", to=-1), "topology.nics[0].numa_node"),
    ("a NIC more than rows", _wired("topology", "nic_links", to=[["X", "X"]] * 3), "topology.nic_links"),
    ("a column of NICs too few", _wired("topology", "nic_links", 3, to=["X"]), "topology.nic_links[3]"),
    ("a link of a NIC that is none", _wired("topology", "nic_links", 0, 0, to="LAN"), "nic_links[0][0]"),
    ("sockets without an end", _wired("topology", "between_cpus", to=float("inf")), "between_cpus"),
    ("sockets below zero", _wired("topology", "between_cpus", to=-1), "topology.between_cpus"),
    ("cores that are a text", _wired("devices", 0, "cores", to="many"), "devices[0].cores"),
    ("cores below zero", _wired("devices", 0, "cores", to=-1), "devices[0].cores"),
    ("a clock with a fraction", _wired("devices", 0, "max_sm_clock", to=1980.5), "devices[0].max_sm_clock"),
]


@each_row(("written", "place"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_be_is_refused_and_its_place_named(written: dict[str, Any], place: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_document(written)
    assert place in str(refused.value)
    assert "\n" not in str(refused.value)


@each_row("key", sorted(BOX_KEYS))
def test_a_missing_key_of_the_box_is_named(key: str) -> None:
    written = document(box(gpu()))
    del written[key]
    with pytest.raises(DocumentError, match=f"'{key}' is missing"):
        from_document(written)


@each_row("key", sorted(DEVICE_KEYS - {"verdict"}))
def test_a_missing_key_of_a_device_is_named(key: str) -> None:
    written = document(box(gpu()))
    del written["devices"][0][key]
    with pytest.raises(DocumentError, match=rf"devices\[0\]: '{key}' is missing"):
        from_document(written)


@each_row("key", sorted(PROCESS_KEYS))
def test_a_missing_key_of_a_process_is_named(key: str) -> None:
    written = document(box(gpu(processes=(job(),))))
    del written["devices"][0]["processes"][0][key]
    with pytest.raises(DocumentError, match=rf"devices\[0\]\.processes\[0\]: '{key}' is missing"):
        from_document(written)


@each_row("text", ["", "null", "[]", "{}", "7", '"schema"', "{", "NaN", "[1,", '{"schema": 1}'])
def test_other_json_and_no_json_are_refused(text: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_json(text)
    assert "\n" not in str(refused.value)


@each_row("text", [b"\xff\xfe\xff", b"\x80", b"\x00", b'{"schema": "\xe9"}', b"\x1f\x8b\x08\x00"])
def test_bytes_that_are_not_text_are_refused(text: bytes) -> None:
    with pytest.raises(DocumentError) as refused:
        from_json(text)
    assert "\n" not in str(refused.value)


@each_row("depth", [10, 300, 700, 900, 950, 980, 990, 1_000, 5_000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    for text in (nested, '{"a":' * depth + "1" + "}" * depth, f'{{"schema": {nested}}}'):
        with pytest.raises(DocumentError) as refused:
            from_json(text)
        assert "\n" not in str(refused.value)


def test_nesting_just_below_the_depth_that_json_reads_is_refused_too() -> None:
    whole = _text(box(gpu()))
    for depth in range(600, 1_000, 3):
        with pytest.raises(DocumentError):
            from_json(whole.replace('"testbox"', "[" * depth + "]" * depth))


@each_row("key", ["index", "power", "temperature"])
@each_row("digits", [30, 400, 4_000, 100_000])
def test_a_number_of_very_many_digits_is_refused(key: str, digits: int) -> None:
    written = _set("devices", 0, key, to="NUMBER")
    text = json.dumps(written).replace('"NUMBER"', "9" * digits)
    with pytest.raises(DocumentError) as refused:
        from_json(text)
    assert len(str(refused.value)) < 300


def test_a_lone_surrogate_is_refused() -> None:
    text = _text(box(gpu())).replace("testbox", "\\ud800")
    with pytest.raises(DocumentError, match="Unicode"):
        from_json(text)


@each_row(
    "moment",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999+00:00"],
)
def test_a_time_that_could_not_be_written_again_is_refused(moment: str) -> None:
    assert _read_or_refused(json.dumps(_set("time", to=moment))) is None


def test_a_file_too_large_to_be_a_recording_is_refused_unread() -> None:
    with pytest.raises(DocumentError, match="bytes"):
        from_json(b" " * (MOST_JSON + 1))


def test_a_complaint_does_not_repeat_a_whole_book() -> None:
    with pytest.raises(DocumentError) as refused:
        from_document(_set("devices", 0, "utilization", to="long " * 10_000))
    assert len(str(refused.value)) < 150


# For any foreign input, the result is a usable snapshot or one line.

_JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([-1, 2**63 - 1, 2**63, 2**64, 10**400, -(10**400), 1e308, -0.0]),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(
            [
                *("", "\ud800", "N/A", "X", "NV4", "NV999", "compute", "lost", "GPU-", "index 0", "0:0"),
                *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2024-05-01", "\x1b[2J"),
            ]
        ),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    below: list[tuple[str | int, ...]] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            below += _paths(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            below += _paths(inner, (*path, place))
    return [path, *below] if path else below


_FOUR = box(
    gpu(0, processes=(job(1), job(2, user=None, note=ANOTHER_NAMESPACE))),
    gpu(1, mig=True),
    instance(gpu(1), 0),
    gpu(2, fault=Fault("lost", "GPU is lost", NOW)),
    links=tuple(tuple("X" if i == j else "NV4" for j in range(4)) for i in range(4)),
    errors=("slow",),
)
_FULL = document(
    replace(
        _FOUR,
        pcie=tuple(tuple("X" if i == j else "PXB" for j in range(4)) for i in range(4)),
        peers=tuple(tuple("X" if i == j else "OK" for j in range(4)) for i in range(4)),
        topology=Topology(
            localities=(
                Locality((0, 1), (0,), 4, True, 5, 16),
                Locality(),
                Locality((), ()),
                Locality((2, 3), (1,)),
            ),
            nics=(Nic("mlx5_0", "00000000:19:00.0", 0), Nic("mlx5_1")),
            nic_links=(*((("PIX", "SYS"),) * 4), ("X", None), (None, "X")),
            between_cpus=16.0,
        ),
    )
)
_PLACES = _paths(_FULL)


def _mutated(path: tuple[str | int, ...], what: str, junk: Any) -> dict[str, Any]:
    written = copy.deepcopy(_FULL)
    place: Any = written
    for step in path[:-1]:
        place = place[step]
    last = path[-1]
    if what == "drop":
        del place[last]
    elif what == "double" and isinstance(place, list):
        place.append(copy.deepcopy(place[last]))
    else:
        place[last] = junk
    return written


_WIRING = [path for path in _PLACES if path[0] in ("links", *BOX_KEYS_SINCE)]


@given(st.sampled_from(_PLACES), st.sampled_from(["drop", "double", "replace", "replace"]), _JUNK)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(("devices", 0, "power"), "replace", 10**400)
@example(("devices", 0, "uuid"), "replace", "index 2")
@example(("devices", 0, "processes", 0, "started"), "replace", "0001-01-01T00:00:00+14:00")
@example(("devices", 2, "parent"), "replace", _FULL["devices"][2]["uuid"])
def test_one_change_to_a_recording_gives_a_snapshot_or_one_line(
    path: tuple[str | int, ...], what: str, junk: Any
) -> None:
    answer = _read_or_refused(json.dumps(_mutated(path, what, junk)))
    assert answer is None or len(answer.devices) == 4


@given(st.sampled_from(_WIRING), st.sampled_from(["drop", "double", "replace", "replace"]), _JUNK)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(("topology", "nics"), "replace", [])
@example(("topology", "places", 0, "cpus"), "replace", "0-65535")
@example(("topology", "nic_links", 0), "drop", None)
@example(("pcie",), "replace", [])
def test_one_change_to_the_wiring_gives_a_matrix_that_can_be_printed_or_one_line(
    path: tuple[str | int, ...], what: str, junk: Any
) -> None:
    # A box with NICs and no links between them has a test of its own.
    assume(not (path == ("topology", "nic_links") and junk == []))
    answer = _read_or_refused(json.dumps(_mutated(path, what, junk)))
    if answer is not None:
        assert matrix_text.write(answer).startswith("\tGPU0\tGPU1\tGPU2\t")
        assert matrix_text.write_peers(answer).startswith("\tGPU0\tGPU1\tGPU2\n")


@each_row("matrix", ["links", "pcie", "peers"])
def test_a_device_that_is_another_one_is_refused(matrix: str) -> None:
    """X ranks above every link: off the diagonal, it would be the best link."""
    assert _read_or_refused(json.dumps(_mutated((matrix, 0, 1), "replace", "X"))) is None


def test_a_hostile_number_of_cpus_is_refused_early() -> None:
    written = document(box(*(gpu(i) for i in range(64))))
    place = {"cpus": "0-65535", "memory_nodes": "0-65535", "own_node": None}
    place |= {"switched": None, "pcie_generation": None, "pcie_width": None}
    written["topology"] = {"places": [place] * 64, "nics": [], "nic_links": [], "between_cpus": None}
    with pytest.raises(DocumentError, match="CPUs"):
        from_document(written)


def test_nics_without_their_links_are_refused_or_can_be_printed() -> None:
    answer = _read_or_refused(json.dumps(_mutated(("topology", "nic_links"), "replace", [])))
    assert answer is None or matrix_text.write(answer)


@given(st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_changed_byte_gives_a_snapshot_or_one_line(data: st.DataObject) -> None:
    text = bytearray(json.dumps(_FULL).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.integers(0, 255))
    answer = _read_or_refused(bytes(text))
    assert answer is None or len(answer.devices) == 4


@given(st.binary(max_size=64))
@settings(max_examples=50, deadline=None)
def test_bytes_out_of_nowhere_are_no_recording(text: bytes) -> None:
    assert _read_or_refused(text) is None


@given(_JUNK)
@settings(max_examples=50, deadline=None)
def test_json_out_of_nowhere_is_no_recording(junk: Any) -> None:
    with pytest.raises(DocumentError):
        from_document(junk)


@each_row("uuid", ["0", "GPU-a,GPU-b", "GPU-\x1b[2J", "GPU-a\nb", "GPU-", "GPU"], ids=repr)
def test_a_uuid_that_could_not_be_in_a_list_of_devices_is_refused(uuid: str) -> None:
    broken = document(box(gpu(0)))
    broken["devices"][0]["uuid"] = uuid
    with pytest.raises(DocumentError, match=r"devices\[0\]\.uuid"):
        from_document(broken)


def test_an_instance_without_a_uuid_is_refused() -> None:
    parent = gpu(0, mig=True)
    broken = document(box(parent, instance(parent, 0)))
    broken["devices"][1]["uuid"] = None
    with pytest.raises(DocumentError, match="parent"):
        from_document(broken)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the texts of a document."""
    if isinstance(value, str):
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


@pytest.mark.thorough
def test_no_text_of_a_document_reaches_the_terminal_as_it_is(call: Call, tmp_path: Path) -> None:
    """The name of a vendor did, from a recording and from another box."""
    file = tmp_path / "box.json"
    whole = json.loads(call("record", "-", "--demo", "shared").out)
    kinds = {tuple("*" if isinstance(key, int) else key for key in path): path for path in _places(whole)}
    assert len(kinds) > 20
    for *path, last in kinds.values():
        changed = copy.deepcopy(whole)
        reduce(lambda value, key: value[key], path, changed)[last] = "\x1b[2J\u202e\nINJECTED\x9b"
        file.write_text(json.dumps(changed))
        for words in (["ls"], ["topo"], ["people"], ["queue"], ["metrics"]):
            ended = call(*words, "--from", str(file))
            said = ended.out + ended.err
            assert not re.search("[\x1b\u202e\x9b]|^INJECTED", said, re.MULTILINE), (path, last, words)
