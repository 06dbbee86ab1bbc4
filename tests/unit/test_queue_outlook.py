"""The needs of the waiters in line, the obstacles, and the users of the devices that are not free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing import queue_outlook
from gputui.choosing.capacity import most_ever
from gputui.choosing.pick import Constraints
from gputui.choosing.queue_outlook import Occupied, Outlook, outlook
from gputui.choosing.queue_text import (
    blocking_reason,
    describe_request,
    next_in_line,
    occupied_columns,
)
from gputui.choosing.state_times import Watch, with_cooling
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import state_and_brief
from gputui.inventory.claim import Claim
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, instance, job

FOUR = tuple(gpu(n) for n in range(4))
KEYS = [device.key for device in FOUR]


def waiter(place: int, user: str = "ana", count: int = 1, *places: int, **more: Any) -> Waiter:
    devices = frozenset(KEYS[each] for each in places) or None
    return Waiter((place, ""), user, count, devices, NOW - 60, "python t.py", **more)


def seen(snapshot: Snapshot, *line: Waiter, idle: dict[str, float] | None = None) -> Outlook:
    snapshot = replace(snapshot, waiters=line)
    return outlook(snapshot, verdicts(snapshot), idle or {})


def reasons(snapshot: Snapshot, *line: Waiter) -> list[str]:
    return [reason for _, reason in next_in_line(seen(snapshot, *line), snapshot)]


TWO_BUSY = box(busy(FOUR[0]), busy(FOUR[1]), FOUR[2], FOUR[3])


def test_the_first_in_line_is_told_what_is_missing() -> None:
    assert reasons(TWO_BUSY, waiter(1, "ana", 4), waiter(2, "bo"), waiter(3, "kim", 2)) == [
        "GPUs 2 and 3 free, needs 2 more"
    ]
    assert reasons(TWO_BUSY, waiter(1, "ana", 3)) == ["GPUs 2 and 3 free, needs 1 more"]
    assert reasons(TWO_BUSY, waiter(1, "ana", 1, 0)) == ["GPU 0 is not free"]
    assert reasons(TWO_BUSY, waiter(1, "ana", 2, 0, 1)) == ["GPUs 0 and 1 are not free"], "others are free"
    assert reasons(box(*map(busy, FOUR)), waiter(1, "ana", 2, 0, 1, 2)) == ["GPUs 0, 1 and 2 are not free"]
    assert reasons(box(*map(busy, FOUR)), waiter(1, "ana", 2)) == ["no GPU is free, needs 2"]
    assert reasons(TWO_BUSY, waiter(1, "ana", 2)) == [
        "GPUs 2 and 3 free, should start within a minute if that lasts"
    ]


def test_a_request_that_does_not_start_on_devices_that_stay_free_is_not_said_to_start_soon() -> None:
    def told(*free: float, **facts: Any) -> str:
        snapshot = replace(TWO_BUSY, waiters=(replace(waiter(1, "ana", 2), **facts),))
        known = dict(zip(KEYS[2:], free, strict=False))
        (turn,) = outlook(snapshot, verdicts(snapshot), {}, 600.0, known).turns
        return blocking_reason(turn, snapshot)

    long = {"since": NOW - 1100}
    assert "starts soon" in told(since=NOW - 5), "one reading knows nothing of the time before"
    assert "starts soon" in told(1080, 1080, since=NOW - 59)
    # How long they have been free is not known: only that they must stay so.
    for once in (told(**long), told(1080, 59, **long)):
        assert "soon" not in once and "within a minute if that lasts" in once
    assert "18m, not started" in told(3000, 1080, **long) and "starts soon" not in told(3000, 1080, **long)
    assert "jobs log e3y2" in told(1080, 1080, **long, job="e3y2", ours=True)
    assert "jobs log" not in told(1080, 1080, **long, job="e3y2")


def test_only_devices_that_were_free_for_that_time_are_said_to_have_been_free_for_it() -> None:
    snapshot = replace(TWO_BUSY, waiters=(replace(waiter(1, "ana", 1), since=NOW - 1100),))

    def free(**seconds: float) -> list[int]:
        known = {KEYS[int(place[1:])]: each for place, each in seconds.items()}
        (turn,) = outlook(snapshot, verdicts(snapshot), {}, 600.0, known).turns
        return [device.index for device in turn.free]

    assert free(_2=20, _3=1080) == [3] and free(_2=1200, _3=1300) == [2, 3]
    assert free() == [2, 3], "one reading knows nothing of the time before"


def test_who_waits_for_other_devices_is_next_too() -> None:
    found = seen(TWO_BUSY, waiter(1, "ana", 2, 0, 1), waiter(2, "bo", 1, 1), waiter(3, "kim", 1, 2))
    assert [turn.waiter.user for turn in found.next] == ["ana", "kim"]
    assert [turn.ahead for turn in found.turns] == [0, 1, 0]


def test_who_waits_inside_a_lease_is_in_nobodys_way() -> None:
    found = seen(TWO_BUSY, waiter(1, "ana", 2, step=1), waiter(2, "bo", 3))
    assert [turn.ahead for turn in found.turns] == [0, 0]
    assert "step" in blocking_reason(found.turns[0], TWO_BUSY)


def test_devices_that_never_do_are_not_counted() -> None:
    divided = gpu(0, mig=True)
    parts = box(divided, instance(divided, 0), instance(divided, 1), FOUR[1])
    assert reasons(parts, waiter(1, count=2)) == ["only 1 of the GPUs here matches: it can never start"]
    assert reasons(parts, waiter(1, count=1)) == [
        "GPUs 0:0, 0:1 and 1 free, should start within a minute if that lasts"
    ]


def test_what_is_waited_for_in_words() -> None:
    assert [
        describe_request(each, TWO_BUSY) for each in (waiter(1), waiter(1, "a", 4), waiter(1, "a", 2, 1, 2))
    ] == [
        "1 GPU",
        "4 GPUs",
        "GPU 1,2",
    ]
    assert describe_request(waiter(1, "a", 1, 1, 2), TWO_BUSY) == "1 of GPU 1,2"
    partly = replace(waiter(1, "a", 1), devices=frozenset({KEYS[1], "GPU-gone"}))
    assert describe_request(partly, TWO_BUSY) == "1 GPU, of 2", "not GPU 1 alone"
    elsewhere = replace(waiter(1), devices=frozenset({"GPU-gone"}))
    assert describe_request(elsewhere, TWO_BUSY) == describe_request(elsewhere, None) == "1 GPU, of 1"


def occupied(snapshot: Snapshot, **idle: float) -> list[tuple[int, bool, tuple[str, ...]]]:
    by_key = {KEYS[int(place[1:])]: seconds for place, seconds in idle.items()}
    found = seen(snapshot, idle=by_key).occupied
    return [(each.device.index, each.hoarded, texts_of(each, snapshot)) for each in found]


def texts_of(each: Occupied, snapshot: Snapshot) -> tuple[str, ...]:
    """Its columns behind the one that says which device it is."""
    return tuple(column.text(each) for column in occupied_columns(snapshot)[1:])


def test_who_has_the_devices_those_first_who_may_be_asked_for_one() -> None:
    """When a device becomes free is unknown. The time before a user came does not count as idle."""
    still = replace(busy(FOUR[1], job(7, user="bo", started=NOW - 7200)), utilization=0)
    young = replace(busy(FOUR[2], job(8, user="kim", started=NOW - 90)), utilization=0)
    there = box(busy(FOUR[0], job(6, user="mira")), still, young, FOUR[3])
    there = replace(there, claims=(Claim(KEYS[1], "bo", NOW - 7300), Claim(KEYS[3], "lee", NOW - 3000)))
    assert occupied(there, _1=2400.0, _2=2400.0) == [
        (1, True, ("bo", "2h01m", "idle 40m: ask bo", "python train.py")),
        (3, True, ("lee", "50m", "not in use: ask lee", "")),
        (0, False, ("mira", "1h", "unknown", "python train.py")),
        (2, False, ("kim", "1m", "unknown", "python train.py")),
    ]
    told = occupied(there)
    assert [(index, hoarded) for index, hoarded, _ in told] == [(3, True), (0, False), (1, False), (2, False)]
    assert told[2][2][2] in ("", "unknown"), "how long it has been idle is not known from one reading"


def test_nobody_is_asked_for_their_own_device() -> None:
    there = replace(box(FOUR[0]), claims=(Claim(KEYS[0], "me", NOW - 3000, own=True),))
    assert occupied(there)[0][2] == ("you", "50m", "not in use", "")


def test_a_claim_by_another_user_than_the_one_who_runs_is_named() -> None:
    there = replace(box(busy(FOUR[0])), claims=(Claim(KEYS[0], "lee", NOW - 60),))
    assert occupied(there)[0][2][:3] == ("mira", "1h", "unknown, claimed by lee")


def test_a_claimed_device_is_free_when_its_job_ends_whether_or_not_the_job_uses_it() -> None:
    young = Claim(KEYS[0], "me", NOW - 20, job="f2z5", own=True)
    assert occupied(replace(box(FOUR[0]), claims=(young,)))[0][2][2] == "when job f2z5 ends"
    used = replace(box(busy(FOUR[0])), claims=(Claim(KEYS[0], "mira", NOW - 20, job="m6u5"),))
    assert occupied(used)[0][2][2] == "when job m6u5 ends"


def test_a_claim_whose_command_has_ended_says_what_keeps_it() -> None:
    there = replace(box(FOUR[0]), claims=(Claim(KEYS[0], "lee", NOW - 60, ended=True),))
    assert "has ended" in occupied(there)[0][2][2]


def test_what_cools_down_or_has_a_time_limit_is_expected_at_a_time_and_stays_in_its_place() -> None:
    before = box(busy(FOUR[0]), busy(FOUR[1]), busy(FOUR[2]), time=NOW - 7)
    limited = Claim(KEYS[2], "mira", NOW - 3600, until=NOW + 7200)
    after = replace(box(busy(FOUR[0]), FOUR[1], busy(FOUR[2]), time=NOW), claims=(limited,))
    watch = Watch().after(before, verdicts(before))
    watch = watch.after(replace(after, time=NOW - 3), verdicts(after)).after(after, verdicts(after))
    found = outlook(after, with_cooling(verdicts(after), watch, NOW, 10.0))
    assert [each.device.index for each in found.occupied] == [2, 0, 1], "the one that cools down, too"
    assert [texts_of(each, after)[2] for each in found.occupied] == [
        "in 2h at the latest",
        "unknown",
        "in 7s",
    ]


def test_a_device_that_is_not_offered_is_not_among_those_that_may_become_free() -> None:
    assert not seen(box(FOUR[0], replace(FOUR[1], apart="integrated"))).occupied


@each_row("facts", [{"memory_used": 22 * GIB}, {"utilization": 80}, {"utilization": None}], ids=str)
def test_what_has_no_owner_is_described_as_in_the_table_of_devices(facts: dict[str, Any]) -> None:
    there = box(replace(FOUR[0], **facts))
    words = state_and_brief(verdicts(there)[KEYS[0]], NOW)
    assert occupied(there)[0][2][:3] == ("–", "–", words)


def test_hostile_words_are_neutralised() -> None:
    evil = "\x1b[2Jx\n"
    line = waiter(1, evil, job=evil)
    there = replace(box(busy(FOUR[0], job(user=evil, command=evil))), claims=(Claim(KEYS[0], evil, NOW),))
    found = seen(there, line, waiter(2, "bo"))
    texts = ["".join(each) for each in next_in_line(found, there)]
    texts += [blocking_reason(turn, there) for turn in found.turns]
    texts += [cell for each in found.occupied for cell in texts_of(each, there)]
    assert all(text.isprintable() for text in texts)


@given(
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.lists(
        st.tuples(st.integers(1, 9999), st.none() | st.frozensets(st.sampled_from([*KEYS, "gone"]))),
        max_size=8,
    ),
)
@settings(max_examples=25, deadline=None)
def test_no_device_is_promised_to_two_who_are_next(free: list[bool], line: list[tuple[int, Any]]) -> None:
    here = box(*(device if is_free else busy(device) for device, is_free in zip(FOUR, free, strict=True)))
    waiting = [Waiter((n, ""), "ana", count, keys) for n, (count, keys) in enumerate(line)]
    found = seen(here, *waiting)
    # A waiter that can never start is promised nothing, and no other waits for it.
    able = [turn for turn in found.next if len(turn.could or ()) >= turn.waiter.count]
    promised = [device.key for turn in able for device in turn.could or ()]
    assert len(promised) == len(set(promised))
    for turn in found.turns:
        assert set(turn.free) <= set(turn.could or ()) and blocking_reason(turn, here)
        assert describe_request(turn.waiter, here)
    assert len(next_in_line(found, here)) == len(found.next)


@given(st.integers(0, 12), st.integers(1, 20), st.none() | st.integers(0, 200), st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_more_devices_could_ever_be_had_than_there_are(
    n: int, count: int, gigabytes: int | None, in_use: bool
) -> None:
    devices = [busy(gpu(place)) if in_use else gpu(place) for place in range(n)]
    asked = Constraints(count, min_free=None if gigabytes is None else gigabytes * GIB)
    can = most_ever(box(*devices), asked)
    assert 0 <= can <= n and can == (n if (gigabytes or 0) <= 80 else 0)


def test_a_request_that_can_never_start_is_before_nobody() -> None:
    line = waiter(1, "ana", 9), waiter(2, "bo", 8), waiter(3, "kim", 2)
    found = seen(TWO_BUSY, *line)
    assert [(turn.waiter.user, turn.ahead) for turn in found.turns] == [
        ("kim", 0),
        ("ana", 0),
        ("bo", 0),
    ]
    assert found.next == found.turns


def test_a_request_for_more_memory_than_a_device_has_is_before_nobody_and_is_said_never_to_start() -> None:
    large = waiter(1, "ana", min_free=1 << 60)
    found = seen(TWO_BUSY, large, waiter(2, "bo", 3, min_free=80 * GIB))
    assert [(turn.waiter.user, turn.ahead) for turn in found.turns] == [("bo", 0), ("ana", 0)]
    assert "it can never start" in blocking_reason(found.turns[1], TWO_BUSY)
    unknown = box(*(replace(device, memory_total=None) for device in FOUR))
    assert seen(unknown, large, waiter(2, "bo")).turns[1].ahead == 1, "its memory may be as large"


def test_the_cost_of_a_long_line_is_that_of_its_different_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours may draw hundreds of tickets: to compare each with each took 0.4 s of every key press."""
    asked, real = [], queue_outlook.would_do
    monkeypatch.setattr(queue_outlook, "would_do", lambda *what: asked.append(what) or real(*what))
    found = seen(TWO_BUSY, *(waiter(place, "ana", 1 + place % 2) for place in range(500)))
    assert [turn.ahead for turn in found.turns] == [*range(500)]
    assert len(asked) <= 2 * len(TWO_BUSY.devices)
