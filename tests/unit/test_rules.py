"""The definition of "free": every rule, by flag and by settings; and devices that no rule can make free."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.named_devices import keys_named
from gputui.choosing.pick import NeverTaken
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import judge, verdicts
from gputui.choosing.verdict_text import refusal as refusal_text
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.process import OWNER_UNKNOWN, Kind, Process
from gputui.sources.simulated.spec import Task
from gputui.system.users import own_name
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import GIB, MIB, NOW, box, busy, gpu, instance, job
from unit.calling import Call
from unit.claims_support import EIGHT

PARENT = gpu(0, mig=True, utilization=None, memory_utilization=None)
DESKTOP = job(1700, kind="graphics", user="sam", command="Xorg", memory=300 * MIB)
LOOSE = Rules(
    memory=80 * GIB,
    utilization=100,
    desktop_memory=80 * GIB,
    desktop_utilization=100,
    ignore=frozenset({"mira", "olek", ""}),
    mine="sam",
)
"""Rules under which nearly every device is free."""


NEVER = refusal_text(NeverTaken(), 0.0)


def _used(amount: int, **facts: object) -> Device:
    return gpu(memory_used=amount, memory_free=80 * GIB - amount, **facts)


_sizes = st.one_of(st.none(), st.integers(0, 80 * GIB))
_processes = st.builds(
    Process,
    pid=st.integers(1, 2**22),
    kind=st.sampled_from(get_args(Kind)),
    user=st.sampled_from([None, "mira", "sam", "root"]),
    memory=_sizes,
    note=st.sampled_from([None, OWNER_UNKNOWN]),
)
_rules = st.builds(
    Rules,
    memory=st.integers(0, 80 * GIB),
    utilization=st.integers(0, 100),
    desktop_memory=st.integers(0, 80 * GIB),
    desktop_utilization=st.integers(0, 100),
    ignore=st.frozensets(st.sampled_from(["mira", "sam", "root"])),
    mine=st.sampled_from([None, "sam"]),
)
_devices = st.builds(
    gpu,
    memory_used=_sizes,
    memory_free=_sizes,
    utilization=st.one_of(st.none(), st.integers(0, 100)),
    processes=st.one_of(st.none(), st.lists(_processes, max_size=3).map(tuple)),
    parent=st.sampled_from([None, None, "GPU-parent"]),
)


@given(_devices, _rules)
@settings(max_examples=100, deadline=None)
def test_no_rules_make_the_unknown_free(device: Device, rules: Rules) -> None:
    if not judge(device, rules).free:
        return
    assert device.processes is not None and device.memory_used is not None
    for process in device.processes:
        assert process.kind == "graphics" or process.user in (*rules.ignore, rules.mine)
        assert process.kind == "graphics" or process.user is not None
    if device.parent is None and not any(process.kind != "graphics" for process in device.processes):
        assert device.utilization is not None and device.memory_free is not None


@given(_devices, _rules, st.integers(0, 80 * GIB), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_stricter_rules_never_make_a_device_free(
    device: Device, rules: Rules, memory: int, load: int
) -> None:
    strict = replace(
        rules,
        memory=min(memory, rules.memory),
        utilization=min(load, rules.utilization),
        ignore=frozenset(),
        mine=None,
    )
    assert judge(device, rules).free or not judge(device, strict).free


TABLE: list[tuple[str, Device, Rules, str]] = [
    ("memory, at the limit", _used(2 * GIB), Rules(memory=2 * GIB), "free"),
    ("memory, above the limit", _used(2 * GIB + 1), Rules(memory=2 * GIB), "held"),
    ("unknown memory", gpu(memory_used=None, memory_free=None), LOOSE, "unknown"),
    ("load, at the limit", gpu(utilization=40), Rules(utilization=40), "free"),
    ("load, above the limit", gpu(utilization=41), Rules(utilization=40), "busy"),
    ("unknown load", gpu(utilization=None), LOOSE, "unknown"),
    ("processes that cannot be listed", gpu(processes=None), LOOSE, "unknown"),
    ("a process of nobody known", gpu(processes=(job(user=None, command=None),)), LOOSE, "busy"),
    ("a hidden owner", gpu(processes=(job(user=None, note=OWNER_UNKNOWN),)), LOOSE, "busy"),
    ("a job that has just begun", gpu(processes=(job(memory=0, started=NOW),)), Rules(), "busy"),
    ("a job of which no memory is told", gpu(processes=(job(memory=None),)), Rules(), "busy"),
    ("an ignored user", busy(gpu()), Rules(ignore=frozenset({"mira"})), "free"),
    ("another ignored user", busy(gpu()), Rules(ignore=frozenset({"olek"})), "busy"),
    ("mine", busy(gpu()), Rules(mine="mira"), "free"),
    ("not mine", busy(gpu()), Rules(mine="olek"), "busy"),
    ("mine and somebody's", busy(gpu(), job(1), job(2, user="olek")), Rules(mine="mira"), "busy"),
    ("mine and memory of nobody's", busy(gpu(), job(memory=GIB)), Rules(mine="mira"), "held"),
    ("mine, of which no memory is told", busy(gpu(), job(memory=None)), Rules(mine="mira"), "held"),
    ("mine and unknown memory", gpu(memory_used=None, processes=(job(),)), Rules(mine="mira"), "unknown"),
    (
        "mine and a desktop",
        _used(20 * GIB + 800 * MIB, processes=(DESKTOP, job())),
        Rules(mine="mira"),
        "free",
    ),
    (
        "mine and a game",
        _used(25 * GIB, processes=(DESKTOP, job())),
        Rules(mine="mira"),
        "busy",
    ),
    (
        "mine, where a second program does not start",
        busy(gpu(compute_mode="exclusive_process")),
        Rules(mine="mira"),
        "busy",
    ),
    ("a large desktop", _used(3 * GIB, processes=(DESKTOP,)), Rules(desktop_memory=4 * GIB), "free"),
    ("a small desktop, strictly", _used(GIB, processes=(DESKTOP,)), Rules(desktop_memory=MIB), "busy"),
    ("a film", _used(GIB, utilization=50, processes=(DESKTOP,)), Rules(desktop_utilization=50), "free"),
    ("an instance", instance(PARENT), Rules(utilization=0), "free"),
    ("an instance with a job", instance(PARENT, processes=(job(),)), Rules(), "busy"),
    ("an instance with memory held", instance(PARENT, memory_used=GIB, memory_free=GIB), Rules(), "held"),
    ("an instance of unknown memory", instance(PARENT, memory_used=None), LOOSE, "unknown"),
    ("a divided GPU", PARENT, LOOSE, "busy"),
]


@each_row(("device", "rules", "state"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table_of_rules(device: Device, rules: Rules, state: str) -> None:
    verdict = judge(device, rules)
    assert verdict.state == state, verdict


def test_a_claim_counts_whatever_is_ignored() -> None:
    snapshot = replace(box(gpu(0)), claims=(Claim(gpu(0).key, "mira"),))
    assert verdicts(snapshot, replace(LOOSE, mine="mira"))[gpu(0).key].state == "claimed"


def test_a_list_of_devices_names_what_is_there_and_instances_with_their_gpu() -> None:
    divided = replace(PARENT, index=1, uuid="GPU-1111")
    parts = [instance(divided, n) for n in range(2)]
    snapshot = box(gpu(0), divided, *parts, gpu(2))
    assert keys_named(["2", "0", "9", "2"], snapshot) == (gpu(2).key, gpu(0).key)
    assert keys_named(["01"], snapshot) == (divided.key, *(part.key for part in parts))
    assert keys_named([parts[1].uuid[:12], "GPU-ffff", "nonsense"], snapshot) == tuple(p.key for p in parts)
    assert keys_named(["GPU-0000"], snapshot) == (gpu(0).key, gpu(2).key), "one never means too few"


# by flags


@pytest.fixture
def nvml(nvml_here: SimulatedNvml) -> Iterator[SimulatedNvml]:
    nvml_here.show_box(EIGHT)
    yield nvml_here


def _task(*devices: str, **facts: object) -> Task:
    """A program of this test's user: its pid is this process's."""
    known: dict[str, object] = {
        "devices": devices,
        "user": "?",
        "command": "python train.py",
        "pid": os.getpid(),
        "memory": 9000,
        "load": 50,
        "swing": 0,
    }
    return Task(**{**known, **facts})  # type: ignore[arg-type]


Show = Callable[..., None]


@pytest.fixture
def show(nvml: SimulatedNvml) -> Show:
    return lambda *tasks: nvml.show_box(replace(EIGHT, tasks=tasks)) and None


@pytest.mark.parametrize("flag", [("--mine",), ("--ignore-user", own_name())])
@pytest.mark.parametrize("count", ["1", "8"])
def test_processes_that_do_not_count_are_passed_over_when_devices_are_picked(
    call: Call, show: Show, flag: tuple[str, ...], count: str
) -> None:
    show(*(_task(device) for device in "012"))
    assert call("pick", "-n", "5").text == "3,4,5,6,7\n"
    assert call("pick", "-n", "8").status == 4
    assert len(call("pick", "-n", count, *flag).line.split(",")) == int(count)


def test_a_launch_takes_devices_with_ones_own_processes_where_these_do_not_count(
    call: Call, show: Show
) -> None:
    show(*(_task(device) for device in "01234567"))
    words = ("run", "-q", "-n", "8", "--", "no-such-program")
    assert call(*words).status == 4
    assert call(*words[:4], "--mine", *words[4:]).status == 127, "it has its devices, and there is no program"


def test_a_process_that_is_nobodys_counts_whatever_is_ignored(call: Call, show: Show) -> None:
    show(_task("0", pid=2**22 - 1))
    assert call("pick", "-n", "8", "--mine", "--ignore-user", "?", "--ignore-user", "root").status == 4


def test_memory_and_load_by_nobody_are_judged_by_the_flags(call: Call, show: Show) -> None:
    show(_task("0", hidden=True, load=0, memory=2000), _task("1", hidden=True, load=40, memory=0, pid=7))
    assert call("pick", "-n", "8").status == 4
    assert call("pick", "-n", "7", "--busy-memory", "4G").line == "0,2,3,4,5,6,7"
    assert call("pick", "-n", "7", "--busy-util", "60%").line == "1,2,3,4,5,6,7"
    assert call("pick", "-n", "8", "--busy-util", "60", "--busy-memory", "4G").status == 0


@pytest.mark.parametrize("ids", ["index", "uuid"])
def test_what_is_never_taken_is_not_taken_with_n_and_is_when_named(
    call: Call, nvml: SimulatedNvml, ids: str
) -> None:
    uuids = [device.uuid for device in nvml.show_box(EIGHT).devices]
    never = "0,3" if ids == "index" else f"{uuids[0]},{uuids[3][:12]}"
    assert call("pick", "-n", "6", "--never", never).line == "1,2,4,5,6,7"
    refusal = call("pick", "-n", "7", "--never", never).refused(4)
    assert f"GPU 0 {NEVER}; GPU 3 {NEVER}" in refusal and "6 of 8" in refusal
    assert call("pick", "--gpus", "3", "--never", never).line == "3"


def test_what_is_preferred_is_taken_first_in_its_order(call: Call, show: Show) -> None:
    assert call("pick", "-n", "1", "--prefer", "7,6").line == "7"
    assert set(call("pick", "-n", "2", "--prefer", "7,6").line.split(",")) == {"6", "7"}
    show(_task("7"))
    assert call("pick", "-n", "1", "--prefer", "7,6").line == "6"
    assert "6" in call("pick", "-n", "3", "--prefer", "7,6").line.split(",")


@pytest.mark.parametrize("flag", ["--never", "--prefer"])
@pytest.mark.usefixtures("nvml")
def test_a_word_that_can_name_no_device_is_a_wrong_call(call: Call, flag: str) -> None:
    """A mistyped device that should never be taken would be taken."""
    refusal = call("pick", flag, "1,gpu0").refused(2)
    assert flag in refusal and "'gpu0'" in refusal
    assert call("pick", flag, "99").status == 0, "another box may have it"


@each_row(
    "words", [("--busy-util", "101"), ("--busy-memory", "much"), ("--window", "soon"), ("--window", "-1")]
)
def test_a_rule_that_means_nothing_is_a_wrong_call(call: Call, words: tuple[str, ...]) -> None:
    call("pick", *words).refused(2)


# by settings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config" / "gputui" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def test_settings_are_the_rules_of_every_call_and_flags_come_before_them(
    call: Call, show: Show, config: Path
) -> None:
    config.write_text('[devices]\nnever = ["0"]\nprefer = [7]\n[rules]\nmine_is_free = true\nmemory = "4G"\n')
    show(_task("1"), _task("2", hidden=True, load=0, memory=2000))
    assert call("pick", "-n", "1").line == "7"
    assert call("pick", "-n", "7").line == "1,2,3,4,5,6,7"
    assert f"GPU 0 {NEVER}" in call("pick", "-n", "8").refused(4)
    assert call("pick", "-n", "7", "--never", "1", "--busy-memory", "4G").line == "0,2,3,4,5,6,7"
    assert call("pick", "-n", "7", "--busy-memory", "0").status == 4


def test_a_recording_has_the_verdicts_of_the_settings(call: Call, show: Show, config: Path) -> None:
    show(_task("1"))
    states = [call("record", "-").json["devices"][1]["verdict"]["state"]]
    config.write_text("[rules]\nmine_is_free = true\n")
    states.append(call("record", "-").json["devices"][1]["verdict"]["state"])
    assert states == ["busy", "free"]


def test_bad_settings_keep_nobody_from_recording_the_box(call: Call, show: Show, config: Path) -> None:
    show()
    config.write_text("[rules]\nmemory = 5\n")
    recorded = call("record", "-")
    assert recorded.status == 0 and str(config) in recorded.err
    assert [each["verdict"]["state"] for each in json.loads(recorded.out)["devices"]] == ["free"] * 8


@pytest.mark.usefixtures("nvml")
def test_a_bad_settings_file_is_a_wrong_call_in_one_line_that_names_the_place(
    call: Call, config: Path
) -> None:
    config.write_text("[rules]\nmemory = 5\n")
    for words in (("pick",), ("run", "-n", "1", "--", "true")):
        assert f'{config}: [rules] memory: expected a size ("20G", "512M"), found 5' in call(*words).refused(
            2
        )
