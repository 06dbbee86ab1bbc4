"""Numbers that CUDA counts in its own order: they are translated to the devices they mean, or asked about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcuda
from gputui.inventory.device import Device, Fault
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box as Spec
from gputui.sources.source import Want
from gputui.vendors.nvidia import device_order
from gputui.vendors.nvidia.device_order import driver_order
from gputui.vendors.nvidia.source import NvmlSource
from gputui.vendors.nvidia.vendor import VENDOR
from gputui.vendors.registry import inherited, order_to_read
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import box, gpu
from unit.claims_support import Box
from unit.simulated_gpus import RTX_4090_GPU
from unit.unlike_boxes import CLEAR, T400, TWINS, UNCLEAR, idle_box, seen

LIST, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_BUS = {ORDER: "PCI_BUS_ID"}
listed = VENDOR.visibility.listed


@pytest.fixture(scope="module")
def cuda() -> Path:
    """The simulated libcuda.so.1."""
    return simcuda.build()


def places(snapshot: Snapshot, text: str, environ: Mapping[str, str] = {}) -> list[int] | None:
    """The indices of the devices that a list means; None where they are not known."""
    found = listed(text, environ, snapshot.devices)
    assert (found.unknown is None) or not found.devices
    return None if found.unknown else [device.index for device in found.devices]


# Without the driver: results that hold whatever "fastest" means.


@each_row(
    ("spec", "text", "means"),
    [
        (BOXES["mixed"], "0", [1]),
        (BOXES["mixed"], "1,0", [0, 1]),
        (CLEAR, "0", [1]),
        (CLEAR, "2,1,0", [0, 2, 1]),
        (CLEAR, " 01 ,7", [2]),
        (UNCLEAR, "2", [1]),
        (UNCLEAR, "0", None),
        (UNCLEAR, "2,1", None),
        (TWINS, "0", None),
        (TWINS, "3", None),
        (idle_box(RTX_4090_GPU, T400, T400), "0", [0]),
        (idle_box(RTX_4090_GPU, T400, T400), "1", None),
    ],
)
def test_a_number_means_the_device_that_cuda_gives_it_or_is_not_known(
    spec: Spec, text: str, means: list[int] | None
) -> None:
    assert places(seen(spec), text) == means
    assert places(seen(spec), text, {ORDER: "FASTEST_FIRST"}) == means


@each_row("fact", ["name", "compute_capability", "cores", "max_sm_clock", "memory_total"])
def test_what_is_not_read_is_not_known_to_be_faster_or_slower(fact: str) -> None:
    snapshot = seen(CLEAR)
    unread = box(*(replace(device, **{fact: None}) for device in snapshot.devices))
    assert places(unread, "0") == (None if fact != "name" else [1])
    alike = box(*(gpu(place, **({fact: None} if fact == "name" else {})) for place in range(2)))
    assert places(alike, "1") == (None if fact == "name" else [1])


@each_row("environ", [BY_BUS, {**BY_BUS, LIST: "1"}])
@each_row("spec", [CLEAR, UNCLEAR, TWINS])
def test_in_bus_order_a_number_is_our_own(spec: Spec, environ: dict[str, str]) -> None:
    assert places(seen(spec), "2,0", environ) == [2, 0]


def test_on_a_box_of_one_model_a_number_is_our_own_whatever_clock_its_makers_gave_each_card() -> None:
    cards = (replace(RTX_4090_GPU, clock=2520), replace(RTX_4090_GPU, clock=2700))
    assert places(seen(idle_box(*cards)), "0,1") == [0, 1]
    assert places(seen(BOXES["shared"]), "5,4") == [5, 4]
    assert places(seen(BOXES["a100-mig"]), "1") == [1]


def test_a_gpu_that_was_lost_before_it_had_a_name_makes_no_other_unlike() -> None:
    there = box(gpu(0), gpu(1, name=None, fault=Fault("lost", "GPU is lost")), gpu(2))
    assert places(there, "2") == [2]


def test_a_uuid_leaves_no_doubt() -> None:
    snapshot = seen(UNCLEAR)
    text = ",".join(snapshot.devices[place].uuid for place in (2, 0))
    assert places(snapshot, text) == [2, 0]
    assert not VENDOR.visibility.may_count_otherwise(text, {})


@given(st.text(alphabet="0123-, GPU", max_size=12), st.sampled_from([CLEAR, UNCLEAR, TWINS]), st.booleans())
@settings(max_examples=60)
def test_a_list_means_distinct_devices_of_the_box_or_nobody_knows(
    text: str, spec: Spec, by_bus: bool
) -> None:
    snapshot = seen(spec)
    environ = BY_BUS if by_bus else {}
    found = listed(text, environ, snapshot.devices)
    keys = [device.key for device in found.devices]
    assert len(set(keys)) == len(keys) and set(keys) <= set(snapshot.by_key)
    if by_bus:
        assert found.unknown is None
    ours = inherited({LIST: text, **environ}, snapshot)
    assert ours is not None and (ours.unknown is None or found.unknown is not None)
    assert set(ours.keys) == set(snapshot.by_key if found.unknown else keys)


def test_all_are_all_in_whatever_order() -> None:
    ours = inherited({LIST: "3,1,0,2"}, seen(TWINS))
    assert ours is not None and ours.unknown is None and len(ours.keys) == 4
    three = inherited({LIST: "3,1,0"}, seen(TWINS))
    assert three is not None and three.unknown is not None and "PCI_BUS_ID" in three.unknown


def test_it_is_told_which_devices_numbers_mean_that_are_not_ours() -> None:
    found = inherited({LIST: "0,1"}, seen(CLEAR))
    assert found is not None and found.note is not None and "GPU 1,2" in found.note and not found.warning
    same = inherited({LIST: "1,0"}, seen(idle_box(RTX_4090_GPU, T400)))
    assert same is not None and same.note is None


def test_only_numbers_that_could_be_others_are_asked_about() -> None:
    assert order_to_read({LIST: "1"}) == order_to_read({LIST: "1", ORDER: "FASTEST_FIRST"}) == Want.ORDER
    for environ in ({}, {LIST: ""}, {LIST: "GPU-1234"}, {LIST: "1", **BY_BUS}, {LIST: "-1"}):
        assert order_to_read(environ) == Want(0)


# With the driver, which is asked in a separate process.


def _read(nvml: SimulatedNvml, spec: Spec, want: Want = Want.VERDICT | Want.ORDER) -> tuple[Device, ...]:
    nvml.show_box(spec)
    source = NvmlSource()
    try:
        return source.read(want).devices
    finally:
        source.close()


@pytest.fixture
def with_cuda(
    nvml_here: SimulatedNvml, cuda: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """This machine with both simulated libraries; yields the environment for programs on it."""
    environ = simcuda.environment(nvml_here.environment(), cuda)
    monkeypatch.setattr(device_order, "driver_order", lambda: driver_order(environ))
    yield environ


def _seen_by_a_program(environ: Mapping[str, str], text: str) -> list[str]:
    """The UUIDs of the devices that CUDA gives a program with that list."""
    script = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['driver']()['devices']))"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(VENDOR.driver_probe)],
        env={**environ, LIST: text},
        capture_output=True,
        check=True,
    )
    return [device["uuid"] for device in json.loads(ran.stdout)]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (UNCLEAR, "0"),
        (UNCLEAR, "1,2"),
        (TWINS, "1,0,9"),
        (TWINS, "2,3"),
        (CLEAR, "2,0"),
        (BOXES["mixed"], "0"),
    ],
)
def test_the_devices_are_those_that_a_program_gets(
    nvml_here: SimulatedNvml, with_cuda: dict[str, str], spec: Spec, text: str
) -> None:
    devices = _read(nvml_here, spec)
    found = listed(text, {}, devices)
    assert found.unknown is None
    assert [VENDOR.bare_uuid(device.uuid) for device in found.devices] == _seen_by_a_program(with_cuda, text)


def test_the_driver_is_asked_once_and_only_about_unlike_devices(
    nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(device_order, "driver_order", lambda: asked.append(1) or ())
    assert all(device.ordinal is None for device in _read(nvml_here, BOXES["dgx-h100"]))
    assert asked == []
    nvml_here.show_box(UNCLEAR)
    source = NvmlSource()
    for _ in range(3):
        source.read(Want.VERDICT | Want.ORDER)
    source.close()
    assert asked == [1]


@pytest.mark.parametrize("shown", [(), (0, 2), (0, 1, 2, 3), (0, 1, 1)])
def test_an_answer_about_other_devices_numbers_none(
    nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch, shown: tuple[int, ...]
) -> None:
    """Under MPS, or with MIG instances, a program sees other devices than the machine has."""
    uuids = [VENDOR.bare_uuid(device.uuid) for device in seen(UNCLEAR).devices] + ["another"]
    monkeypatch.setattr(device_order, "driver_order", lambda: tuple(uuids[place] for place in shown))
    assert all(device.ordinal is None for device in _read(nvml_here, UNCLEAR))


def test_no_driver_that_does_not_answer_holds_a_call_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 100\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hangs))
    assert driver_order({**os.environ}, seconds=0.05) == ()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert driver_order({**os.environ}) == ()


@each_row("answer", ["", "no JSON", "[1]", '[{"uuid": null}]', '[{"uuid": "a"}, {"uuid": "a"}]', "{}"])
def test_an_answer_that_is_none_is_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    says = tmp_path / "python"
    says.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    says.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(says))
    assert driver_order({**os.environ}) == ()


def test_a_driver_that_does_not_start_is_no_order(nvml_here: SimulatedNvml, cuda: Path) -> None:
    nvml_here.show_box(UNCLEAR)
    environ = nvml_here.environment()
    assert len(driver_order(simcuda.environment(environ, cuda))) == 3
    assert driver_order(simcuda.environment(environ, cuda, init=999)) == ()


# The command line.

CALLS = (
    ("pick",),
    ("pick", "--gpus", "1"),
    ("run", "--", "true"),
    ("run", "--gpus", "1", "--", "true"),
    ("run", "--wait", "--", "true"),
    ("export", "--as", "sh", "--", "python", "t.py"),
    ("check",),
)


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_no_call_guesses_which_devices_are_meant(box: Box, words: tuple[str, ...]) -> None:
    box.driver.show_box(UNCLEAR)
    status, out, err = box.call(*words, CUDA_VISIBLE_DEVICES="0")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{ORDER}=PCI_BUS_ID" in err and f"{LIST}=0" in err
    assert box.claimed() == []


def test_the_remedies_that_it_names_help(box: Box) -> None:
    uuid = box.driver.show_box(UNCLEAR).devices[2].uuid
    assert box.call("pick", CUDA_VISIBLE_DEVICES="2", CUDA_DEVICE_ORDER="PCI_BUS_ID") == (0, "2\n", "")
    assert box.call("pick", CUDA_VISIBLE_DEVICES=uuid) == (0, "2\n", "")


def test_the_devices_that_cuda_means_are_taken(box: Box, cuda: Path) -> None:
    box.driver.show_box(TWINS)
    environ = simcuda.environment(box.environ, cuda)
    # The simulated driver counts the 4090s (1, 2) first, then the A6000 (3), then the 3090 (0).
    for text, taken in (("0,1", "1,2"), ("2,0", "3,1"), ("3,1", "0,2")):
        status, out, err = box.call("pick", "-n", "2", **{**environ, LIST: text})
        assert (status, out) == (0, f"{taken}\n") and f"{LIST}={text} is GPU" in err
    status, out, _ = box.call("run", "-q", "--", "sh", "-c", f"echo ${LIST}", **{**environ, LIST: "3"})
    assert (status, out) == (0, "0\n")
    assert box.call("pick", "--gpus", "2", **{**environ, LIST: "3"})[0] == 2


def test_the_cpu_needs_no_device_that_is_known(box: Box) -> None:
    box.driver.show_box(UNCLEAR)
    words = ("run", "-q", "--gpus", "none", "--", "sh", "-c", f"echo [${LIST}]")
    assert box.call(*words, CUDA_VISIBLE_DEVICES="0") == (0, "[]\n", "")


# Lists in a command

TYPED = ("{}=0", "env {}=0", "sudo {}=0", "accelerate launch --gpu_ids 0")


@pytest.mark.parametrize("line", TYPED)
def test_no_typed_number_is_guessed_either(box: Box, line: str) -> None:
    box.driver.show_box(UNCLEAR)
    words = line.format(LIST).split()
    status, out, err = box.call("run", "--dry-run", "--", *words, "t.py")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words[-1] in err and "--gpus" in err


def test_a_typed_number_is_the_device_that_cuda_means(box: Box, cuda: Path) -> None:
    box.driver.show_box(TWINS)
    environ = simcuda.environment(box.environ, cuda)
    command = ("sh", "-c", f"echo ${LIST}")
    for typed, devices in ((("2,0",), "3,1"), (("3",), "0"), (("3", "PCI_BUS_ID"), "3")):
        order = [f"{ORDER}={each}" for each in typed[1:]]
        words = ("run", "-q", "--", *order, f"{LIST}={typed[0]}", *command)
        assert box.call(*words, **environ)[:2] == (0, f"{devices}\n")


def test_a_number_in_a_script_counts_in_the_order_that_it_inherits_from_us(box: Box, cuda: Path) -> None:
    box.driver.show_box(TWINS)
    environ = simcuda.environment(box.environ, cuda)
    held = "ls -l /proc/$$/fd | grep -o 'GPU-.*@'"
    status, out, err = box.call("run", "-q", "--", "sh", "-c", f"{LIST}=3 printenv {LIST}; {held}", **environ)
    assert status == 0, err
    assert out.splitlines()[0] == "3" and box.driver.show_box(TWINS).devices[3].uuid in out
