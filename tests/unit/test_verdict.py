"""The verdict on a device: free only when every fact agrees, and always with its cause."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.rules import Rules
from gputui.choosing.verdict import (
    GLYPHS,
    Cause,
    ClaimedBy,
    DesktopOnly,
    Divided,
    Idle,
    MemoryHeld,
    Prohibited,
    Unreadable,
    UsedBy,
    Utilized,
    Verdict,
    judge,
    verdicts,
)
from gputui.choosing.verdict_text import brief, reason
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault, FaultKind
from gputui.inventory.process import ANOTHER_NAMESPACE, OWNER_UNKNOWN, Kind, Process
from table_tests import each_row
from unit.builders import GIB, MIB, NOW, box, busy, gpu, instance, job

PARENT = gpu(0, mig=True, utilization=None, memory_utilization=None)
DESKTOP = job(1700, kind="graphics", user="sam", command="/usr/lib/xorg/Xorg vt2", memory=300 * MIB)


def _pids(device: Device) -> list[int]:
    """The processes of a device in the order of its verdict."""
    cause = judge(device).cause
    assert isinstance(cause, UsedBy)
    return [process.pid for process in cause.processes]


def _used(amount: int, **facts: object) -> Device:
    return gpu(memory_used=amount, memory_free=80 * GIB - amount, **facts)


def unified(**facts: object) -> Device:
    """A GPU that uses the host's memory, and whose driver does not report its size (GB10)."""
    return gpu(unified=True, memory_total=None, memory_used=None, memory_free=None, **facts)


HIDDEN = job(user=None, command=None, note=OWNER_UNKNOWN)

CASES: list[tuple[str, Device, str, Cause]] = [
    ("nobody and nothing", gpu(), "free", Idle()),
    ("a monitor", gpu(display=True), "free", Idle(display=True)),
    ("what a driver keeps for itself", _used(500 * MIB), "free", Idle()),
    ("a trace of load", gpu(utilization=9), "free", Idle()),
    ("a job", _used(20 * GIB, utilization=97, processes=(job(),)), "busy", UsedBy((job(),))),
    ("a job that has just started", gpu(processes=(job(memory=0),)), "busy", UsedBy((job(memory=0),))),
    ("a job of unknown memory", gpu(processes=(job(memory=None),)), "busy", UsedBy((job(memory=None),))),
    ("an MPS client", gpu(processes=(job(kind="mps"),)), "busy", UsedBy((job(kind="mps"),))),
    (
        "a program that draws and computes",
        gpu(processes=(job(kind="compute+graphics"),)),
        "busy",
        UsedBy((job(kind="compute+graphics"),)),
    ),
    ("a job whose owner is hidden", gpu(processes=(HIDDEN,)), "busy", UsedBy((HIDDEN,))),
    (
        "a job on a device that takes one only",
        gpu(compute_mode="exclusive_process", processes=(job(),)),
        "busy",
        UsedBy((job(),), exclusive=True),
    ),
    ("unified memory of unknown size", unified(), "free", Idle()),
    ("unified memory that the host uses", gpu(unified=True, memory_used=60 * GIB), "free", Idle()),
    ("unified memory and a job", unified(processes=(job(),)), "busy", UsedBy((job(),))),
    ("unified memory and load", unified(utilization=80), "busy", Utilized(80)),
    ("unified memory and no load known", unified(utilization=None), "unknown", Unreadable("utilization")),
    ("unified memory and no list", unified(processes=None), "unknown", Unreadable("processes")),
    (
        "a desktop in unified memory",
        unified(processes=(job(kind="graphics", memory=300 * MIB),)),
        "free",
        DesktopOnly(300 * MIB),
    ),
    (
        "a desktop in unified memory that does not tell how much it has",
        unified(processes=(job(kind="graphics", memory=None),)),
        "free",
        DesktopOnly(None),
    ),
    (
        "a game in unified memory",
        unified(processes=(job(kind="graphics", memory=20 * GIB),)),
        "busy",
        UsedBy((job(kind="graphics", memory=20 * GIB),)),
    ),
    ("a device that takes no job", gpu(compute_mode="prohibited"), "busy", Prohibited()),
    ("memory in use by nobody", _used(22 * GIB), "held", MemoryHeld(22 * GIB)),
    ("load by nobody", gpu(utilization=80), "busy", Utilized(80)),
    ("load and memory by nobody", _used(20 * GIB, utilization=80), "busy", Utilized(80)),
    (
        "a desktop",
        _used(400 * MIB, utilization=5, processes=(DESKTOP,)),
        "free",
        DesktopOnly(400 * MIB),
    ),
    ("a game", _used(3 * GIB, utilization=5, processes=(DESKTOP,)), "busy", UsedBy((DESKTOP,))),
    ("a film", _used(400 * MIB, utilization=60, processes=(DESKTOP,)), "busy", UsedBy((DESKTOP,))),
    ("a desktop and a job", _used(21 * GIB, processes=(DESKTOP, job())), "busy", UsedBy((job(),))),
    ("processes not known", gpu(processes=None), "unknown", Unreadable("processes")),
    ("memory in use not known", gpu(memory_used=None), "unknown", Unreadable("memory")),
    ("free memory not known", gpu(memory_free=None), "unknown", Unreadable("memory")),
    ("load not known", gpu(utilization=None), "unknown", Unreadable("utilization")),
    (
        "a desktop and load not known",
        gpu(utilization=None, processes=(DESKTOP,)),
        "unknown",
        Unreadable("utilization"),
    ),
    (
        "a desktop and memory not known",
        gpu(memory_used=None, processes=(DESKTOP,)),
        "unknown",
        Unreadable("memory"),
    ),
    ("nothing known at all", Device(index=0, uuid=""), "unknown", Unreadable("processes")),
    ("a divided GPU", PARENT, "busy", Divided(0)),
    ("an instance", instance(PARENT), "free", Idle(load_unknown=True)),
    ("an instance with a job", instance(PARENT, processes=(job(),)), "busy", UsedBy((job(),))),
    (
        "an instance with memory held",
        instance(PARENT, memory_used=9 * GIB, memory_free=GIB),
        "held",
        MemoryHeld(9 * GIB),
    ),
    (
        "an instance of which nothing is known",
        instance(PARENT, processes=None),
        "unknown",
        Unreadable("processes"),
    ),
    (
        "an instance whose memory is not known",
        instance(PARENT, memory_used=None, memory_free=None),
        "unknown",
        Unreadable("memory"),
    ),
    *(
        (f"a fault: {fault.kind}", gpu(fault=fault), state, fault)
        for fault, state in (
            (Fault("lost", "GPU is lost", NOW), "lost"),
            (Fault("reset", "GPU requires restart"), "lost"),
            (Fault("error", "GetMemoryInfo: Unknown Error"), "unknown"),
        )
    ),
]


@each_row(("device", "state", "cause"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_the_table_of_verdicts(device: Device, state: str, cause: Cause) -> None:
    verdict = judge(device)
    assert (verdict.state, type(verdict.cause), verdict.cause) == (state, type(cause), cause)


def test_a_divided_gpu_has_the_number_of_its_instances() -> None:
    snapshot = box(PARENT, instance(PARENT, 0), instance(PARENT, 1))
    assert verdicts(snapshot)[PARENT.key] == Verdict("busy", Divided(2))


def test_every_device_has_a_verdict() -> None:
    snapshot = box(PARENT, instance(PARENT, 0), gpu(1), Device(index=2, uuid=""))
    assert set(verdicts(snapshot)) == {device.key for device in snapshot.devices}


def test_a_fault_comes_before_every_fact() -> None:
    assert judge(gpu(fault=Fault("lost", "GPU is lost"), processes=(job(),))).state == "lost"


def test_an_instance_of_a_lost_gpu_is_not_free() -> None:
    parent = replace(PARENT, fault=Fault("lost", "GPU is lost", NOW))
    part = instance(parent)
    assert not verdicts(box(parent, part))[part.key].free


@each_row(
    ("device", "state"),
    [
        (gpu(), "claimed"),
        (gpu(processes=None), "claimed"),
        (gpu(fault=Fault("error", "Unknown Error")), "claimed"),
        (busy(gpu()), "busy"),
        (_used(22 * GIB), "held"),
        (gpu(fault=Fault("lost", "GPU is lost")), "lost"),
    ],
)
def test_a_claim_counts_where_nothing_is_seen_on_the_device_or_can_be(device: Device, state: str) -> None:
    claim = Claim(device.key, "ana", NOW - 60)
    verdict = verdicts(replace(box(device), claims=(claim,)))[device.key]
    assert verdict.state == state
    assert (verdict.cause == ClaimedBy(claim)) == (state == "claimed")


def test_of_several_processes_the_one_with_the_most_memory_comes_first() -> None:
    jobs = (job(1, memory=GIB), job(2, memory=30 * GIB), job(3, memory=2 * GIB), job(4, memory=None))
    assert _pids(gpu(processes=jobs)) == [2, 3, 1, 4]


def test_of_equal_processes_the_one_that_started_first_comes_first() -> None:
    jobs = (job(1, started=NOW - 5), job(2, started=NOW - 500), job(3, started=None), job(4, started=None))
    assert _pids(gpu(processes=jobs)) == [2, 1, 3, 4]


def test_a_verdict_stays_equal_while_time_goes_by() -> None:
    devices = (gpu(0), busy(gpu(1)), gpu(2, fault=Fault("lost", "GPU is lost", NOW)))
    assert verdicts(box(*devices)) == verdicts(box(*devices, time=NOW + 3600))


def test_what_counts_as_nobodys_can_be_changed() -> None:
    strict = Rules(memory=0, utilization=0)
    assert judge(_used(MIB), strict).state == "held"
    assert judge(gpu(utilization=1), strict).state == "busy"


@pytest.mark.parametrize("used", [512 * MIB, 512 * MIB + 1])
def test_the_limit_itself_is_still_free(used: int) -> None:
    assert judge(_used(used)).free == (used == 512 * MIB)


_sizes = st.one_of(st.none(), st.integers(0, 80 * GIB))
_percent = st.one_of(st.none(), st.integers(0, 100))
_processes = st.builds(
    Process,
    pid=st.integers(1, 2**22),
    kind=st.sampled_from(get_args(Kind)),
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
    fault=st.one_of(
        st.none(), st.none(), st.builds(Fault, st.sampled_from(get_args(FaultKind)), st.just("message"))
    ),
)


@given(_devices)
@settings(max_examples=100, deadline=None)
def test_free_is_only_what_is_known_to_be_free(device: Device) -> None:
    verdict = judge(device)
    assert verdict.state in GLYPHS
    texts = reason(verdict, NOW), brief(verdict, NOW)
    assert all(texts) and "".join(texts).isprintable()
    if verdict.free:
        assert device.fault is None and not device.mig
        assert device.memory_used is not None and device.memory_free is not None
        assert device.utilization is not None
        assert device.processes is not None
        assert all(process.kind == "graphics" for process in device.processes)


@given(_devices, st.sampled_from(["memory_used", "memory_free", "utilization", "processes"]))
@settings(max_examples=60, deadline=None)
def test_knowing_less_never_makes_a_device_free(device: Device, fact: str) -> None:
    less = replace(device, **{fact: None})
    assert not judge(less).free or judge(device).free


@pytest.mark.parametrize("kind", [None, "error"])
def test_an_instance_is_judged_by_itself_unless_its_gpu_is_lost(kind: str | None) -> None:
    parent = replace(PARENT, fault=Fault(kind, "message") if kind else None)
    part = instance(parent)
    judged = verdicts(box(parent, part))
    assert judged[part.key] == Verdict("free", Idle(load_unknown=True))
    assert not judged[parent.key].free


def test_an_exclusive_gpu_is_not_free_for_another_program_of_its_owner() -> None:
    """The driver refuses a second program of any user."""
    device = gpu(compute_mode="exclusive_process", processes=(job(),), memory_used=20 * GIB)
    assert judge(device, Rules(mine="mira")) == Verdict("busy", UsedBy((job(),), exclusive=True))
