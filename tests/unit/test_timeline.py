"""The saved past: buckets and gaps, columns of any length, and the file that outlives a run."""

from __future__ import annotations

import os
from dataclasses import replace
from math import isnan
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.formatting import Seen
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import SimulatedSource, named
from gputui.timeline import ring_file
from gputui.timeline.keeper import Keeper, with_kept_past
from gputui.timeline.ring import Ring
from gputui.timeline.store import TIERS, Span, Store, Timelines
from table_tests import each_row
from unit.builders import GIB, NOW, box, gpu, instance

KEY = gpu(0).key
MINUTE = int(NOW // 60)


def _watched(*film: tuple[float, int | None], pace: float = 1.0) -> Timelines:
    """The timelines of a GPU with these utilizations, by seconds after NOW."""
    store = Store()
    timelines = Timelines(store, NOW)
    for second, load in film:
        timelines = store.after(box(gpu(0, utilization=load), time=NOW + second), pace)
    return timelines


def _read(timelines: Timelines, seconds: int, columns: int, peaks: bool = False) -> list[float | None]:
    span = Span.at(timelines.until, seconds, columns)
    values = timelines.values(KEY, "utilization", span, peaks)
    return [None if isnan(value) else value for value in values]


# Buckets


def test_a_column_shows_the_mean_and_the_highest_of_its_seconds() -> None:
    timelines = _watched(*((second, 100 if second % 2 else 0) for second in range(60)))
    assert _read(timelines, 60, 6) == [50] * 6
    assert _read(timelines, 60, 6, peaks=True) == [100] * 6
    assert _read(timelines, 60, 60) == [0, 100] * 30


def test_several_readings_of_one_second_are_one_bucket() -> None:
    timelines = _watched((0, 10), (0.25, 20), (0.5, 60))
    assert _read(timelines, 60, 60)[-1] == 30
    assert _read(timelines, 60, 60, peaks=True)[-1] == 60


def test_readings_ten_seconds_apart_are_one_line_and_a_longer_pause_is_a_gap() -> None:
    assert _read(_watched((0, 50), (10, 70)), 60, 60)[-11:] == [50] * 10 + [70]
    assert _read(_watched((0, 50), (40, 70)), 60, 60)[-41:] == [50] + [None] * 39 + [70]
    assert _read(_watched((0, 50), (40, 70), pace=40), 60, 60)[-41:] == [50] * 40 + [70]


def test_unknown_is_a_gap_and_never_zero() -> None:
    assert _read(_watched((0, 50), (1, None), (2, None), (3, 70)), 60, 60)[-4:] == [50, None, None, 70]
    assert not _watched((0, None)).has(KEY, "utilization")


def test_what_is_older_than_twelve_hours_is_gone() -> None:
    timelines = _watched((0, 90), (13 * 3600, 10))
    assert [value for value in _read(timelines, 12 * 3600, 100) if value is not None] == [10]


def test_a_clock_that_is_set_back_leaves_nothing_in_the_future() -> None:
    timelines = _watched(*((second, 90) for second in range(100)), (40, 10), (41, 10))
    assert _read(timelines, 60, 60)[-3:] == [90, 10, 10]
    later = timelines.store.after(box(gpu(0, utilization=20), time=NOW + 80), 1.0)
    assert _read(later, 60, 60)[-40:] == [10, *[None] * 38, 20]
    ahead = later.store.after(box(gpu(0, utilization=40), time=NOW + 365 * 86_400), 1.0)
    assert [value for value in _read(ahead, 12 * 3600, 50) if value is not None] == [40]
    later = ahead.store.after(box(gpu(0, utilization=20), time=NOW + 81), 1.0)
    assert _read(later, 60, 60)[-1] == 20
    far_back = later.store.after(box(gpu(0, utilization=30), time=NOW - 10**6), 1.0)
    assert [value for value in _read(far_back, 12 * 3600, 50) if value is not None] == [30]


@each_row("columns", [1, 59, 60, 97, 300])
def test_a_moment_falls_into_the_column_that_begins_with_it(columns: int) -> None:
    span = Span.at(NOW + 12.3, 300, columns)
    assert [span.column(span.time(column)) for column in range(columns)] == list(range(columns))
    assert span.column(NOW + 12.3) == columns - 1


def test_a_mig_instance_has_memory_and_a_figure_that_is_never_known_takes_no_room() -> None:
    part = instance(gpu(0), memory_used=3 * GIB)
    timelines = Store().after(box(part), 1.0)
    assert [timelines.has(part.key, m) for m in ("utilization", "memory", "power")] == [False, True, False]
    assert timelines.full(part.key, "memory") == 10 * GIB
    assert sum(each.means.itemsize * 2 * each.size for each in _rings(timelines)) < 12 * 1024


def test_seventy_two_devices_take_at_most_six_mebibytes() -> None:
    timelines = Store().after(box(*map(gpu, range(72))), 1.0)
    assert sum(each.means.itemsize * 2 * each.size for each in _rings(timelines)) < 6 * 2**20


def _rings(timelines: Timelines) -> list[Ring]:
    return [
        ring for past in timelines.store.devices.values() for rings in past.rings.values() for ring in rings
    ]


# A past from elsewhere


def test_a_past_that_was_found_lies_before_what_was_seen_here() -> None:
    now = _watched((0, 10), (1, 20))
    older = _watched(*((second, 90) for second in range(-30, 2))).store
    now.store.adopt(older)
    again = Timelines(now.store, now.until, now.store.adopted)
    assert _read(again, 60, 60) == [None] * 28 + [90] * 30 + [10, 20]
    assert again != now


def test_where_only_minutes_are_known_seconds_show_them() -> None:
    older = Store()
    older.add(NOW - 61, [gpu(0, utilization=80)])
    kept = ring_file.read(ring_file.whole(older, [KEY], MINUTE), MINUTE)
    now = _watched((0, 10))
    now.store.adopt(kept)
    columns = _read(Timelines(now.store, now.until, 1), 300, 300)
    assert columns[-1] == 10 and set(columns) == {None, 10, 80} and columns.count(80) == 60


@each_row("second", [0, 10, 37])
def test_the_past_of_the_demo_has_no_gap_wherever_in_a_minute_it_is_opened(second: int) -> None:
    opened = NOW // 60 * 60 + second
    source, store = SimulatedSource(BOXES["idle"], lambda: opened), Store()
    now = source.read()
    store.after(now, 1.0)
    for stretch in source.past():
        older, last = Store(), None
        for reading in stretch:
            older.add(reading.time, reading.devices, 1.0 if last is None else reading.time - last)
            last = reading.time
        store.adopt(older)
    timelines = Timelines(store, now.time, store.adopted)
    since = timelines.unused_since(now.devices[0].key, now.time, 5, 80 * GIB)
    assert opened - since > 11 * 3600


def test_the_demo_knows_its_last_twelve_hours() -> None:
    source, store = named("idle"), Store()
    source.open()
    now = source.read()
    store.after(now, 1.0)
    for stretch in source.past():
        older = Store()
        for reading in stretch:
            older.add(reading.time, reading.devices, 90)
        store.adopt(older)
    timelines = Timelines(store, now.time, store.adopted)
    for seconds in (60, 300, 900, 3600, 10_800, 43_200):
        known = timelines.values(now.devices[0].key, "power", Span.at(now.time, seconds, 50))
        assert sum(isnan(value) for value in known) <= 1, seconds


# The file


def _store(*minutes: int, device: int = 0) -> Store:
    store = Store()
    for minute in minutes:
        store.add(minute * 60 + 1, [gpu(device, utilization=minute % 100)])
    return store


def _kept(store: Store, device: int = 0) -> dict[int, float]:
    past = store.devices.get(gpu(device).key)
    ring = past.rings["utilization"][-1] if past and "utilization" in past.rings else None
    if ring is None:
        return {}
    found = enumerate(ring.window(ring.first, ring.head + 1), ring.first)
    return {minute: value for minute, value in found if not isnan(value)}


def _as_kept(*minutes: int) -> dict[int, float]:
    return {minute: minute % 100 for minute in minutes}


def test_a_file_gives_back_what_was_written() -> None:
    store = _store(MINUTE - 3, MINUTE - 1)
    data = ring_file.whole(store, [KEY], MINUTE - 1)
    again = ring_file.read(data, MINUTE)
    assert _kept(again) == _as_kept(MINUTE - 3, MINUTE - 1)
    assert again.devices[KEY].memory_total == 80 * GIB and again.devices[KEY].power_limit == 700


def test_minutes_of_half_a_day_ago_or_of_the_future_are_none() -> None:
    data = ring_file.whole(_store(MINUTE - 5, MINUTE), [KEY], MINUTE)
    assert _kept(ring_file.read(data, MINUTE + ring_file.MINUTES - 3)) == _as_kept(MINUTE)
    assert _kept(ring_file.read(data, MINUTE - 2)) == _as_kept(MINUTE - 5)


_FILE = ring_file.whole(_store(MINUTE - 1, MINUTE), [KEY], MINUTE)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_damage_is_noticed(where: int, garbage: bytes) -> None:
    """Whatever was written into a file: a minute is as it was saved, or is missing."""
    at = where % len(_FILE)
    damaged = (_FILE[:at] + garbage + _FILE[at + len(garbage) :])[: len(_FILE)]
    try:
        found = _kept(ring_file.read(damaged, MINUTE))
    except ring_file.DamagedError:
        return
    assert found.items() <= _as_kept(MINUTE - 1, MINUTE).items()


@each_row(
    "data",
    [b"", b"x" * 100, b"gputui timeline1" + bytes(8), b"%08x\n[1, [1]]" % crc32(b"[1, [1]]"), _FILE[:-4]],
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ring_file.DamagedError):
        ring_file.read(data, MINUTE)


class _Run:
    """A run of the screen that saves its readings in a state folder."""

    def __init__(self, folder: Path, minute: int, device: int = 0) -> None:
        self.minute, self.device = minute, device
        self.keeper = Keeper({"XDG_STATE_HOME": str(folder)}, lambda: self.minute * 60.0)
        self.found = self.keeper.read()
        self.store = Store()
        self.store.adopt(self.found)

    def pass_minutes(self, number: int) -> None:
        for _ in range(number):
            self.store.add(self.minute * 60 + 1, [gpu(self.device, utilization=self.minute % 100)])
            self.keeper.keep(self.store, box(time=self.minute * 60 + 1))
            self.keeper.join(10.0)
            self.minute += 1


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_run_finds_what_an_earlier_one_saw(tmp_path: Path) -> None:
    first = _Run(tmp_path, MINUTE)
    assert not first.found.devices
    first.pass_minutes(4)
    first.keeper.close()
    second = _Run(tmp_path, first.minute)
    # The unfinished minute is not saved.
    assert _kept(second.found) == _as_kept(MINUTE, MINUTE + 1, MINUTE + 2)
    second.pass_minutes(3)
    second.keeper.close()
    assert len(_kept(_Run(tmp_path, second.minute).found)) == 5
    (ring,) = (path for path in tmp_path.rglob("*.ring"))
    assert ring.stat().st_mode & 0o777 == 0o600 and ring.parent.stat().st_mode & 0o777 == 0o700
    assert ring.stat().st_size < 18_000


def test_one_run_writes_and_the_next_one_follows_when_it_has_ended(tmp_path: Path) -> None:
    first, second = _Run(tmp_path, MINUTE), _Run(tmp_path, MINUTE)
    first.pass_minutes(2)
    second.pass_minutes(2)
    (ring,) = tmp_path.rglob("*.ring")
    before = ring.read_bytes()
    second.pass_minutes(1)
    assert ring.read_bytes() == before and second.keeper.problem is None
    first.keeper.close()
    second.pass_minutes(1)
    assert ring.read_bytes() != before
    second.keeper.close()


def test_other_devices_make_another_file_that_still_has_the_earlier_ones(tmp_path: Path) -> None:
    first = _Run(tmp_path, MINUTE)
    first.pass_minutes(3)
    first.keeper.close()
    second = _Run(tmp_path, first.minute, device=1)
    second.pass_minutes(3)
    second.keeper.close()
    found = _Run(tmp_path, second.minute).found
    assert len(_kept(found, 0)) == 2 and len(_kept(found, 1)) == 2


def test_a_single_call_knows_since_when_a_device_is_idle_where_a_screen_keeps_the_past(
    tmp_path: Path,
) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    run = _Run(tmp_path, MINUTE)
    assert MINUTE % 100 > 0, "in the first minute the device was used"
    run.pass_minutes(1)
    for _ in range(20):
        run.store.add(run.minute * 60 + 1, [gpu(0, utilization=0)])
        run.keeper.keep(run.store, box(time=run.minute * 60 + 1))
        run.keeper.join(10.0)
        run.minute += 1
    run.keeper.close()
    now = box(gpu(0, utilization=0), gpu(1, utilization=0), time=run.minute * 60 - 1)
    idle, unknown = with_kept_past(now, environ).devices
    assert (idle.idle_since, unknown.idle_since) == ((MINUTE + 1) * 60, None)
    assert not isinstance(idle.idle_since, Seen), "it was seen in use before"
    assert with_kept_past(replace(now, time=now.time + 300), environ).devices[0].idle_since is None
    (used,) = with_kept_past(box(gpu(0, utilization=7), time=now.time), environ).devices
    assert used.idle_since is None


def test_a_short_run_leaves_nothing_behind(tmp_path: Path) -> None:
    run = _Run(tmp_path, MINUTE)
    run.store.add(NOW, [gpu(0)])
    run.keeper.keep(run.store, box())
    run.keeper.close()
    assert _files(tmp_path) == []


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "gputui").write_text("no folder")
    run = _Run(tmp_path, MINUTE)
    run.pass_minutes(3)
    assert run.keeper.problem and _files(tmp_path) == ["gputui"]


@each_row("kind", ["pipe", "link", "garbage", "huge"])
def test_a_file_that_is_not_ours_is_not_read(tmp_path: Path, kind: str) -> None:
    run = _Run(tmp_path, MINUTE)
    run.pass_minutes(2)
    run.keeper.close()
    (ring,) = tmp_path.rglob("*.ring")
    elsewhere = ring.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(ring)
    elif kind == "link":
        ring.symlink_to(elsewhere)
    elif kind == "huge":
        ring.touch()
        os.truncate(ring, 1 << 40)
    else:
        ring.write_bytes(os.urandom(4096))
    other = _Run(tmp_path, run.minute)
    assert not other.found.devices
    other.pass_minutes(3)
    other.keeper.close()
    # gputui writes over garbage in its own file; it leaves anything but a plain file alone.
    assert bool(_kept(_Run(tmp_path, other.minute).found)) == (kind in ("garbage", "huge"))
    assert bool(other.keeper.problem) == (kind in ("pipe", "link"))


def test_a_box_whose_devices_come_and_go_is_still_watched_and_kept() -> None:
    """As MIG instances that are made again for each job: the last seen ones are worth more."""
    store = Store()
    for n in range(1100):
        store.add(NOW + n, [gpu(n, uuid=f"MIG-{n}", utilization=5)])
    assert "MIG-1099" in store.devices and len(store.devices) <= 1024
    keys = ring_file.kept_keys(store, MINUTE + 1100 // 60)
    assert "MIG-1099" in keys and len(keys) == ring_file.MOST_DEVICES


def test_the_finest_buckets_reach_over_their_zoom() -> None:
    assert [width * size for width, size in TIERS] >= [300, 3600, 43_200]


def test_a_past_tells_since_when_a_device_is_unused_and_a_gap_ends_it() -> None:
    store, start = Store(), 1_700_000_000.0
    for second in range(0, 3000, 2):
        load = 50 if second < 600 else 0
        store.add(start + second, [gpu(0, utilization=load), gpu(1, utilization=0, memory_used=9 << 30)])
    timelines, end = Timelines(store, start + 2998), start + 2998
    busy, held = (gpu(index).key for index in (0, 1))
    assert timelines.unused_since(busy, end, 10, 1 << 30) == pytest.approx(start + 600, abs=10)
    assert timelines.unused_since(held, end, 10, 1 << 30) == pytest.approx(end, abs=1)
    assert timelines.unused_since(busy, end + 500, 10, 1 << 30) == end + 500
    unknown = timelines.unused_since("GPU-none", end, 10, 1 << 30)
    assert unknown == end and isinstance(unknown, Seen)


@each_row(
    "gap, held, seen, load",
    [
        (25, -400, 280, 0),
        (90, -400, 280, 0),
        (90, 10, 0, 0),
        (90, None, 0, 0),
        (200, -400, 0, 0),
        (90, -400, 0, 50),
    ],
)
@pytest.mark.parametrize("second", [1, 30, 59])
def test_a_short_time_without_a_screen_does_not_end_the_idleness_of_a_process(
    gap: int, held: int | None, seen: int, load: int, second: int
) -> None:
    """The screen is left at some `second` of a minute, of which the file has only the minutes before."""
    left = MINUTE * 60 + second
    older, now = Store(), Store()
    for ago in range(360, -1, -2):
        older.add(left - ago, [gpu(0, utilization=load)])
    again = left + gap
    now.add(again, [gpu(0, utilization=0)])
    now.adopt(ring_file.read(ring_file.whole(older, [KEY], MINUTE - 1), again // 60))
    began = None if held is None else left + held
    since = Timelines(now, again, 1).unused_since(KEY, again, 0.0, 1 << 60, began)
    assert isinstance(since, Seen), "what was before is not known"
    assert again - since >= seen and (seen or again - since < 60)
