"""A device that somebody holds without using it: the table, the users and the queue give one answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.idleness import is_long, unused_by
from gputui.choosing.people import people
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import UsedBy, verdicts
from gputui.choosing.verdict_text import brief
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.sources.hosts.channel import BoxState
from gputui.sources.hosts.reading import Reading
from gputui.tui.app_state import AppState
from gputui.tui.views.nodes import box_node
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, job, recording
from unit.calling import Call

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
    verdict = state.verdicts[device.key]
    assert bool(person.idle) == occupied.hoarded == (verdict.shown == "idle")
    if isinstance(verdict.cause, UsedBy) and verdict.cause.idle_since is not None:
        (holding,) = person.holdings
        assert holding.idle == occupied.unused == pytest.approx(NOW - verdict.cause.idle_since, abs=0.5)
        assert verdict.cause.idle == bool(person.idle)


def test_what_a_snapshot_knows_of_the_past_is_said_by_the_first_verdict() -> None:
    started = job(1, user="bo", started=NOW - 900, memory=GIB)
    device = replace(busy(gpu(0), started), utilization=0, idle_since=NOW - 720)
    snapshot = box(device)
    for judged in (verdicts(snapshot), AppState({}).with_snapshot(snapshot).verdicts):
        assert (judged[device.key].state, judged[device.key].shown) == ("busy", "idle")
        assert brief(judged[device.key], NOW) == "bo train.py, idle 12m"
    assert verdicts(snapshot, Rules(idle=721.0))[device.key].shown == "busy"
    state = BoxState("gpu1", "live", Reading("gpu1", snapshot, {}), None, NOW)
    (row,) = box_node(state, verdicts(snapshot), 0, True, lambda alias, key: None).below
    assert "◔ bo train.py, idle 12m" in "".join(text for text, _ in row.line)


def watched(*loads: int | None, started: float = NOW - 900, every: float = 20.0) -> AppState:
    """The screen after readings of bo's device at these loads, the last one at `NOW`."""
    process, state = job(1, user="bo", started=started, memory=GIB), AppState({})
    for place, load in enumerate(reversed(loads)):
        device = replace(busy(gpu(0), process), utilization=load)
        film = box(device, time=NOW - every * (len(loads) - 1 - place))
        state = state.with_snapshot(film)
    return state


def words(state: AppState) -> str:
    return brief(state.verdicts[gpu(0).key], NOW)


def test_the_time_at_zero_is_said_from_the_first_minute_and_the_device_stays_busy() -> None:
    assert "0%" not in words(watched(*(0, 0, 0))) and "train.py" in words(watched(*(0, 0, 0)))
    quiet = watched(*[0] * 10, 50)
    assert quiet.verdicts[gpu(0).key].shown == "busy"
    assert words(quiet) == "bo train.py, 0% 3m"
    assert words(watched(*[0] * 31, 50)) == "bo train.py, idle 10m"


def test_what_began_before_it_was_observed_is_at_least_that_long() -> None:
    assert "≥3m" in words(watched(*[0] * 10)), "bo came before the first reading"
    assert "≥3m" in words(watched(*[0] * 10, None)), "before, the load was not known"
    assert "≥" not in words(watched(*[0] * 10, started=NOW - 170)), "bo came later"
    assert "≥" not in words(watched(*[0] * 10, 50))
    paused = watched(0, 0, 50, every=100.0)
    assert paused.idle == {gpu(0).key: 0.0}, "between two readings nobody knows"
    assert words(watched(*[0] * 31)) == "bo train.py, idle ≥10m"


def test_the_users_on_the_command_line_have_the_same_words(tmp_path: Path, call: Call) -> None:
    process = job(1, user="bo", started=NOW - 900, memory=GIB)
    device = replace(busy(gpu(0), process), utilization=0, idle_since=NOW - 180)
    file = recording(tmp_path, box(device))
    assert "0% 3m" in call("people", "--from", file).out
    assert "0% 3m" in call("ls", "--from", file).out


def test_the_command_line_calls_an_idle_holder_idle_and_names_it_first(call: Call) -> None:
    (row,) = (line for line in call("ls", "--demo", "full").out.splitlines() if "◔" in line)
    assert row.split()[0] == "2" and "◔ idle" in row and "bo" in row
    first = call("people", "--demo", "full").out.splitlines()[1]
    assert first.startswith("bo") and "2 idle " in first
    (held,) = (line for line in call("queue", "--demo").out.splitlines() if line.startswith("6  "))
    assert "idle" in held


BO = replace(busy(gpu(0), job(1, user="bo", started=NOW - 300)), utilization=0)


@each_row(
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
