"""A device that somebody holds without using it: the table, the users and the queue give one answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.idleness import is_long, unused_by
from gputui.choosing.people import people
from gputui.choosing.rules import Rules
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.tui.app_state import AppState
from unit.builders import GIB, NOW, box, busy, gpu, job

AFTER = Rules().idle
AGES = st.sampled_from([None, 5.0, AFTER - 1, AFTER, AFTER + 1, 7200.0])
USERS = st.sampled_from([None, "ana", "bo"])


def ago(seconds: float | None) -> float | None:
    return None if seconds is None else NOW - seconds


@settings(max_examples=60)
@given(
    st.lists(st.tuples(USERS, AGES), min_size=1, max_size=3),
    st.none() | st.tuples(st.sampled_from(["ana", "bo"]), AGES),
    AGES,
)
def test_the_table_the_users_and_the_queue_never_differ(
    started: list[tuple[str | None, float | None]],
    claim: tuple[str, float | None] | None,
    at_zero: float | None,
) -> None:
    jobs = [
        job(pid, user=user, started=ago(age), memory=(9 - pid) * GIB)
        for pid, (user, age) in enumerate(started, 1)
    ]
    device = replace(busy(gpu(0), *jobs), utilization=0)
    claims = () if claim is None else (Claim(device.key, claim[0], ago(claim[1])),)
    snapshot = replace(box(device), claims=claims)
    state = AppState({}).with_snapshot(snapshot)
    since = {} if at_zero is None else {device.key: NOW - at_zero}
    state = replace(state, watch=replace(state.watch, idle_since=since))

    user = started[0][0]
    (person,) = (each for each in people(snapshot, state.idle) if each.user == user)
    (occupied,) = state.outlook.occupied
    shown = state.idle_for(device.key)
    assert bool(person.idle) == occupied.hoarded == (shown is not None)
    assert shown is None or shown == person.idle[0].idle == occupied.unused


BO = replace(busy(gpu(0), job(1, user="bo", started=NOW - 300)), utilization=0)


@pytest.mark.parametrize(
    ("device", "claim", "idle", "unused"),
    [
        (BO, None, 60.0, 60.0),
        (BO, None, 9000.0, 300.0),
        (BO, None, None, None),
        (BO, Claim(BO.key, "bo", NOW - 900), 9000.0, 900.0),
        (BO, Claim(BO.key, "ana", NOW - 900), 9000.0, 300.0),
        (BO, Claim(BO.key, "bo"), 9000.0, 300.0),
        (gpu(0), Claim(BO.key, "bo", NOW - 900), 9000.0, 900.0),
        (gpu(0), Claim(BO.key, "bo"), 9000.0, None),
        (gpu(0), None, 9000.0, None),
        (busy(gpu(0), job(1, user="bo", started=NOW + 5)), None, 60.0, 0.0),
        (busy(gpu(0), job(1, user="bo", started=NOW - 5, kind="graphics")), None, 60.0, None),
    ],
)
def test_the_time_before_a_user_came_does_not_count(
    device: Device, claim: Claim | None, idle: float | None, unused: float | None
) -> None:
    snapshot = replace(box(device), claims=() if claim is None else (claim,))
    assert unused_by("bo", device, idle, snapshot) == unused


def test_long_is_the_limit_of_the_rules_and_more() -> None:
    assert [is_long(each, 60.0) for each in (None, 59.9, 60.0, 61.0)] == [False, False, True, True]
