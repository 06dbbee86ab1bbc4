"""The thread that reads a source: its pace, the parts that it requests, and an exit that no call delays."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator

import pytest

from gputui.inventory.snapshot import Snapshot
from gputui.sources import sampler as module
from gputui.sources.sampler import (
    CHANGES_EVERY,
    HOST_EVERY,
    PROCESSES_EVERY,
    SENSORS_EVERY,
    UNFOCUSED_EVERY,
    Sampler,
    next_turn,
)
from gputui.sources.source import NoSourceError, Want
from table_tests import each_row
from unit.builders import box, gpu

PATIENCE = 20.0
"""Seconds after which a test stops waiting for a thread on a slow machine."""
NEVER = 3600.0
"""An interval that no test reaches."""
SOON = 1.0
"""The usual interval: much shorter than the pace without focus."""

BOX = box(gpu(0))
LAPTOP = box(gpu(0, name="NVIDIA GeForce RTX 4070 Laptop GPU"))


class Clock:
    """Replaces the module `time` in the sampler."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Stepped:
    """A source each reading of which waits for the test: `wanted` returns the requested parts, `answer` sets
    the result."""

    label = "stepped"

    def __init__(self) -> None:
        self.asked: queue.Queue[Want] = queue.Queue()
        self._answers: queue.Queue[Snapshot | Exception] = queue.Queue()
        self.inside = threading.Event()
        self.closed = threading.Semaphore(0)
        self.closed_inside = False
        self.among: Collection[str] | None = None

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.inside.set()
        self.among = among
        self.asked.put(want)
        answer = self._answers.get(timeout=PATIENCE)
        self.inside.clear()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed_inside = self.closed_inside or self.inside.is_set()
        self.closed.release()

    def wanted(self) -> Want:
        """The parts that the current reading requests."""
        return self.asked.get(timeout=PATIENCE)

    def answer(self, answer: Snapshot | Exception = BOX) -> None:
        self._answers.put(answer)

    def turn(self, answer: Snapshot | Exception = BOX) -> Want:
        """Complete one whole reading; return the parts that it requested."""
        want = self.wanted()
        self.answer(answer)
        return want

    def was_closed(self) -> bool:
        return self.closed.acquire(timeout=PATIENCE)


class Desk:
    """A sampler on a stepped source, and the results that it has delivered."""

    def __init__(self, interval: float) -> None:
        self.source = Stepped()
        self.news: queue.Queue[tuple[Snapshot | Exception, float]] = queue.Queue()
        self.sampler = Sampler(self.source, lambda *news: self.news.put(news), interval)

    def told(self) -> Snapshot | Exception:
        return self.news.get(timeout=PATIENCE)[0]

    def settle(self) -> None:
        """Complete the first two readings: the picture, and the links."""
        for _ in range(2):
            self.source.turn()
            self.told()


@pytest.fixture
def desk() -> Iterator[Callable[[float], Desk]]:
    made: list[Desk] = []

    def start(interval: float = NEVER) -> Desk:
        made.append(Desk(interval))
        made[-1].sampler.start()
        return made[-1]

    yield start
    for each in made:
        each.sampler.stop(patience=0)
        each.source.answer()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


Start = Callable[..., Desk]


# The requested parts, and their times.


def test_the_first_picture_does_not_wait_for_the_links(desk: Start) -> None:
    first = desk().source.turn()
    assert Want.LOAD in first and Want.PROCESSES in first and Want.NAMES in first
    assert Want.LINKS not in first


def test_the_first_reading_brings_owners_only_where_verdicts_depend_on_them() -> None:
    for at_once in (False, True):
        source = Stepped()
        sampler = Sampler(source, lambda *news: None, NEVER, owners_at_once=at_once)
        sampler.start()
        assert (Want.OWNERS in source.turn()) == at_once
        sampler.stop(patience=0)
        source.answer()


@pytest.mark.usefixtures("clock")
def test_the_links_come_at_once_after_the_first_picture_and_once_only(desk: Start) -> None:
    start = desk(0.0)
    wants = [start.source.turn() for _ in range(6)]
    assert [Want.LINKS in want for want in wants] == [False, True, False, False, False, False]


def test_load_is_read_in_every_turn_and_the_costly_parts_at_their_own_pace(desk: Start, clock: Clock) -> None:
    start = desk(0.0)
    start.source.turn()
    wants: list[Want] = []
    for _ in range(21):
        wants.append(start.source.wanted())
        clock.now += 1
        start.source.answer()
    assert all(Want.LOAD in want and Want.NAMES in want for want in wants)
    seconds = range(21)
    assert [s for s in seconds if Want.PROCESSES in wants[s]] == list(range(0, 21, PROCESSES_EVERY))
    assert [s for s in seconds if Want.CHANGED_PROCESSES in wants[s]] == list(range(0, 21, CHANGES_EVERY))
    assert all(Want.OWNERS in want for want in wants if Want.CHANGED_PROCESSES in want)
    assert [s for s in seconds if Want.HOST in wants[s]] == list(range(0, 21, HOST_EVERY))
    assert [s for s in seconds if Want.SENSORS in wants[s]] == list(range(0, 21, SENSORS_EVERY))


def test_a_turn_that_comes_a_little_early_is_on_time(desk: Start, clock: Clock) -> None:
    start = desk(0.0)
    start.source.turn()
    wants: list[Want] = []
    for _ in range(9):
        wants.append(start.source.wanted())
        clock.now += 0.99
        start.source.answer()
    assert [Want.CHANGED_PROCESSES in want for want in wants] == [True, False] * 4 + [True]


@pytest.mark.usefixtures("clock")
def test_the_cheapest_reading_is_load_names_and_the_queue(desk: Start) -> None:
    start = desk(0.0)
    wants = [start.source.turn() for _ in range(4)]
    assert wants[-1] == Want.LOAD | Want.NAMES | Want.QUEUE


# Parts that are not on the screen are not read.


def test_details_are_read_at_once_of_what_is_looked_at_and_forgotten_once(desk: Start) -> None:
    start = desk()
    start.settle()
    start.sampler.look_at(["GPU-a"], every=0.1)
    want = start.source.wanted()
    assert Want.DETAILS in want and start.source.among == {"GPU-a"}
    start.source.answer()
    start.told()
    start.sampler.ask()
    assert Want.DETAILS in start.source.turn()
    start.told()
    start.sampler.look_at([])
    want = start.source.wanted()
    assert Want.DETAILS in want and start.source.among == set()
    start.source.answer()
    start.told()
    start.sampler.ask()
    assert Want.DETAILS not in start.source.turn()
    assert start.source.among is None


def test_a_page_has_the_details_a_second_time_before_the_next_turn(desk: Start) -> None:
    """The figures that are rates need two readings, and the interval may be long."""
    start = desk(NEVER)
    start.settle()
    start.sampler.look_at(["GPU-a"])
    for _ in range(2):
        want = start.source.wanted()
        assert Want.DETAILS in want and start.source.among == {"GPU-a"}
        start.source.answer()
        start.told()
    start.sampler.ask()
    assert Want.DETAILS in start.source.turn(), "then at the pace of the interval"


def test_who_only_glances_has_the_details_read_less_often(clock: Clock) -> None:
    start = Desk(0.0)
    start.sampler.look_at(["GPU-a"], every=2.0)
    start.sampler.start()
    start.source.turn()
    brought = []
    for _ in range(4):
        brought.append(Want.DETAILS in start.source.wanted())
        clock.now += 1
        start.source.answer()
    start.sampler.stop(patience=0)
    start.source.answer()
    assert brought == [True, False, True, False]


def test_looking_at_the_same_again_is_no_reason_to_read(desk: Start) -> None:
    start = desk()
    start.settle()
    start.sampler.look_at(())
    start.sampler.look_at({"GPU-a"}, every=0.1)
    start.source.turn()
    start.told()
    start.sampler.look_at(["GPU-a"], every=0.1)
    start.sampler.ask()
    start.source.turn()
    start.told()
    assert start.source.asked.empty()


def test_the_first_picture_waits_for_no_details() -> None:
    start = Desk(NEVER)
    start.sampler.look_at(["GPU-a"], every=0.1)
    start.sampler.start()
    assert not start.source.turn() & (Want.DETAILS | Want.HOST)
    assert Want.DETAILS in start.source.turn()
    assert start.sampler.stop(PATIENCE)


# Requests.


def test_asking_reads_at_once_what_a_verdict_needs(desk: Start) -> None:
    start = desk()
    start.settle()
    start.sampler.ask()
    want = start.source.turn()
    assert Want.LOAD in want and Want.PROCESSES in want
    assert start.told() == BOX


def test_asking_during_a_reading_reads_once_more(desk: Start) -> None:
    start = desk()
    start.settle()
    start.sampler.ask()
    start.source.wanted()
    start.sampler.ask()
    start.sampler.ask()
    start.source.answer()
    assert Want.PROCESSES in start.source.turn()
    start.told()
    start.told()
    assert start.source.asked.empty()


def test_nobody_asks_and_nothing_is_read(desk: Start) -> None:
    start = desk()
    start.settle()
    assert start.news.empty() and not start.source.inside.is_set()


# Delivered results.


def test_every_snapshot_is_handed_over_with_the_moment_its_reading_began(desk: Start, clock: Clock) -> None:
    start = desk(0.0)
    start.source.wanted()
    clock.now += 3
    start.source.answer()
    snapshot, began = start.news.get(timeout=PATIENCE)
    assert (snapshot, began) == (BOX, 1_000.0)


def test_how_old_the_last_good_reading_is(desk: Start, clock: Clock) -> None:
    start = desk()
    assert start.sampler.age is None
    start.settle()
    assert start.sampler.age == 0
    clock.now += 4
    assert start.sampler.age == 4


@pytest.mark.usefixtures("clock")
def test_a_lost_source_is_handed_over_and_reading_goes_on(desk: Start) -> None:
    start = desk(0.0)
    gone = NoSourceError("the driver is not loaded")
    start.source.turn()
    assert start.told() == BOX
    start.source.turn(gone)
    assert start.told() is gone
    start.source.turn()
    assert start.told() == BOX


def test_a_lost_source_is_not_a_good_reading(desk: Start, clock: Clock) -> None:
    start = desk()
    start.settle()
    clock.now += 7
    start.sampler.ask()
    start.source.turn(NoSourceError("gone"))
    start.told()
    assert start.sampler.age == 7


@pytest.mark.usefixtures("clock")
def test_a_source_lost_from_the_beginning_is_told_and_tried_again(desk: Start) -> None:
    start = desk(0.0)
    start.source.turn(NoSourceError("gone"))
    assert isinstance(start.told(), NoSourceError)
    assert start.sampler.age is None
    assert Want.LINKS not in start.source.turn()
    assert start.told() == BOX


def test_what_a_failed_reading_did_not_bring_is_asked_for_again(desk: Start, clock: Clock) -> None:
    start = desk(0.0)
    start.source.turn()
    clock.now += 10
    assert Want.PROCESSES in start.source.turn(NoSourceError("gone"))
    assert Want.PROCESSES in start.source.turn()


def test_a_defect_is_handed_over_and_ends_the_reading(desk: Start) -> None:
    start = desk()
    defect = ZeroDivisionError("a defect")
    start.source.turn(defect)
    assert start.told() is defect
    assert start.source.was_closed()
    assert start.sampler.stop(PATIENCE)
    assert start.source.asked.empty()


# Opening.


class Closed(Stepped):
    """A source that opens, or fails, when a test says so."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.may = threading.Event()
        self.error = error

    def open(self) -> None:
        self.may.wait(PATIENCE)
        if self.error is not None:
            raise self.error


def test_a_source_that_hangs_while_it_opens_holds_only_the_thread(clock: Clock) -> None:
    source = Closed()
    sampler = Sampler(source, lambda *news: None, NEVER)
    sampler.start()
    assert not sampler.wait_until_open(0)
    while not sampler.silent:
        clock.now += 1
    source.may.set()
    assert sampler.wait_until_open(PATIENCE)
    source.turn()
    assert Want.TOPOLOGY in source.wanted()
    sampler.stop(patience=0)
    source.answer()


def test_a_source_that_cannot_be_opened_says_why_to_whoever_waits() -> None:
    source = Closed(NoSourceError("no driver"))
    source.may.set()
    sampler = Sampler(source, lambda *news: None, NEVER)
    sampler.start()
    with pytest.raises(NoSourceError):
        sampler.wait_until_open(PATIENCE)
    sampler.stop(patience=0)
    source.answer()


# Stopping.


def test_stopping_closes_the_source(desk: Start) -> None:
    start = desk()
    start.settle()
    assert start.sampler.stop(PATIENCE)
    assert start.source.was_closed() and not start.source.closed_inside


def test_a_hung_call_does_not_delay_the_end_and_nothing_is_closed_under_it(desk: Start) -> None:
    start = desk()
    start.source.wanted()
    began = time.monotonic()
    assert not start.sampler.stop(patience=0.05)
    assert time.monotonic() - began < PATIENCE / 4
    assert not start.source.closed.acquire(blocking=False)


def test_a_hung_call_that_comes_back_after_the_end_tells_nothing_and_closes_then(desk: Start) -> None:
    start = desk()
    start.source.wanted()
    assert not start.sampler.stop(patience=0)
    start.source.answer()
    assert start.source.was_closed() and not start.source.closed_inside
    assert start.news.empty()


def test_the_thread_never_holds_the_process_back(desk: Start) -> None:
    start = desk()
    start.source.wanted()
    threads = [thread for thread in threading.enumerate() if thread.name == "gputui sampler"]
    assert threads and all(thread.daemon for thread in threads)


def test_stopping_a_sampler_that_was_never_started_is_harmless() -> None:
    assert Desk(NEVER).sampler.stop()


def test_stopping_twice_is_harmless(desk: Start) -> None:
    start = desk()
    start.settle()
    assert start.sampler.stop(PATIENCE) and start.sampler.stop(PATIENCE)


# Focus.


@each_row(
    ("interval", "focused", "pace"),
    [(1.0, True, 1.0), (1.0, False, UNFOCUSED_EVERY), (60.0, True, 60.0), (60.0, False, 60.0)],
)
def test_the_pace_is_slower_while_nobody_looks(interval: float, focused: bool, pace: float) -> None:
    sampler = Desk(interval).sampler
    sampler.focus(focused)
    assert sampler.pace == pace


@each_row(
    ("took", "after"),
    # One second apart; after a long reading, the rest is as long as the reading, and at most one second.
    [(0.0, 1.0), (0.01, 1.0), (0.4, 1.0), (0.5, 1.0), (0.75, 1.5), (1.0, 2.0), (8.0, 9.0)],
)
def test_readings_begin_as_far_apart_as_was_asked_for(took: float, after: float) -> None:
    assert next_turn(100.0, 100.0 + took, 1.0) == pytest.approx(100.0 + after)


def test_coming_back_reads_at_once(desk: Start) -> None:
    start = desk(SOON)
    start.settle()
    start.sampler.focus(False)
    start.sampler.ask()
    start.source.turn()
    start.told()
    began = time.monotonic()
    start.sampler.focus(True)
    assert Want.LOAD in start.source.turn()
    assert time.monotonic() - began < UNFOCUSED_EVERY / 2


def test_looking_on_is_no_reason_to_read(desk: Start) -> None:
    start = desk()
    start.settle()
    start.sampler.focus(True)
    start.sampler.ask()
    start.source.turn()
    start.told()
    assert start.source.asked.empty()


def _asleep(start: Desk) -> None:
    """Bring the sampler into the state of an unused laptop: after one reading, its GPU may sleep."""
    for _ in range(2):
        start.source.turn(LAPTOP)
        start.told()
    start.sampler.focus(False)
    start.sampler.ask()
    start.source.turn(LAPTOP)
    start.told()
    assert start.source.was_closed()


def test_a_laptops_gpu_may_sleep_while_nobody_looks(desk: Start) -> None:
    start = desk(SOON)
    _asleep(start)
    start.sampler.focus(True)
    assert Want.LINKS in start.source.turn(LAPTOP)


def test_a_laptop_that_was_let_go_is_read_whole_when_somebody_looks_again(desk: Start) -> None:
    start = desk(SOON)
    _asleep(start)
    start.sampler.focus(True)
    want = start.source.turn(LAPTOP)
    assert Want.PROCESSES in want and Want.SENSORS in want


@pytest.mark.parametrize(
    "snapshot", [BOX, box(), box(gpu(0, name="NVIDIA RTX A2000 Laptop GPU"), gpu(1)), box(gpu(0, name=None))]
)
def test_any_other_box_stays_open(desk: Start, snapshot: Snapshot) -> None:
    start = desk(SOON)
    start.settle()
    start.sampler.focus(False)
    start.sampler.ask()
    start.source.turn(snapshot)
    start.told()
    start.sampler.focus(True)
    start.source.wanted()
    assert not start.source.closed.acquire(blocking=False)
