"""Facts that only several snapshots can show: the time since when a device is in its state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.idleness import idle_seconds
from gputui.choosing.state_times import Watch, with_cooling
from gputui.choosing.verdict import Cooling, Verdict, verdicts
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from unit.builders import NOW, box, busy, gpu

KEY = gpu(0).key


def _after(watch: Watch, snapshot: Snapshot) -> Watch:
    return watch.after(snapshot, verdicts(snapshot))


def _watched(*film: tuple[float, Device]) -> Watch:
    watch = Watch()
    for second, device in film:
        watch = _after(watch, box(device, time=NOW + second))
    return watch


def _seconds(watch: Watch, key: str, now: float) -> float:
    """For how long the device is known to be in its state."""
    return now - watch.since(key, now)


@pytest.mark.parametrize("back", [0.3, 0.99])
def test_a_clock_that_is_set_back_a_little_makes_no_device_cool(back: float) -> None:
    watch = _watched((0, gpu(0)), (-back, gpu(0)), (1, gpu(0)))
    free = verdicts(box(gpu(0)))
    assert with_cooling(free, watch, NOW + 1, 30.0) == free


def test_a_device_that_was_never_seen_has_no_time() -> None:
    assert Watch().since(KEY, NOW) == NOW


def test_a_state_lasts_since_it_was_first_seen() -> None:
    watch = _watched((0, gpu(0)), (5, gpu(0)), (9, gpu(0)))
    assert _seconds(watch, KEY, NOW + 10) == 10


def test_another_state_begins_anew() -> None:
    watch = _watched((0, gpu(0)), (5, busy(gpu(0))), (9, busy(gpu(0))))
    assert _seconds(watch, KEY, NOW + 10) == 5


def test_a_state_that_comes_back_begins_anew() -> None:
    watch = _watched((0, gpu(0)), (5, busy(gpu(0))), (9, gpu(0)))
    assert _seconds(watch, KEY, NOW + 10) == 1


def test_a_device_that_went_away_is_forgotten() -> None:
    watch = _after(_watched((0, gpu(0))), box(gpu(1), time=NOW + 1))
    assert watch.since(KEY, NOW + 2) == NOW + 2


def test_a_watch_is_not_changed_by_what_comes_after_it() -> None:
    first = _watched((0, gpu(0)))
    _after(first, box(busy(gpu(0)), time=NOW + 5))
    assert _seconds(first, KEY, NOW + 5) == 5


@given(st.lists(st.booleans(), min_size=1, max_size=30))
@settings(max_examples=25, deadline=None)
def test_a_state_lasts_as_long_as_its_last_run(film: list[bool]) -> None:
    watch = _watched(*((second, busy(gpu(0)) if taken else gpu(0)) for second, taken in enumerate(film)))
    run = next((n for n, taken in enumerate(reversed(film)) if taken != film[-1]), len(film))
    assert _seconds(watch, KEY, NOW + len(film)) == run


# Free all through the window


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 25),
)
@settings(max_examples=60, deadline=None)
def test_free_is_believed_only_if_it_was_so_in_every_reading_of_the_window(
    film: list[tuple[int, bool]], window: int
) -> None:
    """Or in every reading so far: `gputui pick` has only one."""
    watch, second, readings = Watch(), 0, []
    for step, taken in film:
        second += step
        snapshot = box(busy(gpu(0)) if taken else gpu(0), time=NOW + second)
        watch = _after(watch, snapshot)
        readings.append((second, taken))
        judged = verdicts(snapshot)
        found = with_cooling(judged, watch, snapshot.time, window)[KEY]
        last = max((n for n, (_, busy_then) in enumerate(readings) if busy_then), default=None)
        since = readings[0][0] if last is None else readings[last + 1][0] if not taken else None
        believed = since is not None and (last is None or second - since >= window)
        assert found.free == believed
        if taken:
            assert found == judged[KEY]
        elif not believed:
            assert found == Verdict("cooling", Cooling(NOW + (since or 0), window))


def test_the_first_reading_is_believed_whatever_the_window() -> None:
    watch = _watched((0, gpu(0)))
    assert with_cooling(verdicts(box(gpu(0))), watch, NOW, 3600)[KEY].free


def test_one_that_comes_later_than_the_first_reading_is_not_believed_at_once() -> None:
    """A device that was away may return with a job that has not begun yet."""
    watch = _after(_watched((0, gpu(1))), box(gpu(0), gpu(1), time=NOW + 5))
    found = with_cooling(verdicts(box(gpu(0), gpu(1))), watch, NOW + 5, 10)
    assert not found[KEY].free and found[gpu(1).key].free


def test_without_a_window_what_a_reading_says_stands() -> None:
    watch = _watched((0, busy(gpu(0))), (1, gpu(0)))
    assert with_cooling(verdicts(box(gpu(0))), watch, NOW + 1, 0)[KEY].free


def test_no_time_is_ever_less_than_none_when_the_clock_is_set_back() -> None:
    watch = _watched((0, busy(gpu(0))), (90, gpu(0)), (50, gpu(0)))
    assert _seconds(watch, KEY, NOW + 50) == 0
    found = with_cooling(verdicts(box(gpu(0))), watch, NOW + 50, 10)[KEY]
    assert found == Verdict("cooling", Cooling(NOW + 50, 10))
    assert with_cooling(verdicts(box(gpu(0))), watch, NOW + 60, 10)[KEY].free


@pytest.mark.parametrize(("gap", "idle_since"), [(90, 0), (91, 91)])
def test_time_without_readings_is_no_idle_time(gap: int, idle_since: int) -> None:
    """The programs that ran while the screen was stopped are unknown."""
    watch = _watched((0, gpu(0)), (gap, gpu(0)))
    assert watch.idle_since == {KEY: NOW + idle_since}


def test_nobody_knows_that_a_device_was_free_in_a_time_without_readings() -> None:
    watch = _watched((0, gpu(0)), (91, gpu(0)), (100, gpu(0)))
    assert _seconds(watch, KEY, NOW + 100) == 9
    stopped = _after(replace(_watched((0, gpu(0)), (1, gpu(0))), last=None), box(gpu(0), time=NOW + 5))
    assert _seconds(stopped, KEY, NOW + 6) == 1
    for found in watch, stopped:
        judged = with_cooling(verdicts(box(gpu(0))), found, NOW + 100, 3600)
        assert judged[KEY].free, "as at the first reading"


@pytest.mark.parametrize("jump", [86_400 * 365, -86_400])
def test_a_clock_that_jumps_makes_no_time_longer_or_shorter(jump: int) -> None:
    """The clock is set, or the machine has slept: by the other clock only some seconds have passed."""

    def at(moment: float, device: Device, jump: int = 0) -> Snapshot:
        return replace(box(device, gpu(1), time=NOW + moment + jump), ticks=moment)

    watch = Watch()
    film = (at(0, gpu(0)), at(1, busy(gpu(0))), at(2, gpu(0)), at(3, gpu(0)), at(4, gpu(0), jump))
    for snapshot in film:
        watch = _after(watch, snapshot)
    now = film[-1].time
    assert _seconds(watch, KEY, now) == 2
    assert _seconds(watch, gpu(1).key, now) == 4
    assert idle_seconds(watch, film[-1]) == {KEY: 2, gpu(1).key: 4}
    found = with_cooling(verdicts(film[-1]), watch, now, 10)
    assert (found[KEY].state, found[gpu(1).key].state) == ("cooling", "free")
    watch = _after(watch, last := at(12, gpu(0), jump))
    assert with_cooling(verdicts(last), watch, last.time, 10)[KEY].free
