"""`--gpus`: indices, UUIDs and prefixes of UUIDs, in order; everything else is a wrong call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputui.choosing.named_devices import NamingError, devices_named, short_names
from table_tests import each_row
from unit.builders import box, gpu, instance

DIVIDED = gpu(2, mig=True)
BOX = box(gpu(0), gpu(1), DIVIDED, instance(DIVIDED, 0), instance(DIVIDED, 1), gpu(3))
UUIDS = [device.uuid for device in BOX.devices]


def _labels(text: str) -> list[str]:
    return [BOX.label(device) for device in devices_named(text, BOX)]


def _wrong(text: str) -> str:
    with pytest.raises(NamingError) as wrong:
        devices_named(text, BOX)
    return str(wrong.value)


@each_row(
    ("text", "labels"),
    [
        ("0", ["0"]),
        ("3,0", ["3", "0"]),
        ("0,1,3", ["0", "1", "3"]),
        (" 3 , 0 ", ["3", "0"]),
        ("03", ["3"]),
        (UUIDS[1], ["1"]),
        ("GPU-00000003", ["3"]),
        (f"{UUIDS[5]},0", ["3", "0"]),
        (UUIDS[3], ["2:0"]),
        (f"{UUIDS[4]},{UUIDS[3]}", ["2:1", "2:0"]),
    ],
)
def test_devices_are_named_in_order(text: str, labels: list[str]) -> None:
    assert _labels(text) == labels


@pytest.mark.parametrize("text", ["none", " none "])
def test_none_is_no_device(text: str) -> None:
    assert devices_named(text, BOX) == ()


@each_row("text", ["", " ", ",", "0,", ",0", "0,,1"])
def test_an_empty_entry_is_a_wrong_call(text: str) -> None:
    assert "empty entry" in _wrong(text)
    assert "none" in _wrong(text)


@each_row("text", ["4", "0,99", "GPU-ffff", "MIG-ffff"])
def test_a_device_that_is_not_there_is_a_wrong_call_that_names_those_that_are(text: str) -> None:
    assert repr(text.split(",")[-1]) in _wrong(text)
    assert "0, 1, 2, 2:0, 2:1, 3" in _wrong(text)


@each_row("text", ["0,0", "0,1,0", f"0,{UUIDS[0]}", "GPU-00000003,3", f"{UUIDS[3]},{UUIDS[3]}"])
def test_a_device_named_twice_is_a_wrong_call(text: str) -> None:
    assert "a second time" in _wrong(text)


@each_row(("text", "many"), [("GPU-", 4), ("GPU-0000000", 4), ("MIG-", 2)])
def test_the_beginning_of_several_uuids_is_a_wrong_call_that_names_them(text: str, many: int) -> None:
    assert f"the beginning of {many} UUIDs" in _wrong(text)
    assert sum(uuid in _wrong(text) for uuid in UUIDS) == many


def test_the_beginning_of_the_only_uuid_is_enough() -> None:
    assert devices_named("GPU-", box(gpu(0))) == (gpu(0),)


def test_a_whole_uuid_is_that_device_though_another_begins_with_it() -> None:
    short, long = gpu(0, uuid="GPU-1"), gpu(1, uuid="GPU-11")
    assert devices_named("GPU-1", box(short, long)) == (short,)


@each_row(
    "text",
    ["-1", "3-1", "0 1", "all", "None", "cuda:0", "0:1:2", "+1", "1.0", "gpu-00000003", "٣", "²", "0x1"],
)
def test_what_is_neither_an_index_nor_a_uuid_is_a_wrong_call(text: str) -> None:
    assert f"{text!r} is neither" in _wrong(text)


def test_a_divided_gpu_is_a_wrong_call_that_names_its_instances() -> None:
    assert "divided" in _wrong("2")
    assert _wrong("2").endswith("name one of 2:0, 2:1")


def test_an_instance_is_named_as_it_is_shown() -> None:
    named = devices_named("2:1,2:0", BOX)
    assert [BOX.label(device) for device in named] == ["2:1", "2:0"]
    assert all(device.parent for device in named)
    for text in ("2:2", "0:0", "9:0"):
        assert "unknown device" in _wrong(text)
    assert "a second time" in _wrong("2:1,2:1")


def test_a_range_is_refused_with_the_list_to_type() -> None:
    assert _wrong("1-3").endswith("type --gpus 1,2,3")
    assert _wrong("0,2-3").endswith("type --gpus 0,2,3")
    assert "neither an index" in _wrong("1-")
    assert len(_wrong("1-999999999")) < 200


def test_an_index_never_means_an_instance() -> None:
    assert [device.parent for device in devices_named("0,1", BOX)] == [None, None]


def test_a_box_without_devices_says_so() -> None:
    with pytest.raises(NamingError, match="no devices"):
        devices_named("0", box())


def test_a_device_that_was_lost_before_its_uuid_was_read_is_named_by_index_only() -> None:
    lost = replace(gpu(1), uuid="")
    assert devices_named("1", box(gpu(0), lost)) == (lost,)
    with pytest.raises(NamingError):
        devices_named("GPU-00000001", box(gpu(0), lost))


@pytest.mark.parametrize("digits", [20, 5_000])
def test_an_absurdly_long_index_is_a_wrong_call(digits: int) -> None:
    assert "0, 1, 2, 2:0, 2:1, 3" in _wrong("9" * digits)


_entries = st.one_of(
    st.sampled_from(["0", "1", "2", "3", "4", "", "none", " 0", *UUIDS, *(uuid[:9] for uuid in UUIDS)]),
    st.text(max_size=6),
)


@given(st.lists(_entries, max_size=4).map(",".join))
@example("0,none")
@settings(max_examples=80, deadline=None)
def test_whatever_is_typed_gives_distinct_devices_or_a_wrong_call(text: str) -> None:
    try:
        devices = devices_named(text, BOX)
    except NamingError as wrong:
        assert str(wrong)
        return
    assert len({device.key for device in devices}) == len(devices)
    assert not any(device.mig for device in devices)
    assert bool(devices) == (text.strip() != "none")


@given(st.lists(st.from_regex(r"[ab]{7}[ab][-a]b{3}", fullmatch=True), min_size=1, max_size=6, unique=True))
def test_a_short_name_is_at_least_eight_digits_and_names_its_device_alone(digits: list[str]) -> None:
    found = box(*(gpu(n, uuid=f"GPU-{each}") for n, each in enumerate(digits)))
    keys = [device.key for device in found.devices]
    names = short_names(keys, found)
    assert [device.key for device in devices_named(",".join(names), found)] == keys
    assert all(len(name) >= len("GPU-") + 8 and not name.endswith("-") for name in names)


def test_a_device_without_a_usable_uuid_is_named_by_its_key() -> None:
    found = box(gpu(0, uuid=None, uuid_usable=False, pci_bus_id="0000:03:00.0"))
    assert short_names([found.devices[0].key], found) == (found.devices[0].key,)
