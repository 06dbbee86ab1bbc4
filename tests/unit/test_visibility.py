"""The variables that make devices visible, and the meaning of a variable from before gputui started."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device
from gputui.vendors.nvidia.vendor import VENDOR
from gputui.vendors.registry import inherited
from gputui.vendors.visibility import Inherited
from table_tests import each_row
from unit.builders import box, gpu, instance

FOUR = box(*(gpu(index) for index in range(4)))
identifiers, variables = VENDOR.visibility.identifiers, VENDOR.visibility.changes
DIVIDED = gpu(2, mig=True)
WITH_MIG = box(gpu(0), gpu(1), DIVIDED, instance(DIVIDED, 0), instance(DIVIDED, 1))
A, B = gpu(0).uuid, gpu(1).uuid
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _inherited(text: str, **environ: str) -> Inherited:
    found = inherited({"CUDA_VISIBLE_DEVICES": text, **BY_BUS, **environ}, FOUR)
    assert found is not None
    return found


def _indices(text: str) -> list[int]:
    return [FOUR.by_key[key].index for key in _inherited(text).keys]


# Out: the variables that a launch sets.


def test_indices_are_set_together_with_the_order_that_they_count_in() -> None:
    assert variables((gpu(2), gpu(0))) == (
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("CUDA_VISIBLE_DEVICES", "2,0"),
    )


def test_uuids_need_no_order() -> None:
    assert variables((gpu(1), gpu(0)), "uuid") == (("CUDA_VISIBLE_DEVICES", f"{B},{A}"),)


def test_no_device_is_an_empty_variable_and_not_a_missing_one() -> None:
    assert variables(()) == (("CUDA_VISIBLE_DEVICES", ""),)


def test_a_mig_instance_is_always_named_by_uuid() -> None:
    part = instance(DIVIDED, 1)
    assert variables((part,)) == (("CUDA_VISIBLE_DEVICES", part.uuid),)


def test_forms_are_never_mixed() -> None:
    part = instance(DIVIDED, 1)
    assert identifiers((gpu(0), part)) == f"{A},{part.uuid}"


@each_row(
    ("text", "read"),
    [
        ("0,2,-1,1", ("0", "2")),
        ("-1", ()),
        ("3,x,1", ("3",)),
        ("", ()),
        (" 2, 0 ", ("2", "0")),
        ("1,,0", ("1",)),
    ],
)
def test_a_list_ends_at_the_first_entry_that_names_nothing(text: str, read: tuple[str, ...]) -> None:
    visibility = VENDOR.visibility
    assert visibility.entries(text) == read
    named = [gpu(int(index)) for index in read]
    assert visibility.names_these(text, named) and visibility.names_in_order(text, named)
    assert not visibility.names_others(text, named)


def test_a_device_without_a_uuid_is_never_left_out_in_silence() -> None:
    failed = gpu(1, uuid="")
    assert variables((failed,), "uuid") == variables((gpu(1),), "index")
    assert identifiers((gpu(0), failed), "uuid") == "0,1"


@given(st.permutations([gpu(index) for index in range(12)]), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_the_order_is_kept_and_nothing_but_commas_is_between(devices: list[Device], count: int) -> None:
    chosen = devices[:count]
    assert identifiers(chosen).split(",") == [str(device.index) for device in chosen]
    assert identifiers(chosen, "uuid").split(",") == [device.uuid for device in chosen]


@given(
    st.permutations([gpu(index) for index in range(4)]), st.integers(0, 4), st.sampled_from(["index", "uuid"])
)
@settings(max_examples=25, deadline=None)
def test_what_a_launch_sets_a_gputui_inside_it_reads_back(
    devices: list[Device], count: int, ids: str
) -> None:
    chosen = devices[:count]
    environ = dict(variables(chosen, ids))  # type: ignore[arg-type]
    found = inherited({name: value or "" for name, value in environ.items()}, FOUR)
    assert found is not None and found.warning is None
    assert found.keys == tuple(device.key for device in chosen)


# In: the variables that were set when gputui started (facts of torch's parser and of the CUDA documentation).


def test_a_variable_that_is_not_set_limits_nothing() -> None:
    assert inherited({}, FOUR) is None


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_variable_gives_nothing_and_that_is_no_mistake(text: str) -> None:
    assert _inherited(text) == Inherited((("CUDA_VISIBLE_DEVICES", text),), (), None)


@each_row(
    ("text", "indices"),
    [
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 2, 0 ", [2, 0]),
        ("03", [3]),
        (A, [0]),
        (f"{B},{A}", [1, 0]),
        ("GPU-00000003", [3]),
    ],
)
def test_a_plain_list_is_read_in_its_order(text: str, indices: list[int]) -> None:
    assert _indices(text) == indices
    assert _inherited(text).warning is None


@each_row(
    ("text", "indices", "culprit"),
    [
        ("0,2,-1,1", [0, 2], "'-1'"),
        ("-1", [], "'-1'"),
        ("0,,1", [0], "''"),
        ("9,0", [], "'9'"),
        ("0,9", [0], "'9'"),
        ("none", [], "'none'"),
        ("NoDevFiles", [], "'NoDevFiles'"),
        ("all", [], "'all'"),
        ("0 1", [0], "'0 1' is read as 0"),
        ("1gpu2,2ampere", [1, 2], "'1gpu2' is read as 1"),
        ("0,9,9", [], "'9' appears twice"),
        (f"{A},1", [0], "'1'"),
        (f"1,{A}", [1], A),
        (f"{A}, {B}", [0], f"' {B}'"),
        ("GPU-", [], "'GPU-'"),
        ("GPU-ffffffff", [], "'GPU-ffffffff'"),
        ("MIG-GPU-ffffffff/1/0", [], "MIG-GPU-ffffffff/1/0"),
        ("٣", [], "٣"),
        ("²", [], "²"),
    ],
)
def test_the_first_entry_that_names_nothing_ends_the_list_and_is_named(
    text: str, indices: list[int], culprit: str
) -> None:
    assert _indices(text) == indices
    assert culprit in (_inherited(text).warning or "")


@each_row("text", ["0,0", "1,0,1", f"{A},{A}", "0,00"])
def test_an_entry_that_is_there_twice_leaves_nothing(text: str) -> None:
    assert _indices(text) == []
    assert "twice" in (_inherited(text).warning or "")


def test_an_absurdly_long_number_names_no_device() -> None:
    assert _indices("9" * 5_000) == []


def test_an_instance_is_found_by_its_uuid() -> None:
    part = instance(DIVIDED, 1)
    found = inherited({"CUDA_VISIBLE_DEVICES": part.uuid}, WITH_MIG)
    assert found == Inherited((("CUDA_VISIBLE_DEVICES", part.uuid),), (part.key,), None)


def test_an_index_counts_gpus_and_not_instances() -> None:
    found = inherited({"CUDA_VISIBLE_DEVICES": "3"}, WITH_MIG)
    assert found is not None and found.keys == ()


def test_numbers_of_unequal_devices_without_bus_order_are_not_known() -> None:
    mixed = box(gpu(0, name="NVIDIA GeForce GTX 1080"), gpu(1, name="NVIDIA GeForce RTX 4090"))
    found = inherited({"CUDA_VISIBLE_DEVICES": "0"}, mixed)
    assert found is not None and "fastest" in (found.unknown or "")
    assert set(found.keys) == set(mixed.by_key)


@each_row(
    "environ",
    [
        {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        {"CUDA_VISIBLE_DEVICES": A},
        {"CUDA_VISIBLE_DEVICES": ""},
    ],
)
def test_unequal_devices_named_without_doubt_are_none(environ: dict[str, str]) -> None:
    mixed = box(gpu(0, name="NVIDIA GeForce GTX 1080"), gpu(1, name="NVIDIA GeForce RTX 4090"))
    found = inherited(environ, mixed)
    assert found is not None and found.warning is None and found.unknown is None


def test_equal_devices_need_no_order() -> None:
    found = inherited({"CUDA_VISIBLE_DEVICES": "1"}, FOUR)
    assert found is not None and found.warning is None and found.unknown is None


@given(st.text(alphabet="0123-,GPUMIGaf x/²", max_size=20))
@settings(max_examples=80, deadline=None)
def test_whatever_is_set_gives_distinct_devices_of_this_box(text: str) -> None:
    found = inherited({"CUDA_VISIBLE_DEVICES": text}, WITH_MIG)
    assert found is not None
    assert len(set(found.keys)) == len(found.keys) and set(found.keys) <= set(WITH_MIG.by_key)
    assert "\n" not in (found.warning or "")
