"""The verdict on a device: free only when everything says so, and always with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.rules import Rules
from gputui.choosing.verdict import STATES, judge, verdicts
from gputui.inventory.device import FAULT_KINDS, Device, Fault
from gputui.inventory.process import ANOTHER_NAMESPACE, KINDS, OWNER_UNKNOWN, Process
from unit.builders import GIB, MIB, NOW, box, gpu, instance, job

PARENT = gpu(0, mig=True, utilization=None, memory_utilization=None)
DESKTOP = job(1700, kind="graphics", user="sam", command="/usr/lib/xorg/Xorg vt2", memory=300 * MIB)


def _used(amount: int, **facts: object) -> Device:
    return gpu(memory_used=amount, memory_free=80 * GIB - amount, **facts)


CASES: list[tuple[str, Device, str, str]] = [
    ("nobody and nothing", gpu(), "free", "no process, no load"),
    ("what a driver keeps for itself", _used(500 * MIB), "free", "no process, no load"),
    ("a trace of load", gpu(utilization=9), "free", "no process, no load"),
    ("a job", _used(20 * GIB, utilization=97, processes=(job(),)), "busy", "mira runs python (pid 4242)"),
    ("a job that has just started", gpu(processes=(job(memory=0),)), "busy", "mira runs python"),
    ("a job of which no memory is told", gpu(processes=(job(memory=None),)), "busy", "mira runs python"),
    ("an MPS client", gpu(processes=(job(kind="mps"),)), "busy", "mira runs python"),
    ("a program that draws and computes", gpu(processes=(job(kind="compute+graphics"),)), "busy", "python"),
    (
        "a job of another namespace",
        gpu(processes=(job(user=None, command=None, note=ANOTHER_NAMESPACE),)),
        "busy",
        "pid 4242, another namespace",
    ),
    (
        "a job whose owner is hidden",
        gpu(processes=(job(user=None, command=None, note=OWNER_UNKNOWN),)),
        "busy",
        "pid 4242, owner unknown",
    ),
    ("a job of nobody known", gpu(processes=(job(user=None, command=None),)), "busy", "pid 4242 for 1h"),
    ("memory in use by nobody", _used(22 * GIB), "held", "22.0G in use by no process that can be seen"),
    ("load by nobody", gpu(utilization=80), "busy", "80 % busy, by no process that can be seen"),
    ("load and memory by nobody", _used(20 * GIB, utilization=80), "busy", "80 % busy"),
    ("a desktop", _used(400 * MIB, utilization=5, processes=(DESKTOP,)), "free", "only a desktop is on it"),
    ("a game", _used(3 * GIB, utilization=5, processes=(DESKTOP,)), "busy", "sam runs Xorg"),
    ("a film", _used(400 * MIB, utilization=60, processes=(DESKTOP,)), "busy", "sam runs Xorg"),
    (
        "a desktop and a job",
        _used(21 * GIB, processes=(DESKTOP, job())),
        "busy",
        "mira runs python",
    ),
    ("processes not known", gpu(processes=None), "unknown", "its processes cannot be listed"),
    ("memory in use not known", gpu(memory_used=None), "unknown", "does not report its memory"),
    ("free memory not known", gpu(memory_free=None), "unknown", "does not report its memory"),
    ("load not known", gpu(utilization=None), "unknown", "does not report its utilization"),
    (
        "a desktop and load not known",
        gpu(utilization=None, processes=(DESKTOP,)),
        "unknown",
        "does not report its utilization",
    ),
    (
        "a desktop and memory not known",
        gpu(memory_used=None, processes=(DESKTOP,)),
        "unknown",
        "does not report its memory",
    ),
    ("nothing known at all", Device(index=0, uuid=""), "unknown", "processes cannot be listed"),
    ("a divided GPU", PARENT, "busy", "MIG is on, with no instance"),
    ("an instance", instance(PARENT), "free", "no process, no load"),
    ("an instance with a job", instance(PARENT, processes=(job(),)), "busy", "mira runs python"),
    (
        "an instance with memory held",
        instance(PARENT, memory_used=9 * GIB, memory_free=GIB),
        "held",
        "9.0G in use",
    ),
    ("an instance of which nothing is known", instance(PARENT, processes=None), "unknown", "processes"),
    (
        "an instance whose memory is not known",
        instance(PARENT, memory_used=None, memory_free=None),
        "unknown",
        "memory",
    ),
    ("a lost device", gpu(fault=Fault("lost", "GPU is lost", NOW)), "lost", "fallen off the bus"),
    ("a device that needs a reset", gpu(fault=Fault("reset", "GPU requires restart")), "lost", "reset"),
    (
        "a device with a driver error",
        gpu(fault=Fault("error", "GetMemoryInfo: Unknown Error")),
        "unknown",
        "GetMemoryInfo: Unknown Error",
    ),
]


@pytest.mark.parametrize(
    ("device", "state", "reason"), [pytest.param(d, s, r, id=name) for name, d, s, r in CASES]
)
def test_the_table_of_verdicts(device: Device, state: str, reason: str) -> None:
    verdict = judge(device, NOW)
    assert verdict.state == state
    assert reason in verdict.reason
    assert verdict.brief


def test_a_divided_gpu_says_into_how_many() -> None:
    snapshot = box(PARENT, instance(PARENT, 0), instance(PARENT, 1))
    verdict = verdicts(snapshot)[PARENT.key]
    assert verdict.state == "busy" and "divided into 2 MIG instances" in verdict.reason


def test_every_device_has_a_verdict() -> None:
    snapshot = box(PARENT, instance(PARENT, 0), gpu(1), Device(index=2, uuid=""))
    assert set(verdicts(snapshot)) == {device.key for device in snapshot.devices}


def test_a_fault_comes_before_every_fact() -> None:
    assert judge(gpu(fault=Fault("lost", "GPU is lost"), processes=(job(),)), NOW).state == "lost"


def test_an_instance_of_a_lost_gpu_is_not_free() -> None:
    parent = replace(PARENT, fault=Fault("lost", "GPU is lost", NOW))
    part = instance(parent)
    assert not verdicts(box(parent, part))[part.key].free


def test_who_since_when_and_how_much() -> None:
    verdict = judge(gpu(processes=(job(started=NOW - 3 * 3600, memory=66 * GIB),)), NOW)
    assert verdict.reason == "mira runs python (pid 4242) for 3h, 66.0G"
    assert verdict.brief == "mira python 3h"


def test_of_several_jobs_the_largest_is_named_and_the_others_counted() -> None:
    jobs = (job(1, memory=GIB), job(2, user="olek", memory=30 * GIB), job(3, memory=2 * GIB))
    verdict = judge(gpu(processes=jobs), NOW)
    assert verdict.reason.startswith("olek runs python (pid 2)")
    assert verdict.reason.endswith("and 2 more processes")
    assert verdict.brief.endswith("+2")


def test_of_equal_jobs_the_first_one_is_named() -> None:
    jobs = (job(1, started=NOW - 5), job(2, started=NOW - 500), job(3, started=None))
    assert "(pid 2)" in judge(gpu(processes=jobs), NOW).reason


def test_a_lost_device_says_since_when() -> None:
    verdict = judge(gpu(fault=Fault("lost", "GPU is lost", NOW)), NOW)
    assert verdict.brief.startswith("lost ") and verdict.brief.count(":") == 2


def test_what_counts_as_nobodys_can_be_changed() -> None:
    strict = Rules(memory=0, utilization=0)
    assert judge(_used(MIB), NOW, strict).state == "held"
    assert judge(gpu(utilization=1), NOW, strict).state == "busy"


@pytest.mark.parametrize("used", [512 * MIB, 512 * MIB + 1])
def test_the_limit_itself_is_still_free(used: int) -> None:
    assert judge(_used(used), NOW).free == (used == 512 * MIB)


def test_an_escape_sequence_in_a_foreign_name_is_neutralised() -> None:
    evil = job(user="mi\x1b[31mra", command="\x1b]0;owned\x07 train\n.py", memory=None)
    verdict = judge(gpu(processes=(evil,)), NOW)
    assert (verdict.reason + verdict.brief).isprintable()


@pytest.mark.parametrize(
    "device",
    [
        gpu(processes=(job(user=None, note="hidden\x1b[2J\nby"),)),
        gpu(fault=Fault("error", "bad\x1b[2J\nthing")),
        gpu(fault=Fault("lost", "gone\x1b[2J\n")),
        gpu(fault=Fault("reset", "restart\u202e")),
    ],
)
def test_foreign_text_of_a_recording_is_neutralised(device: Device) -> None:
    verdict = judge(device, NOW)
    assert (verdict.reason + verdict.brief).isprintable()


_sizes = st.one_of(st.none(), st.integers(0, 80 * GIB))
_percent = st.one_of(st.none(), st.integers(0, 100))
_processes = st.builds(
    Process,
    pid=st.integers(1, 2**22),
    kind=st.sampled_from(KINDS),
    user=st.one_of(st.none(), st.text(max_size=5)),
    memory=_sizes,
    command=st.one_of(st.none(), st.text(max_size=9)),
    started=st.one_of(st.none(), st.floats(0, NOW)),
    note=st.sampled_from([None, ANOTHER_NAMESPACE, OWNER_UNKNOWN]),
)
_devices = st.builds(
    gpu,
    mig=st.sampled_from([None, False, False, True]),
    memory_used=_sizes,
    memory_free=_sizes,
    utilization=_percent,
    processes=st.one_of(st.none(), st.lists(_processes, max_size=3).map(tuple)),
    fault=st.one_of(st.none(), st.none(), st.builds(Fault, st.sampled_from(FAULT_KINDS), st.just("message"))),
)


@given(_devices)
@settings(max_examples=400, deadline=None)
def test_free_is_only_what_is_known_to_be_free(device: Device) -> None:
    verdict = judge(device, NOW)
    assert verdict.state in STATES and verdict.reason and verdict.brief
    assert (verdict.reason + verdict.brief).isprintable()
    if verdict.free:
        assert device.fault is None and not device.mig
        assert device.memory_used is not None and device.memory_free is not None
        assert device.utilization is not None
        assert device.processes is not None
        assert all(process.kind == "graphics" for process in device.processes)


@given(_devices, st.sampled_from(["memory_used", "memory_free", "utilization", "processes"]))
@settings(max_examples=200, deadline=None)
def test_knowing_less_never_makes_a_device_free(device: Device, fact: str) -> None:
    less = replace(device, **{fact: None})
    assert not judge(less, NOW).free or judge(device, NOW).free
