"""The text of verdicts: every cause has one, it is printable, and no decision depends on it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gputui.choosing
from gputui.choosing import verdict_text
from gputui.choosing.claimed_use import UnclaimedUse
from gputui.choosing.pick import (
    Constraints,
    NeverTaken,
    OtherVendor,
    Refusal,
    SingleInstance,
    TooLittleMemory,
    TooMuchLoad,
    pick,
)
from gputui.choosing.selection import Selection, not_free
from gputui.choosing.state_times import Watch, with_cooling
from gputui.choosing.verdict import (
    Cause,
    ClaimedBy,
    Cooling,
    DesktopOnly,
    Divided,
    Idle,
    MemoryHeld,
    NotCounted,
    NotOffered,
    Prohibited,
    State,
    Unreadable,
    UsedBy,
    Utilized,
    Verdict,
    judge,
    verdicts,
)
from gputui.choosing.verdict_text import (
    brief,
    claimed,
    for_document,
    reason,
    refusal,
    state_and_brief,
    state_and_reason,
)
from gputui.cli.main import main
from gputui.inventory.claim import Claim
from gputui.inventory.device import Apart, Device, Fault, FaultKind
from gputui.inventory.process import ANOTHER_NAMESPACE, ENDED, OWNER_UNKNOWN, Kind, Process
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.system import namespaces
from gputui.tui.app_state import AppState
from table_tests import each_row
from unit.builders import GIB, MIB, NOW, box, busy, gpu, job

CLAIM = Claim(gpu().key, "ana", NOW - 7200, "python x.py")

TEXTS: list[tuple[State, Cause, str, str]] = [
    ("free", Idle(), "no process, no load", "free"),
    ("free", Idle(display=True), "no process, no load, display attached", "free, display"),
    ("free", Idle(load_unknown=True), "no process, load unknown", "free"),
    ("free", Idle(unseen=True), "memory as on an idle device, no load", "free"),
    ("free", DesktopOnly(None), "desktop only", "free, desktop"),
    ("free", DesktopOnly(300 * MIB), "desktop only, 0.3G", "free, desktop"),
    (
        "free",
        NotCounted(("ana", "dcgm")),
        "only processes that your rules ignore (ana, dcgm)",
        "free, ignoring ana, dcgm",
    ),
    ("busy", UsedBy((job(),)), "mira runs train.py (pid 4242, 1h, 20.0G)", "mira train.py 1h"),
    (
        "busy",
        UsedBy((job(memory=None, started=None), job(2))),
        "mira runs train.py (pid 4242), and 1 more process",
        "mira train.py +1",
    ),
    (
        "busy",
        UsedBy((job(), job(2), job(3)), exclusive=True),
        "mira runs train.py (pid 4242, 1h, 20.0G), and 2 more processes; exclusive mode:"
        " no other program can start",
        "mira train.py 1h +2",
    ),
    (
        "busy",
        UsedBy((job(user=None, command=None, note=ANOTHER_NAMESPACE),)),
        "pid 4242, no visible owner (outside this container), 1h, 20.0G",
        "pid 4242, outside this container",
    ),
    (
        "busy",
        UsedBy((job(user=None, note=OWNER_UNKNOWN),)),
        "pid 4242, no visible owner, 1h, 20.0G",
        "pid 4242, no visible owner",
    ),
    (
        "busy",
        UsedBy((job(user=None, command=None, started=None, note=ENDED),)),
        "no visible owner (process 4242 has ended, or is in a container that cannot be seen), 20.0G",
        "no visible owner",
    ),
    (
        "busy",
        UsedBy((job(user=None, memory=None),)),
        "pid 4242, no visible owner, 1h",
        "pid 4242",
    ),
    ("busy", Utilized(80), "80% utilization, no visible process", "busy, no visible process"),
    ("busy", Divided(2), "divided into 2 MIG instances: select an instance", "2 MIG instances"),
    ("busy", Divided(0), "MIG is enabled, but there is no instance", "MIG, no instances"),
    ("busy", Prohibited(), "compute mode Prohibited: no program can use it", "compute prohibited"),
    ("cooling", Cooling(NOW - 3, 10), "free for 3 s, counts as free after 10 s", "cooling down (3/10 s)"),
    ("cooling", Cooling(NOW + 3, 2.5), "free for 0 s, counts as free after 2.5 s", "cooling down (0/2.5 s)"),
    (
        "held",
        MemoryHeld(22 * GIB),
        "22.0G in use, no visible process",
        "held, no visible process",
    ),
    ("claimed", ClaimedBy(CLAIM), "by ana, 2h ago, until the job ends: python x.py", "claimed by ana 2h"),
    ("claimed", ClaimedBy(Claim("k", "ana")), "by ana, until the job ends", "claimed by ana"),
    ("claimed", ClaimedBy(Claim("k", "ana", own=True)), "by you, until the job ends", "claimed by you"),
    (
        "claimed",
        ClaimedBy(Claim("k", "ana", NOW - 7200, job="b4m8", own=True)),
        "by your job b4m8, 2h ago, until it ends",
        "your job b4m8 2h",
    ),
    (
        "claimed",
        ClaimedBy(Claim("k", "ana", job="b4m8", own=True), ("0", "6")),
        "by your job b4m8, until it ends; it runs on 0,6",
        "your job b4m8, on 0,6",
    ),
    (
        "claimed",
        ClaimedBy(Claim("k", "root", job="b4m8"), ("0", "6")),
        "by root, until job b4m8 ends, which runs on 0,6",
        "root, runs on 0,6",
    ),
    ("unknown", Unreadable("processes"), "the driver does not list its processes", "processes unreadable"),
    (
        "unknown",
        NotOffered("integrated"),
        "an integrated GPU is selected only if it is named",
        "integrated, not offered",
    ),
    ("unknown", Unreadable("memory"), "the driver does not report its memory", "memory unreadable"),
    (
        "unknown",
        Unreadable("utilization"),
        "the driver does not report its utilization",
        "utilization unreadable",
    ),
    ("unknown", Fault("error", "Unknown Error"), "Unknown Error", "driver error"),
    ("lost", Fault("lost", "GPU is lost"), "GPU is lost: fell off the bus", "lost"),
    (
        "lost",
        Fault("reset", "GPU requires restart"),
        "GPU requires restart",
        "needs a reset",
    ),
]


@each_row(("state", "cause", "full", "few"), TEXTS)
def test_the_table_of_texts(state: State, cause: Cause, full: str, few: str) -> None:
    verdict = Verdict(state, cause)
    assert (reason(verdict, NOW), brief(verdict, NOW)) == (full, few)
    assert state_and_reason(verdict, NOW) == f"{state}: {full}"
    assert for_document({"k": verdict}, NOW) == {"k": (state, full)}


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (MemoryHeld(GIB), "1.0G in use, no visible process (`sudo fuser -v /dev/nvidia*`)"),
        (Prohibited(), "(`sudo nvidia-smi -c 0` allows it)"),
    ],
)
def test_what_helps_is_said_in_the_vendors_own_commands(
    cause: Cause, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "pid_namespace", lambda: namespaces._INITIAL)
    assert reason(Verdict("held", cause, Device(index=0, uuid="u")), NOW).endswith(remedy)
    assert "nvidia" not in reason(Verdict("held", cause, Device(index=0, uuid="u", vendor="acme")), NOW)


def test_a_container_is_told_that_only_its_host_sees_who_holds_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Verdict("held", MemoryHeld(GIB), Device(index=0, uuid="u"))
    for namespace, on_host in ((None, False), (namespaces._INITIAL, False), ("pid:[4026532000]", True)):
        monkeypatch.setattr(namespaces, "pid_namespace", lambda now=namespace: now)
        assert ("on its host" in reason(held, NOW)) is on_host


@each_row(
    ("vendor", "names"),
    [
        ("nvidia", ("-i 6", "-i 0000:c1:00.0")),
        ("amd", ("0000:c1:00.0",) * 2),
        ("gaudi", ("0000:c1:00.0",) * 2),
    ],
)
def test_a_reset_names_the_device_because_without_a_name_it_resets_all(
    vendor: str, names: tuple[str, ...]
) -> None:
    broken = Device(
        index=6, uuid="u", vendor=vendor, pci_bus_id="0000:c1:00.0", fault=Fault("reset", "restart")
    )
    without_index = replace(broken, index=-1)
    without_either = replace(without_index, pci_bus_id=None)
    for device, name in zip((broken, without_index, without_either), names, strict=False):
        told = reason(judge(device), NOW)
        assert f" {name}" in told and "resets it" in told
    assert reason(judge(without_either), NOW) == "restart"


def test_every_cause_is_in_the_table() -> None:
    assert {type(cause) for _, cause, _, _ in TEXTS} == set(get_args(Cause))


def test_the_state_is_not_said_twice() -> None:
    for state, cause, _, few in TEXTS:
        says_it = few.replace(",", " ").split()[0] == state
        if state != "free":
            assert state_and_brief(Verdict(state, cause), NOW) == (few if says_it else f"{state}: {few}")


def test_a_user_whose_name_begins_with_a_state_is_no_state() -> None:
    verdict = Verdict("busy", UsedBy((job(user="busybody"),)))
    assert state_and_brief(verdict, NOW) == "busy: busybody train.py 1h"


def test_a_lost_device_has_the_time_of_day() -> None:
    verdict = Verdict("lost", Fault("lost", "GPU is lost", NOW))
    assert brief(verdict, NOW).startswith("lost ") and brief(verdict, NOW).count(":") == 2


def test_who_claims_a_device_where_that_is_known() -> None:
    assert claimed("GPU 3", CLAIM, NOW) == "GPU 3 is claimed by ana, 2h ago, until the job ends: python x.py"
    assert claimed("GPU 3", None, NOW) == "GPU 3 is claimed by another job"


@each_row(
    ("why", "text"),
    [
        (Verdict("unknown", Unreadable("memory")), "unknown: the driver does not report its memory"),
        (NeverTaken(), "free, but excluded (settings or --never)"),
        (SingleInstance(), "a MIG instance: a process can use only one"),
        (TooLittleMemory(19 * GIB, 20 * GIB), "19.0G free, 20.0G required"),
        (TooLittleMemory(None, 20 * GIB), "free memory unknown, 20.0G required"),
        (TooMuchLoad(6, 5), "utilization 6%, at most 5% allowed"),
        (TooMuchLoad(None, 5), "utilization unknown, at most 5% allowed"),
        (OtherVendor("nvidia"), "free, but a command can use only one vendor's devices (nvidia)"),
    ],
)
def test_the_table_of_refusals(why: Refusal, text: str) -> None:
    assert refusal(why, NOW) == text


# every cause


_words = st.text(max_size=9)
_sizes = st.integers(0, 80 * GIB)
_moments = st.one_of(st.none(), st.floats(0, 2 * NOW))
_processes = st.builds(
    Process,
    pid=st.integers(1, 2**22),
    kind=st.sampled_from(get_args(Kind)),
    user=st.one_of(st.none(), _words),
    memory=st.one_of(st.none(), _sizes),
    command=st.one_of(st.none(), _words),
    started=_moments,
    note=st.one_of(st.none(), _words),
)
_labels = st.lists(_words, max_size=3).map(tuple)
_unclaimed_uses = st.builds(UnclaimedUse, _words, st.none() | _words, _labels, st.booleans())
_claims = st.builds(Claim, st.just("k"), _words, _moments, st.one_of(st.none(), _words))
_causes: dict[type, st.SearchStrategy[Cause]] = {
    Idle: st.builds(Idle, st.booleans()),
    DesktopOnly: st.builds(DesktopOnly, st.none() | _sizes),
    NotCounted: st.builds(NotCounted, st.lists(_words, min_size=1, max_size=3).map(tuple)),
    UsedBy: st.builds(
        UsedBy,
        st.lists(_processes, min_size=1, max_size=3).map(tuple),
        st.booleans(),
        st.none() | _unclaimed_uses,
    ),
    Utilized: st.builds(Utilized, st.integers(0, 100)),
    Divided: st.builds(Divided, st.integers(0, 7)),
    Prohibited: st.just(Prohibited()),
    Cooling: st.builds(Cooling, st.floats(0, 2 * NOW), st.floats(0, 99)),
    MemoryHeld: st.builds(MemoryHeld, _sizes),
    ClaimedBy: st.builds(ClaimedBy, _claims, _labels),
    NotOffered: st.builds(NotOffered, st.sampled_from(get_args(Apart))),
    Unreadable: st.builds(Unreadable, st.sampled_from(["processes", "memory", "utilization"])),
    Fault: st.builds(
        Fault, st.sampled_from(get_args(FaultKind)), _words, st.one_of(st.none(), st.floats(0, NOW))
    ),
}


@pytest.mark.parametrize("kind", get_args(Cause))
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_every_cause_has_printable_texts(kind: type, data: st.DataObject) -> None:
    verdict = Verdict("busy", data.draw(_causes[kind]))
    for text in (reason(verdict, NOW), brief(verdict, NOW), state_and_brief(verdict, NOW)):
        assert text and text.isprintable()


# no decision depends on text


def _snapshots() -> list[Snapshot]:
    """Every simulated box, and one with a claim."""
    snapshots = [at(spec, 60.0, NOW) for spec in BOXES.values()]
    return [*snapshots, replace(box(gpu(0), busy(gpu(1)), gpu(2)), claims=(CLAIM,))]


def _decided() -> list[object]:
    """The decisions about each box: the choice, the questions, and the devices that a person may select."""
    decided: list[object] = []
    for snapshot in _snapshots():
        judged = verdicts(snapshot)
        watch = Watch().after(snapshot, judged)
        # Devices of several vendors are never selected together.
        first = snapshot.devices[0].vendor
        everything = Selection(tuple(d.key for d in snapshot.devices if d.vendor == first))
        decided += [
            with_cooling(judged, watch, snapshot.time, 10.0),
            [pick(snapshot, judged, Constraints(count)) for count in (1, 2, 4, 99)],
            not_free(everything, {}, snapshot, judged),
        ]
        app_state = AppState({}).with_snapshot(snapshot)
        decided.append(app_state.add_best()[0].selection)
        for device in snapshot.devices:
            toggled, notice = app_state.toggle(device)
            decided.append((toggled.selection, notice is None, len(toggled.warnings)))
    return decided


def test_without_any_text_every_decision_is_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [
        ["pick", "--demo", name, "-n", count] for name in ("shared", "idle") for count in ("1", "2", "9")
    ]
    before = _decided(), [(main(call), capsys.readouterr().out) for call in calls]
    monkeypatch.setattr(verdict_text, "_texts", lambda cause, now: ("", ""))
    assert reason(Verdict("free", Idle()), NOW) == ""
    assert (_decided(), [(main(call), capsys.readouterr().out) for call in calls]) == before


def test_nothing_that_chooses_imports_the_text() -> None:
    for file in Path(gputui.choosing.__path__[0]).glob("*.py"):
        if file.name == "queue_text.py":
            continue
        modules = {
            node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
        }
        assert "gputui.choosing.verdict_text" not in modules, file.name


def test_who_looks_at_a_demo_is_spoken_to() -> None:
    verdict = Verdict("busy", UsedBy((job(user="you"),)))
    assert reason(verdict, NOW).startswith("you run train.py")


def test_a_program_of_which_nobody_makes_use_is_not_said_to_be_running() -> None:
    for user, own, verb in (
        ("mira", False, "mira holds it with train.py"),
        ("mira", True, "you hold it with train.py"),
    ):
        idle = Verdict("busy", UsedBy((replace(job(user=user), own=own),), idle_since=NOW - 3600, idle=True))
        assert verb in reason(idle, NOW) and "idle 1h" in reason(idle, NOW)
        assert "running" not in reason(idle, NOW) and "busy" not in state_and_reason(idle, NOW)
        sentence = state_and_reason(idle, NOW)
        assert sentence.startswith("idle 1h: ") and sentence.count("idle") == 1
        assert state_and_reason(idle, NOW, " (was free)").startswith("idle 1h (was free): ")
        for text in (sentence, state_and_brief(idle, NOW)):
            assert text.endswith("ask mira") == (not own)
            assert "ask" not in reason(idle, NOW), "that is for documents"
        assert own or state_and_brief(idle, NOW).startswith("mira's, unused 1h")
