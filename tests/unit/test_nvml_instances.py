"""MIG instances through NVML: their faults affect no others, and a job on one leaves the others available."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import Want
from gputui.system.processes import ProcessTable
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml

GPU_IS_LOST, NOT_FOUND, UNKNOWN = 15, 6, 999
BOX = BOXES["a100-mig"]


def _read(*wants: Want) -> Snapshot:
    """The last of several readings of a source of its own."""
    source = NvmlSource(ProcessTable(host_pids=False))
    try:
        return [source.read(want) for want in wants or (Want.ALL,)][-1]
    finally:
        source.close()


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMigMode"],
)
def test_a_divided_gpu_that_is_lost_while_its_instances_are_read_takes_nothing_with_it(
    nvml_here: SimulatedNvml, function: str
) -> None:
    nvml_here.show_box(BOX)
    nvml_here.error(function, GPU_IS_LOST, device=0)
    snapshot = _read(Want.ALL, Want.MONITOR)
    states = verdicts(snapshot)
    assert not states[snapshot.devices[0].key].free
    assert states[snapshot.devices[-1].key].free
    assert not any(states[d.key].free for d in snapshot.devices if d.parent)


@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"])
@pytest.mark.parametrize("code", [GPU_IS_LOST, UNKNOWN])
def test_the_trouble_of_one_instance_leaves_the_others(
    nvml_here: SimulatedNvml, function: str, code: int
) -> None:
    nvml_here.show_box(BOX)
    nvml_here.error(function, code, device="0:1")
    snapshot = _read(Want.ALL, Want.MONITOR)
    assert [snapshot.label(d) for d in snapshot.devices if d.index != 1 or not d.parent] == [
        *("0", "0:0", "0:2", "0:3", "1"),
    ]
    assert verdicts(snapshot)[snapshot.devices[-1].key].free


def test_a_job_on_one_instance_leaves_the_others_to_be_picked(nvml_here: SimulatedNvml) -> None:
    truth = at(BOX, 0, 0)
    # nvml.h: for the handle of a divided GPU the driver lists the processes of all its instances.
    everybody = tuple(p for d in truth.devices for p in d.processes or ())
    parent = replace(truth.devices[0], processes=everybody)
    nvml_here.show(replace(truth, devices=(parent, *truth.devices[1:])), BOX)
    assert everybody
    short = _read(Want.VERDICT)
    free = [short.label(d) for d in pick(short, verdicts(short), Constraints(1)).devices]
    assert [short.label(d) for d in short.devices] == ["0", "0:0", "0:1", "0:2", "0:3", "1"]
    assert free == ["1"]
