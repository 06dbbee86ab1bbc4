"""MIG instances through NVML: their faults affect no others, and a job on one leaves the others available."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
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


HOPPER = {
    "0": {"gpm": 1},
    "0:0": {"graphics_active": 73_400, "sm_active": 41_000, "sm_occupancy": 20_000, "tensor_active": 9_000},
    "0:1": {"graphics_active": 0},
}
MONITOR_CALLS = (
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)


class Watch:
    """A source that is read once a second."""

    def __init__(self, driver: SimulatedNvml, facts: dict[str, dict[str, int | None]] | None = None) -> None:
        self.driver, self.now = driver, 1000.0
        driver.show_box(BOX, facts=facts or {})
        self.source = NvmlSource(
            ProcessTable(host_pids=False), clock=lambda: self.now, ticks=lambda: self.now
        )

    def read(self, seconds: int, want: Want = Want.MONITOR) -> dict[str, Device]:
        """The devices by label after this many readings."""
        for _ in range(seconds):
            self.now += 1
            snapshot = self.source.read(want)
        return {snapshot.label(device): device for device in snapshot.devices}


@pytest.fixture
def watch(nvml_here: SimulatedNvml) -> Iterator[Watch]:
    made = Watch(nvml_here, HOPPER)
    yield made
    made.source.close()


def test_the_performance_monitor_tells_the_load_of_an_instance(watch: Watch) -> None:
    first = watch.read(1)
    assert first["0:0"].utilization is None
    assert not any(watch.driver.counts().get(name, 0) for name in MONITOR_CALLS)
    later = watch.read(2)
    assert (later["0:0"].utilization, later["0:1"].utilization) == (73, 0)
    # The driver has no number of these, nor of the GPU as a whole.
    assert later["0:2"].utilization is None and later["0"].utilization is None
    assert later["0:0"].memory_used is not None and later["0:0"].memory_total is not None


def test_the_page_of_an_instance_has_what_the_monitor_tells(watch: Watch) -> None:
    found = watch.read(3, Want.MONITOR | Want.DETAILS)["0:0"].telemetry
    assert found is not None
    assert (found.sm_active, found.sm_occupancy, found.tensor_active) == (41.0, 20.0, 9.0)
    assert found.pcie_sent is None
    assert watch.source.read(Want.MONITOR | Want.DETAILS, ()).devices[1].telemetry is None


def test_an_instance_costs_less_than_one_call_of_the_monitor_a_second(watch: Watch) -> None:
    watch.read(3)
    watch.driver.reset_counts()
    watch.read(30)
    calls = sum(watch.driver.counts().get(name, 0) for name in MONITOR_CALLS)
    # A sample and its metrics every third second, of each of four instances.
    assert 0 < calls <= 4 * 2 * 11


@pytest.mark.parametrize("box", ["dgx-h100", "a100-mig"])
def test_a_box_whose_gpus_have_no_monitored_instances_is_asked_little(
    nvml_here: SimulatedNvml, box: str
) -> None:
    watch = Watch(nvml_here)
    nvml_here.show_box(BOXES[box])
    devices = watch.read(20)
    watch.source.close()
    counts = nvml_here.counts()
    assert "nvmlGpmMigSampleGet" not in counts and "nvmlGpmMetricsGet" not in counts
    assert counts.get("nvmlGpmQueryDeviceSupport", 0) <= (4 if box == "a100-mig" else 0)
    assert all(d.utilization is None for d in devices.values() if d.parent)


def test_a_monitor_that_fails_is_no_fault_of_the_instance_and_heals(watch: Watch) -> None:
    watch.driver.error("nvmlGpmMigSampleGet", UNKNOWN)
    failing = watch.read(3)["0:0"]
    assert failing.utilization is None and failing.fault is None
    watch.driver.heal()
    assert watch.read(7)["0:0"].utilization == 73


def test_instances_that_share_a_gpu_instance_have_no_load_of_their_own(nvml_here: SimulatedNvml) -> None:
    watch = Watch(nvml_here, HOPPER)
    truth = at(BOX, 0, 0)
    part = replace(truth.devices[1], name="NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb")
    nvml_here.show(replace(truth, devices=(truth.devices[0], part, *truth.devices[2:])), BOX, facts=HOPPER)
    found = watch.read(3)
    watch.source.close()
    assert found["0:0"].utilization is None and found["0:1"].utilization == 0


def test_an_instance_that_goes_releases_its_samples(watch: Watch) -> None:
    watch.read(3)
    truth = at(BOX, 0, 0)
    watch.driver.show(replace(truth, devices=(truth.devices[0], *truth.devices[2:])), BOX, facts=HOPPER)
    watch.read(1)
    assert watch.driver.counts()["nvmlGpmSampleFree"] == 2
