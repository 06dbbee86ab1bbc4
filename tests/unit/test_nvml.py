"""NVML through the real nvidia-ml-py on the simulated library: its costs and its failures."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from operator import is_
from pathlib import Path

import pytest

from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.formatting import MIB
from gputui.inventory.process import ANOTHER_NAMESPACE, ENDED, Process
from gputui.sources.sampler import _PACES
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError, Want
from gputui.system.memory import host_memory
from gputui.system.processes import ProcessTable
from gputui.system.root import Root
from gputui.vendors.nvidia.source import NvmlSource
from gputui.vendors.registry import vendor_named
from simnvml import SHUTDOWN_WHILE_INSIDE, SimulatedNvml

GPU_IS_LOST, RESET_REQUIRED, UNKNOWN, NO_PERMISSION = 15, 16, 999, 4
FIXED = ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo", "nvmlDeviceGetMigMode")


class Clock:
    """A clock that advances only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_750_000_000.0

    def __call__(self) -> float:
        return self.now


def called(driver: SimulatedNvml, *stems: str) -> int:
    """The number of calls of functions, in any version."""
    return sum(n for name, n in driver.counts().items() if name.startswith(stems))


def calls(driver: SimulatedNvml) -> int:
    return sum(n for name, n in driver.counts().items() if name.startswith("nvml"))


def test_pick_needs_at_most_six_calls_a_gpu_and_three_for_the_box(nvml_here: SimulatedNvml) -> None:
    for name in ("dgx-h100", "shared", "rtx4090", "dgx-2"):
        devices = len(nvml_here.show_box(BOXES[name]).devices)
        nvml_here.reset_counts()
        source = NvmlSource()
        source.read(Want.VERDICT)
        source.close()
        assert calls(nvml_here) <= 6 * devices + 3, nvml_here.counts()


@pytest.mark.parametrize(("changing", "most"), [(False, 3.3), (True, 5.0)])
def test_watching_eight_busy_gpus_needs_at_most_five_calls_a_gpu_and_second(
    nvml_here: SimulatedNvml, changing: bool, most: float
) -> None:
    box = BOXES["shared"]
    busy = replace(box, tasks=tuple(replace(box.tasks[0], devices=(str(n),)) for n in range(8)))
    nvml_here.show_box(busy)
    source = NvmlSource(ProcessTable(host_pids=False))
    source.read(Want.MONITOR)
    source.read(Want.ALL)
    nvml_here.reset_counts()
    seconds = max(every for _, every in _PACES)
    for second in range(seconds):
        want = Want.LOAD | Want.NAMES
        for part, every in _PACES:
            want |= part if second % every == 0 else Want.LOAD
        if changing:
            sizes = {str(n): {"memory_used": 2**34 + 2**28 * second} for n in range(8)}
            nvml_here.show_box(busy, facts=sizes)
        source.read(want)
    source.close()
    assert calls(nvml_here) / 8 / seconds <= most, nvml_here.counts()


def test_facts_that_never_change_are_read_once(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["dgx-h100"])
    source = NvmlSource()
    source.read()
    nvml_here.reset_counts()
    for _ in range(3):
        source.read(Want.MONITOR)
    source.close()
    assert called(nvml_here, *FIXED, "nvmlSystem", "nvmlDeviceGetHandle", "nvmlInit") == 0


def test_a_device_of_which_nothing_new_was_read_is_the_same_object(nvml_here: SimulatedNvml) -> None:
    """The screen rebuilds nothing of a device that has not changed, however many processes it has."""
    box = replace(BOXES["shared"], tasks=(replace(BOXES["shared"].tasks[0], devices=("0", "1")),))
    nvml_here.show_box(box)
    source = NvmlSource(ProcessTable(host_pids=False))
    source.read()
    before = source.read(Want.MONITOR).devices
    after = source.read(Want.MONITOR).devices
    assert before[0].processes and all(map(is_, before, after))
    nvml_here.show_box(box, facts={"0": {"memory_used": 2**30}})
    changed = source.read(Want.MONITOR).devices
    source.close()
    assert changed[0].memory_used == 2**30 and changed[0].processes == after[0].processes
    assert all(map(is_, after[1:], changed[1:]))


def test_what_is_not_supported_is_none_and_not_asked_again(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["gb10"])
    source = NvmlSource()
    first = source.read()
    assert first.devices[0].memory_total is None
    assert first.devices[0].unified is True
    assert first.devices[0].power_limit is None
    nvml_here.reset_counts()
    source.read(Want.MONITOR)
    source.close()
    assert called(nvml_here, "nvmlDeviceGetMemoryInfo") == 0


@pytest.mark.parametrize(
    ("name", "total", "unified"),
    [
        ("Orin (nvgpu)", host_memory(), True),
        ("NVIDIA H100", host_memory(), False),
        ("Orin", host_memory() // 4, False),
    ],
)
def test_memory_is_the_hosts_where_its_size_and_the_name_say_so(
    nvml_here: SimulatedNvml, name: str, total: int, unified: bool
) -> None:
    box = at(BOXES["laptop"], 0, 0)
    nvml_here.show(replace(box, devices=(replace(box.devices[0], name=name, memory_total=total),)))
    for want in (Want.VERDICT, Want.MONITOR):
        source = NvmlSource(ProcessTable(host_pids=False))
        assert source.read(want).devices[0].unified is unified
        source.close()


@pytest.mark.parametrize(
    ("name", "capability", "unified", "state"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", False, "unknown"),
        ("NVIDIA GB10", "12.1", True, "free"),
        ("Orin (nvgpu)", "8.7", True, "free"),
        ("NVIDIA N1X", "12.1", True, "free"),
        ("NVIDIA A100 80GB PCIe", None, None, "unknown"),
    ],
)
@pytest.mark.parametrize("want", [Want.VERDICT, Want.MONITOR, Want.MONITOR | Want.NAMES])
def test_memory_that_the_driver_never_tells_is_the_hosts_on_integrated_gpus_only(
    nvml_here: SimulatedNvml, name: str, capability: str | None, unified: bool | None, state: str, want: Want
) -> None:
    box = at(BOXES["laptop"], 0, 0)
    device = replace(box.devices[0], name=name, compute_capability=capability, processes=(), utilization=0)
    nvml_here.show(replace(box, devices=(device,)))
    nvml_here.error("nvmlDeviceGetMemoryInfo", 3)
    source = NvmlSource(ProcessTable(host_pids=False))
    for _ in range(2):
        snapshot = source.read(want)
        assert snapshot.devices[0].unified is unified
        assert verdicts(snapshot)[snapshot.devices[0].key].state == state
    source.close()
    nvml_here.heal()


def test_memory_of_a_gpu_whose_name_cannot_be_read_is_not_taken_for_the_hosts(
    nvml_here: SimulatedNvml,
) -> None:
    nvml_here.show_box(BOXES["gb10"])
    for function in ("nvmlDeviceGetName", "nvmlDeviceGetCudaComputeCapability"):
        nvml_here.error(function, UNKNOWN)
    source = NvmlSource(ProcessTable(host_pids=False))
    for want in (Want.VERDICT, Want.MONITOR):
        snapshot = source.read(want)
        assert snapshot.devices[0].unified is None
        assert verdicts(snapshot)[snapshot.devices[0].key].state == "unknown"
    nvml_here.heal()
    snapshot = source.read(Want.MONITOR)
    assert verdicts(snapshot)[snapshot.devices[0].key].state == "free"
    source.close()


def test_memory_that_the_driver_keeps_for_itself_is_not_in_use(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["idle"])
    source = NvmlSource()
    assert source.read().devices[0].memory_used == 0
    source.close()


def test_an_old_driver_without_the_second_form_of_memory_is_read_by_the_first(
    nvml_here: SimulatedNvml,
) -> None:
    truth = nvml_here.show_box(BOXES["idle"])
    nvml_here.error("nvmlDeviceGetMemoryInfo_v2", 13)
    source = NvmlSource()
    device = source.read().devices[0]
    source.close()
    assert device.memory_total == truth.devices[0].memory_total
    assert device.memory_used is not None


@pytest.mark.parametrize(("code", "kind"), [(GPU_IS_LOST, "lost"), (RESET_REQUIRED, "reset")])
def test_one_lost_gpu_takes_no_other_with_it_and_is_back_at_once_when_it_heals(
    nvml_here: SimulatedNvml, code: int, kind: str
) -> None:
    clock, still = Clock(), Clock()
    truth = nvml_here.show_box(BOXES["rtx4090"])
    source = NvmlSource(ProcessTable(host_pids=False), clock, ticks=still)
    source.read()
    nvml_here.error("*", code, device=3)
    lost = source.read()
    assert [d.fault.kind if d.fault else None for d in lost.devices] == [None] * 3 + [kind] + [None] * 4
    assert lost.devices[3].uuid == truth.devices[3].uuid
    assert lost.devices[3].memory_used is None
    since = lost.devices[3].fault and lost.devices[3].fault.since
    for _ in range(20):
        clock.now += 1
        nvml_here.reset_counts()
        again = source.read(Want.LOAD | Want.NAMES)
        assert sum(n for (_, label), n in nvml_here.counts_by_device().items() if label == "3") == 1
        assert again.devices[3].fault is not None
        assert again.devices[3].fault.since == since
    nvml_here.heal()
    # The wall clock has been set back; the other clock stands still.
    clock.now -= 3600
    healed = source.read(Want.LOAD | Want.NAMES)
    source.close()
    assert healed.devices[3].fault is None
    assert healed.devices[3].memory_used == truth.devices[3].memory_used
    assert verdicts(healed)[truth.devices[3].uuid].state == verdicts(truth)[truth.devices[3].uuid].state


def test_a_lost_gpu_that_takes_long_to_answer_is_tried_less_often(
    nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    ticks = Clock()
    nvml_here.show_box(BOXES["idle"])
    source = NvmlSource(ProcessTable(host_pids=False), ticks=ticks)
    source.read(Want.MONITOR)
    find = pynvml.nvmlDeviceGetHandleByIndex

    def slow(index: int) -> object:
        # A driver that tries to start a dead GPU takes seconds for it.
        ticks.now += 2 if index == 0 else 0
        return find(index)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", slow)
    nvml_here.error("*", GPU_IS_LOST, device=0)
    source.read(Want.MONITOR)
    began = ticks.now
    for _ in range(100):
        ticks.now += 1
        source.read(Want.LOAD)
    assert ticks.now - began - 100 <= 3 * 2
    source.close()


def test_a_gpu_lost_while_links_are_read_is_lost_and_the_others_keep_theirs(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["rtx4090"])
    nvml_here.error("nvmlDeviceGetFieldValues", GPU_IS_LOST, device=3)
    nvml_here.error("nvmlDeviceGetTopologyCommonAncestor", GPU_IS_LOST, device=5)
    source = NvmlSource(ProcessTable(host_pids=False))
    source.read()
    after = source.read()
    source.close()
    assert verdicts(after)[after.devices[3].key].state == "lost"
    # The driver does not say which GPU of a pair is lost: such an answer means only that the link is unknown.
    assert verdicts(after)[after.devices[5].key].state == "free"
    assert after.links[0][:3] == ("X", "NODE", "NODE")
    assert after.links[0][3] is None
    assert after.links[0][5] is None


def test_a_gpu_that_was_lost_before_it_could_be_read_has_no_uuid_and_is_lost(
    nvml_here: SimulatedNvml,
) -> None:
    nvml_here.show_box(BOXES["rtx4090"])
    nvml_here.error("nvmlDeviceGetHandleByIndex_v2", GPU_IS_LOST, device=3)
    source = NvmlSource(ProcessTable(host_pids=False))
    snapshot = source.read()
    source.close()
    assert snapshot.devices[3].uuid == ""
    assert verdicts(snapshot)[snapshot.devices[3].key].state == "lost"
    assert sum(v.free for v in verdicts(snapshot).values()) == 5


def test_another_error_of_one_call_is_told_of_that_device_and_heals_at_once(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["idle"])
    nvml_here.error("nvmlDeviceGetUtilizationRates", UNKNOWN, device=0)
    source = NvmlSource()
    snapshot = source.read()
    fault = snapshot.devices[0].fault
    assert fault is not None
    assert (fault.kind, fault.message) == ("error", "GetUtilizationRates: Unknown Error")
    assert snapshot.devices[0].memory_used == 0
    assert verdicts(snapshot)[snapshot.devices[0].key].state == "unknown"
    assert verdicts(snapshot)[snapshot.devices[1].key].state == "free"
    nvml_here.heal()
    assert source.read().devices[0].fault is None
    source.close()


def test_processes_that_may_not_be_listed_make_a_device_unknown_not_free(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["idle"])
    for name in ("Compute", "Graphics", "MPSCompute"):
        nvml_here.error(f"nvmlDeviceGet{name}RunningProcesses_v3", NO_PERMISSION)
    source = NvmlSource()
    for want in (Want.ALL, Want.VERDICT):
        snapshot = source.read(want)
        assert {v.state for v in verdicts(snapshot).values()} == {"unknown"}
    source.close()


@pytest.mark.parametrize("which", ["Graphics", "MPSCompute"])
def test_a_list_that_fails_is_not_an_empty_one_also_in_the_turns_between(
    nvml_here: SimulatedNvml, which: str
) -> None:
    # GPU 0 has a desktop on it, so that the short reading asks for every list.
    nvml_here.show_box(BOXES["rtx3090"])
    nvml_here.error(f"nvmlDeviceGet{which}RunningProcesses_v3", UNKNOWN, device=0)
    source = NvmlSource(ProcessTable(host_pids=False))
    for want in (Want.ALL, Want.LOAD, Want.LOAD | Want.PROCESSES, Want.LOAD, Want.VERDICT):
        snapshot = source.read(want)
        assert verdicts(snapshot)[snapshot.devices[0].key].state == "unknown"
    nvml_here.heal()
    snapshot = source.read(Want.MONITOR)
    assert verdicts(snapshot)[snapshot.devices[0].key].state == "free"
    source.close()


def test_a_fact_that_fails_once_is_asked_again(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["a100-mig"])
    nvml_here.error("nvmlDeviceGetMigMode", UNKNOWN, device=0)
    nvml_here.error("nvmlDeviceGetName", UNKNOWN, device=1)
    source = NvmlSource(ProcessTable(host_pids=False))
    first = source.read(Want.MONITOR)
    assert verdicts(first)[first.devices[0].key].state == "unknown"
    nvml_here.heal()
    again = source.read(Want.MONITOR)
    source.close()
    assert [again.label(d) for d in again.devices] == ["0", "0:0", "0:1", "0:2", "0:3", "1"]
    assert again.devices[-1].name == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("code", [3, 4, UNKNOWN])
def test_an_end_that_fails_does_not_lose_the_answer(simulated_nvml: SimulatedNvml, code: int) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    simulated_nvml.error("nvmlShutdown", code)
    done = gputui("pick", environment=simulated_nvml.environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_conditions_on_a_busy_device_that_is_named_are_judged_by_what_it_has(
    simulated_nvml: SimulatedNvml,
) -> None:
    simulated_nvml.show_box(BOXES["shared"])
    environment = simulated_nvml.environment()
    words = ("pick", "--force", "--gpus", "1")
    done = gputui(*words, "--max-util", "99", "--min-free", "1G", environment=environment)
    assert (done.returncode, done.stdout) == (0, "1\n")
    done = gputui(*words, "--max-util", "5", environment=environment)
    assert (done.returncode, done.stdout) == (4, "")


def test_a_driver_that_never_answers_ends_a_call_with_status_3(simulated_nvml: SimulatedNvml) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    simulated_nvml.hang("nvmlDeviceGetMemoryInfo", 0)
    code = "import gputui.sources.in_time as c; c.PATIENCE = 0.3; from gputui.cli.main import main; "
    code += "exit(main(['pick']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=simulated_nvml.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "not answered" in done.stderr


@pytest.mark.parametrize(
    "words", [["pick"], ["run", "-q", "-n", "1", "--", "printenv", "CUDA_VISIBLE_DEVICES"]]
)
def test_a_gpu_whose_driver_hangs_takes_no_other_one_with_it(
    simulated_nvml: SimulatedNvml, words: list[str]
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    simulated_nvml.hang("nvmlDeviceGetMemoryInfo", 0)
    code = "import sys, gputui.vendors.nvidia.patience as p; p.PATIENCE = 0.1; "
    code += "from gputui.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=simulated_nvml.environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in map(str, range(1, 8))


def test_a_process_in_two_lists_is_one_process(nvml_here: SimulatedNvml) -> None:
    snapshot = at(BOXES["idle"], 0, 0)
    both = Process(77, "compute+graphics", memory=300 * MIB)
    client = Process(78, "mps", memory=None)
    shown = replace(snapshot, devices=tuple(replace(d, processes=(both, client)) for d in snapshot.devices))
    nvml_here.show(shown, BOXES["idle"])
    source = NvmlSource(ProcessTable(host_pids=False))
    seen = source.read().devices[0].processes
    source.close()
    assert seen is not None
    assert [(p.pid, p.kind, p.memory) for p in seen] == [
        (77, "compute+graphics", 300 * MIB),
        (78, "mps", None),
    ]


def test_impossible_process_ids_are_not_believed(nvml_here: SimulatedNvml) -> None:
    snapshot = at(BOXES["idle"], 0, 0)
    broken = (Process(4_294_967_000, "compute", memory=1),)
    nvml_here.show(replace(snapshot, devices=(replace(snapshot.devices[0], processes=broken),), links=()))
    source = NvmlSource(ProcessTable(host_pids=False))
    seen = source.read()
    source.close()
    assert seen.devices[0].processes is None
    assert verdicts(seen)[seen.devices[0].key].state == "unknown"


def test_owners_come_from_the_system_and_a_missing_one_says_why(nvml_here: SimulatedNvml) -> None:
    snapshot = at(BOXES["idle"], 0, 0)
    ours = (Process(os.getpid(), "compute"), Process(2**22 - 1, "compute"))
    nvml_here.show(replace(snapshot, devices=(replace(snapshot.devices[0], processes=ours),), links=()))
    source = NvmlSource(ProcessTable(host_pids=True))
    mine, other = source.read().devices[0].processes or ()
    source.close()
    assert mine.note is None
    assert mine.command
    assert mine.started
    assert (other.user, other.note) == (None, ENDED)
    inside = NvmlSource(ProcessTable(host_pids=False))
    assert {p.note for p in inside.read().devices[0].processes or ()} == {ANOTHER_NAMESPACE}
    inside.close()


def test_a_reading_that_asks_for_no_owners_keeps_those_that_are_known(nvml_here: SimulatedNvml) -> None:
    snapshot = at(BOXES["idle"], 0, 0)
    ours = (Process(os.getpid(), "compute"), Process(2**22 - 1, "compute"))
    nvml_here.show(replace(snapshot, devices=(replace(snapshot.devices[0], processes=ours),), links=()))
    source = NvmlSource(ProcessTable(host_pids=True))
    known = source.read().devices[0].processes
    assert known is not None and known[0].user is not None
    for want in (Want.LOAD, Want.LOAD | Want.NAMES, Want.PROCESSES, Want.LINKS, Want.ALL):
        assert source.read(want).devices[0].processes == known, want
    source.close()
    assert source.read(Want.LOAD | Want.PROCESSES).devices[0].processes == known
    source.close()


def test_processes_stay_the_same_objects_while_the_load_of_their_device_changes(
    nvml_here: SimulatedNvml,
) -> None:
    snapshot = at(BOXES["idle"], 0, 0)
    device = replace(snapshot.devices[0], processes=(Process(os.getpid(), "compute", memory=2**33),))
    source = NvmlSource(ProcessTable(host_pids=True))
    seen = []
    for load, want in ((10, Want.ALL), (20, Want.LOAD), (30, Want.LOAD | Want.PROCESSES | Want.OWNERS)):
        nvml_here.show(replace(snapshot, devices=(replace(device, utilization=load),), links=()))
        seen.append(source.read(want).devices[0])
    source.close()
    assert [each.utilization for each in seen] == [10, 20, 30]
    assert seen[0].processes and seen[0].processes[0].user
    assert all(each.processes is seen[0].processes for each in seen)


def test_of_each_process_one_record_is_kept(nvml_here: SimulatedNvml) -> None:
    # Other users may start thousands.
    snapshot = at(BOXES["a100-mig"], 0, 0)
    first = 3_000_000
    pids = iter(range(1000))
    devices = tuple(
        replace(
            each,
            processes=() if each.mig else tuple(Process(first + next(pids), "compute") for _ in range(20)),
        )
        for each in snapshot.devices
    )
    nvml_here.show(replace(snapshot, devices=devices, links=()))
    source = NvmlSource(ProcessTable(host_pids=False))
    for want in (Want.LOAD | Want.PROCESSES, Want.ALL, Want.LOAD, Want.LOAD | Want.PROCESSES | Want.OWNERS):
        seen = source.read(want)
    gc.collect()
    kept = [
        each for each in gc.get_objects() if isinstance(each, Process) and first <= each.pid < first + 1000
    ]
    assert {id(each) for each in kept} - {id(p) for d in devices for p in d.processes or ()} == {
        id(process) for device in seen.devices for process in device.processes or ()
    }
    assert len(kept) > 20 and all(p.note for d in seen.devices for p in d.processes or ())
    source.close()


def test_mig_instances_come_and_go_while_it_runs(nvml_here: SimulatedNvml) -> None:
    box = BOXES["a100-mig"]
    fewer = replace(box, gpus=(replace(box.gpus[0], mig=box.gpus[0].mig[:2]), box.gpus[1]))
    nvml_here.show_box(box)
    source = NvmlSource(ProcessTable(host_pids=False))
    assert [source.read().label(d) for d in source.read().devices] == ["0", "0:0", "0:1", "0:2", "0:3", "1"]
    nvml_here.show_box(fewer)
    after = source.read()
    assert [after.label(d) for d in after.devices] == ["0", "0:0", "0:1", "1"]
    assert len(after.links) == 4
    source.close()


def test_closing_twice_and_reading_again_is_harmless(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["idle"])
    source = NvmlSource()
    source.close()
    first = source.read()
    source.close()
    source.close()
    assert source.read().devices == first.devices
    source.close()
    assert nvml_here.counts().get(SHUTDOWN_WHILE_INSIDE, 0) == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "driver is not loaded"), (18, "different versions; reboot"), (4, "no permission"), (999, "Unknown")],
)
def test_a_driver_that_does_not_start_is_one_line_with_the_remedy(
    simulated_nvml: SimulatedNvml, code: int, words: str
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    simulated_nvml.fail_init(code)
    done = gputui("ls", environment=simulated_nvml.environment())
    assert (done.returncode, done.stdout) == (3, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_library_is_one_line_with_the_remedy() -> None:
    done = gputui("pick", environment=dict(os.environ))
    if done.returncode == 0:
        pytest.skip("this machine has an NVIDIA driver")
    assert (done.returncode, done.stdout) == (3, "")
    assert "libnvidia-ml.so.1" in done.stderr
    assert "--demo" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_wrong_pynvml_distribution_is_named_with_the_remedy(
    simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    (tmp_path / "shadow" / "pynvml").mkdir(parents=True)
    (tmp_path / "shadow" / "pynvml" / "__init__.py").write_text("__version__ = '11.5.3'\n")
    environment = simulated_nvml.environment({**os.environ, "PYTHONPATH": str(tmp_path / "shadow")})
    done = gputui("ls", environment=environment)
    assert done.returncode == 3
    assert "pip uninstall pynvml" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_error_is_raised_in_process_too(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["idle"])
    nvml_here.fail_init(9)
    with pytest.raises(NoSourceError, match="modprobe"):
        NvmlSource().open()


def gputui(*words: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputui", *words], env=environment, capture_output=True, text=True, check=False
    )


def _governed(root: Path, load: str = "734\n", name: str = "ga10b\0") -> Root:
    """A Jetson's /sys, with another governed unit before the GPU."""
    for unit, called in (("13e10000.host1x", "host1x\0"), ("17000000.gpu", name)):
        folder = root / "sys" / "class" / "devfreq" / unit
        (folder / "device" / "of_node").mkdir(parents=True)
        (folder / "device" / "of_node" / "name").write_text(called)
        (folder / "device" / "load").write_text(load if called == name else "5\n")
        (folder / "cur_freq").write_text("1300500000\n")
    return Root(str(root))


@pytest.mark.parametrize(
    ("load", "name", "percent", "state"),
    [
        ("734\n", "ga10b\0", 73, "busy"),
        ("0\n", "gpu\0", 0, "free"),
        ("rubbish\n", "ga10b\0", None, "unknown"),
        ("90000\n", "ga10b\0", None, "unknown"),
        ("734\n", "nvdec\0", None, "unknown"),
    ],
)
@pytest.mark.parametrize("want", [Want.VERDICT, Want.MONITOR])
def test_the_governor_tells_the_load_of_a_jetson(
    nvml_here: SimulatedNvml,
    tmp_path: Path,
    load: str,
    name: str,
    percent: int | None,
    state: str,
    want: Want,
) -> None:
    box = at(BOXES["laptop"], 0, 0)
    device = replace(box.devices[0], name="Orin (nvgpu)", compute_capability="8.7", processes=())
    quiet = {"utilization": None, "memory_utilization": None, "sm_clock": None}
    nvml_here.show(replace(box, devices=(device,)), facts={"0": quiet})
    nvml_here.error("nvmlDeviceGetMemoryInfo", 3)
    nvml_here.error("nvmlDeviceGetMemoryInfo_v2", 3)
    source = NvmlSource(ProcessTable(host_pids=False), root=_governed(tmp_path, load, name))
    snapshot = source.read(want)
    source.close()
    (read,) = snapshot.devices
    assert (read.utilization, verdicts(snapshot)[read.key].state) == (percent, state)
    if name != "nvdec\0":
        assert read.sm_clock == 1300


PROCESS_LISTS = [f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics", "MPSCompute")]


class Jetson:
    """The source of a Jetson whose NVML reports neither memory nor processes; `clients` are NvMap's lines."""

    def __init__(self, driver: SimulatedNvml, folder: Path) -> None:
        box = at(BOXES["laptop"], 0, 0)
        device = replace(box.devices[0], name="Orin (nvgpu)", compute_capability="8.7", utilization=0)
        driver.show(replace(box, devices=(replace(device, processes=()),)))
        for function in ("nvmlDeviceGetMemoryInfo", *PROCESS_LISTS):
            driver.error(function, 3)
        self._file = folder / "sys/kernel/debug/nvmap/iovmm/clients"
        self.source = NvmlSource(ProcessTable(host_pids=False), root=Root(str(folder)))

    def clients(self, *lines: tuple[str, str, int, int], total: str = "total") -> None:
        """Write what nvmap_debug_clients_show() writes."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        size = sum(line[3] for line in lines)
        self._file.write_text(
            f"{'CLIENT':18} {'PROCESS':>18} {'PID':>8} {'SIZE':>11}\n"
            + "".join(f"{client:18} {name:>18} {pid:8} {kib:10}K\n" for client, name, pid, kib in lines)
            + f"{total:18} {'':18} {'':8} {size:10}K\n"
        )

    def read(self, want: Want = Want.MONITOR | Want.DETAILS) -> tuple[Device, str]:
        snapshot = self.source.read(want)
        return snapshot.devices[0], verdicts(snapshot)[snapshot.devices[0].key].state


@pytest.fixture
def jetson(nvml_here: SimulatedNvml, tmp_path: Path) -> Iterator[Jetson]:
    made = Jetson(nvml_here, tmp_path)
    yield made
    made.source.close()


def test_nvmap_tells_the_memory_of_each_process_of_a_jetson(jetson: Jetson) -> None:
    jetson.clients(
        ("user", "VLLM::EngineCor", 1792, 14617792), ("user", "a b 7 9", 1792, 8), ("kernel", "kernel", 0, 44)
    )
    device, state = jetson.read()
    assert [(p.pid, p.memory) for p in device.processes or ()] == [(1792, 14617800 * 1024)]
    assert device.telemetry is not None and device.telemetry.buffers == 14617844 * 1024
    assert state == "busy"


@pytest.mark.parametrize("want", [Want.VERDICT, Want.MONITOR, Want.LOAD | Want.CHANGED_PROCESSES])
def test_a_jetson_is_free_when_its_last_process_has_gone(jetson: Jetson, want: Want) -> None:
    jetson.clients(("user", "python3", 1792, 4096))
    assert jetson.read(want)[1] == "busy"
    jetson.clients(("user", "python3", 1800, 0))
    assert jetson.read(want)[1] == "free"


@pytest.mark.parametrize("want", [Want.VERDICT, Want.MONITOR])
def test_a_jetson_whose_nvmap_cannot_be_read_is_unknown(jetson: Jetson, want: Want) -> None:
    device, state = jetson.read(want)
    assert (device.processes, state) == (None, "unknown")
    assert "root" in vendor_named("nvidia").untold(device)


@pytest.mark.parametrize("clients", [1, 20_000])
def test_a_list_of_nvmap_that_is_not_complete_is_not_taken_for_one(jetson: Jetson, clients: int) -> None:
    jetson.clients(*[("user", "python3", 5, 0)] * clients, total="total" if clients > 1 else "other")
    assert jetson.read()[1] == "unknown"


def test_a_jetson_whose_driver_lists_processes_is_not_asked_by_nvmap(
    jetson: Jetson, nvml_here: SimulatedNvml
) -> None:
    nvml_here.heal()
    nvml_here.error("nvmlDeviceGetMemoryInfo", 3)
    jetson.clients(("user", "gnome-shell", 1792, 4096))
    device, state = jetson.read()
    assert (device.processes, state) == ((), "free")


def test_a_gpu_that_is_no_jetsons_gets_no_load_from_the_governor(
    nvml_here: SimulatedNvml, tmp_path: Path
) -> None:
    box = at(BOXES["laptop"], 0, 0)
    nvml_here.show(box, facts={"0": {"utilization": None}})
    source = NvmlSource(ProcessTable(host_pids=False), root=_governed(tmp_path))
    assert source.read(Want.MONITOR).devices[0].utilization is None
    source.close()
