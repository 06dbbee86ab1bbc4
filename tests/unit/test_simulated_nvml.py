"""The simulated libnvidia-ml itself, through the real nvidia-ml-py: the behaviour that other tests assume."""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest

import simnvml
from gputui.inventory.device import Device, Fault, FaultKind
from gputui.inventory.process import Kind, Process
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import MESSAGES, at
from simnvml import SHUTDOWN_WHILE_INSIDE, SimulatedNvml, build
from simnvml.__main__ import play
from simnvml.rendering import RESERVED, render

SHARED, MIG, LOST, RTX, DGX = (BOXES[n] for n in ("shared", "a100-mig", "lost", "rtx3090", "dgx-h100"))
HEALTHY = [
    name for name, box in BOXES.items() if name not in ("lost", "mixed-vendors") and box.vendor == "nvidia"
]
MOMENT = 12.0
"""Seconds after opening at which the boxes are read: tasks that come and go are there."""
PATIENCE = 60.0
"""Seconds after which a test gives up on a step that takes milliseconds."""


@pytest.fixture
def nvml(nvml_here: SimulatedNvml) -> Iterator[SimulatedNvml]:
    """The simulated driver with the box `shared` on it, NVML started in this process."""
    nvml_here.show_box(SHARED, MOMENT)
    pynvml.nvmlInit()
    yield nvml_here
    nvml_here.heal()


def until(predicate: Callable[[], bool]) -> bool:
    """Whether `predicate` comes true in time."""
    deadline, tick = time.monotonic() + PATIENCE, threading.Event()
    while not predicate():
        if time.monotonic() > deadline:
            return False
        tick.wait(0.002)
    return True


def code(call: Callable[[], object]) -> int:
    """The result of `call`: 0, or the code of its NVMLError."""
    try:
        call()
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def answer(call: Callable[[], Any]) -> Any:
    """The answer, None for "not supported"."""
    try:
        return call()
    except pynvml.NVMLError_NotSupported:
        return None


def handles(snapshot: Snapshot) -> dict[str, Any]:
    """A handle for each device by its label, obtained as programs do."""
    found: dict[str, Any] = {}
    for device in snapshot.devices:
        if device.parent is None:
            found[snapshot.label(device)] = pynvml.nvmlDeviceGetHandleByIndex(device.index)
        else:
            parent = found[snapshot.label(snapshot.by_key[device.parent])]
            place = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, device.index)
            found[snapshot.label(device)] = place
    return found


def read(handle: Any) -> dict[str, Any]:
    """The facts of one device that the binding returns, in the terms of `Device`."""
    memory = answer(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    rates = answer(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    power = answer(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    limit = answer(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    nodes = answer(lambda: list(pynvml.nvmlDeviceGetMemoryAffinity(handle, 2, 0)))
    return {
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "index": pynvml.nvmlDeviceGetIndex(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "pci_bus_id": pynvml.nvmlDeviceGetPciInfo(handle).busId,
        "memory_total": memory and memory.total,
        "memory_used": memory and memory.used,
        "memory_free": memory and memory.free,
        "utilization": rates and rates.gpu,
        "temperature": answer(lambda: pynvml.nvmlDeviceGetTemperature(handle, 0)),
        "power": power and power / 1000,
        "power_limit": limit and limit / 1000,
        "sm_clock": answer(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        "compute_capability": "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "numa_node": nodes and nodes[0].bit_length() - 1,
    }


def run(nvml: SimulatedNvml, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter on the simulated driver, with the binding imported as `n`."""
    start = "import os, signal, sys, pynvml as n\n"
    return subprocess.run(
        [sys.executable, "-c", start + program],
        env=nvml.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


# The binding returns the facts of the box.


@pytest.mark.parametrize("name", HEALTHY)
def test_every_fact_of_every_box_is_answered(name: str, nvml_here: SimulatedNvml) -> None:
    snapshot = nvml_here.show_box(BOXES[name], MOMENT)
    pynvml.nvmlInit()
    for label, handle in handles(snapshot).items():
        device = next(d for d in snapshot.devices if snapshot.label(d) == label)
        told = read(handle)
        assert told == {key: getattr(device, key) for key in told}, label


@pytest.mark.usefixtures("nvml")
def test_the_box_as_a_whole() -> None:
    assert pynvml.nvmlDeviceGetCount() == 8
    assert pynvml.nvmlSystemGetDriverVersion() == "550.54.15"
    assert pynvml.nvmlSystemGetNVMLVersion() == "12.550.54.15"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == pynvml.nvmlSystemGetCudaDriverVersion_v2() == 12040


@pytest.mark.usefixtures("nvml")
def test_a_gpu_is_found_by_index_uuid_and_bus() -> None:
    by_index = pynvml.nvmlDeviceGetHandleByIndex(5)
    uuid, bus = pynvml.nvmlDeviceGetUUID(by_index), pynvml.nvmlDeviceGetPciInfo(by_index).busId
    for handle in (
        pynvml.nvmlDeviceGetHandleByUUID(uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId(bus),
        pynvml.nvmlDeviceGetHandleByPciBusId(bus[4:]),
    ):
        assert pynvml.nvmlDeviceGetIndex(handle) == 5
    assert code(lambda: pynvml.nvmlDeviceGetHandleByIndex(8)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert code(lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-x")) == pynvml.NVML_ERROR_NOT_FOUND
    assert code(lambda: pynvml.nvmlDeviceGetHandleByPciBusId("7F:00.0")) == pynvml.NVML_ERROR_NOT_FOUND


@pytest.mark.usefixtures("nvml")
def test_the_first_form_of_memory_counts_what_the_driver_keeps() -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    old = pynvml.nvmlDeviceGetMemoryInfo(handle)
    new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert (old.used - new.used, new.reserved) == (RESERVED, RESERVED)
    assert old.used + old.free == old.total == new.total
    wrong = code(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=1))
    assert wrong == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_numbers_can_be_added_and_taken_away(nvml: SimulatedNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert code(lambda: pynvml.nvmlDeviceGetNumaNodeId(handle)) == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.show_box(SHARED, MOMENT, facts={"1": {"gpu_numa_node": 9, "power": None}})
    assert pynvml.nvmlDeviceGetNumaNodeId(handle) == 9
    assert code(lambda: pynvml.nvmlDeviceGetPowerUsage(handle)) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_a_program_that_runs_sees_the_box_move(nvml: SimulatedNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(7)
    seen = []
    for elapsed in (12.0, 20.0, 45.0):
        snapshot = nvml.show_box(SHARED, elapsed)
        seen.append((pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used, snapshot))
    assert [used for used, _ in seen] == [snapshot.devices[7].memory_used for _, snapshot in seen]
    assert len({used for used, _ in seen}) == 3


# Processes.


def one_gpu(*processes: Process) -> Snapshot:
    """A box of one GPU with these processes on it."""
    return Snapshot(Host(), 0.0, (Device(index=0, uuid="GPU-0", processes=processes),))


LISTS = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
)


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("compute", (True, False, False, True)),
        ("graphics", (False, True, False, False)),
        ("compute+graphics", (True, True, False, True)),
        ("mps", (False, False, True, False)),
    ],
)
def test_a_process_stands_in_the_lists_of_its_kind(
    kind: Kind, listed: tuple[bool, ...], nvml: SimulatedNvml
) -> None:
    nvml.show(one_gpu(Process(77, kind, memory=5 << 20)))
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = [[(p.pid, p.usedGpuMemory) for p in function(handle)] for function in LISTS]
    assert found == [[(77, 5 << 20)] if there else [] for there in listed]


def test_memory_that_the_driver_does_not_tell_is_not_available(nvml: SimulatedNvml) -> None:
    nvml.show(one_gpu(Process(77, "compute")))
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)[0].usedGpuMemory is None


def test_a_driver_that_cannot_list_processes_says_so(nvml: SimulatedNvml) -> None:
    nvml.show(Snapshot(Host(), 0.0, (Device(index=0, uuid="GPU-0", processes=None),)))
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert [code(partial(function, handle)) for function in LISTS] == [pynvml.NVML_ERROR_NOT_SUPPORTED] * 4


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_a_list_with_too_little_room_says_how_much_is_needed(version: str, nvml: SimulatedNvml) -> None:
    nvml.show(one_gpu(*(Process(pid, "compute", memory=pid) for pid in (5, 6, 7))))
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    function = library(nvml)[f"nvmlDeviceGetComputeRunningProcesses{version}"]
    entry = ProcessV1 if version == "" else pynvml.c_nvmlProcessInfo_v2_t
    count, room = ctypes.c_uint(0), (entry * 3)()
    assert function(handle, ctypes.byref(count), None) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 3
    count.value = 2
    assert function(handle, ctypes.byref(count), room) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert room[0].pid == 0, "nothing is written where not all fits"
    assert (function(handle, ctypes.byref(count), room), count.value) == (0, 3)
    assert [(found.pid, found.usedGpuMemory) for found in room] == [(5, 5), (6, 6), (7, 7)]


# Instances.


def test_instances_answer_for_themselves(nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(MIG, MOMENT)
    found = handles(snapshot)
    parent, third = found["0"], found["0:2"]
    assert pynvml.nvmlDeviceGetMigMode(parent) == [1, 1]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(parent) == 7
    assert code(lambda: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 4)) == pynvml.NVML_ERROR_NOT_FOUND
    assert pynvml.nvmlDeviceIsMigDeviceHandle(third)
    assert not pynvml.nvmlDeviceIsMigDeviceHandle(parent)
    back = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(third)
    assert pynvml.nvmlDeviceGetUUID(back) == snapshot.devices[0].uuid
    ids = (pynvml.nvmlDeviceGetGpuInstanceId(third), pynvml.nvmlDeviceGetComputeInstanceId(third))
    own = pynvml.nvmlDeviceGetComputeRunningProcesses(third)
    assert [(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in own] == [(7440, *ids)]
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(parent)] == [7012, 7440]
    attributes = pynvml.nvmlDeviceGetAttributes_v2(third)
    assert (attributes.gpuInstanceSliceCount, attributes.memorySizeMB) == (1, 9728)


@pytest.mark.parametrize(
    "function",
    [
        pynvml.nvmlDeviceGetUtilizationRates,
        pynvml.nvmlDeviceGetPowerUsage,
        partial(pynvml.nvmlDeviceGetTemperature, sensor=0),
        partial(pynvml.nvmlDeviceGetClockInfo, type=pynvml.NVML_CLOCK_SM),
        partial(pynvml.nvmlDeviceGetNvLinkState, link=0),
    ],
)
def test_an_instance_has_no_sensors_and_no_links(function: Callable[[Any], Any], nvml: SimulatedNvml) -> None:
    instance = handles(nvml.show_box(MIG, MOMENT))["0:0"]
    assert code(lambda: function(instance)) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_an_instance_that_is_destroyed_is_an_invalid_handle(nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(MIG, MOMENT)
    instance = handles(snapshot)["0:3"]
    nvml.show(replace(snapshot, devices=snapshot.devices[:4], links=()))
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(instance)) == pynvml.NVML_ERROR_INVALID_ARGUMENT


# Links.

LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}


@pytest.mark.parametrize("name", HEALTHY)
def test_levels_are_those_of_the_matrix(name: str, nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(BOXES[name])
    found = handles(snapshot)
    for i, one in enumerate(snapshot.devices):
        for j, other in enumerate(snapshot.devices[:i]):
            word = snapshot.links[i][j]
            pair = found[snapshot.label(one)], found[snapshot.label(other)]
            level = answer(partial(pynvml.nvmlDeviceGetTopologyCommonAncestor, *pair))
            assert level == (word and LEVELS[snapshot.pcie[i][j] or ""]), (i, j)
            if word:
                status = pynvml.nvmlDeviceGetP2PStatus(*pair, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
                assert (status == pynvml.NVML_P2P_STATUS_OK) == word.startswith("NV"), (i, j)


def test_direct_links_end_at_the_peer(nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(RTX)
    found = list(handles(snapshot).values())
    ends = {pynvml.nvmlDeviceGetNvLinkRemotePciInfo(found[2], link).busId for link in range(4)}
    assert ends == {snapshot.devices[3].pci_bus_id}
    assert {pynvml.nvmlDeviceGetNvLinkState(found[2], link) for link in range(4)} == {1}
    assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(found[2], 0) == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
    assert code(lambda: pynvml.nvmlDeviceGetNvLinkState(found[2], 4)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetNvLinkVersion(found[2], 0) == 4
    assert pynvml.nvmlDeviceGetNvLinkCapability(found[2], 0, pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED) == 1


def test_links_of_a_switched_box_end_at_switches(nvml: SimulatedNvml) -> None:
    nvml.show_box(DGX)
    handle = pynvml.nvmlDeviceGetHandleByIndex(3)
    kinds = [pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) for link in range(18)]
    assert kinds == [pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH] * 18


def test_a_gpu_without_nvlink_has_no_links(nvml: SimulatedNvml) -> None:
    nvml.show_box(BOXES["rtx4090"])
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert code(lambda: pynvml.nvmlDeviceGetNvLinkState(handle, 0)) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_links_may_hide_where_they_end(nvml: SimulatedNvml) -> None:
    nvml.show(nvml.show_box(RTX), RTX, unreadable_links=True)
    one, other = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    assert pynvml.nvmlDeviceGetNvLinkRemotePciInfo(one, 0).busId == "FFFFFFFF:FF:FF.0"
    assert pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == 0


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("dgx-h100", {91: 18, 147: 18, (165, 0): 1, 185: 68000, 186: 68000, 94: None}),
        ("rtx3090", {91: 4, 147: 0, (165, 3): 1, 82: None, 94: None}),
        ("rtx4090", {91: None, 147: None, (165, 0): None}),
    ],
)
def test_field_values(
    name: str, fields: dict[int | tuple[int, int], int | None], nvml: SimulatedNvml
) -> None:
    nvml.show_box(BOXES[name])
    values = pynvml.nvmlDeviceGetFieldValues(pynvml.nvmlDeviceGetHandleByIndex(0), list(fields))
    told = [value.value.uiVal if value.nvmlReturn == 0 else None for value in values]
    assert told == list(fields.values())
    missing = {value.nvmlReturn for value in values} - {0}
    assert missing <= {pynvml.NVML_ERROR_NOT_SUPPORTED}


# Faults.


@pytest.mark.parametrize(("kind", "number"), [("lost", 15), ("reset", 16), ("error", 999)])
def test_a_gpu_that_was_open_when_it_broke_still_has_its_identity(
    kind: FaultKind, number: int, nvml: SimulatedNvml
) -> None:
    snapshot = nvml.show_box(SHARED, MOMENT)
    handle = pynvml.nvmlDeviceGetHandleByIndex(2)
    broken = replace(snapshot.devices[2], fault=Fault(kind, "broken"))
    nvml.show(replace(snapshot, devices=(*snapshot.devices[:2], broken, *snapshot.devices[3:])), SHARED)
    again = pynvml.nvmlDeviceGetHandleByIndex(2)
    assert pynvml.nvmlDeviceGetUUID(again) == pynvml.nvmlDeviceGetUUID(handle) == broken.uuid
    assert pynvml.nvmlDeviceGetName(handle) == broken.name
    assert pynvml.nvmlDeviceGetPciInfo(handle).busId == broken.pci_bus_id
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    for function in (pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlDeviceGetMigMode, LISTS[0]):
        assert code(partial(function, handle)) == number
    other = pynvml.nvmlDeviceGetHandleByIndex(3)
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(other)) == 0
    assert code(lambda: pynvml.nvmlDeviceGetTopologyCommonAncestor(other, handle)) == number
    nvml.show(snapshot, SHARED)
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)) == 0


def test_a_gpu_that_was_lost_before_cannot_be_opened(nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(LOST, MOMENT)
    codes = [code(partial(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(8)]
    assert codes == [0, 0, 0, 15, 0, 0, 16, 0]
    assert code(lambda: pynvml.nvmlDeviceGetHandleByUUID(snapshot.devices[3].uuid)) == 15


def test_a_gpu_that_vanishes_is_lost_to_those_who_had_it(nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(SHARED, MOMENT)
    handle = pynvml.nvmlDeviceGetHandleByIndex(7)
    nvml.show(replace(snapshot, devices=snapshot.devices[:7], links=()))
    assert pynvml.nvmlDeviceGetCount() == 7
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_instances_are_lost_with_their_gpu(nvml: SimulatedNvml) -> None:
    snapshot = nvml.show_box(MIG, MOMENT)
    instance = handles(snapshot)["0:1"]
    gone = replace(snapshot.devices[0], fault=Fault("lost", "GPU is lost"))
    nvml.show(replace(snapshot, devices=(gone, snapshot.devices[-1]), links=()))
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(instance)) == pynvml.NVML_ERROR_GPU_IS_LOST


# Orders to the driver: errors, delays and hangs, while a program runs.


@pytest.mark.parametrize("number", [9, 18, 4])
def test_nvml_can_be_kept_from_starting(number: int, nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(SHARED)
    nvml_here.fail_init(number)
    assert code(pynvml.nvmlInit) == number
    assert code(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    nvml_here.heal()
    assert code(pynvml.nvmlInit) == 0


@pytest.mark.usefixtures("nvml_here")
def test_without_a_box_there_is_no_driver() -> None:
    assert code(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_errors_strike_one_function_of_one_device(nvml: SimulatedNvml) -> None:
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    nvml.error("nvmlDeviceGetPowerUsage", 999, device=1)
    assert code(lambda: pynvml.nvmlDeviceGetPowerUsage(second)) == 999
    assert code(lambda: pynvml.nvmlDeviceGetPowerUsage(first)) == 0
    assert code(lambda: pynvml.nvmlDeviceGetUUID(second)) == 0
    nvml.heal()
    assert code(lambda: pynvml.nvmlDeviceGetPowerUsage(second)) == 0


def test_the_last_order_counts_and_a_name_stands_for_its_versions(nvml: SimulatedNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(4)
    nvml.error("*", 15, device=4)
    nvml.error("nvmlDeviceGetMemoryInfo", 0, device=4)
    assert code(lambda: pynvml.nvmlDeviceGetUUID(handle)) == 15
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)) == 0
    nvml.error("nvmlDeviceGetMemoryInfo", 3)
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)) == 3


def test_orders_reach_one_instance(nvml: SimulatedNvml) -> None:
    found = handles(nvml.show_box(MIG, MOMENT))
    nvml.error("nvmlDeviceGetMemoryInfo", 999, device="0:1")
    codes = {label: code(partial(pynvml.nvmlDeviceGetMemoryInfo, handle)) for label, handle in found.items()}
    assert codes == {label: 999 if label == "0:1" else 0 for label in found}


def test_a_delay_delays(nvml: SimulatedNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    nvml.delay("nvmlDeviceGetMemoryInfo", 30_000, device=0)
    start = time.monotonic()
    pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert time.monotonic() - start >= 0.03


@pytest.mark.usefixtures("nvml")
def test_pcie_throughput_takes_its_sampling_window() -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    start = time.monotonic()
    pynvml.nvmlDeviceGetPcieThroughput(handle, 0)
    assert time.monotonic() - start >= 0.02


def hung(nvml: SimulatedNvml, function: str, call: Callable[[], object]) -> threading.Thread:
    """A thread that is inside `function` and does not return."""
    nvml.hang(function)
    nvml.reset_counts()
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert until(lambda: nvml.counts().get(function) == 1)
    return thread


def test_a_hang_lasts_until_it_is_healed(nvml: SimulatedNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    answers: list[int] = []
    thread = hung(
        nvml, "nvmlDeviceGetPowerUsage", lambda: answers.append(pynvml.nvmlDeviceGetPowerUsage(handle))
    )
    assert code(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)) == 0, "other calls go on"
    assert thread.is_alive()
    assert answers == []
    nvml.heal()
    thread.join(PATIENCE)
    assert len(answers) == 1


def test_a_shutdown_while_a_thread_is_inside_is_noticed(nvml: SimulatedNvml) -> None:
    handle, codes = pynvml.nvmlDeviceGetHandleByIndex(0), list[int]()
    thread = hung(
        nvml,
        "nvmlDeviceGetPowerUsage",
        lambda: codes.append(code(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))),
    )
    pynvml.nvmlShutdown()
    assert nvml.counts()[SHUTDOWN_WHILE_INSIDE] == 1
    nvml.heal()
    thread.join(PATIENCE)
    assert codes == [pynvml.NVML_ERROR_UNINITIALIZED]


def test_an_orderly_shutdown_is_not_noticed(nvml: SimulatedNvml) -> None:
    pynvml.nvmlShutdown()
    assert code(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    assert SHUTDOWN_WHILE_INSIDE not in nvml.counts()


def test_two_threads_may_call_while_the_box_changes(nvml: SimulatedNvml) -> None:
    """used + free is always the total here: a torn answer would not add up."""
    stop, torn, calls = threading.Event(), list[int](), list[int]()

    def ask(index: int) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        while not stop.is_set():
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            calls.append(index)
            if memory.used + memory.free != memory.total:
                torn.append(index)

    threads = [threading.Thread(target=ask, args=(index,), daemon=True) for index in (1, 7)]
    for thread in threads:
        thread.start()
    for elapsed in range(60):
        nvml.show_box(SHARED, elapsed)
    enough = until(lambda: {1, 7} <= set(calls) and len(calls) > 100)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert enough
    assert torn == []


# Counters.


def test_calls_are_counted_by_function_and_device(nvml: SimulatedNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(3)
    nvml.reset_counts()
    for _ in range(5):
        pynvml.nvmlDeviceGetUUID(handle)
    pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(1))
    assert nvml.counts() == {"nvmlDeviceGetUUID": 6, "nvmlDeviceGetHandleByIndex_v2": 1}
    assert nvml.counts_by_device()["nvmlDeviceGetUUID", "3"] == 5


def test_counts_of_several_processes_add_up_and_outlive_a_kill_and_an_exec(
    simulated_nvml: SimulatedNvml,
) -> None:
    simulated_nvml.show_box(SHARED)
    count = "n.nvmlInit()\nfor _ in range(2000): n.nvmlDeviceGetCount()\n"
    killed = run(simulated_nvml, count + "os.kill(os.getpid(), signal.SIGKILL)")
    replaced = run(simulated_nvml, count + "os.execv(sys.executable, ['python', '-c', ''])")
    program = f"import pynvml as n\n{count}"
    connected_components = [
        subprocess.Popen([sys.executable, "-c", program], env=simulated_nvml.environment()) for _ in range(2)
    ]
    assert [process.wait(PATIENCE) for process in connected_components] == [0, 0]
    assert (killed.returncode, replaced.returncode) == (-signal.SIGKILL, 0)
    assert simulated_nvml.counts() == {"nvmlInitWithFlags": 4, "nvmlDeviceGetCount_v2": 8000}


# The ABI.

NATIVE = Path(simnvml.__file__).parent / "native"
FUNCTIONS = sorted(
    name
    for file in NATIVE.glob("*.c")
    for name in re.findall(
        r"^(?:nvmlReturn_t |NUMBER\(|UNSUPPORTED\(|LIST\()(nvml\w+)", file.read_text(), re.MULTILINE
    )
)
STARTING = ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags")


class ProcessV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t, which the binding no longer has."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def library(nvml: SimulatedNvml) -> ctypes.CDLL:
    return ctypes.CDLL(str(nvml.library))


def test_every_function_wants_a_start_and_arguments(nvml_here: SimulatedNvml) -> None:
    nothing = [ctypes.c_void_p()] * 6
    calls = {name: library(nvml_here)[name] for name in FUNCTIONS if name not in STARTING}
    for name, call in calls.items():
        assert call(*nothing) == pynvml.NVML_ERROR_UNINITIALIZED, name
    nvml_here.show_box(SHARED)
    for name, call in calls.items():
        pynvml.nvmlInit()
        want = 0 if name == "nvmlShutdown" else pynvml.NVML_ERROR_INVALID_ARGUMENT
        assert call(*nothing) == want, name


def test_every_start_starts(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(SHARED)
    # (The binding has not loaded it where no other test has run before.)
    driver = library(nvml_here)
    assert [driver[name](0) for name in STARTING] == [0, 0, 0]
    assert [driver.nvmlShutdown() for _ in range(4)] == [0, 0, 0, pynvml.NVML_ERROR_UNINITIALIZED]


def test_the_library_has_many_functions() -> None:
    assert len(FUNCTIONS) > 90


def test_a_text_without_room_is_not_written(nvml: SimulatedNvml) -> None:
    handle, room = pynvml.nvmlDeviceGetHandleByIndex(0), ctypes.create_string_buffer(b"untouched", 40)
    function = library(nvml).nvmlDeviceGetUUID
    assert function(handle, room, 40) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert room.value == b"untouched"


def test_errors_have_the_words_of_the_binding(nvml: SimulatedNvml) -> None:
    text = library(nvml).nvmlErrorString
    text.restype = ctypes.c_char_p
    told = {kind: text(number).decode() for kind, number in (("lost", 15), ("reset", 16), ("error", 999))}
    assert told == MESSAGES


# The files and the Python side.


def test_a_box_that_cannot_be_read_is_named(simulated_nvml: SimulatedNvml) -> None:
    simulated_nvml.box.write_text("driver 1\ngpu 0 GPU-0\nbogus 7\n")
    result = run(simulated_nvml, "n.nvmlInit()")
    assert f"{simulated_nvml.box}:3: cannot read 'bogus 7'" in result.stderr
    assert "DriverNotLoaded" in result.stderr


def test_a_name_of_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        render(Snapshot(Host(), 0.0, (Device(index=0, uuid="GPU-0", name="a\ndriver 1"),)))


def test_direct_links_beyond_what_a_gpu_has_are_refused() -> None:
    with pytest.raises(ValueError, match="126 direct NVLinks"):
        render(at(DGX, 0.0, 0.0))


def test_the_library_is_compiled_once() -> None:
    first = build()
    before = first.stat()
    assert build() == first
    assert (before.st_ino, before.st_mtime_ns) == (first.stat().st_ino, first.stat().st_mtime_ns)


def test_the_environment_keeps_what_was_there(simulated_nvml: SimulatedNvml) -> None:
    told = simulated_nvml.environment({"LD_LIBRARY_PATH": "/opt/lib", "HOME": "/root"})
    assert told["LD_LIBRARY_PATH"] == f"{simulated_nvml.library.parent}:/opt/lib"
    assert told["HOME"] == "/root"


def test_a_box_is_played_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()
    stop.set()
    play(DGX, stop)
    printed = capsys.readouterr().out
    assert re.search(r"^export LD_LIBRARY_PATH=\S+$", printed, re.MULTILINE)
    assert re.search(r"^export SIMNVML_BOX=\S+$", printed, re.MULTILINE)
