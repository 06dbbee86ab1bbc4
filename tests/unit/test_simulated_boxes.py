"""The simulated boxes: always the same at the same moment, moving, and never impossible."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.link import SELF, is_link
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES, DEFAULT
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at, past_at
from gputui.sources.simulated.source import SimulatedSource, named
from gputui.sources.source import NoSourceError, Want
from gputui.tui.app_state import AppState
from table_tests import each_row
from unit.builders import NOW

SECONDS = tuple(range(0, 130, 5))


@cache
def _film(name: str) -> list[Snapshot]:
    return [at(BOXES[name], second, NOW) for second in SECONDS]


def _states(snapshot: Snapshot) -> Counter[str]:
    return Counter(verdict.state for verdict in verdicts(snapshot).values())


def test_there_are_at_least_ten_boxes_and_each_says_what_it_is() -> None:
    assert len(BOXES) >= 10
    assert all(box.about and box.name == name for name, box in BOXES.items())


def test_the_default_is_a_box() -> None:
    assert DEFAULT in BOXES
    assert named(None).box is BOXES[DEFAULT]


def test_a_box_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(NoSourceError) as none:
        named("moonbase")
    assert "moonbase" in str(none.value) and "rtx3090" in str(none.value)


@each_row("name", BOXES)
def test_the_same_moment_always_looks_the_same(name: str) -> None:
    film = _film(name)
    backwards = [at(BOXES[name], second, NOW) for second in reversed(SECONDS)]
    assert film == backwards[::-1]


@each_row("name", BOXES)
def test_devices_keep_their_identity_while_they_move(name: str) -> None:
    film = _film(name)
    names = {(d.uuid, d.index, d.name, d.pci_bus_id) for d in film[0].devices}
    for snapshot in film:
        assert {(d.uuid, d.index, d.name, d.pci_bus_id) for d in snapshot.devices} <= names


def test_no_two_devices_of_all_boxes_have_the_same_key() -> None:
    uuids = [
        (device.key if device.uuid_usable else (name, device.key))
        for name in BOXES
        for device in at(BOXES[name], 0, NOW).devices
    ]
    assert len(set(uuids)) == len(uuids)


@each_row("name", BOXES)
def test_memory_never_exceeds_what_there_is(name: str) -> None:
    for snapshot in _film(name):
        for device in snapshot.devices:
            if device.memory_total is None or device.memory_used is None or device.memory_free is None:
                continue
            assert 0 <= device.memory_used <= device.memory_total
            assert device.memory_used + device.memory_free == device.memory_total
            held = sum(process.memory or 0 for process in device.processes or ())
            assert held <= device.memory_used


@each_row("name", BOXES)
def test_percentages_and_temperatures_are_possible(name: str) -> None:
    for snapshot in _film(name):
        for device in snapshot.devices:
            assert 0 <= (device.utilization or 0) <= 100
            assert 0 <= (device.memory_utilization or 0) <= 100
            assert 20 <= (device.temperature or 30) <= 95
            assert (device.power or 0) <= (device.power_limit or 1_000)


@each_row("name", sorted(set(BOXES) - {"empty", "idle", "laptop"}))
def test_a_box_with_somebody_on_it_moves(name: str) -> None:
    film = _film(name)
    assert len({tuple(d.utilization for d in snapshot.devices) for snapshot in film}) > 3 or (
        len({tuple(d.memory_used for d in snapshot.devices) for snapshot in film}) > 3
    )


@each_row("name", BOXES)
def test_since_when_a_device_is_idle_is_what_its_past_shows(name: str) -> None:
    for elapsed in (0.0, 20.0):
        for device in at(BOXES[name], elapsed, NOW).devices:
            if device.idle_since is None:
                continue
            ago = NOW + elapsed - device.idle_since
            for part in range(21):
                (then,) = (
                    each
                    for each in past_at(BOXES[name], elapsed - ago * part / 20, NOW).devices
                    if each.key == device.key
                )
                assert then.utilization == 0


def test_on_the_default_box_load_memory_and_processes_all_change() -> None:
    film = _film(DEFAULT)

    def seen(fact: str) -> int:
        return len({tuple(getattr(d, fact) for d in snapshot.devices) for snapshot in film})

    assert seen("utilization") > 10
    assert seen("memory_used") > 2
    assert len({tuple(len(d.processes or ()) for d in snapshot.devices) for snapshot in film}) > 1


def test_a_job_comes_and_goes_and_comes_again() -> None:
    counts = [len(snapshot.devices[7].processes or ()) for snapshot in _film("shared")]
    changes = [one for one, two in pairwise(counts) if one != two]
    assert len(changes) >= 3


def test_a_job_that_has_just_started_shows_no_load_yet_and_is_busy_all_the_same() -> None:
    snapshot = at(BOXES["shared"], 8.0, NOW)
    device = snapshot.devices[7]
    assert device.processes and device.utilization == 0
    assert verdicts(snapshot)[device.key].state == "busy"


def test_a_lost_device_strikes_while_one_watches_and_keeps_its_name() -> None:
    before, after = at(BOXES["lost"], 1.0, NOW), at(BOXES["lost"], 2.0, NOW)
    assert before.devices[3].fault is None
    fault = after.devices[3].fault
    assert fault and fault.kind == "lost" and fault.since == NOW + 2.0
    assert after.devices[3].uuid == before.devices[3].uuid
    assert after.devices[3].name == before.devices[3].name
    assert (after.devices[3].memory_used, after.devices[3].utilization) == (None, None)
    assert after.devices[3].processes is None


def test_a_device_needs_a_reset_from_the_beginning() -> None:
    fault = at(BOXES["lost"], 0.0, NOW).devices[6].fault
    assert fault and fault.kind == "reset"


def test_one_lost_device_does_not_take_the_others_with_it() -> None:
    assert _states(at(BOXES["lost"], 5.0, NOW)) == {"lost": 2, "busy": 2, "free": 4}


@each_row("name", BOXES)
def test_every_link_is_a_word_that_there_is_and_the_same_in_both_directions(name: str) -> None:
    snapshot = at(BOXES[name], 0.0, NOW)
    for i, row in enumerate(snapshot.links):
        assert len(row) == len(snapshot.devices)
        for j, word in enumerate(row):
            assert (word == SELF) == (i == j)
            assert word is None or is_link(word)
            assert word == snapshot.links[j][i]


def test_the_boxes_show_every_state_that_one_can_meet() -> None:
    seen = {state for name in BOXES for snapshot in _film(name) for state in _states(snapshot)}
    assert seen == {"free", "busy", "held", "claimed", "unknown", "lost"}


def test_a_divided_gpu_is_followed_by_its_instances() -> None:
    snapshot = at(BOXES["a100-mig"], 0.0, NOW)
    assert [snapshot.label(d) for d in snapshot.devices] == ["0", "0:0", "0:1", "0:2", "0:3", "1"]
    parent, parts = snapshot.devices[0], snapshot.devices[1:5]
    assert parent.mig and all(part.uuid.startswith("MIG-") for part in parts)
    assert parent.memory_used == sum(part.memory_used or 0 for part in parts)
    assert parent.utilization is None and all(part.utilization is None for part in parts)


@each_row("name", BOXES)
def test_what_a_driver_does_not_support_is_never_a_number(name: str) -> None:
    snapshot = at(BOXES[name], 20.0, NOW)
    whole: list[Device] = [device for device in snapshot.devices if device.parent is None]
    for spec, device in zip(BOXES[name].gpus, whole, strict=True):
        assert all(getattr(device, fact, None) is None for fact in spec.unsupported)


def test_a_source_counts_from_the_moment_it_was_opened() -> None:
    moment = [NOW]
    source = SimulatedSource(BOXES["lost"], clock=lambda: moment[0])
    source.open()
    moment[0] += 3
    first = source.read(Want.ALL)
    assert first.time == NOW + 3 and first.devices[3].fault
    source.close()
    moment[0] += 3
    assert source.read().time == NOW + 6 and source.read().devices[3].fault, "it goes on while it is closed"


def test_opening_twice_does_not_start_the_box_again() -> None:
    moment = [NOW]
    source = SimulatedSource(BOXES["lost"], clock=lambda: moment[0])
    source.open()
    moment[0] += 3
    source.open()
    assert source.read().devices[3].fault


# The values on the page of a device.


def test_a_simulated_box_shows_details_of_what_is_looked_at_and_its_load() -> None:
    moment = [NOW]
    source = SimulatedSource(BOXES["shared"], clock=lambda: moment[0])
    source.open()
    keys = [device.key for device in source.read(Want.LOAD).devices]
    read = source.read(Want.LOAD | Want.DETAILS | Want.HOST, keys[:1])
    assert [device.key for device in read.devices if device.telemetry] == keys[:1]
    assert all(p.sm is not None and p.host_cpu and p.host_memory for p in read.devices[0].processes or ())
    assert read.host.load and read.host.load.cpu and read.host.load.memory_used
    assert source.read(Want.LOAD) == read
    moment[0] += 3
    later = source.read(Want.LOAD)
    assert later.devices[0].telemetry not in (None, read.devices[0].telemetry)
    assert not any(d.telemetry for d in source.read(Want.LOAD | Want.DETAILS, ()).devices)


def test_a_box_without_a_certain_sensor_has_none_in_the_details() -> None:
    for name, box in BOXES.items():
        for device in detailed(at(box, 9, NOW), box, 9).devices:
            told = device.telemetry
            if told is not None and not (device.compute_capability or "").startswith("9"):
                assert told.sm_active is None, name
            assert device.fault is None or told is None


def test_no_box_has_the_name_of_another_and_no_two_gpus_have_used_the_same_energy() -> None:
    hosts = [box.host for box in BOXES.values()]
    assert len(hosts) == len({*hosts})
    assert all(box.host not in BOXES or box.host == name for name, box in BOXES.items())
    source = SimulatedSource(BOXES["dgx-h100"])
    energies = [device.telemetry.energy for device in source.read(Want.ALL | Want.DETAILS).devices]
    assert len({*energies}) == len(energies)


def test_the_log_of_a_job_that_runs_only_grows() -> None:
    last = -1
    for elapsed in range(0, 4 * 3600, 7):
        (tail,) = (job.tail for job in at(BOXES[DEFAULT], elapsed, NOW).jobs if not job.over)
        steps = [int(line.partition("step ")[2].split()[0]) for line in tail]
        assert steps == sorted({*steps}) and steps[-1] >= last, elapsed
        last = steps[-1]


def test_a_stopped_job_leaves_its_devices_and_its_log_ends() -> None:
    moment = [NOW]
    source = SimulatedSource(BOXES[DEFAULT], clock=lambda: moment[0])
    source.open()
    moment[0] += 10
    assert not source.stop("nobody") and source.stop("m6u5") and source.stop("m6u5")
    before = source.read()
    moment[0] += 60
    after = source.read()
    for snapshot in (before, after):
        job = next(job for job in snapshot.jobs if job.id == "m6u5")
        assert (job.state, job.ended) == ("stopped", NOW + 10)
        assert not any(process.own for process in snapshot.devices[1].processes or ())
        assert not any(claim.own for claim in snapshot.claims)
        assert job.tail == next(each for each in before.jobs if each.id == "m6u5").tail


def test_those_in_line_get_devices_in_their_order() -> None:
    moment = [NOW]
    source = SimulatedSource(BOXES["empty"], clock=lambda: moment[0])
    keys = [device.key for device in source.read().devices]
    all_four = source.wait_in_line(["python", "a b.py"], 4, None)
    moment[0] += 1
    last = source.wait_in_line(["python", "last.py"], 1, keys[3:])
    first, second = (job for job in source.read().jobs)
    assert (first.id, first.state, first.keys) == (all_four, "running", tuple(keys))
    assert first.argv == ("python", "a b.py")
    assert (second.id, second.state, second.keys) == (last, "waiting", ())
    assert [waiter.ours for waiter in source.read().waiters] == [True]
    moment[0] += 1
    assert source.stop(all_four)
    assert next(job for job in source.read().jobs if job.id == last).keys == (keys[3],)


def test_nobody_is_ahead_of_two_free_devices_of_the_default_box() -> None:
    """The first launch of whoever tries the demo starts."""
    for elapsed in range(120):
        snapshot = at(BOXES[DEFAULT], float(elapsed), NOW)
        assert snapshot.waiters
        state = AppState({}).with_snapshot(snapshot).select_best(2)[0]
        assert len(state.selected) == 2 and not state.in_line, elapsed


def test_nobody_passes_one_who_waits_for_the_same_devices() -> None:
    moment = [NOW]
    ana = replace(BOXES[DEFAULT].line[0], devices=None)
    source = SimulatedSource(replace(BOXES[DEFAULT], line=(ana,)), clock=lambda: moment[0])
    keys = [device.key for device in source.read().devices]
    behind_ana = source.wait_in_line(["python", "t.py"], 1, keys[4:5])
    assert next(job for job in source.read().jobs if job.id == behind_ana).state == "waiting"
