"""Waiting with a clock of the test: until devices were free for the whole window, in line; progress."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.allocating import waiting_loop
from gputui.allocating.queue import Ticket
from gputui.allocating.waiting_loop import Progress, TooLongError, Wait
from gputui.choosing.pick import Constraints
from gputui.choosing.queue_outlook import Turn
from gputui.choosing.queue_text import blocking_reason
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.cli.allocation_listener import AllocationListener
from gputui.inventory.claim import Claim
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from messages import numbers
from table_tests import each_row
from unit import builders
from unit.builders import NOW, busy, gpu, job


@pytest.fixture(autouse=True)
def work(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The cost of a look here, in seconds of CPU time: zero, unless a test sets it."""
    costs = [0.0]
    spent = itertools.count()
    monkeypatch.setattr(waiting_loop.time, "process_time", lambda: costs[0] * next(spent))
    return costs


# the window, with a clock of the test


class Film:
    """A box that changes with time, and a clock that only sleeping moves."""

    def __init__(self, *devices: Sequence[bool], start: float = 0.0) -> None:
        self.devices, self.now, self.began = devices, start, start
        self.looks: list[tuple[float, tuple[bool, ...]]] = []
        self.told: list[Progress] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += max(seconds, 1e-3)

    def free(self, place: int) -> bool:
        """Whether a device is free now; after the end of its film the last state stays."""
        film = self.devices[place]
        return film[min(int(self.now - self.began), len(film) - 1)]

    def read(self) -> Snapshot:
        states = tuple(self.free(place) for place in range(len(self.devices)))
        self.looks.append((self.now, states))
        made = (gpu(n) if free else busy(gpu(n)) for n, free in enumerate(states))
        return builders.box(*made, time=NOW + self.now)

    def wait(
        self,
        wanted: int,
        window: float,
        until: float | None = None,
        ticket: Ticket | None = None,
        **constraints: object,
    ) -> Wait:
        return Wait(
            {},
            ticket,
            lambda snapshot: Constraints(wanted, **constraints),  # type: ignore[arg-type]
            wanted,
            Rules(window=window),
            self.told.append,
            until,
            self.clock,
            self.sleep,
        )


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([0.0, 1.0, 4.0, 10.0]),
)
@settings(max_examples=40, deadline=None)
def test_what_is_given_has_been_free_at_every_look_of_the_window(
    films: list[list[bool]], wanted: int, window: float
) -> None:
    film = Film(*films)
    try:
        _, ready = film.wait(wanted, window, until=100.0).devices(film.read)
    except TooLongError:
        assert sum(states[-1] for states in films) < wanted, "these have been free for ever since"
        return
    assert len(ready) >= wanted
    end = film.looks[-1][0]
    for device in ready:
        run = [look for look in film.looks if look[0] >= end - window]
        assert all(states[device.index] for _, states in run)
        before = [at for at, states in film.looks if states[device.index]]
        assert end - min(at for at in before if at <= end - window or window == 0) >= window
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(film.looks)]
    assert all(gap <= max(1.0, window / 4) + 0.01 for gap in gaps)


def test_a_device_that_is_free_for_a_moment_now_and_then_is_not_taken() -> None:
    film = Film([False] * 4 + [True] * 8 + [False] * 3 + [True] * 9 + [False])
    with pytest.raises(TooLongError):
        film.wait(1, 10.0, until=60.0).devices(film.read)
    settling = [progress for progress in film.told if progress.settling]
    assert settling and all("GPU 0 " in progress.words for progress in settling)


@pytest.mark.parametrize("patience", [0.0, 3.0, 10.0])
def test_who_is_first_gets_at_the_deadline_what_is_free_then(patience: float) -> None:
    film = Film([True], [True], [False])
    _, ready = film.wait(2, 10.0, until=patience).devices(film.read)
    assert [device.index for device in ready] == [0, 1] and patience <= film.now <= patience + 0.01
    late = Film([False] * 15 + [True])
    assert late.wait(1, 10.0, until=20.0).devices(late.read)[1] and late.now == pytest.approx(20.0, abs=0.01)


def test_what_could_not_be_had_at_the_deadline_is_not_tried_again() -> None:
    film = Film([True])
    wait = film.wait(1, 10.0, until=3.0)
    wait.devices(film.read)
    with pytest.raises(TooLongError):
        wait.devices(film.read)


def test_who_is_not_first_at_the_deadline_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    film = Film([True])
    wait = film.wait(1, 10.0, until=3.0)
    monkeypatch.setattr(wait, "_ahead", lambda: (Waiter((1, "a"), "ana", 1),))
    monkeypatch.setattr(waiting_loop, "is_waiting", lambda waiter: True)
    with pytest.raises(TooLongError):
        wait.devices(film.read)
    assert film.now == pytest.approx(3.0, abs=0.01)


def test_the_state_that_only_the_screen_gives_is_not_claimed_of_what_is_free_and_still_watched() -> None:
    film = Film([True], [True], [False])
    film.wait(2, 10.0).devices(film.read)
    words = film.told[0].words
    assert "GPUs 0 and 1 are free" in words and "10 s" in words
    assert "cooling" not in words and "0 free" not in words


@pytest.mark.parametrize(("until", "sooner"), [(None, False), (1.0, True), (60.0, False)])
def test_where_the_wait_may_end_before_the_window_that_is_said(until: float | None, sooner: bool) -> None:
    """At its end, devices that are free then are enough."""
    film = Film([True])
    film.wait(1, 10.0, until=until).devices(film.read)
    assert ("wait is over" in film.told[0].words) == sooner


def test_devices_must_have_been_free_for_the_window_together() -> None:
    film = Film([True] * 30, [False] * 15 + [True])
    snapshot, ready = film.wait(2, 10.0).devices(film.read)
    assert len(ready) == 2 and 25 <= film.now <= 28 and snapshot.time == NOW + film.now


def test_a_device_that_does_not_do_counts_from_when_it_does() -> None:
    """The requested free memory is a condition like any other, for the whole window."""
    film = Film([True])
    full, empty = gpu(0, memory_free=1), gpu(0)

    def read() -> Snapshot:
        return builders.box(full if film.now < 20 else empty, time=NOW)

    film.wait(1, 10.0, min_free=10).devices(read)
    assert film.now >= 30


def test_the_window_is_not_shortened_by_setting_the_clock_of_the_system() -> None:
    film = Film([True])

    def read() -> Snapshot:
        return builders.box(gpu(0), time=NOW + 1e6 * film.now)

    film.wait(1, 10.0).devices(read)
    assert film.now >= 10


def test_a_claimed_device_is_not_free() -> None:
    film = Film([True])

    def read() -> Snapshot:
        found = (Claim(gpu(0).key, "mira"),) if film.now < 12 else ()
        return replace(builders.box(gpu(0), time=NOW), claims=found)

    film.wait(1, 10.0).devices(read)
    assert film.now >= 22


def test_the_time_is_over_when_it_is_over() -> None:
    film = Film([False])
    with pytest.raises(TooLongError):
        film.wait(1, 10.0, until=33.25).devices(film.read)
    assert 33.25 <= film.now <= 33.5


def test_what_could_not_be_taken_after_all_is_looked_at_again_after_a_rest() -> None:
    """A hidden holder has it: that must not keep a CPU busy."""
    film = Film([True])
    wait = film.wait(1, 0.0)
    for _ in range(20):
        wait.devices(film.read)
    assert film.now >= 19 and len(film.looks) == 20


@pytest.mark.parametrize("wanted", [1, 2])
def test_however_much_a_look_costs_one_is_due_when_the_window_is_over(work: list[float], wanted: int) -> None:
    work[0] = 0.5
    film = Film([True], [False, True])
    film.wait(wanted, 10.0).devices(film.read)
    # The second look is the first one that sees the second device free.
    assert film.now == pytest.approx(10.0 if wanted == 1 else 40.0, abs=0.01)
    assert len(film.looks) == (2 if wanted == 1 else 3)


@pytest.mark.parametrize(("cost", "pause"), [(0.0003, 2.5), (0.006, 10.0), (0.5, 30.0)])
def test_the_more_a_look_costs_the_rarer_they_are(work: list[float], cost: float, pause: float) -> None:
    work[0] = cost
    film = Film([False])
    with pytest.raises(TooLongError):
        film.wait(1, 10.0, until=100.0).devices(film.read)
    *gaps, last = [later[0] - earlier[0] for earlier, later in itertools.pairwise(film.looks)]
    assert gaps == pytest.approx([pause] * len(gaps), abs=0.01) and last <= pause + 0.01
    assert pause == 30.0 or cost / pause <= 0.001, "at most every half minute, and at most 0.1 % of a CPU"


def _waiter(number: int, count: int = 1) -> Waiter:
    return Waiter((number, ""), f"user{number}", count)


def _in_line(monkeypatch: pytest.MonkeyPatch, film: Film, leaves: dict[int, float]) -> Ticket:
    """A place behind waiters that leave at these seconds."""

    def there(number: int) -> bool:
        return film.now < leaves[number]

    class Line:
        def beat(self) -> bool:
            """Do nothing: a real ticket shows by this that its waiter is alive."""
            return False

        def ahead(self, environ: object, box: Snapshot | None) -> tuple[Waiter, ...]:
            return tuple(_waiter(number) for number in leaves if there(number))

    monkeypatch.setattr(waiting_loop, "is_waiting", lambda waiter: there(waiter.place[0]))
    return Line()  # type: ignore[return-value]


def test_nobody_is_served_before_those_ahead_however_free_the_box_is(monkeypatch: pytest.MonkeyPatch) -> None:
    film = Film([True], [True])
    film.wait(1, 10.0, ticket=_in_line(monkeypatch, film, {1: 40, 2: 70})).devices(film.read)
    assert 70 <= film.now <= 71, "and at once then, as he has watched"


def test_who_was_stopped_at_the_front_takes_nothing_before_those_who_have_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped (Ctrl-Z) between two looks, a waiter took at the next look what it had seen free before."""
    film, stopped = Film([True], [False]), [False]

    class Line:
        def beat(self) -> bool:
            lost, stopped[0] = stopped[0], False
            passed.extend([1] * lost)
            return lost

        def ahead(self, environ: object, box: Snapshot | None) -> tuple[Waiter, ...]:
            return tuple(map(_waiter, passed))

    def sleep(seconds: float) -> None:
        stopped[0] = film.now == 0
        film.now += 60 if film.now == 0 else seconds

    passed: list[int] = []
    monkeypatch.setattr(waiting_loop, "is_waiting", lambda waiter: film.now < 100)
    monkeypatch.setattr(film, "sleep", sleep)
    wait = film.wait(1, 10.0, ticket=Line())  # type: ignore[arg-type]
    with pytest.raises(TooLongError):
        replace(wait, until=90.0).devices(film.read)


def test_only_those_near_the_front_look_at_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    film = Film([True], [True])
    leaves = {number: 10.0 * number for number in range(1, 21)}
    film.wait(1, 10.0, ticket=_in_line(monkeypatch, film, leaves)).devices(film.read)
    assert min(at for at, _ in film.looks) >= 160, "there are sixteen before those"
    assert 200 <= film.now <= 201
    assert len(film.told[0].ahead) == 20
    assert film.told[0].words.startswith("21st ") and "user1 (1 GPU)" in film.told[0].words


def test_a_far_waiter_begins_to_watch_as_soon_as_he_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiter directly ahead leaves last."""
    film = Film([True])
    leaves = dict(zip(range(1, 8), [1.0, 1.5, 2.0, 20.0, 20.0, 20.0, 20.0], strict=True))
    film.wait(1, 10.0, ticket=_in_line(monkeypatch, film, leaves)).devices(film.read)
    assert film.looks[0][0] <= 4 and film.now <= 21


# progress


def test_progress_says_what_is_waited_for_and_guesses_no_device_that_comes_next() -> None:
    old, new = busy(gpu(0)), busy(gpu(1), builders.job(started=NOW - 60, user="olek"))
    film = Film()
    with pytest.raises(TooLongError):
        film.wait(3, 10.0, until=0.0).devices(lambda: builders.box(old, new, gpu(2), time=NOW))
    (progress,) = film.told
    assert numbers(progress.words) == [3, 2, 2] and "GPU 2" in progress.words
    assert "GPU 0" not in progress.words and "GPU 1" not in progress.words


@each_row(("ahead", "nth"), [(1, "2nd"), (2, "3rd"), (3, "4th"), (10, "11th"), (20, "21st"), (111, "112th")])
def test_the_place_in_line_is_told_as_people_say_it(ahead: int, nth: str) -> None:
    told = Progress(tuple(_waiter(n, 4) for n in range(ahead)), wanted=2).words
    assert told.startswith(f"{nth} ") and "2 GPUs" in told and "user0 (4 GPUs)" in told


def test_the_devices_that_are_lacking_are_said_as_in_the_queue_even_while_others_settle() -> None:
    here = builders.box(gpu(0), gpu(1), busy(gpu(2)))
    progress = Progress((), here, settling=here.devices[:2], wanted=3, window=10.0)
    waiter = Waiter((1, "a"), "ana", 3)
    turn = Turn(waiter, 1, could=here.devices, free=here.devices[:2])
    assert progress.words.endswith(blocking_reason(turn, here)) and "needs 1 more" in progress.words


def test_what_is_waited_for_by_name_is_told_by_name() -> None:
    named = frozenset(gpu(n).key for n in (4, 7))
    here = builders.box(*(gpu(n) for n in range(8)))
    first = Progress((), here, wanted=2, keys=named)
    behind = Progress((_waiter(1),), here, wanted=2, keys=named)
    assert all("in line for GPU 4,7" in told.words for told in (first, behind))


def test_who_has_the_named_devices_is_told_while_they_are_waited_for() -> None:
    """That no such GPU is free could mean that there is no such GPU."""
    chen = job(user="chen", command="python eval.py")
    here = builders.box(gpu(0), busy(gpu(1), job(user="bo")), gpu(2), busy(gpu(3), chen), busy(gpu(4), chen))

    def told(*named: int) -> str:
        keys = frozenset(gpu(n).key for n in named)
        ready = tuple(device for device in here.devices if device.key in keys and not device.processes)
        return Progress((), here, ready, wanted=len(named), keys=keys, verdicts=verdicts(here)).words

    assert told(3) == "first in line for GPU 3: GPU 3 is still busy: chen eval.py 1h"
    assert told(2, 3, 4).endswith(": GPU 2 free; GPUs 3 and 4 are still busy: chen eval.py 1h")
    assert told(1, 3).count("still busy") == 2


def test_a_hostile_name_in_line_is_neutralised() -> None:
    assert Progress((Waiter((0, ""), "mi\x1b[2Jra\n"),)).words.isprintable()


def test_in_a_log_progress_is_a_line_at_each_step_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    line = AllocationListener()
    for place in (2, 2, 2, 1, 1, 0, 0, 0):
        line.progress(Progress(tuple(_waiter(n) for n in range(place))))
    line.waited(None, 0.0)
    assert [text.split()[1] for text in capsys.readouterr().err.splitlines()] == ["3rd", "2nd", "first"]


def test_on_a_terminal_progress_is_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    line = AllocationListener()
    for place in (2, 2, 1):
        line.progress(Progress(tuple(_waiter(n) for n in range(place))))
    line.waited(None, 0.0)
    text = terminal.getvalue()
    assert text.count("\r\x1b[K") == 3 and text.endswith("\r\x1b[K") and "\n" not in text
    assert all(len(part) <= 29 for part in text.split("\r\x1b[K"))
