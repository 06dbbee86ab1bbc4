"""The recorded usage: what a day adds up to, who writes it, and what `gputui usage` tells of it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from gputui.inventory.claim import Claim
from gputui.inventory.columns import printed
from gputui.inventory.job import JobDevice
from gputui.inventory.light_dataclasses import replace as with_facts
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.waiter import Waiter
from gputui.jobs.recorded_usage import with_usage
from gputui.jobs.store import all_jobs
from gputui.sources.simulated.source import named
from gputui.system.users import own_name
from gputui.timeline import usage
from gputui.timeline.keeper import Keeper
from gputui.timeline.store import Store
from gputui.timeline.usage import Day, Figures, Meter, Recorded, file_of, folder_of, of_past, recorded
from gputui.timeline.usage_columns import MOST_ROWS, usage_columns
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, job
from unit.calling import Call
from unit.jobs_support import desk_at, until

KEY = gpu(0).key
WEEK = 7 * 86_400.0


def held(user: str, device: int = 0, since: float = NOW - 3600, id: str | None = None) -> Claim:
    return Claim(gpu(device).key, user, since, job=id)


def metered(*film: Snapshot) -> Day:
    meter = Meter()
    for snapshot in film:
        meter.add(snapshot)
    return meter.take()


def at(second: float, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, time=NOW + second)


def figures(day: Day, user: str, id: str = "") -> Figures:
    return day.tables["job"][id, user]


# A day


def test_time_with_a_process_is_held_and_busy_or_idle_by_the_load() -> None:
    working, resting = box(busy(gpu(0))), box(replace(busy(gpu(0)), utilization=0))
    day = metered(at(0, working), at(10, working), at(20, resting), at(50, box(gpu(0))))
    mira = figures(day, "mira")
    assert (mira.held, mira.busy, mira.idle) == (20, 10, 10)
    assert mira.utilization == 97 / 2 and mira.peak == 20 * GIB
    assert (day.recorded, figures(day, "").held) == (50, 0)


def test_memory_in_use_without_a_process_is_of_nobody_and_is_not_called_unused() -> None:
    taken, shared = gpu(0, memory_used=22 * GIB), gpu(1, memory_used=22 * GIB, unified=True)
    day = metered(*(at(second, box(taken, shared, gpu(2))) for second in (0, 10)))
    rows = [({"device": key}, figures) for (key,), figures in day.tables["device"].items()]
    assert [figures.held for _, figures in rows] == [0, 0, 0]
    _, *lines = printed(usage_columns("device", rows, {}, 120), rows)
    assert ["held" in line for line in lines] == [True, False, False]
    assert "not in use" in lines[2]


def test_an_unknown_load_is_neither_busy_nor_idle() -> None:
    unknown = box(replace(busy(gpu(0)), utilization=None))
    mira = figures(metered(at(0, unknown), at(10, unknown)), "mira")
    assert (mira.held, mira.busy, mira.idle, mira.utilization) == (10, 0, 0, None)


def test_users_who_share_a_device_share_its_time_and_energy() -> None:
    both = box(busy(gpu(0, power=300.0), job(1, user="mira"), job(2, user="bo")))
    day = metered(at(0, both), at(10, both))
    assert [figures(day, user).held for user in ("mira", "bo")] == [5, 5]
    assert [figures(day, user).energy for user in ("mira", "bo")] == [1500, 1500]


def test_a_claim_holds_a_device_and_names_the_job() -> None:
    claimed = replace(box(busy(gpu(0))), claims=(held("mira", id="k3f9"),))
    day = metered(at(0, claimed), at(10, claimed))
    assert figures(day, "mira", "k3f9").held == 10 and len(day.tables["job"]) == 1


def test_a_process_counts_from_its_start_and_graphics_do_not_count() -> None:
    begun = box(busy(gpu(0), job(started=NOW + 8), job(9, user="bo", kind="graphics")))
    day = metered(at(0, box(gpu(0))), at(10, begun))
    assert figures(day, "mira").held == 2 and {*day.tables["user"]} == {("mira",), ("",)}


def test_a_pause_without_readings_does_not_count() -> None:
    working = box(busy(gpu(0)))
    day = metered(at(0, working), at(5, working), at(5 + usage.BRIDGE + 1, working))
    assert (day.recorded, figures(day, "mira").held) == (5, 5)


def test_a_clock_that_was_set_back_does_not_count() -> None:
    working = box(busy(gpu(0)))
    day = metered(at(100, working), at(0, working), at(10, working))
    assert figures(day, "mira").held == 10


def test_time_in_line_is_of_the_user_and_the_job() -> None:
    line = replace(box(gpu(0)), waiters=(Waiter((1, "a"), "mira", since=NOW + 4, job="k3f9"),))
    assert figures(metered(at(0, line), at(10, line)), "mira", "k3f9").waited == 6


def counted(joules: float | None, power: float = 300.0) -> Snapshot:
    telemetry = None if joules is None else Telemetry(energy=joules)
    return box(busy(gpu(0, power=power, telemetry=telemetry)))


def test_energy_is_power_times_time_and_the_drivers_counter_corrects_it() -> None:
    day = metered(at(0, counted(None)), at(10, counted(None)))
    assert figures(day, "mira").energy == 3000
    # Details are read now and then; the counter stands for the whole time since it was read before.
    film = [counted(1e6), counted(None), counted(None), counted(1e6 + 12_000)]
    day = metered(*(at(10 * place, each) for place, each in enumerate(film)))
    assert figures(day, "mira").energy == 12_000


def test_a_counter_that_begins_again_is_not_negative_energy() -> None:
    day = metered(at(0, counted(1e6)), at(10, counted(50)), at(20, counted(2050)))
    assert figures(day, "mira").energy == 3000 + 2000


# The file


class Run:
    """A run of the screen or of the recorder that keeps its readings."""

    def __init__(self, folder: Path, minute: int = int(NOW // 60)) -> None:
        self.minute, self.store = minute, Store()
        self.keeper = Keeper({"XDG_STATE_HOME": str(folder)}, lambda: self.minute * 60.0)
        self.keeper.read()

    def pass_minutes(self, number: int, snapshot: Snapshot | None = None) -> None:
        for _ in range(number):
            for second in (1, 31):
                reading = replace(snapshot or box(busy(gpu(0))), time=self.minute * 60.0 + second)
                self.store.after(reading, 30.0)
                self.keeper.keep(self.store, reading)
                self.keeper.join(10.0)
            self.minute += 1


def kept(folder: Path) -> Recorded:
    return recorded({"XDG_STATE_HOME": str(folder)}, NOW - 3600, NOW + 86_400)


def hold(folder: Path) -> float:
    return sum(each.held for names, each in kept(folder).rows("user") if names["user"] == "mira")


def test_each_minute_is_written_once_however_many_runs_there_are(tmp_path: Path) -> None:
    first, second = Run(tmp_path), Run(tmp_path)
    for _ in range(4):
        first.pass_minutes(1)
        second.pass_minutes(1)
    # The unfinished minute is not written.
    assert hold(tmp_path) == 3 * 60 - 30
    first.keeper.close()
    second.pass_minutes(3)
    second.keeper.close()
    assert hold(tmp_path) == 6 * 60 - 30


def test_no_minute_is_counted_again_after_the_clock_was_set_back(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.pass_minutes(30)
    run.minute -= 20
    run.pass_minutes(30)
    run.keeper.close()
    day = kept(tmp_path).total
    assert day.until - day.since < 40 * 60
    assert day.recorded <= day.until - day.since + 60


def test_the_file_and_its_folder_are_the_users_alone(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.pass_minutes(2)
    run.keeper.close()
    (file,) = tmp_path.rglob("usage-*/*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_busy_month_of_eight_devices_is_less_than_a_mebibyte() -> None:
    day = Day(NOW, NOW, 86_400.0, {gpu(n).key: str(n) for n in range(8)})
    for number in range(5000):
        used = Figures(86_400.0, 80_000.0, 6400.0, 6e7, 8e6, 80 * GIB, 86_400.0, 86_400.0)
        day.count(used, device=gpu(number % 8).key, user=f"user{number % 12}", job=f"job{number:05}")
    assert 31 * len(day.text()) < 1024**2
    for table in day.tables.values():
        assert round(sum(each.held for each in table.values())) == 5000 * 86_400


def test_a_call_that_reads_once_counts_since_the_last_reading_or_the_start_of_the_work(
    tmp_path: Path,
) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}

    def note(second: float, began: float) -> None:
        reading = at(second, box(busy(gpu(0), job(started=NOW + began))))
        Keeper(environ, lambda: reading.time).note(lambda: reading)

    note(0, -20)
    assert hold(tmp_path) == 20
    note(60, -20)
    assert hold(tmp_path) == 80
    # Nobody has seen the hour between: of that, only the last minutes of what is there now count.
    note(3660, -20)
    assert hold(tmp_path) == 80 + usage.BRIDGE


def test_a_call_that_reads_once_leaves_the_reading_to_a_run_that_lasts(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.pass_minutes(2)
    before = hold(tmp_path)
    Keeper({"XDG_STATE_HOME": str(tmp_path)}).note(lambda: pytest.fail("it has read the box"))
    assert hold(tmp_path) == before
    run.keeper.close()


def _checked(facts: str) -> bytes:
    return b"%08x\n%s\n" % (crc32(facts.encode()), facts.encode())


_WRONG_KINDS = [
    _checked('[1,2,"3",{"k":"0"},{}]\n[]\n[]\n[]'),
    _checked('[1,2,3,{"k":"0"},{}]\n[["mira",null,0,0,0,0,0,0,0]]\n[]\n[]'),
    _checked('[1,2,3,{"k":0},{}]\n[["mira",1,0,0,0,0,0,0,0]]\n[]\n[]'),
    _checked('[1,2,3,{"k":"0"},{}]\n[["mira",NaN,0,0,0,0,0,0,0]]\n[]\n[]'),
    _checked(f'[1,2,3,{{"k":"0"}},{{}}]\n[["mira",1,0,0,0,0,1{"0" * 400},0,0]]\n[]\n[]'),
    _checked('[1,2,3,{"k":"0"},{}]\n[["mira",1,0,0,0,0,0,0,0]]'),
]
"""Written by another program: the checksum is right."""


@each_row(
    "damage",
    [b"", b"garbage", b"\0" * 100, b"[" * 100_000, b"00000000\n[]\n", *_WRONG_KINDS],
    ids=[
        "empty",
        "text",
        "zeros",
        "nested",
        "checksum",
        "text for a time",
        "null",
        "name",
        "NaN",
        "huge",
        "short",
    ],
)
def test_a_damaged_day_is_lost_alone_and_said(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW + 86_400)
    for minute in (int(NOW // 60), int(NOW // 60) + 1440):
        run = Run(tmp_path, minute)
        run.pass_minutes(2)
        run.keeper.close()
    assert hold(tmp_path) == 60
    file = file_of(folder_of(tmp_path / "gputui"), NOW)
    file.write_bytes(damage)
    told = call("usage")
    assert told.status == 0 and "mira" in told.out and file.stem in told.err
    assert call("usage", "--json").out.count(file.stem) == 1
    # A recorder puts it aside, and goes on.
    run = Run(tmp_path, int(NOW // 60) + 10)
    run.pass_minutes(2)
    run.keeper.close()
    assert hold(tmp_path) == 60 and file.stem in kept(tmp_path).damaged
    assert file.with_suffix(usage.DAMAGED).read_bytes() == damage


@each_row("kind", ["pipe", "huge", "folder"])
def test_what_is_no_file_of_a_day_is_said(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path / "gputui")
    folder.mkdir(parents=True)
    file = file_of(folder, NOW)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.touch()
        os.truncate(file, 1 << 40)
    assert [*kept(tmp_path).damaged] == [file.stem]


def test_files_of_long_ago_are_removed_the_damaged_ones_too(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "gputui")
    folder.mkdir(parents=True)
    for day in range(1, 500):
        file = file_of(folder, NOW - day * 86_400)
        file.with_suffix(usage.DAMAGED if day % 2 else ".json").write_text("garbage")
    run = Run(tmp_path)
    run.pass_minutes(2)
    run.keeper.close()
    left = sorted(file.stem for file in folder.iterdir())
    assert len(left) == 401 and left[-1] == file_of(folder, NOW).stem


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "gputui").write_text("no folder")
    run = Run(tmp_path)
    run.pass_minutes(3)
    assert run.keeper.problem and not kept(tmp_path).by_day


def test_a_folder_of_mine_that_others_can_change_is_not_read(tmp_path: Path) -> None:
    with day_of(tmp_path, ((KEY, "me", ""), Figures())):
        assert kept(tmp_path).by_day
        folder_of(tmp_path / "gputui").chmod(0o777)
        found = kept(tmp_path)
    assert not found.by_day and "other users can write to" in next(iter(found.damaged.values()))


def test_a_state_folder_that_others_can_change_is_said(tmp_path: Path) -> None:
    with day_of(tmp_path, ((KEY, "me", ""), Figures())):
        (tmp_path / "gputui").chmod(0o777)
        found = kept(tmp_path)
    assert not found.by_day and "other users can write to" in "".join(found.damaged.values())


# What is told


@contextmanager
def day_of(folder: Path, *rows: tuple[tuple[str, str, str], Figures]) -> Iterator[None]:
    place = folder_of(folder / "gputui")
    place.mkdir(parents=True, mode=0o700)
    day = Day(NOW - 100, NOW, 86_400.0, {KEY: "0"})
    for (device, user, id), each in rows:
        day.count(each, device=device, user=user, job=id)
    file_of(place, NOW).write_bytes(day.text())
    yield


def test_usage_by_user_device_job_and_day(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    rows = (
        ((KEY, "mira", "k3f9"), Figures(7200.0, 3600.0, 1800.0, 3.6e6, 3600.0 * 90, 20 * GIB, 0.0, 7200.0)),
        ((KEY, "bo", ""), Figures(3600.0, 0.0, 3600.0, 1000.0, 0.0, GIB, 0.0, 3600.0)),
        ((KEY, "", ""), Figures(energy=2000.0, energy_known=75_600.0)),
        (("", "bo", "m6u5"), Figures(waited=600.0)),
    )
    with day_of(tmp_path, *rows):
        by_user = {row["user"]: row for row in call("usage", "--json").json["rows"]}
        assert by_user["mira"]["held"] == 7200 and by_user["mira"]["utilization"] == 60
        assert by_user["bo"]["waited"] == 600 and by_user["mira"]["peak_memory"] == 20 * GIB
        # Nobody holds nothing, but an unused device takes energy.
        assert (by_user[None]["held"], by_user[None]["energy"]) == (0, 2000)
        of_device = {row["device"]: row for row in call("usage", "--by", "device", "--json").json["rows"]}
        assert of_device[KEY]["held"] == 10_800 and of_device[KEY]["energy"] == 3_603_000
        jobs = {row["job"]: row["user"] for row in call("usage", "--by", "job", "--json").json["rows"]}
        assert jobs["k3f9"] == "mira" and jobs["m6u5"] == "bo"
        (day,) = call("usage", "--by", "day", "--json").json["rows"]
        assert day["held"] == 10_800
        told = call("usage")
        heading, first, *_ = told.out.splitlines()
        names = heading.split("  ")
        assert [name.strip() for name in names if name.strip()] == [
            *("USER", "GPU TIME", "IDLE", "UTIL", "kWh", "PEAK MEM", "WAITED", "█ busy ░ idle · unknown")
        ]
        assert told.status == 0 and first.split()[:6] == ["mira", "2.0h", "30m", "60%", "1.0", "20.0G"]
        # Half of the two hours is busy, a quarter idle, the rest unknown.
        drawn = first.split()[-1]
        assert drawn.count("█") == len(drawn) / 2 and drawn.count("░") == drawn.count("·") == len(drawn) / 4
        jobs = call("usage", "--by", "job").out.splitlines()
        assert jobs[2].split()[:2] == ["no", "job"]


def test_our_own_user_is_you_except_in_json(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    with day_of(tmp_path, ((KEY, own_name(), "k3f9"), Figures(7200.0))):
        assert [row["user"] for row in call("usage", "--json").json["rows"]] == [own_name()]
        assert call("usage").out.splitlines()[1].split()[0] == "you"
        assert call("usage", "--by", "job").out.splitlines()[1].split()[:2] == ["k3f9", "you"]


def test_a_bar_has_the_room_there_is_or_is_left_out_and_no_column_is_cut() -> None:
    rows = [
        ({"user": user}, Figures(held, held, waited=60.0)) for user, held in (("mira", 9e4), ("bo", 10.0))
    ]
    for width in range(60, 140):
        lines = printed(usage_columns("user", rows, {}, width), rows)
        assert max(map(len, lines)) < width
        assert ("█ busy ░ idle" in lines[0]) == ("█" in lines[1])
    assert "█" in lines[1] and lines[2].split()[1:3] == ["10s", "0"], "a small amount is not nothing"


def test_short_times_do_not_contradict_the_utilization() -> None:
    rows = [
        ({"user": str(held)}, Figures(held, held - idle, idle))
        for held, idle in ((36.0, 28.0), (110.0, 62.0))
    ]
    shown = [line.split()[1:3] for line in printed(usage_columns("user", rows, {}, None), rows)[1:]]
    assert shown == [["36s", "28s"], ["1m50s", "1m02s"]]
    assert (
        printed(usage_columns("user", rows[:1], {}, None), [({"user": "ana"}, Figures(0.2, 0.2))])[1].split()[
            1
        ]
        == "1s"
    )


def test_equal_figures_have_equal_bars() -> None:
    helds = [3600 * 1.04, *(60.0 * n + 7 * n for n in range(1, 60)), 3600.0, 3600 * 1.01, 599.6, 600.0]
    rows = [({"user": str(n)}, Figures(held, held)) for n, held in enumerate(helds)]
    lines = [line.split() for line in printed(usage_columns("user", rows, {}, None), rows)[1:]]
    bars = {(figure, len(bar)) for _, figure, *_, bar in lines}
    assert len(bars) == len({figure for figure, _ in bars})


def test_of_thousands_of_jobs_the_first_are_listed_and_json_has_all(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    day = Day(1.0, 2.0, 3.0, {f"GPU-{n}": str(n) for n in range(32)})
    for n in range(1000):
        day.count(Figures(held=60.0 + n), device=f"GPU-{n % 32}", user="mira", job=f"{n:04}")
    place = folder_of(tmp_path / "gputui")
    place.mkdir(parents=True, mode=0o700)
    file_of(place, NOW).write_bytes(day.text())
    told = call("usage", "--by", "job")
    assert len(told.out.splitlines()) == 1 + MOST_ROWS and told.out.splitlines()[1].startswith("0999")
    assert "--json" in told.err and len(call("usage", "--by", "job", "--json").json["rows"]) == 1000


def test_of_a_year_only_the_sums_that_are_asked_for_are_parsed(tmp_path: Path) -> None:
    with day_of(tmp_path, ((KEY, "mira", "k3f9"), Figures(held=5.0))):
        file = file_of(folder_of(tmp_path / "gputui"), NOW)
        *lines, _ = file.read_text().splitlines()[1:]
        file.write_bytes(_checked("\n".join((*lines, "[[no jobs"))))
        found = {by: recorded({"XDG_STATE_HOME": str(tmp_path)}, NOW, NOW, by) for by in usage.BY}
    assert [by for by in found if found[by].damaged] == ["job"]
    assert [names for names, _ in found["user"].rows("user")] == [{"user": "mira"}]


def test_since_now_is_today(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW + 86_400)
    with day_of(tmp_path, ((KEY, "mira", ""), Figures(held=5.0))):
        assert len(call("usage", "--since", "1d", "--json").json["rows"]) == 1
        assert call("usage", "--since", "0s", "--json").json["rows"] == []


def test_energy_of_which_nothing_was_read_is_not_zero(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    # One GPU whose power is read, and one whose power is not.
    film = [at(n, box(busy(gpu(0, power=300.0)), gpu(1, power=None))) for n in (0, 10)]
    place = folder_of(tmp_path / "gputui")
    place.mkdir(parents=True, mode=0o700)
    file_of(place, NOW).write_bytes(metered(*film).text())
    rows = {row["device"]: row for row in call("usage", "--by", "device", "--json").json["rows"]}
    assert [(row["energy"], row["energy_known"]) for row in rows.values()] == [(3000, 10), (0, 0)]
    first, second = call("usage", "--by", "device").out.splitlines()[1:]
    assert "0.01" in first.split()[3:] and "–" not in first and second.split()[1:] == ["0", "–"]


def test_energy_of_a_counter_is_known_without_a_power() -> None:
    film = [replace(counted(joules), time=NOW) for joules in (1e6, None, 1e6 + 12_000)]
    film = [at(10 * n, box(with_facts(each.devices[0], power=None))) for n, each in enumerate(film)]
    mira = figures(metered(*film), "mira")
    assert (mira.energy, mira.energy_known) == (12_000, 20)


def test_a_box_without_any_record_says_how_to_begin(call: Call) -> None:
    told = call("usage")
    assert told.status == 0 and told.out == "" and "record --daemon" in told.err
    assert call("usage", "--json").json["rows"] == []


@each_row("place", ["the state folder", "the folder of days", "a day"])
def test_a_record_that_cannot_be_read_is_not_called_missing(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = folder_of(tmp_path / "gputui")
    wrong = {"the state folder": folder.parent, "the folder of days": folder, "a day": file_of(folder, NOW)}
    wrong[place].parent.mkdir(parents=True, exist_ok=True)
    wrong[place].write_text("no usage")
    told = call("usage")
    (lost,) = json.loads(call("usage", "--json").out)["damaged"]
    assert told.out == "" and lost["day"] in told.err and "nothing is recorded" not in told.err


def test_names_of_others_cannot_write_to_the_terminal(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    with day_of(tmp_path, ((KEY, "a\x1b[2Jb", "\n"), Figures(held=5.0))):
        assert all(
            line.isprintable() for by in usage.BY for line in call("usage", "--by", by).out.splitlines()
        )


def test_a_job_that_has_ended_has_its_energy_memory_and_utilization(tmp_path: Path) -> None:
    with desk_at(tmp_path) as desk:
        desk.sh("exit 0")
        until(lambda: all(each.over for each in all_jobs(desk.environ)))
        (ended,) = all_jobs(desk.environ)
        ended = with_facts(ended, devices=(JobDevice(0, KEY, None),))
        assert with_usage([ended], desk.environ) == [ended]
        place = folder_of(tmp_path / "state" / "gputui")
        place.mkdir(mode=0o700)
        row = Figures(7200.0, 3600.0, 0.0, 3.6e6, 3600.0 * 90, 20 * GIB, 0.0, 7200.0)
        day = Day(1.0, 2.0, 3.0, {KEY: "0"})
        day.count(row, device=KEY, user="mira", job=ended.id)
        assert ended.ended is not None
        file_of(place, ended.ended).write_bytes(day.text())
        (told,) = with_usage([ended], desk.environ)
        assert (told.energy, told.utilization, told.peak_memory) == (3.6e6, 90, 20 * GIB)


def test_a_simulated_box_has_the_usage_of_its_past() -> None:
    source = named("shared")
    source.open()
    found = of_past(source.past())
    users = {names["user"]: each for names, each in found.rows("user")}
    assert users["mira"].held > 3600 and users["mira"].busy > 0
    # Who comes and goes is seen most of the time (33 of 60 seconds): that energy is not nobody's.
    assert 0.8 < users["olek"].held / (12 * 3600 * 33 / 60) <= 1
    unused = 8 * 12 * 3600 - sum(each.held for each in users.values())
    assert 68 < users[""].energy / unused < 80
    assert users["ana"].waited > 2800 and {"you", "m6u5"} in [
        {*names.values()} for names, _ in found.rows("job")
    ]
    assert found.rows("user")[-1][0] == {"user": ""}


@pytest.mark.thorough
def test_no_crowd_of_users_makes_a_day_too_large_to_be_read() -> None:
    """The containers of one person can have 65,536 users, each with a claim for a moment."""
    day = Day(NOW, NOW, 86_400.0, {gpu(n).key: str(n) for n in range(72)})
    day.count(Figures(energy=1.0), device=gpu(0).key, user="", job="")
    for number in range(20_000):
        used = Figures(86_400.0, 80_000.0, 6400.0, 6e7, 8e6, 80 * GIB, 86_400.0, 86_400.0)
        day.count(used, device=gpu(number % 72).key, user=str(100_000 + number), job=f"{number:064}")
    assert len(day.text()) < 1024**2
    for table in day.tables.values():
        assert round(sum(each.held for each in table.values())) == 20_000 * 86_400
    assert day.tables["user"]["",].energy == 1.0
