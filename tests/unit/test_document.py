"""A snapshot as JSON, schema 1: what goes out comes back, and what a stranger wrote is read strictly."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device, Fault
from gputui.inventory.process import ANOTHER_NAMESPACE
from gputui.inventory.reading import MOST_BYTES, DocumentError, from_document, from_json
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from unit.builders import NOW, box, document, gpu, instance, job

MOMENTS = (0.0, 3.5, 12.0, 61.25)

BOX_KEYS = {"schema", "host", "time", "driver", "cuda", "devices", "links", "errors"}
DEVICE_KEYS = {
    *("index", "uuid", "name", "vendor", "pci_bus_id", "parent", "memory_total", "memory_used"),
    *("memory_free", "utilization", "memory_utilization", "temperature", "power", "power_limit", "sm_clock"),
    *("compute_capability", "numa_node", "verdict", "processes"),
}
PROCESS_KEYS = {"pid", "user", "kind", "memory", "command", "started"}


def _text(snapshot: Snapshot) -> str:
    return json.dumps(document(snapshot), allow_nan=False)


def _read_or_refused(text: str | bytes) -> Snapshot | None:
    """The snapshot, or None where it was refused in one line. Anything else is a failure."""
    try:
        snapshot = from_json(text)
    except DocumentError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 300, message
        return None
    # What was read can be used: judged, written, and read again.
    assert len(from_json(_text(snapshot)).devices) == len(snapshot.devices)
    return snapshot


# What goes out comes back.


@pytest.mark.parametrize("elapsed", MOMENTS)
@pytest.mark.parametrize("name", BOXES)
def test_every_demo_box_survives_the_round_trip(name: str, elapsed: float) -> None:
    written = document(at(BOXES[name], elapsed, NOW))
    assert document(from_json(json.dumps(written))) == written


@pytest.mark.parametrize("name", BOXES)
def test_a_snapshot_read_from_json_equals_the_one_that_was_written(name: str) -> None:
    read = from_json(_text(at(BOXES[name], 12.0, NOW)))
    assert from_json(_text(read)) == read


@pytest.mark.parametrize("name", BOXES)
def test_exactly_the_keys_of_the_contract_are_there(name: str) -> None:
    for elapsed in MOMENTS:
        written = document(at(BOXES[name], elapsed, NOW))
        assert set(written) == BOX_KEYS
        assert written["schema"] == 1
        for device in written["devices"]:
            assert set(device) == DEVICE_KEYS | {"mig"}
            assert set(device["verdict"]) == {"state", "reason"}
            for process in device["processes"] or ():
                assert set(process) == PROCESS_KEYS | {"note"}


@pytest.mark.parametrize("name", BOXES)
def test_the_links_are_one_row_and_one_column_a_device(name: str) -> None:
    written = document(at(BOXES[name], 0.0, NOW))
    assert [len(row) for row in written["links"]] == [len(written["devices"])] * len(written["devices"])


def test_what_is_not_known_is_null() -> None:
    written = document(Snapshot(Host(), NOW, (Device(index=3, uuid=""),)))
    device = written["devices"][0]
    known = {key for key, value in device.items() if value is not None}
    assert known == {"index", "vendor", "verdict"}
    assert (written["host"], written["driver"], written["cuda"]) == (None, None, None)


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


def test_a_recording_without_the_two_extra_keys_can_be_read() -> None:
    written = document(box(gpu(processes=(job(),))))
    del written["devices"][0]["mig"]
    del written["devices"][0]["processes"][0]["note"]
    assert from_document(written) == box(gpu(mig=None, processes=(job(),)))


@pytest.mark.parametrize(
    "moment", ["2024-05-01T12:00:00Z", "2024-05-01T12:00:00", "2024-05-01T14:00:00+02:00"]
)
def test_a_time_means_the_same_on_every_machine(moment: str) -> None:
    written = document(box(gpu()))
    written["time"] = moment
    assert from_document(written).time == datetime(2024, 5, 1, 12, tzinfo=timezone.utc).timestamp()


# What is not a recording is refused, in one line that names the place.


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


@pytest.mark.parametrize(("written", "place"), [pytest.param(w, p, id=name) for name, w, p in REFUSED])
def test_what_cannot_be_is_refused_and_its_place_named(written: dict[str, Any], place: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_document(written)
    assert place in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", sorted(BOX_KEYS))
def test_a_missing_key_of_the_box_is_named(key: str) -> None:
    written = document(box(gpu()))
    del written[key]
    with pytest.raises(DocumentError, match=f"'{key}' is missing"):
        from_document(written)


@pytest.mark.parametrize("key", sorted(DEVICE_KEYS - {"verdict"}))
def test_a_missing_key_of_a_device_is_named(key: str) -> None:
    written = document(box(gpu()))
    del written["devices"][0][key]
    with pytest.raises(DocumentError, match=rf"devices\[0\]: '{key}' is missing"):
        from_document(written)


@pytest.mark.parametrize("key", sorted(PROCESS_KEYS))
def test_a_missing_key_of_a_process_is_named(key: str) -> None:
    written = document(box(gpu(processes=(job(),))))
    del written["devices"][0]["processes"][0][key]
    with pytest.raises(DocumentError, match=rf"devices\[0\]\.processes\[0\]: '{key}' is missing"):
        from_document(written)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "7", '"schema"', "{", "NaN", "[1,", '{"schema": 1}']
)
def test_other_json_and_no_json_are_refused(text: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_json(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", [b"\xff\xfe\xff", b"\x80", b"\x00", b'{"schema": "\xe9"}', b"\x1f\x8b\x08\x00"]
)
def test_bytes_that_are_not_text_are_refused(text: bytes) -> None:
    with pytest.raises(DocumentError) as refused:
        from_json(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("depth", [10, 300, 700, 900, 950, 980, 990, 1_000, 5_000, 100_000])
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


@pytest.mark.parametrize("key", ["index", "power", "temperature"])
@pytest.mark.parametrize("digits", [30, 400, 4_000, 100_000])
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


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999+00:00"],
)
def test_a_time_that_could_not_be_written_again_is_refused(moment: str) -> None:
    assert _read_or_refused(json.dumps(_set("time", to=moment))) is None


def test_a_file_too_large_to_be_a_recording_is_refused_unread() -> None:
    with pytest.raises(DocumentError, match="bytes"):
        from_json(b" " * (MOST_BYTES + 1))


def test_a_complaint_does_not_repeat_a_whole_book() -> None:
    with pytest.raises(DocumentError) as refused:
        from_document(_set("devices", 0, "utilization", to="long " * 10_000))
    assert len(str(refused.value)) < 150


# Whatever a stranger writes: a snapshot that can be used, or one line.

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


_FULL = document(
    box(
        gpu(0, processes=(job(1), job(2, user=None, note=ANOTHER_NAMESPACE))),
        gpu(1, mig=True),
        instance(gpu(1), 0),
        gpu(2, fault=Fault("lost", "GPU is lost", NOW)),
        links=tuple(tuple("X" if i == j else "NV4" for j in range(4)) for i in range(4)),
        errors=("slow",),
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


@given(st.sampled_from(_PLACES), st.sampled_from(["drop", "double", "replace", "replace"]), _JUNK)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(("devices", 0, "power"), "replace", 10**400)
@example(("devices", 0, "uuid"), "replace", "index 2")
@example(("devices", 0, "processes", 0, "started"), "replace", "0001-01-01T00:00:00+14:00")
@example(("devices", 2, "parent"), "replace", _FULL["devices"][2]["uuid"])
def test_one_change_to_a_recording_gives_a_snapshot_or_one_line(
    path: tuple[str | int, ...], what: str, junk: Any
) -> None:
    answer = _read_or_refused(json.dumps(_mutated(path, what, junk)))
    assert answer is None or len(answer.devices) == 4


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_changed_byte_gives_a_snapshot_or_one_line(data: st.DataObject) -> None:
    text = bytearray(json.dumps(_FULL).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.integers(0, 255))
    answer = _read_or_refused(bytes(text))
    assert answer is None or len(answer.devices) == 4


@given(st.binary(max_size=64))
@settings(max_examples=150, deadline=None)
def test_bytes_out_of_nowhere_are_no_recording(text: bytes) -> None:
    assert _read_or_refused(text) is None


@given(_JUNK)
@settings(max_examples=150, deadline=None)
def test_json_out_of_nowhere_is_no_recording(junk: Any) -> None:
    with pytest.raises(DocumentError):
        from_document(junk)


@pytest.mark.parametrize("uuid", ["0", "GPU-a,GPU-b", "GPU-\x1b[2J", "GPU-a\nb", "GPU-", "gpu-1"], ids=repr)
def test_a_uuid_that_could_not_be_given_to_cuda_is_refused(uuid: str) -> None:
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
