"""Devices of several models: where memory and links do not decide, the fastest are picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.choosing.best import best
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.speed import memory_tiers, slowness_weights
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.link import LinkMatrix
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Gpu, sockets
from gputui.sources.source import Want
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import box, gpu
from unit.claims_support import Box
from unit.simulated_gpus import A100, RTX_3090_GPU, RTX_4090_GPU
from unit.test_nvml import called, calls
from unit.unlike_boxes import A6000, T400, idle_box, seen
from unit.wired import A100 as OLD
from unit.wired import H100, L4, UNREAD, indices, recorded

MODEL = ("nvmlDeviceGetName", "nvmlDeviceGetDisplayActive")
SPEEDS = ("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMaxClockInfo")


def _picked(snapshot: Snapshot, count: int) -> list[int]:
    return indices(best(snapshot, snapshot.devices, count)[0].devices)


@each_row(
    ("gpus", "count", "chosen"),
    [
        ((T400, RTX_4090_GPU), 1, [1]),
        ((RTX_3090_GPU, RTX_4090_GPU), 1, [1]),
        ((RTX_3090_GPU, RTX_4090_GPU, RTX_3090_GPU, RTX_4090_GPU), 2, [1, 3]),
        ((RTX_3090_GPU, RTX_4090_GPU, RTX_3090_GPU), 2, [0, 1]),
        # More memory comes before speed; in a set the smallest counts, and a GiB makes no difference.
        ((RTX_4090_GPU, A100), 1, [1]),
        ((RTX_3090_GPU, RTX_4090_GPU, RTX_4090_GPU, A6000), 2, [1, 2]),
        ((RTX_3090_GPU, A6000, A6000, RTX_4090_GPU), 2, [1, 2]),
        ((RTX_3090_GPU, replace(RTX_4090_GPU, reserve=400), RTX_3090_GPU), 1, [1]),
    ],
)
def test_of_devices_that_are_joined_alike_the_fastest_are_the_best(
    gpus: Sequence[Gpu], count: int, chosen: list[int]
) -> None:
    assert _picked(seen(idle_box(*gpus)), count) == chosen


def test_a_weak_device_is_not_taken_because_it_is_joined_least() -> None:
    """A T400 for the desktop on one socket, two 4090s on the other."""
    spec = replace(idle_box(T400, RTX_4090_GPU, RTX_4090_GPU), links=sockets((1, 2), "PHB", "SYS"))
    assert _picked(seen(spec), 1) == [1]
    assert _picked(seen(spec), 2) == [1, 2]
    alike = replace(idle_box(RTX_4090_GPU, RTX_4090_GPU, RTX_4090_GPU), links=spec.links)
    assert _picked(seen(alike), 1) == [0]


def test_links_come_first() -> None:
    """The recorded box with GPU 0 on a socket of its own: pairs under one host bridge before pairs across."""
    links: LinkMatrix = recorded("pcie_5gpu_hetero_numa").links
    fast = replace(RTX_4090_GPU, memory=24576)
    slow = replace(RTX_3090_GPU, memory=24576)
    spec = replace(idle_box(fast, slow, slow, slow, fast), links=links)
    assert _picked(seen(spec), 2) == [3, 4]
    assert _picked(seen(replace(spec, gpus=idle_box(fast, slow, slow, fast, fast).gpus)), 2) == [3, 4]
    assert _picked(seen(replace(spec, gpus=idle_box(slow, fast, fast, slow, slow).gpus)), 2) == [1, 2]
    assert _picked(seen(spec), 1) == [0]


@pytest.mark.parametrize("unread", [UNREAD, {"compute_capability": None, "name": "NVIDIA Unheard"}])
def test_what_is_not_known_is_never_fast(unread: dict[str, None]) -> None:
    assert _picked(box(gpu(0, **unread), gpu(1, **OLD)), 1) == [1]
    assert _picked(box(gpu(0, cores=99999, max_sm_clock=9999, **unread), gpu(1, **OLD)), 1) == [1]


def test_of_one_model_the_first_is_as_good_as_any() -> None:
    clocks = (gpu(0, **{**L4, "max_sm_clock": 2040}), gpu(1, **{**L4, "max_sm_clock": 2100}))
    assert _picked(box(*clocks), 1) == [0]
    assert slowness_weights(clocks) == (0, 0)


@given(st.lists(st.sampled_from((H100, OLD, L4, UNREAD)), min_size=1, max_size=40))
def test_one_slower_device_outweighs_any_number_of_faster_ones(models: list[dict[str, object]]) -> None:
    devices: list[Device] = [gpu(place, **facts) for place, facts in enumerate(models)]
    weights = dict(zip((device.name for device in devices), slowness_weights(devices), strict=True))
    fastest_first = [name for name in (gpu(0).name, "NVIDIA L4", "NVIDIA A100", None) if name in weights]
    for faster, slower in pairwise(fastest_first):
        assert weights[slower] > len(devices) * weights[faster] or len(weights) == 1


@each_row(
    ("free", "classes"),
    [
        ([24, 24, 24], [0, 0, 0]),
        ([24, 22, 48], [-1, -1, 0]),
        ([80, 79, 24, 4, 0], [0, 0, -1, -2, -3]),
        ([16, 15, 14, 13], [0, 0, 0, 0]),
        ([0, 0], [0, 0]),
    ],
)
def test_memory_is_compared_as_far_as_it_makes_a_difference(free: list[int], classes: list[int]) -> None:
    unlike = [gpu(place, **(L4 if place else OLD)) for place in range(len(free))]
    assert list(memory_tiers(unlike, free)) == classes
    assert set(memory_tiers([gpu(place) for place in range(len(free))], free)) == {0}


def test_the_reason_is_that_it_is_the_fastest() -> None:
    snapshot = seen(idle_box(RTX_3090_GPU, RTX_4090_GPU))
    found = pick(snapshot, verdicts(snapshot), Constraints(1))
    assert "fastest" in found.alternatives[0].reason and "slower" in found.alternatives[1].reason
    memory = seen(idle_box(RTX_4090_GPU, A100))
    found = pick(memory, verdicts(memory), Constraints(1))
    assert "memory" in found.alternatives[0].reason and "memory" in found.alternatives[1].reason


# The facts that are read for it.


def test_the_command_line_takes_the_fastest(box: Box) -> None:
    box.driver.show_box(idle_box(T400, RTX_3090_GPU, RTX_4090_GPU, RTX_3090_GPU, RTX_4090_GPU))
    assert box.call("pick") == (0, "2\n", "")
    assert box.call("pick", "-n", "2") == (0, "2,4\n", "")
    assert box.call("run", "-q", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")[:2] == (0, "2\n")
    assert box.call("pick", "--gpus", "0,3,1", "-n", "2") == (0, "1,3\n", "")


def test_of_devices_that_are_alike_only_the_names_are_read(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["dgx-h100"])
    source = NvmlSource()
    source.read(Want.VERDICT | Want.WHOLE)
    nvml_here.reset_counts()
    source.read(Want.SPEED)
    source.read(Want.SPEED)
    assert calls(nvml_here) == called(nvml_here, "nvmlDeviceGetName") == 8
    source.close()


def test_speeds_are_read_of_those_that_can_be_had_and_only_once(nvml_here: SimulatedNvml) -> None:
    keys = [d.key for d in nvml_here.show_box(idle_box(RTX_3090_GPU, RTX_4090_GPU, T400, T400)).devices]
    source = NvmlSource()
    source.read(Want.VERDICT)
    nvml_here.reset_counts()
    source.read(Want.SPEED, {keys[2], keys[3]})
    # For a model that may have a display, every choice also reads whether it has one.
    assert calls(nvml_here) == called(nvml_here, *MODEL) == 4
    nvml_here.reset_counts()
    for _ in range(2):
        found = source.read(Want.SPEED, {keys[0], keys[2]}).devices
    assert calls(nvml_here) == called(nvml_here, *MODEL, *SPEEDS) == 2 + 2 * len(SPEEDS)
    assert [device.cores for device in found] == [10496, None, 384, None]
    source.close()


def test_a_gpu_that_is_lost_over_it_takes_no_other_with_it(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(idle_box(RTX_3090_GPU, RTX_4090_GPU))
    source = NvmlSource()
    source.read(Want.VERDICT)
    nvml_here.error("nvmlDeviceGetName", 15, device=0)
    lost, other = source.read(Want.SPEED).devices
    assert lost.fault is not None and lost.fault.kind == "lost"
    assert other.name == "NVIDIA GeForce RTX 4090" and other.fault is None
    source.close()


def test_pick_on_the_busy_box_stays_within_six_calls_a_gpu(box: Box) -> None:
    box.driver.show_box(BOXES["shared"])
    box.driver.reset_counts()
    assert box.call("pick", "-n", "2")[:2] == (0, "4,5\n")
    counted = {name: n for name, n in box.driver.counts().items() if "Error" not in name}
    assert sum(counted.values()) <= 6 * 8, counted
