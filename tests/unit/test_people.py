"""The box by people: the user of each device, the user who only holds it, and the facts that are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.choosing.idleness import idle_seconds
from gputui.choosing.people import Person, people
from gputui.choosing.rules import DEFAULT_RULES
from gputui.choosing.state_times import Watch
from gputui.choosing.verdict import verdicts
from gputui.cli.people import _lines as lines
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.process import ANOTHER_NAMESPACE
from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import rows
from gputui.tui.views.processes import listed
from gputui.tui.views.text import Line
from messages import lines_of
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, instance, job, recording
from unit.calling import Call


def text(line: Line) -> str:
    return "".join(piece for piece, _ in line).rstrip()


def shown(app_state: AppState | Snapshot, width: int = 100) -> str:
    """The list on the screen."""
    if isinstance(app_state, Snapshot):
        app_state = AppState({}).with_snapshot(app_state)
    found = rows(app_state, form="people")
    listing = listed(found, width, 100)
    return "\n".join(map(text, listing.lines(0, 100)))


def watched(snapshot: Snapshot, idle: dict[str, float]) -> AppState:
    """The app state of a screen that has seen devices at 0 % for these seconds, by their keys."""
    app_state = AppState({}).with_snapshot(snapshot)
    since = {key: snapshot.time - seconds for key, seconds in idle.items()}
    return replace(app_state, watch=replace(app_state.watch, idle_since=since))


def seen(device: Device, seconds: int, step: int = 1) -> tuple[Person, ...]:
    """The people on a device that has been watched, in this state, for this number of seconds."""
    watch = Watch()
    snapshot = box(device)
    for second in range(0, seconds + 1, step):
        snapshot = box(device, time=NOW + second)
        watch = watch.after(snapshot, verdicts(snapshot))
    return people(snapshot, idle_seconds(watch, snapshot))


def test_who_has_the_most_memory_comes_first_and_of_equals_by_name() -> None:
    found = people(
        box(
            busy(gpu(0), job(1, user="olek", memory=GIB)),
            busy(gpu(1), job(2, user="ines", memory=5 * GIB)),
            busy(gpu(2), job(3, user="olek", memory=3 * GIB)),
            busy(gpu(3), job(4, user="bo", memory=4 * GIB)),
        )
    )
    assert [(each.user, each.memory) for each in found] == [
        ("ines", 5 * GIB),
        ("bo", 4 * GIB),
        ("olek", 4 * GIB),
    ]


def test_several_processes_of_one_user_on_a_device_are_one_holding() -> None:
    (person,) = people(
        box(busy(gpu(0), job(1, memory=GIB, started=NOW - 10), job(2, memory=2 * GIB, started=NOW - 99)))
    )
    (holding,) = person.holdings
    assert (holding.memory, holding.since, person.since) == (3 * GIB, NOW - 99, NOW - 99)
    assert [process.pid for process in holding.processes] == [1, 2]


def test_two_users_share_a_device_each_with_their_own() -> None:
    found = people(box(busy(gpu(0), job(1, user="bo", memory=GIB), job(2, user="jun", memory=2 * GIB))))
    assert [(each.user, each.memory) for each in found] == [("jun", 2 * GIB), ("bo", GIB)]


def test_processes_whose_owner_is_not_known_are_somebody() -> None:
    nobody = job(1, user=None, command=None, started=None, note=ANOTHER_NAMESPACE)
    (person,) = people(box(busy(gpu(0), nobody)))
    assert (person.user, person.memory, person.since) == (None, 20 * GIB, None)
    assert shown(box(busy(gpu(0), nobody))).strip().startswith("no visible owner  ")


def test_drawing_a_desktop_makes_nobody_a_person() -> None:
    assert people(box(busy(gpu(0), job(1, kind="graphics")))) == ()
    drawing_and_computing = box(busy(gpu(0), job(1, kind="graphics", user="ana"), job(2, user="bo")))
    assert [each.user for each in people(drawing_and_computing)] == ["bo"]


def test_an_instance_is_held_under_its_own_number() -> None:
    parent = gpu(0, mig=True)
    part = replace(instance(parent, 1), processes=(job(1, memory=GIB),))
    (person,) = people(box(parent, part))
    assert [holding.device.key for holding in person.holdings] == [part.key]
    assert "0:1" in shown(box(parent, part))


def test_a_claim_without_a_process_is_told_once_and_one_with_a_process_not_at_all() -> None:
    taken, empty = busy(gpu(0)), gpu(1)
    claims = tuple(Claim(key, "mira") for key in (taken.key, empty.key, empty.key, "GPU-elsewhere"))
    (person,) = people(replace(box(taken, empty), claims=claims))
    assert person.claims == (empty,)
    listing = shown(replace(box(taken, empty), claims=claims)).splitlines()
    assert [line.split()[0] for line in listing] == ["mira", "0", "1"] and "claimed" in listing[2]


def test_claims_are_listed_in_order_behind_the_devices_in_use() -> None:
    devices = (busy(gpu(0)), *map(gpu, range(1, 8)))
    claims = tuple(Claim(devices[index].key, "mira") for index in (0, 7, 5, 4))
    snapshot = replace(box(*devices), claims=claims)
    _, line = lines(people(snapshot), (), snapshot, verdicts(snapshot))
    assert line.split("  ")[1] == "0 · claimed 4-5,7"


@each_row(
    "idle, told",
    [
        ({}, "1-3"),
        ({2: 600.0}, "1,3 · 2 idle 10m"),
        ({1: 70.0}, "1 0% 1m · 2-3"),
        ({2: 600.0, 3: 610.0}, "1 · 2-3 idle 10m"),
        ({1: 600.0, 2: 7200.0, 3: 70.0}, "1 idle 10m · 2 idle 2h · 3 0% 1m"),
    ],
)
def test_a_note_belongs_to_the_devices_that_it_names(idle: dict[int, float], told: str) -> None:
    snapshot = box(*(busy(gpu(n), job(n, started=NOW - 9000)) for n in (1, 2, 3)))
    times = {device.key: idle[device.index] for device in snapshot.devices if device.index in idle}
    _, line = lines(people(snapshot, times), (), snapshot, verdicts(snapshot))
    assert line.split("  ")[1] == told


def test_who_only_claims_is_there_too() -> None:
    snapshot = replace(box(gpu(0)), claims=(Claim(gpu(0).key, "ana"),))
    (person,) = people(snapshot)
    assert (person.user, person.holdings, person.claims) == ("ana", (), (gpu(0),))
    assert "claimed" in shown(snapshot)


def test_somebody_is_idle_only_after_ten_minutes_at_nothing() -> None:
    quiet = replace(busy(gpu(0)), utilization=0)
    assert not seen(quiet, 599)[0].idle
    (idle,) = seen(quiet, 600)[0].idle
    assert idle.idle == DEFAULT_RULES.idle == 600


def test_who_has_just_come_to_a_device_that_was_long_quiet_is_not_idle() -> None:
    """A job that loads its data shows 0 %, and the hours before it came do not count for it."""
    new = replace(busy(gpu(0), job(started=NOW - 5)), utilization=0)
    (person,) = people(box(new), {new.key: 6 * 3600.0})
    assert not person.idle
    (holding,) = person.holdings
    assert holding.idle == 5


def test_of_whom_no_start_is_known_nobody_says_that_they_are_idle() -> None:
    device = replace(busy(gpu(0), job(started=None)), utilization=0)
    (person,) = people(box(device), {device.key: 6 * 3600.0})
    assert not person.idle and person.holdings[0].idle is None


@pytest.mark.parametrize("load", [1, None])
def test_a_moment_of_work_or_of_not_knowing_breaks_the_quiet(load: int | None) -> None:
    quiet = replace(busy(gpu(0)), utilization=0)
    watch = Watch()
    for second, device in (
        (0, quiet),
        *((n, quiet) for n in range(50, 650, 50)),
        (650, replace(quiet, utilization=load)),
        (651, quiet),
    ):
        snapshot = box(device, time=NOW + second)
        watch = watch.after(snapshot, verdicts(snapshot))
    assert idle_seconds(watch, snapshot) == {quiet.key: 0.0}


def test_hours_in_which_nobody_looked_are_not_hours_seen_at_nothing() -> None:
    """The screen was stopped (Ctrl-Z) over lunch."""
    assert not seen(replace(busy(gpu(0)), utilization=0), 7200, step=3600)[0].idle


def test_an_instance_that_has_no_load_is_never_called_idle() -> None:
    parent = gpu(0, mig=True, utilization=None)
    part = replace(instance(parent, 1), processes=(job(1),))
    watch = Watch()
    for second in (0, 3600):
        snapshot = box(parent, part, time=NOW + second)
        watch = watch.after(snapshot, verdicts(snapshot))
    assert not people(snapshot, idle_seconds(watch, snapshot))[0].idle


def test_a_device_whose_user_nobody_knows_is_not_below_a_person() -> None:
    held = replace(gpu(1), memory_used=20 * 2**30, memory_free=60 * 2**30)
    found = rows(AppState({}).with_snapshot(box(busy(gpu(0)), held)), form="people")
    assert [(row.key, row.user) for row in found if not row.person][-1] == (held.key, "–")


def test_who_may_be_asked_for_a_device_comes_first() -> None:
    one, two = (replace(busy(gpu(n), job(n + 1, user=f"user{n}")), utilization=0) for n in (0, 1))
    app_state = watched(box(one, two), {one.key: 60.0, two.key: 3600.0})
    assert [row.user for row in rows(app_state, form="people") if row.user] == ["user1", "user0"]
    assert "idle 1h" in shown(app_state)


def test_who_is_idle_stands_out_and_nobody_else() -> None:
    one, two = (replace(busy(gpu(n), job(n + 1, user="bo")), utilization=0) for n in (0, 1))
    idle = rows(watched(box(one, two), {one.key: 3600.0, two.key: 60.0}), form="people")
    assert [row.state for row in idle[1:]] == ["idle 1h", "0% 1m"]
    assert [row.idle for row in idle[1:]] == [True, False]


def test_a_filter_that_names_a_person_leaves_all_that_they_have() -> None:
    unknown = busy(gpu(0), job(1, user=None, command="python x.py"))
    app_state = AppState({}).with_snapshot(box(unknown, busy(gpu(1), job(2, user="bo"))))
    found = rows(app_state, filter_text="no visible owner", form="people")
    assert [row.pid for row in found] == ["", "1"]


def test_memory_that_nobody_tells_is_not_called_nothing(call: Call, tmp_path: Path) -> None:
    device = replace(busy(gpu(0), job(memory=None)), utilization=0)
    told = shown(watched(box(device), {device.key: 3600.0}))
    assert "0.0G" not in told and "mira" in told and "idle 1h" in told
    file = recording(tmp_path, box(device))
    assert call("people", "--from", file).text.splitlines()[1].split()[:4] == ["mira", "0", "–", "1h"]
    assert call("people", "--from", file, "--json").json["people"][0]["memory"] is None


def test_a_process_in_a_container_names_it(call: Call, tmp_path: Path) -> None:
    process = job(command="serve", container="k8s 3f2a9c01d4e5 pod 8d1f0c2a-1b2c-4d5e-9f00-123456789abc")
    device = busy(gpu(0), process)
    assert f"serve ({process.container})" in shown(box(device), 120)
    out = call("people", "--from", recording(tmp_path, box(device))).text
    assert out.rstrip().endswith(f"serve ({process.container})")


def test_what_is_held_by_no_process_stands_at_the_end() -> None:
    snapshot = box(busy(gpu(0)), gpu(1, memory_used=22 * GIB, memory_free=58 * GIB))
    *_, line = shown(snapshot, 200).splitlines()
    assert line.split()[0] == "1" and "22.0G" in line
    assert "no visible process" in line and "mira" not in line


@each_row("claimed", [False, True])
@each_row("fact", [{"memory_used": 22 * GIB, "memory_free": 58 * GIB}, {"utilization": 90}])
def test_a_device_in_use_with_no_visible_process_is_told_once_whoever_has_claimed_it(
    claimed: bool, fact: dict[str, int], call: Call, tmp_path: Path
) -> None:
    device = replace(gpu(0), **fact)  # type: ignore[arg-type]
    snapshot = box(device, gpu(1))
    snapshot = replace(snapshot, claims=(Claim(device.key, "ana", None, "x.py"),) if claimed else ())
    file = recording(tmp_path, snapshot)
    on_screen = [line for line in shown(snapshot, 200).splitlines() if line.split()[0] == "0"]
    _, *rows = call("people", "--from", file).text.splitlines()
    told = call("people", "--from", file, "--json").json
    for found in (on_screen, rows):
        (line,) = found
        assert "no visible process" in line and ("ana" in line) == (claimed and found is rows)
    assert [each["index"] for each in told["held"]] == ([] if claimed else [0])
    assert [each["claims"] for each in told["people"]] == ([[device.uuid]] if claimed else [])


def test_every_line_fits_and_no_name_moves_the_cursor() -> None:
    evil = job(1, user="e\x1b[2Jvil\n", command="\x1b]0;x\x07 rm \u202e" + "w" * 300)
    snapshot = replace(box(busy(gpu(0), evil), gpu(1)), claims=(Claim(gpu(1).key, "e\x1b[2Jvil\n"),))
    for width in (20, 40, 80, 200):
        listing = shown(snapshot, width=width).splitlines()
        assert all(len(line) <= width and line.isprintable() for line in listing)


# `gputui people`


def test_the_shared_box_by_people_and_what_nobody_can_be_seen_to_hold(call: Call) -> None:
    head, *rows = call("people", "--demo", "shared").text.splitlines()
    assert head.split() == ["USER", "GPUS", "MEMORY", "FOR", "COMMAND"]
    assert [row.split()[:2] for row in rows] == [
        ["bo", "6"],
        ["ines", "3"],
        ["mira", "0"],
        ["you", "1"],
        ["–", "2"],
    ]
    assert "no visible process" in rows[-1]


def test_the_remedy_of_a_held_device_is_below_the_table_and_breaks_no_row(call: Call) -> None:
    ended = call("people", "--demo", "shared")
    assert "fuser" in ended.err and len(ended.out.splitlines()[-1]) < 80


def test_the_same_for_a_program(call: Call) -> None:
    told = call("people", "--demo", "shared", "--json").json
    assert told["schema"] == 1
    assert [(p["user"], p["devices"][0]["index"]) for p in told["people"]] == [
        ("ines", 3),
        ("mira", 0),
        ("bo", 6),
        ("you", 1),
    ]
    assert told["people"][0]["devices"][0]["pids"] == [30110]
    assert [each["index"] for each in told["held"]] == [2]


def test_on_a_box_with_nobody_it_says_so_on_stderr(call: Call) -> None:
    ended = call("people", "--demo", "idle")
    assert (ended.status, ended.out, len(lines_of(ended.err))) == (0, "", 1)
    told = call("people", "--demo", "idle", "--json").json
    assert (told["people"], told["held"]) == ([], [])


def test_instances_of_a_divided_gpu_are_told_apart(call: Call) -> None:
    assert call("people", "--demo", "a100-mig").text.splitlines()[1].split()[:3] == ["ines", "0:0", "30.3G"]
    (each,) = call("people", "--demo", "a100-mig", "--json").json["people"]
    (device,) = each["devices"]
    assert device["uuid"].startswith("MIG-") and device["parent"].startswith("GPU-")


def test_foreign_names_and_notes_of_a_recording_do_nothing_to_the_terminal(
    call: Call, tmp_path: Path
) -> None:
    evil = job(1, user="e\x1b[2Jvil", command=None, note="\x1b]0;pwn\x07", container="lxc \x1b[2J")
    out = call("people", "--from", recording(tmp_path, box(busy(gpu(0), evil)))).text
    assert all(line.isprintable() for line in out.splitlines())


def test_a_command_is_refused(call: Call) -> None:
    assert "does not start commands" in call("people", "--demo", "idle", "--", "true").refused(2)


def test_an_empty_name_is_not_the_unknown_owner() -> None:
    unknown = busy(gpu(0), job(1, user=None, note=ANOTHER_NAMESPACE))
    found = people(replace(box(unknown, gpu(1)), claims=(Claim(gpu(1).key, ""),)))
    assert [(each.user, len(each.holdings), len(each.claims)) for each in found] == [(None, 1, 0), ("", 0, 1)]


def test_the_json_is_one_line_of_json(call: Call) -> None:
    assert json.loads(call("people", "--demo", "dgx-2", "--json").line)["people"]
