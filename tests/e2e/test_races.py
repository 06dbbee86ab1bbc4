"""kill -9 at any moment, of any process: no lease outlives its job's processes, and none is lost before.

The kernel's record counts: a process that has a record open (/proc/PID/fd) holds the device, and no other
does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI
from gputui.allocating.queue import waiters
from gputui.inventory.job import Job
from gputui.jobs.stop import stop
from gputui.jobs.store import all_jobs
from gputui.jobs.wait import refreshed
from simnvml import SimulatedNvml
from unit.claims_support import Box, Forked, box_at, opened_by, until

pytestmark = pytest.mark.e2e

FAMILY = "sleep 1000 & sleep 1000 & (sleep 1000 & exec sleep 1000) & wait"
"""A job of six processes, some of which outlive others."""

_elsewhere: frozenset[str] = frozenset()
"""Processes from before the box: reading all of them, hundreds of times, took most of the time."""


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    global _elsewhere
    _elsewhere = frozenset(os.listdir("/proc"))  # noqa: PTH208
    with box_at(tmp_path, simulated_nvml) as made:
        yield made
        for job in all_jobs(made.environ):
            stop(job, signal.SIGKILL, 0)
        _kill_all(made)


def _holders(box: Box) -> dict[int, set[int]]:
    """The processes that have each device's lock open, by the device's index."""
    found: dict[int, set[int]] = {}
    folder = str(box.claims_folder)
    pids = {name for name in os.listdir("/proc") if name.isdigit()} - _elsewhere  # noqa: PTH208
    for pid in map(int, pids):
        for path in opened_by(pid).values():
            if path.startswith(folder) and path.endswith(".claim"):
                place = box.uuids.index(Path(path).name.partition("@")[0])
                found.setdefault(place, set()).add(pid)
    return found


def _processes(box: Box) -> set[int]:
    return set().union(*_holders(box).values())


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_all(box: Box) -> None:
    """Kill until none is left: a shell may fork once more between the listing and the killing."""

    def none_left() -> bool:
        for pid in (left := _processes(box)):
            _kill(pid)
        return not left

    until(none_left)


def _gone(box: Box, *pids: int) -> None:
    until(lambda: not _processes(box) & set(pids))


def _kill_one_by_one(box: Box, chance: random.Random) -> None:
    """Kill the holders in random order; their devices stay claimed as long as one of them is left."""
    while holders := _agreed(box):
        victim = chance.choice(sorted(set().union(*holders.values())))
        _kill(victim)
        _gone(box, victim)
    assert box.claimed() == []


def _agreed(box: Box) -> dict[int, set[int]]:
    """The holders, once they match the claimed devices: the reading of /proc misses a process that forks and
    ends meanwhile."""
    found: list[dict[int, set[int]]] = []
    until(lambda: found.append(_holders(box)) or box.claimed() == sorted(found[-1]))
    return found[-1]


def _seconds_to_begin(box: Box, *words: str) -> float:
    """The seconds that a launch takes here until its command has begun."""
    began = time.monotonic()
    call = box.start("run", "-q", *words, "--", "sh", "-c", FAMILY)
    until(lambda: len(_processes(box)) > 3)
    seconds = time.monotonic() - began
    until(lambda: call.over or "--detach" not in words)
    _kill_all(box)
    until(lambda: box.claimed() == [])
    return seconds


def test_a_launcher_that_is_killed_at_any_moment_leaves_a_whole_job_or_no_claim(box: Box) -> None:
    chance, seen = random.Random(23), set[bool]()
    usual = _seconds_to_begin(box, "-n", "8")
    for attempt in range(60):
        launcher = box.start("run", "-q", "-n", str(chance.randint(1, 8)), "--", "sh", "-c", FAMILY)
        launcher.ends_within(chance.uniform(0, 2 * usual))
        launcher.kill()
        begun = bool(_processes(box))
        seen.add(begun)
        _kill_one_by_one(box, chance)
        # Later if it had not begun, sooner if it had: the load of the machine changes.
        usual *= 0.8 if begun else 1.4
        if attempt >= 13 and len(seen) == 2:
            break
    assert seen == {False, True}, "some were killed before they had begun, and some after"


def test_who_starts_a_job_may_be_killed_at_any_moment(box: Box) -> None:
    """The job has its devices from its first moment on, or there is no job."""
    chance, begun = random.Random(7), 0
    usual = _seconds_to_begin(box, "-n", "3", "--detach")
    for _ in range(8):
        starter = box.start("run", "-q", "-n", "3", "--detach", "--", "sh", "-c", FAMILY)
        starter.ends_within(chance.uniform(0, 2 * usual))
        starter.kill()
        jobs = [_settled(job) for job in all_jobs(box.environ)]
        running = [job for job in jobs if job.state == "running"]
        usual *= 0.8 if running else 1.4
        if running:
            begun += 1
            assert running[0].command is not None
            until(lambda: box.claimed() == [0, 1, 2])
        _kill_one_by_one(box, chance)
        for job in running:
            until(lambda job=job: refreshed(job).over)  # type: ignore[misc]
    assert begun > 0


def _settled(job: Job) -> Job:
    until(lambda: refreshed(job).state != "starting")
    return refreshed(job)


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["supervisor", "command"])
def test_a_jobs_devices_are_held_until_its_last_process_is_killed(box: Box, first: str) -> None:
    chance = random.Random(first)
    for _ in range(2):
        done = subprocess.run(
            [*GPUTUI, "run", "-q", "-n", "2", "--detach", "--", "sh", "-c", FAMILY],
            env=box.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        (job,) = (job for job in all_jobs(box.environ) if job.id == done.stdout.strip())
        until(lambda: len(_processes(box)) == 5)
        victim = job.supervisor if first == "supervisor" else job.command
        assert victim is not None
        _kill(victim.pid)
        _kill_one_by_one(box, chance)


def test_waiters_that_are_killed_at_any_moment_keep_neither_a_place_nor_a_device(box: Box) -> None:
    chance = random.Random(3)
    other = box.hold(0)
    for round_ in range(6):
        words = ("run", "-q", "-n", "8", "--wait", "--window", "0", "--", "sh", "-c", FAMILY)
        calls = [box.start(*words) for _ in range(3)]
        if round_ % 2:
            calls[0].ends_within(chance.uniform(0, 0.1))
            other.kill()
        for call in chance.sample(calls, 3):
            call.ends_within(chance.uniform(0, 0.04))
            call.kill()
        _kill_one_by_one(box, chance) if other.over else None
        assert waiters(box.environ) == ()
        if other.over:
            other = box.hold(0)
    assert box.claimed() == [0]


@pytest.mark.thorough
def test_a_crowd_that_is_killed_by_chance_never_shares_a_device(box: Box) -> None:
    """Launches start and are killed; at every moment each device belongs to one job."""
    chance, running = random.Random(99), list[Forked]()
    for _ in range(30):
        running.append(box.start("run", "-q", "-n", str(chance.choice((1, 2, 3))), "--", "sleep", "1000"))
        if len(running) > 6:
            running.pop(chance.randrange(len(running))).kill()
        # A launch that is being refused has a lock's file open too, for that moment; a claim has one holder.
        found = box.claims()
        assert len({claim.key for claim in found}) == len(found)
        assert len({claim.pid for claim in found}) <= len(running)
    for call in running:
        call.kill()
    assert box.claimed() == [] and _holders(box) == {}
