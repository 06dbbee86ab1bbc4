"""The values on the page of a GPU, through the real nvidia-ml-py on the simulated library."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import pytest

from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.sources.sampler import _PACES
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.sources.source import Want
from gputui.system.processes import ProcessTable
from gputui.vendors.nvidia.clock_reasons import clock_reasons
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.calling import Call

NOW = 1_750_000_000.0
GIB = 2**30
NVIDIA = [name for name, box in BOXES.items() if box.vendor == "nvidia" and name != "mixed-vendors"]
DGX = BOXES["dgx-h100"]
RATES = ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")
MOVING = (*RATES, "sm_active", "sm_occupancy", "tensor_active")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


Look = Callable[..., Snapshot]


class Desk:
    """A driver, a source on it, and a clock."""

    def __init__(self, driver: SimulatedNvml) -> None:
        self.driver, self.clock = driver, Clock()
        self.source = NvmlSource(ProcessTable(host_pids=True), clock=self.clock, ticks=self.clock)

    def look(self, *places: int, want: Want = Want.MONITOR) -> Snapshot:
        """Make one reading with the details of some GPUs, or of all where none is named."""
        keys = {DGX.uuid(str(place)) for place in places} if places else None
        return self.source.read(want | Want.DETAILS, keys)

    def later(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.driver.show_box(DGX, self.clock.now - NOW, NOW)


@pytest.fixture
def desk(nvml_here: SimulatedNvml) -> Iterator[Desk]:
    nvml_here.show_box(DGX, 0, NOW)
    made = Desk(nvml_here)
    yield made
    made.source.close()


def telemetry(snapshot: Snapshot, place: int = 0) -> Telemetry:
    found = snapshot.devices[place].telemetry
    assert found is not None
    return found


@pytest.mark.parametrize("name", NVIDIA)
def test_what_the_driver_tells_is_read(nvml_here: SimulatedNvml, name: str) -> None:
    truth = detailed(nvml_here.show_box(BOXES[name], 30, NOW), BOXES[name], 30)
    source = NvmlSource(ProcessTable(host_pids=False), clock=lambda: NOW + 30)
    read = source.read(Want.MONITOR | Want.DETAILS)
    source.close()
    assert len(read.devices) == len(truth.devices)
    for device, shown in zip(read.devices, truth.devices, strict=True):
        if shown.telemetry is None:
            assert device.telemetry is None
            continue
        assert device.telemetry is not None
        for fact in fields(Telemetry):
            told, expected = (getattr(each.telemetry, fact.name) for each in (device, shown))
            if fact.name in MOVING:
                # Rates, and values that span two samples, need a second reading.
                assert told is None
            elif fact.name in ("encoder", "decoder", "energy", "performance_state") and expected is not None:
                assert told is not None or device.mig or shown.power is None
            else:
                assert told == expected, fact.name
        if not device.mig:
            assert [p.sm for p in device.processes or ()] == [p.sm or 0 for p in shown.processes or ()]


def test_rates_are_differences_of_two_readings(desk: Desk) -> None:
    desk.look(0)
    desk.later(2.0)
    found = telemetry(desk.look(0))
    assert found.pcie_sent == found.nvlink_sent == GIB
    assert found.pcie_received == found.nvlink_received == GIB / 2
    assert found.sm_active is not None and found.sm_occupancy is not None
    assert found.tensor_active == pytest.approx(
        telemetry(detailed(at(DGX, 2, NOW), DGX, 2)).tensor_active, abs=0.01
    )
    assert desk.driver.counts().get("nvmlDeviceGetPcieThroughput", 0) == 0


def test_a_counter_that_starts_again_at_four_gigabytes_gives_no_wrong_rate(desk: Desk) -> None:
    desk.driver.show_box(DGX, 0, NOW, facts={"0": {"pcie_sent": 2**32 - 100, "nvlink_sent": 2**40}})
    desk.look(0)
    desk.clock.now += 1
    desk.driver.show_box(DGX, 0, NOW, facts={"0": {"pcie_sent": 400, "nvlink_sent": 7}})
    found = telemetry(desk.look(0))
    assert found.pcie_sent == 500
    assert found.nvlink_sent is None


def test_where_there_are_no_counters_the_performance_monitor_tells_rates(desk: Desk) -> None:
    facts = {"0": {"pcie_sent": None, "nvlink_sent": None, "gpm_pcie_sent": 3, "gpm_nvlink_sent": 5}}
    for _ in range(2):
        desk.driver.show_box(DGX, 0, NOW, facts=facts)
        found = telemetry(desk.look(0))
        desk.clock.now += 1
    assert (found.pcie_sent, found.nvlink_sent) == (3 * 2**20, 5 * 2**20)


def test_looking_at_one_of_eight_gpus_stays_within_five_calls_a_gpu_and_second(desk: Desk) -> None:
    desk.look(0, want=Want.ALL)
    desk.look(0)
    desk.driver.reset_counts()
    for second in range(10):
        desk.later()
        want = Want.LOAD | Want.NAMES
        for part, every in _PACES:
            want |= part if second % every == 0 else Want(0)
        desk.look(0, want=want)
    assert sum(desk.driver.counts().values()) / 8 / 10 <= 5, desk.driver.counts()


def test_two_looks_within_a_tenth_of_a_second_are_one(desk: Desk) -> None:
    first = telemetry(desk.look(0))
    desk.clock.now += 0.05
    assert telemetry(desk.look(0)) is first


def test_details_are_read_of_those_that_are_looked_at_and_forgotten_afterwards(desk: Desk) -> None:
    read = desk.look(2)
    assert [d.index for d in read.devices if d.telemetry] == [2]
    assert [d.index for d in desk.source.read(Want.LOAD).devices if d.telemetry] == [2]
    asked = {label for (name, label) in desk.driver.counts_by_device() if "Encoder" in name or "Gpm" in name}
    assert asked <= {"2", ""}
    forgotten = desk.source.read(Want.LOAD | Want.DETAILS, ())
    assert not any(d.telemetry for d in forgotten.devices)
    assert all(p.sm is None and p.host_cpu is None for d in forgotten.devices for p in d.processes or ())
    desk.later()
    assert telemetry(desk.look(2), 2).pcie_sent is None


def test_links_are_of_all_pairs_whoever_is_looked_at(desk: Desk) -> None:
    read = desk.look(2, want=Want.ALL)
    assert all(word is not None for row in read.links for word in row)


@pytest.mark.parametrize("code", [3, 4, 999])
def test_telemetry_that_fails_is_no_fault_of_the_device(desk: Desk, code: int) -> None:
    functions = ("EncoderUtilization", "FieldValues", "FanSpeed", "ProcessUtilization", "PerformanceState")
    for function in functions:
        desk.driver.error(f"nvmlDeviceGet{function}", code)
    desk.driver.error("nvmlEventSetWait_v2", code)
    read = desk.look()
    device, found = read.devices[0], telemetry(read)
    assert device.fault is None and verdicts(read)[device.key].state != "unknown"
    assert (found.encoder, found.ecc_corrected, found.performance_state) == (None, None, None)
    assert found.decoder is not None and found.pcie_width == 16
    assert all(p.sm is None for p in device.processes or ())
    if code == 3:
        desk.driver.reset_counts()
        desk.later()
        desk.look()
        assert not any(desk.driver.counts().get(f"nvmlDeviceGet{each}") for each in functions)


def test_a_gpu_that_is_lost_while_it_is_looked_at_is_lost(desk: Desk) -> None:
    desk.look(0)
    desk.driver.error("nvmlDeviceGetEncoderUtilization", 15, 0)
    desk.clock.now += 3
    read = desk.look(0, 1)
    assert read.devices[0].fault is not None and read.devices[0].fault.kind == "lost"
    assert read.devices[0].telemetry is None and read.devices[1].telemetry is not None
    desk.driver.heal()
    desk.clock.now += 5
    assert desk.look(0).devices[0].telemetry is not None


def test_an_xid_is_told_with_its_moment_and_stays(desk: Desk) -> None:
    assert telemetry(desk.look(0)).xid is None
    desk.driver.xid(0, 48)
    desk.driver.xid(1, 63)
    desk.driver.xid(0, 79)
    desk.clock.now += 3
    found = telemetry(desk.look(0))
    assert (found.xid, found.xid_at) == (79, NOW + 3)
    desk.clock.now += 3
    found = telemetry(desk.look(0))
    assert (found.xid, found.xid_at) == (79, NOW + 3)
    assert desk.driver.counts()["nvmlDeviceRegisterEvents"] == 1


def test_why_clocks_are_low_is_read_with_the_sensors(desk: Desk) -> None:
    desk.driver.show_box(DGX, 0, NOW, facts={"0": {"clock_reasons": 0x48}, "1": {"clock_reasons": 1}})
    read = desk.source.read(Want.MONITOR)
    assert [d.throttled for d in read.devices[:2]] == [("thermal, hardware",), ()]
    desk.driver.error("nvmlDeviceGetCurrentClocksEventReasons", 13)
    other = NvmlSource(ProcessTable(host_pids=False))
    assert other.read(Want.MONITOR).devices[0].throttled == ("thermal, hardware",)
    other.close()


@each_row(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("power limit",)),
        (0x8, ("hardware slowdown",)),
        (0x88, ("power brake",)),
        (0x24, ("thermal", "power limit")),
    ],
)
def test_reasons_in_words(bits: int, words: tuple[str, ...]) -> None:
    assert clock_reasons(bits) == words


def test_a_link_that_has_trained_down_is_seen(desk: Desk) -> None:
    desk.driver.show_box(DGX, 0, NOW, facts={"0": {"pcie_width_now": 8, "pcie_generation_now": 3}})
    found = telemetry(desk.look(0))
    assert (found.pcie_generation, found.pcie_width) == (3, 8)
    assert (found.max_pcie_generation, found.max_pcie_width) == (5, 16)


def _with_process(desk: Desk, process: Process, memory: int = 2**34) -> None:
    box = at(DGX, 0, NOW)
    gpu = replace(box.devices[0], memory_used=memory, processes=(process,))
    desk.driver.show(detailed(replace(box, devices=(gpu, *box.devices[1:])), DGX, 0), DGX)


def test_what_a_process_takes_of_the_machine_is_told_where_its_pid_is_ours(desk: Desk) -> None:
    _with_process(desk, Process(os.getpid(), "compute", memory=2**34))
    (first,) = desk.look(0).devices[0].processes or ()
    assert first.host_cpu is None and (first.host_memory or 0) > 2**20
    desk.clock.now += 1
    (second,) = desk.look(0).devices[0].processes or ()
    assert second.host_cpu is not None and second.sm is not None
    (kept,) = desk.source.read(Want.LOAD).devices[0].processes or ()
    assert (kept.sm, kept.host_cpu, kept.user) == (second.sm, second.host_cpu, second.user)
    foreign = NvmlSource(ProcessTable(host_pids=False))
    foreign.read(Want.MONITOR)
    (theirs,) = foreign.read(Want.MONITOR | Want.DETAILS).devices[0].processes or ()
    foreign.close()
    assert (theirs.host_cpu, theirs.host_memory) == (None, None) and theirs.sm is not None


# Process lists are read only after a change.


def _lists(desk: Desk) -> set[str]:
    """The GPUs whose lists have been read since the last call."""
    found = {
        label
        for (name, label), count in desk.driver.counts_by_device().items()
        if "ComputeRunning" in name and count
    }
    desk.driver.reset_counts()
    return found


def test_a_list_is_read_again_when_memory_or_work_has_changed(desk: Desk) -> None:
    changes = Want.LOAD | Want.CHANGED_PROCESSES | Want.OWNERS
    box = replace(at(DGX, 0, NOW), links=())
    desk.driver.show(box)
    desk.source.read(Want.MONITOR)
    _lists(desk)

    def one(**facts: object) -> Device:
        return replace(box.devices[0], **facts)  # type: ignore[arg-type]

    def shown(device: Device) -> set[str]:
        desk.driver.show(replace(box, devices=(device, *box.devices[1:])))
        desk.source.read(changes)
        return _lists(desk)

    used, busy = box.devices[0].memory_used or 0, box.devices[0].utilization or 0
    assert shown(one()) == set()
    assert shown(one(memory_used=used + 2**20)) == set()
    assert shown(one(memory_used=used + 2**28)) == {"0"}
    assert shown(one(memory_used=used + 2**28)) == set()
    assert shown(one(memory_used=used + 2**28, utilization=0 if busy else 40)) == {"0"}
    assert shown(one(memory_used=None)) == {"0"}
    assert shown(one(memory_used=None)) == {"0"}


def test_owners_are_looked_up_of_new_lists_only_and_kept(desk: Desk) -> None:
    me = Process(os.getpid(), "compute", memory=2**34)
    _with_process(desk, replace(me, pid=os.getppid()))
    assert (desk.source.read(Want.MONITOR).devices[0].processes or ())[0].user
    _with_process(desk, me, memory=2**35)
    changes = Want.LOAD | Want.CHANGED_PROCESSES | Want.OWNERS
    for _ in range(3):
        (process,) = desk.source.read(changes).devices[0].processes or ()
        assert process.pid == me.pid and process.user and process.command


def test_ls_tells_the_details_and_leaves_out_what_is_not_known(call: Call) -> None:
    plain = call("ls", "--demo", "shared")
    found = call("ls", "--demo", "shared", "--details")
    assert found.out.startswith(plain.out[:20])
    for words in ("PCIe gen 5 ×16", "slows at 92, off at 95", "SM occupancy", "host: CPU", "load "):
        assert words in found.out and words not in plain.out
    assert "None" not in found.out
    told = json.loads(call("ls", "--demo", "shared", "--details", "--json").out)
    assert told["devices"][0]["telemetry"]["max_pcie_width"] == 16
    assert told["host_load"]["memory_total"] and told["devices"][0]["processes"][0]["sm"] is not None
    assert "telemetry" not in call("ls", "--demo", "shared", "--json").out


FABRIC = {"fabric_state": 3, "fabric_status": 0, "fabric_cluster": 0x1234, "fabric_clique": 7}


@pytest.mark.parametrize(
    ("told", "fabric", "domain", "clique"),
    [
        ({}, "ready", "00000000-0000-0000-0000-000000001234", 7),
        ({"fabric_cluster": 0}, "ready", None, None),
        ({"fabric_status": 999}, "failed", None, None),
        ({"fabric_state": 2}, "in progress", None, None),
        ({"fabric_state": 1}, "not started", None, None),
        ({"fabric_state": 0}, None, None, None),
        ({"fabric_state": 200}, None, None, None),
        ({"fabric_state": None}, None, None, None),
    ],
)
@pytest.mark.parametrize("older", [False, True])
def test_the_place_in_an_nvlink_fabric_is_told(
    desk: Desk,
    told: dict[str, int | None],
    fabric: str | None,
    domain: str | None,
    clique: int | None,
    older: bool,
) -> None:
    desk.driver.show_box(DGX, 0, NOW, facts={"0": {**FABRIC, **told}})
    if older:
        desk.driver.error("nvmlDeviceGetGpuFabricInfoV", 13)
    found = telemetry(desk.look(0))
    assert (found.nvlink_fabric, found.nvlink_domain, found.nvlink_clique) == (fabric, domain, clique)


def test_the_fabric_is_asked_once_while_a_page_is_open_and_not_for_the_table(desk: Desk) -> None:
    desk.driver.show_box(DGX, 0, NOW, facts={str(place): FABRIC for place in range(8)})
    desk.look(want=Want.MONITOR | Want.TABLE)
    assert not [name for name in desk.driver.counts() if "Fabric" in name]
    for _ in range(5):
        desk.look(2)
        desk.clock.now += 1
    assert {key: n for key, n in desk.driver.counts_by_device().items() if "Fabric" in key[0]} == {
        ("nvmlDeviceGetGpuFabricInfoV", "2"): 1
    }


def test_a_fabric_that_becomes_ready_is_seen(desk: Desk) -> None:
    desk.driver.show_box(DGX, 0, NOW, facts={"0": {**FABRIC, "fabric_state": 2}})
    assert telemetry(desk.look(0)).nvlink_fabric == "in progress"
    desk.clock.now += 1
    desk.driver.show_box(DGX, 0, NOW, facts={"0": FABRIC})
    assert telemetry(desk.look(0)).nvlink_clique == 7


class _OlderFabricInfo(ctypes.Structure):
    """As nvidia-ml-py 12.575 has it: the UUID as text, which ends at its first zero."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_char * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
        ("healthMask", ctypes.c_uint32),
    )

    def __init__(self) -> None:
        super().__init__(version=0x02000024)


def test_an_older_binding_that_has_the_domain_as_text_gives_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pynvml.c_nvmlGpuFabricInfoV_t", _OlderFabricInfo)
    desk.driver.show_box(DGX, 0, NOW, facts={"0": FABRIC})
    found = telemetry(desk.look(0))
    assert (found.nvlink_domain, found.nvlink_clique) == ("00000000-0000-0000-0000-000000001234", 7)
