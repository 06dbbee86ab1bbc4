"""The panels beside the table: that they agree with it, follow its filter, and are hidden only in sight."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest

from gputui.inventory.claim import Claim
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from tui.support import Session
from tui.support import session as moving
from unit.builders import NOW, box, busy, gpu

session = functools.partial(moving, interval=1000)


def everything(s: Session) -> str:
    return "\n".join(line for part in ("#table", "#history", "#lists", "#bottom") for line in s.texts(part))


def show(s: Session, snapshot: Snapshot) -> None:
    """Another reading of the box."""
    s.main.set_app_state(s.main.app_state.with_snapshot(snapshot))


# One moment


@pytest.mark.parametrize("later", [0.0, 0.4, 0.6, 3.5, 7.9])
async def test_all_parts_count_the_same_seconds_of_a_device_that_cools_down(later: float) -> None:
    before = replace(box(busy(gpu(0)), gpu(1), time=NOW - 2), waiters=(Waiter((1, ""), "ana", 2, since=NOW),))
    async with session(before, size=(130, 40)) as s:
        # (Something that does not change in between must not keep what does.)
        for moment in (NOW, NOW + later):
            show(s, replace(before, devices=(gpu(0), gpu(1)), time=moment))
        passed = re.findall(r"cooling down \((\d+)/10 s\)", everything(s))
        left = re.findall(r"counts as free in (\d+) s", everything(s))
        assert len(passed) == 2 and len(left) == 1, everything(s)
        assert {int(each) for each in passed} == {10 - int(left[0])} == {int(later)}


async def test_the_queue_and_the_table_tell_the_same_age_of_a_claim() -> None:
    there = replace(box(gpu(0), gpu(1)), claims=(Claim(gpu(0).key, "lee", NOW - 10),))
    async with session(there, size=(130, 40)) as s:
        for second in range(1, 4):
            show(s, replace(there, time=NOW + second))
            ages = re.findall(r"(?:by lee|claimed) (\d+)s", everything(s))
            assert len(ages) == 3 and {*ages} == {str(10 + second)}, everything(s)
