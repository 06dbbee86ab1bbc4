"""Choosing among free devices: only free ones that are known to fit, in the documented order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.order import fullness
from gputui.choosing.pick import (
    Constraints,
    PickResult,
    SingleInstance,
    TooLittleMemory,
    TooMuchLoad,
    of_own_lease,
    pick,
)
from gputui.choosing.verdict import ClaimedBy, verdicts
from gputui.choosing.verdict_text import refusal
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.snapshot import Snapshot
from table_tests import each_row
from unit.builders import GIB, MIB, NOW, box, busy, gpu, instance, job


def _pick(snapshot: Snapshot, constraints: Constraints) -> PickResult:
    return pick(snapshot, verdicts(snapshot), constraints)


def _indices(picked: PickResult) -> list[int]:
    return [device.index for device in picked.devices]


def _with_free(index: int, free: int, **facts: object) -> Device:
    return gpu(index, memory_free=free, **facts)


def test_of_equal_devices_the_lowest_index_comes_first() -> None:
    assert _indices(_pick(box(*(gpu(i) for i in range(4))), Constraints(3))) == [0, 1, 2]


def test_of_devices_that_links_do_not_tell_apart_those_with_the_most_free_memory_are_taken() -> None:
    snapshot = box(_with_free(0, 20 * GIB), _with_free(1, 40 * GIB), _with_free(2, 30 * GIB))
    assert _indices(_pick(snapshot, Constraints(1))) == [1]
    assert _indices(_pick(snapshot, Constraints(2))) == [1, 2]
    assert _indices(_pick(snapshot, Constraints(3))) == [0, 1, 2]


def test_a_few_mib_are_no_reason_for_an_order() -> None:
    snapshot = box(_with_free(0, 80 * GIB - 300 * MIB), _with_free(1, 80 * GIB))
    assert _indices(_pick(snapshot, Constraints(2))) == [0, 1]


def test_a_busy_device_is_not_taken_and_its_owner_is_named() -> None:
    picked = _pick(box(busy(gpu(0)), gpu(1)), Constraints(2))
    assert _indices(picked) == [1]
    assert not picked.enough(Constraints(2))
    (device, why), *more = picked.refused
    assert device.index == 0 and why == verdicts(box(busy(gpu(0))))[device.key] and not more


@each_row(
    "device",
    [
        gpu(0, memory_used=None),
        gpu(0, utilization=None),
        gpu(0, processes=None),
        gpu(0, memory_used=20 * GIB),
        gpu(0, fault=Fault("lost", "GPU is lost")),
        gpu(0, mig=True),
        gpu(0, processes=(job(memory=0),)),
    ],
)
def test_what_is_not_known_to_be_free_is_not_taken(device: Device) -> None:
    picked = _pick(box(device), Constraints(1))
    assert picked.devices == () and len(picked.refused) == 1


def test_too_few_are_all_there_are() -> None:
    picked = _pick(box(gpu(0), gpu(1)), Constraints(5))
    assert _indices(picked) == [0, 1] and not picked.enough(Constraints(5))


def test_enough_is_enough() -> None:
    assert _pick(box(gpu(0), gpu(1)), Constraints(2)).enough(Constraints(2))


def test_the_free_memory_asked_for_is_a_limit_that_still_counts() -> None:
    snapshot = box(_with_free(0, 20 * GIB - 1), _with_free(1, 20 * GIB))
    picked = _pick(snapshot, Constraints(2, min_free=20 * GIB))
    assert _indices(picked) == [1]
    assert picked.refused[0][1] == TooLittleMemory(20 * GIB - 1, 20 * GIB)


def test_the_load_asked_for_is_a_limit_that_still_counts() -> None:
    snapshot = box(gpu(0, utilization=6), gpu(1, utilization=5))
    picked = _pick(snapshot, Constraints(2, max_util=5))
    assert _indices(picked) == [1] and picked.refused[0][1] == TooMuchLoad(6, 5)


def test_a_load_that_is_not_known_is_never_low_enough() -> None:
    parent = gpu(0, mig=True)
    picked = _pick(box(parent, instance(parent)), Constraints(1, max_util=100))
    assert picked.devices == ()
    assert picked.refused[1][1] == TooMuchLoad(None, 100)


def test_nothing_outside_what_is_ours_is_taken_or_talked_about() -> None:
    snapshot = box(gpu(0), busy(gpu(1)), gpu(2))
    picked = _pick(snapshot, Constraints(3, within={gpu(1).key, gpu(2).key}))
    assert _indices(picked) == [2]
    assert [device.index for device, _ in picked.refused] == [1]


def test_nothing_is_ours_when_nothing_was_given() -> None:
    assert _pick(box(gpu(0)), Constraints(1, within=())) == PickResult((), ())


def test_one_instance_can_be_taken() -> None:
    parent = gpu(0, mig=True)
    picked = _pick(box(parent, instance(parent, 0), instance(parent, 1)), Constraints(1))
    assert [device.key for device in picked.devices] == [instance(parent, 0).key]


def test_instances_are_never_combined() -> None:
    parent = gpu(0, mig=True)
    picked = _pick(box(parent, instance(parent, 0), instance(parent, 1), gpu(1)), Constraints(2))
    assert _indices(picked) == [1] and picked.devices[0].parent is None
    assert sum(isinstance(why, SingleInstance) for _, why in picked.refused) == 2


def test_a_desktop_does_not_stand_in_the_way() -> None:
    desktop = job(1700, kind="graphics", memory=300 * MIB)
    assert _indices(_pick(box(gpu(0, processes=(desktop,))), Constraints(1))) == [0]


_sizes = st.one_of(st.none(), st.integers(0, 80 * GIB))
_devices = st.builds(
    dict,
    memory_used=st.sampled_from([None, 0, 0, 0, 100 * MIB, 20 * GIB]),
    memory_free=_sizes,
    utilization=st.sampled_from([None, 0, 0, 5, 50]),
    processes=st.sampled_from([None, (), (), (), (job(),)]),
    fault=st.sampled_from([None, None, None, Fault("lost", "GPU is lost"), Fault("error", "Unknown Error")]),
)


@st.composite
def _boxes(draw: st.DrawFn) -> Snapshot:
    devices: list[Device] = []
    for index, facts in enumerate(draw(st.lists(_devices, max_size=6))):
        if draw(st.integers(0, 4)) == 0:
            parent = gpu(index, mig=True)
            devices.append(parent)
            for place in range(draw(st.integers(0, 2))):
                part = {key: value for key, value in facts.items() if key != "utilization"}
                devices.append(instance(parent, place, **part))
        else:
            devices.append(replace(gpu(index), **facts))
    return box(*devices)


_wishes = st.builds(
    Constraints,
    count=st.integers(1, 5),
    min_free=st.one_of(st.none(), st.integers(0, 90 * GIB)),
    max_util=st.one_of(st.none(), st.integers(0, 100)),
    within=st.one_of(st.none(), st.sets(st.sampled_from([gpu(i).key for i in range(6)]))),
)


@given(_boxes(), _wishes)
@settings(max_examples=100, deadline=None)
def test_whatever_the_box_only_free_devices_that_fulfil_the_wish_are_taken(
    snapshot: Snapshot, constraints: Constraints
) -> None:
    judged = verdicts(snapshot)
    picked = pick(snapshot, judged, constraints)
    assert len(picked.devices) <= constraints.count
    assert len({device.key for device in picked.devices}) == len(picked.devices)
    for device in picked.devices:
        assert judged[device.key].free
        assert device.memory_free is not None and device.memory_free >= (constraints.min_free or 0)
        assert constraints.max_util is None or (
            device.utilization is not None and device.utilization <= constraints.max_util
        )
        assert constraints.within is None or device.key in constraints.within
    assert len(picked.devices) <= 1 or not any(device.parent for device in picked.devices)


@given(_boxes(), _wishes)
@settings(max_examples=60, deadline=None)
def test_every_device_that_is_ours_is_taken_or_refused_or_was_not_needed(
    snapshot: Snapshot, constraints: Constraints
) -> None:
    picked = _pick(snapshot, constraints)
    ours = [d for d in snapshot.devices if constraints.within is None or d.key in constraints.within]
    left = len(ours) - len(picked.devices) - len(picked.refused)
    assert left >= 0
    assert left == 0 or picked.enough(constraints)
    assert not {d.key for d in picked.devices} & {d.key for d, _ in picked.refused}
    assert all(refusal(why, NOW) for _, why in picked.refused)


@given(_boxes(), _wishes)
@settings(max_examples=60, deadline=None)
def test_emptiest_first_is_by_free_memory_to_the_gib_then_by_load_and_place(
    snapshot: Snapshot, constraints: Constraints
) -> None:
    constraints = replace(constraints, order="emptiest")
    picked = _pick(snapshot, constraints)
    # Where there are too few, nothing is picked: the free devices are listed in the order of the box.
    chosen = picked.devices if picked.enough(constraints) else ()
    everyone = _pick(snapshot, replace(constraints, count=max(constraints.count, 2))).devices
    place = {device.key: where for where, device in enumerate(snapshot.devices)}
    order = [(fullness(d), place[d.key]) for d in chosen]
    assert order == sorted(order)
    assert constraints.count == 1 or chosen == everyone[: len(chosen)]


# inside the user's own lease


KEYS = st.frozensets(st.sampled_from([gpu(index).key for index in range(6)]))


@given(own=KEYS, given=st.none() | KEYS)
def test_inside_a_lease_its_devices_are_picked_unless_others_were_given(
    own: frozenset[str], given: frozenset[str] | None
) -> None:
    snapshot = replace(box(*map(gpu, range(6))), claims=tuple(Claim(key, "ana", ours=True) for key in own))
    found = of_own_lease(snapshot, given)
    if not own:
        assert found == given
    elif given is None or own & given:
        assert found == (own if given is None else own & given)
    else:
        assert found == given


def test_our_own_claim_keeps_us_from_nothing_and_a_step_inside_it_does() -> None:
    devices = tuple(map(gpu, range(3)))
    around = tuple(Claim(device.key, "ana", ours=True) for device in devices[:2])
    step = Claim(devices[0].key, "ana", step=1)
    other = Claim(devices[2].key, "bo")
    snapshot = replace(box(*devices), claims=(*around, step, other))
    judged = verdicts(snapshot)
    assert [judged[device.key].state for device in devices] == ["claimed", "free", "claimed"]
    assert judged[devices[0].key].cause == ClaimedBy(step)
    assert snapshot.own_lease == {device.key for device in devices[:2]}
