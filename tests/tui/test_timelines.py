"""Timelines on the main screen and on a page of their own, and the charts themselves."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import inf, isnan
from pathlib import Path

import pytest

from gputui.inventory.device import Device, Fault
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.timeline import ring_file
from gputui.timeline.store import Metric, Span, Store
from gputui.tui.app_state import AppState
from gputui.tui.layout import lay_out
from gputui.tui.panels import parts
from gputui.tui.screens.timelines import TimelinesScreen
from gputui.tui.views.text import Line, width_of
from gputui.tui.views.timelines import (
    ZOOMS,
    Frame,
    charted,
    charts_key,
    charts_of,
    read_out,
    timelines_pane,
    why_no_charts,
)
from gputui.tui.widgets.lines import Lines
from table_tests import each_row
from tui.support import Session, StillSource, session
from unit.builders import GIB, NOW, box, gpu, instance

EIGHT = tuple(gpu(n, utilization=97, memory_used=66 * GIB, power=610.0) for n in range(8))


def _seen(*devices: Device, seconds: int = 100) -> AppState:
    """An app state after this many readings, one a second, the last one at NOW."""
    store, state = Store(), AppState({})
    for second in range(1 - seconds, 1):
        snapshot = box(*devices, time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    return state


@pytest.mark.parametrize("page", [False, True])
def test_where_there_is_no_room_for_a_chart_there_is_none(page: bool) -> None:
    state = _seen(*EIGHT)
    for height in range(12):
        lines, _ = charts_of(state, 80, height, 300, page=page, cursor=NOW)
        assert sum("█" in text or "▇" in text for text in _texts(lines)) <= max(0, height - 1)


def device_timeline(app_state: AppState, device: Device, width: int, height: int, zoom: int) -> list[Line]:
    """The charts of one device as its page and the panel show them."""
    return charts_of(app_state, width, height, zoom, device=device)[0]


def _texts(lines: list[Line]) -> list[str]:
    """The lines without the margin at the right."""
    return ["".join(text for text, _ in line).removesuffix(" ") for line in lines]


# The charts


def test_a_chart_is_full_at_a_hundred_percent_and_has_a_base_line_at_none() -> None:
    state = _seen(gpu(0, utilization=100, memory_used=0, power=350.0))
    chart = _texts(device_timeline(state, gpu(0), 75, 12, 60))
    util, memory, power = chart[0:3], chart[4:7], chart[8:11]
    assert all(line.endswith("█" * 60) for line in util)
    assert [line[-1] for line in memory] == ["┈", " ", "▁"]
    assert [line[-1] for line in power] == ["┈", "▄", "█"]
    assert "100%" in util[0] and "80.0G" in memory[0] and "700W" in power[0]


def test_one_device_alone_takes_all_the_room_and_what_no_device_tells_has_no_chart() -> None:
    pane = timelines_pane(_seen(gpu(0, utilization=97)), 100, 30)
    assert len(pane) == 30 and "100%" in _texts(pane)[1]
    unified = [gpu(n, utilization=97, memory_used=None, memory_total=None) for n in range(2)]
    lines, frame = charts_of(_seen(*unified), 100, 12, 300)
    assert frame is not None and "memory" not in _texts(lines)[0]


def test_full_charts_of_two_devices_above_each_other_do_not_run_together() -> None:
    full = [gpu(n, utilization=100, memory_used=80 * GIB, power=700.0) for n in range(2)]
    lines = _texts(charts_of(_seen(*full), 80, 4, 60)[0])
    assert ["█" in line for line in lines] == [False] * 4 and "▇▇▇" in lines[1] and "▇▇▇" in lines[2]


def test_time_before_the_first_reading_is_empty() -> None:
    chart = _texts(device_timeline(_seen(gpu(0), seconds=30), gpu(0), 75, 4, 60))
    assert chart[0].endswith(f" {' ' * 30}{'▁' * 30}")


@each_row("zoom", ZOOMS)
@each_row("size", [(40, 8), (78, 20), (130, 40), (200, 60)])
def test_charts_keep_to_their_room_at_every_zoom(size: tuple[int, int], zoom: int) -> None:
    width, height = size
    state = _seen(*EIGHT, seconds=5)
    for lines in (
        device_timeline(state, EIGHT[3], width, height, zoom),
        timelines_pane(state, width, height),
        charts_of(state, width, height, zoom, "memory", first=2, cursor=NOW)[0],
        charts_of(state, width, height, zoom, "power", device=EIGHT[3], cursor=NOW)[0],
    ):
        assert 0 < len(lines) <= height
        assert {width_of(line) for line in lines} - {1} <= {width, width - 1}


def test_the_axis_counts_back_from_now_and_shows_the_clock_for_hours() -> None:
    state = _seen(*EIGHT)
    *_, minutes = _texts(device_timeline(state, EIGHT[0], 130, 20, 300))
    assert [label[:3] for label in minutes.split("╵")[1:]] == ["-4m", "-3m", "-2m", "-1m"]
    assert minutes.endswith(" now")
    *_, hours = _texts(device_timeline(state, EIGHT[0], 130, 20, 12 * 3600))
    assert time.strftime("%H:00", time.localtime(NOW - 4 * 3600))[3:] == "00" and hours.count(":00") >= 3


@each_row("count", [2, 8, 16])
@each_row("width", [60, 80, 110])
def test_the_main_screen_has_the_timelines_of_all_gpus_or_none(width: int, count: int) -> None:
    devices = [*map(gpu, range(count))]
    state, keys, shown = _seen(*devices), {each.key for each in devices}, set()
    for height in range(10, 60):
        lines = dict(lay_out(width, height, count, 5, parts(state, width)).heights).get("timelines", 0)
        frame = charts_of(state, width, lines - 1)[1] if lines else None
        assert frame is None or frame.shown == keys, height
        assert bool(lines) == bool(frame)
        shown.add(bool(lines))
    assert shown == {True, False}


@each_row(("width", "charts"), [(70, 1), (80, 2), (200, 3)])
def test_charts_stand_beside_each_other_where_it_is_wide_and_say_their_mean_or_highest(
    width: int, charts: int
) -> None:
    state = _seen(*EIGHT)
    lines, frame = charts_of(state, width, 12, 300)
    figures = ["97%", "66.0G", "610W"]
    first = _texts(lines)[charts > 1]
    assert [each in first for each in figures] == [place < charts for place in range(3)]
    assert frame is not None and len(frame.lefts) == charts
    # There is one line for each device, and every chart covers the same moments.
    assert [key for key in frame.devices if key] == [device.key for device in EIGHT]
    assert {frame.moment(left) for left in frame.lefts} == {frame.span.time(0)}
    assert frame.moment(frame.lefts[0] + frame.span.columns) is None


def test_charts_are_drawn_again_only_when_a_column_begins() -> None:
    state = _seen(*EIGHT)
    store = state.timelines.store if state.timelines else Store()
    keys, drawn = [], []
    for second in range(20):
        snapshot = box(*EIGHT, time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
        keys.append(charts_key(state, 85, 20))
        drawn.append(_texts(timelines_pane(state, 85, 20)))
    # There are two charts of 32 columns, each longer than nine seconds.
    assert len(set(keys)) == 3
    assert all(a == b for a, b, c, d in zip(drawn, drawn[1:], keys, keys[1:], strict=False) if c == d)


def test_the_read_out_says_what_was_at_a_moment() -> None:
    state = _seen(*EIGHT)
    _, frame = charts_of(state, 130, 20, 300, device=EIGHT[3])
    assert frame is not None
    clock = time.strftime("%H:%M:%S", time.localtime(NOW - 10))
    assert read_out(state, EIGHT[3], frame, NOW - 10) == f"{clock} GPU 3: 97 %, 66.0G, 610 W"
    assert read_out(state, EIGHT[3], frame, NOW - 200).endswith("GPU 3: no reading")


def test_a_device_of_which_nothing_is_known_has_no_chart() -> None:
    unknown = gpu(0, utilization=None, memory_used=None, power=None)
    assert device_timeline(_seen(unknown), unknown, 80, 20, 300) == []
    assert device_timeline(AppState({}), gpu(0), 80, 20, 300) == []


def _on_and_off(seconds: int = 600) -> AppState:
    """A GPU that is at 90 % for 30 seconds of each minute."""
    store, state = Store(), AppState({})
    for second in range(1 - seconds, 1):
        device = gpu(0, utilization=90 if second % 60 < 30 else 0, memory_used=40 * GIB, power=350.0)
        snapshot = box(device, time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    return state


def test_one_device_has_a_scale_a_solid_chart_and_its_figures() -> None:
    lines, _ = charts_of(_seen(*EIGHT), 80, 22, 60, "memory", device=EIGHT[3], page=True)
    texts = _texts(lines)
    assert [line[7:13].strip() for line in texts[:20] if line[7:13].strip()] == ["80.0G", "40.0G", "0"]
    figures = [line[-12:].split() for line in texts[:5]]
    assert figures == [*([name, "66.0G"] for name in ("now", "max", "mean", "min")), []]
    solid = [style for line in lines for text, style in line if set(text) & set("▁▂▃▄▅▆▇█")]
    assert len(solid) >= 15 and set(solid) == {"load"}
    assert any("┈" in text for text in texts[:1])


def test_the_highest_figure_is_of_one_reading_and_the_lowest_of_a_columns_mean() -> None:
    store, state = Store(), AppState({})
    for second in range(-599, 1):
        snapshot = box(gpu(0, utilization=0 if second % 10 else 100), time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    lines, _ = charts_of(state, 90, 12, max(ZOOMS), device=state.rows[0], metric="utilization", page=True)
    told = {
        name: int(percent) for name, percent in re.findall(r"(max|mean|min) +(\d+)%", "".join(_texts(lines)))
    }
    assert told["max"] == 100
    assert told["mean"] == pytest.approx(10, abs=3) and told["min"] <= told["mean"]


def test_bars_of_minutes_from_a_file_look_like_the_others_and_a_gap_is_explained() -> None:
    older, store, state = Store(), Store(), AppState({})
    for second in range(-240, -60):
        used = 70 * GIB if second % 60 == 0 else 0
        device = gpu(0, utilization=60 * (second // 6 % 2), memory_used=used)
        older.add(NOW + second, [device])
    minute = int(NOW // 60)
    store.adopt(ring_file.read(ring_file.whole(older, [gpu(0).key], minute), minute))
    snapshot = box(gpu(0), gpu(1))
    state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    assert "blank: not recorded" in "".join(_texts(timelines_pane(state, 80, 8)))
    for metric in ("utilization", "memory"):
        lines, frame = charts_of(state, 80, 9, 300, metric)  # type: ignore[arg-type]
        assert frame is not None and frame.gaps
        own = lines[: frame.devices.index(gpu(1).key)]
        bars = {(each, style) for line in own for text, style in line for each in text if each in "▁▂▃▄▅▆▇█"}
        assert {style for _, style in bars} <= {"load", "load-peaked"} and ("█", "load") in bars
        if metric == "memory":
            assert "70.0G" in "".join(_texts(own))
            assert set("▃▄▅▆▇█") & set(_texts(own)[0]), "of 80 GiB, 70 are near the top"


def test_between_charts_below_each_other_a_part_of_a_line_is_always_free() -> None:
    store, state = Store(), AppState({})
    devices = [gpu(number, utilization=100, memory_used=79 * GIB) for number in range(3)]
    for second in range(-60, 1):
        store.add(NOW + second, devices)
    snapshot = box(*devices)
    state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    for height in range(4, 40):
        lines, frame = charts_of(state, 60, height)
        assert frame is not None
        rows = [line for line, key in zip(_texts(lines), frame.devices, strict=False) if key]
        named = [n for n, row in enumerate(rows) if "util" in row]
        tops = [0, *(n + 1 for n in named[:-1])] if named else range(len(rows))
        assert not any("█" in rows[n] for n in tops), height


def test_the_highest_of_a_column_is_a_shade_above_its_mean_without_a_gap() -> None:
    state = _on_and_off()
    lines, _ = charts_of(state, 31, 22, 3 * 3600, "utilization", device=state.rows[0], page=True)
    column = [
        (text, style)
        for line in lines[:20]
        for text, style in [[(each, style) for text, style in line for each in text][29]]
        if text not in " ┈"
    ]
    shades = [style for _, style in column]
    edge = [style for style, _ in groupby(shades)]
    assert edge == ["rest", "load-peaked", "load"]
    # Only the topmost cell may be less than full; that of the mean has the shade behind it.
    assert all(text == "█" or style == "load-peaked" for text, style in column[1:])
    assert shades.count("rest") >= 3


def test_every_chart_is_solid_where_nothing_rises_above_the_mean() -> None:
    """Two jobs of unequal height: the edge of a chart is of the same style as its body."""
    store, state = Store(), AppState({})
    for second in range(-99, 1):
        snapshot = box(gpu(0, utilization=53 if second % 2 else 49), time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    lines, _ = charts_of(state, 130, 12, 60, device=state.rows[0])
    assert {style for line in lines for text, style in line if set(text) & set("▁▂▃▄▅▆▇█")} == {"load"}


def test_the_mark_of_the_cursor_leaves_the_axis_alone() -> None:
    state = _seen(*EIGHT)
    for cursor in (NOW, NOW - 10):
        for lines in (
            charts_of(state, 80, 20, 300, cursor=cursor, page=True)[0],
            charts_of(state, 80, 20, 300, device=EIGHT[0], cursor=cursor, page=True)[0],
        ):
            *_, axis, mark = _texts(lines)
            assert axis.rstrip().endswith(" now") and "▲" not in axis and mark.strip() == "▲"


def _figures(lines: list[Line], frame: Frame | None, key: str) -> list[str]:
    """The figures behind the charts of a device."""
    assert frame is not None
    foot = [n for n, each in enumerate(frame.devices) if each == key][-1]
    text = _texts(lines)[foot]
    ends = [left + frame.span.columns for left in frame.lefts]
    return [text[end : end + 7].strip() for end in ends]


@pytest.mark.parametrize("metric", [None, "memory"])
def test_at_a_moment_every_device_has_the_figures_of_that_moment(metric: Metric | None) -> None:
    store, state = Store(), AppState({})
    for second in range(-99, 1):
        # More than five seconds ago, each device had as many percent as its index; now it has none.
        devices = [
            replace(each, utilization=each.index if second < -5 else 0, memory_used=each.index * GIB)
            for each in EIGHT
        ]
        snapshot = box(*devices, time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    wanted = {"utilization": "{}%", "memory": "{}.0G", "power": "610W"}
    lines, frame = charts_of(state, 130, 20, 60, metric, cursor=NOW - 10, page=True)
    assert frame is not None
    for device in EIGHT:
        figures = [wanted[each].format(device.index) for each in frame.metrics]
        assert _figures(lines, frame, device.key) == figures
    now, frame = charts_of(state, 130, 20, 60, metric, page=True)
    assert _figures(now, frame, EIGHT[3].key)[0] == ("3.0G" if metric else "0%")
    assert metric or ("now" in _texts(now)[0] and "now" not in _texts(lines)[0])
    one = _texts(charts_of(state, 100, 22, 60, device=EIGHT[3], cursor=NOW - 10, page=True)[0])
    assert one[0].endswith(" 3%") and "now" not in one[0]
    before, frame = charts_of(state, 130, 20, 300, metric, cursor=NOW - 200, page=True)
    assert {*_figures(before, frame, EIGHT[3].key)} == {"–"}, "nobody read then"


def _lost_after(seconds: int, *, ago: int = 0) -> AppState:
    """GPU 1 is idle, and lost since `ago` seconds before NOW; GPU 0 is not lost."""
    store, state = Store(), AppState({})
    for second in range(1 - seconds, 1):
        other = gpu(1)
        if second > -ago:
            facts = dict.fromkeys(("utilization", "memory_used", "memory_free", "power"))
            other = replace(other, fault=Fault("lost", "GPU is lost", NOW - ago), **facts)
        snapshot = box(gpu(0), other, time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    return state


@each_row("page", [False, True])
@each_row("width", [60, 80, 130, 200])
def test_of_a_lost_device_the_past_ends_and_no_figure_stands_for_now(width: int, page: bool) -> None:
    state = _lost_after(100, ago=30)
    lines, frame = charts_of(state, width, 12, 60, page=page)
    assert frame is not None and {*_figures(lines, frame, gpu(1).key)} == {"lost"}
    assert "lost" not in _figures(lines, frame, gpu(0).key)
    foot = [n for n, each in enumerate(frame.devices) if each == gpu(1).key][-1]
    chart = _texts(lines)[foot][frame.lefts[0] :][: frame.span.columns]
    assert chart[:5] == "▁▁▁▁▁" and chart[-5:].strip() == ""


@each_row("width", [60, 80, 130, 200])
def test_where_a_lost_device_has_no_past_in_the_span_the_word_stands_there(width: int) -> None:
    lines, frame = charts_of(_lost_after(100, ago=90), width, 12, 60)
    assert frame is not None
    row = _texts(lines)[[n for n, each in enumerate(frame.devices) if each == gpu(1).key][-1]]
    assert "lost" in row and "0" not in row


def test_the_panel_is_drawn_again_when_a_device_is_lost() -> None:
    state = _seen(gpu(0), gpu(1))
    lost = replace(gpu(1), fault=Fault("lost", "GPU is lost", NOW))
    assert charts_key(state, 80, 20) != charts_key(state.with_snapshot(box(gpu(0), lost)), 80, 20)


@each_row("page", [False, True])
@each_row("size", [(60, 6), (60, 12), (78, 20), (130, 12), (200, 40)])
def test_what_no_instance_tells_has_no_blank_row(size: tuple[int, int], page: bool) -> None:
    parent = gpu(0, mig=True, utilization=None, memory_used=3 * GIB)
    parts = (instance(parent, 0, memory_used=2 * GIB), instance(parent, 1, memory_used=GIB))
    lines, frame = charts_of(_seen(parent, *parts, gpu(1, utilization=50)), *size, 60, page=page)
    assert frame is not None
    for key in frame.shown:
        row = _texts(lines)[[n for n, each in enumerate(frame.devices) if each == key][-1]]
        words = row[frame.lefts[0] :].split()
        assert words, "no row is blank"
        if key != gpu(1).key and len(frame.lefts) > 1:
            assert row[frame.lefts[0] :].startswith("no utilization (MIG)")
        if key == parts[0].key:
            assert "2.0G" in row
        elif key == parent.key and len(frame.lefts) > 1:
            assert "3.0G" in row
    assert parts[1].key in frame.shown or size[1] < 12


@each_row("page", [False, True])
@each_row("size", [(70, 24), (130, 30), (200, 43)])
def test_charts_of_devices_that_all_fit_have_equal_gaps_and_leave_fewer_lines_than_devices(
    size: tuple[int, int], page: bool
) -> None:
    parent = gpu(0, mig=True, utilization=None)
    for devices in (EIGHT[:2], EIGHT[:5], (parent, instance(parent, 0), gpu(1))):
        lines, frame = charts_of(_seen(*devices), *size, 300, page=page)
        assert frame is not None and len(frame.shown) == len(devices)
        assert 0 <= size[1] - len(lines) < len(devices)
        runs = [(key, len(list(each))) for key, each in groupby(frame.devices)]
        between = [count for key, count in runs[1:] if not key]
        assert runs[0][0] or runs[0][1] == (len(frame.lefts) > 1)
        assert len({*between}) <= 1


@each_row("height", range(24, 31))
def test_charts_become_higher_before_each_has_a_line_between_it_and_the_next(height: int) -> None:
    lines, frame = charts_of(_seen(*EIGHT), 130, height + 2, 300)
    assert frame is not None and len(lines) == height + 2
    runs = [(key, len(list(each))) for key, each in groupby(frame.devices[1:])]
    assert [count for key, count in runs if key] == [3] * 8
    assert [count for key, count in runs if not key] == [1] * (height - 24)


def test_the_page_of_one_metric_goes_through_the_devices_that_tell_it() -> None:
    parent = gpu(0, mig=True, utilization=None)
    state = _seen(parent, instance(parent), gpu(1))
    assert charted(state, "utilization") == [gpu(1)]
    assert charted(state, "memory") == [parent, instance(parent), gpu(1)]


# The screen


class _WithPast(StillSource):
    """A box with the history of its last two minutes."""

    simulated = property(lambda self: self)

    def past(self) -> Iterator[list[Snapshot]]:
        yield [box(*EIGHT, time=NOW - ago) for ago in range(120, 0, -1)]


def _page(s: Session) -> list[str]:
    page = s.app.screen
    assert isinstance(page, TimelinesScreen)
    return [text.rstrip() for surface in page.query(Lines) for text in surface.texts]


async def test_the_main_screen_shows_the_past_of_a_source_that_knows_it() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(160, 40)) as s:
        assert any("timelines" in text for text in s.texts("#history"))
        await s.until(lambda: any(re.search("[▁-█]{10}", text) for text in s.texts("#history")))


class _WithLongPast(StillSource):
    """A box with the history of its last hour, the last minutes first."""

    simulated = property(lambda self: self)

    def past(self) -> Iterator[list[Snapshot]]:
        yield [box(gpu(0), time=NOW - ago) for ago in range(300, 0, -2)]
        yield [box(gpu(0), time=NOW - ago) for ago in range(3600, 290, -10)]


async def test_a_past_appears_as_a_whole() -> None:
    async with session(source=_WithLongPast(box(gpu(0)))) as s:
        await s.until(lambda: (now := s.main.app_state.timelines) and now.adopted)
        timelines = s.main.app_state.timelines
        assert timelines is not None and timelines.adopted == 1
        assert NOW - timelines.unused_since(gpu(0).key, NOW, 0.0, inf) >= 3600


async def test_the_page_zooms_reads_a_moment_and_goes_to_a_device() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(100, 30)) as s:
        await s.press("@timelines")
        await s.until(lambda: any(full in text for text in _page(s) for full in ("█" * 10, "▇" * 10)))
        assert "all GPUs" in _page(s)[0] and "last 5m" in _page(s)[0]
        await s.press("plus")
        assert "last 1m" in _page(s)[0]
        await s.press("minus", "minus")
        assert "last 15m" in _page(s)[0]
        await s.press("j", "j", "enter", "plus", "left", "left")
        assert "timelines: GPU 2" in _page(s)[0]
        assert any(text.endswith("GPU 2: 97 %, 66.0G, 610 W") for text in _page(s))
        await s.press("tab")
        assert (
            "last 5m" in _page(s)[0]
            and "utilization" in _page(s)[0]
            and not any("power" in text for text in _page(s))
        )


async def test_escape_closes_the_moment_then_the_one_device_then_the_page() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(100, 30)) as s:
        await s.press("@timelines", "j", "left", "left", "enter")
        assert "timelines: GPU 1" in _page(s)[0] and " at " in _page(s)[0]
        await s.press("escape")
        assert "timelines: GPU 1" in _page(s)[0] and " at " not in _page(s)[0]
        await s.press("escape")
        assert "all GPUs" in _page(s)[0]
        await s.press("escape")
        assert s.app.screen is s.main
        await s.press("@timelines", "left", "enter", "q")
        assert s.app.screen is s.main


async def test_the_page_shows_as_many_devices_as_fit_after_the_terminal_has_grown() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(130, 40)) as s:
        await s.press("@timelines")
        await s.resize(60, 15)
        await s.press(*["j"] * 7)
        assert "of 8 GPUs" in _page(s)[0] and any(row.lstrip("▸ ").startswith("7 ") for row in _page(s))
        await s.resize(130, 40)
        assert "all GPUs" in _page(s)[0]
        assert all(any(row.lstrip("▸ ").startswith(f"{n} ") for row in _page(s)) for n in range(8))


@pytest.mark.thorough
@pytest.mark.parametrize("zoom", ZOOMS)
def test_the_values_of_a_moment_are_the_same_in_charts_of_every_width(zoom: int) -> None:
    store, state = Store(), AppState({})
    for second in range(-900, 1):
        snapshot = box(gpu(0, utilization=second % 97), gpu(1), time=NOW + second)
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    device = state.rows[0]
    for ago in (0, 1, 7, 61, 250, 500, 850):
        said: set[str] = set()
        for width in range(60, 200, 27):
            for _, frame in (
                charts_of(state, width, 20, zoom, cursor=NOW - ago, page=True),
                charts_of(state, width, 20, zoom, device=device, cursor=NOW - ago, page=True),
            ):
                assert frame is not None
                said.add(read_out(state, device, frame, NOW - ago).split(" ", 1)[1])
        assert len(said) == 1, said
        one = said.pop()
        if ago < 300:
            assert one.startswith(f"GPU 0: {-ago % 97} %,") and "mean" not in one
        else:
            assert one.endswith("(mean of 10s)"), "the seconds are no longer kept"


def test_memory_that_is_the_hosts_is_charted_as_its_ram() -> None:
    shared = gpu(0, unified=True, memory_used=None, memory_total=None, memory_free=None, power_limit=None)
    store, state = Store(), AppState({})
    for second in range(-99, 1):
        load = HostLoad(memory_used=32 * GIB, memory_total=128 * GIB)
        snapshot = box(replace(shared, power=44.0), time=NOW + second)
        snapshot = replace(snapshot, host=replace(snapshot.host, load=load))
        state = replace(state.with_snapshot(snapshot), timelines=store.after(snapshot, 1.0))
    lines = _texts(charts_of(state, 100, 22, 60, device=state.rows[0], page=True)[0])
    text = "\n".join(lines)
    assert "RAM   128.0G" in text and "now  32.0G" in text
    # The power limit is not known: the chart says so, and does not look full.
    top = next(n for n, line in enumerate(lines) if line.startswith(" power"))
    assert "100W" in lines[top] and "no limit" in lines[top + 1] and "█" not in lines[top]


def test_power_without_a_known_limit_is_not_called_unknown() -> None:
    devices = [gpu(n, power=44.0, power_limit=None) for n in range(2)]
    lines, _ = charts_of(_seen(*devices), 130, 20, 60, "utilization", page=True)
    assert lines
    assert why_no_charts(_seen(*devices), devices[0], "power") == "no power limit known"


async def test_the_page_shows_what_its_title_says_with_the_figures_of_now() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(80, 24)) as s:
        await s.press("@timelines")
        await s.until(lambda: any(full in text for text in _page(s) for full in ("█" * 10, "▇" * 10)))
        head, *rows = _page(s)
        assert "6 of 8 GPUs" in head and "utilization, memory, power" in head
        of_first = [row for row in rows if row.split()[-1:] in (["97%"], ["66.0G"], ["610W"])][:3]
        assert [row.split()[-1] for row in of_first] == ["97%", "66.0G", "610W"]
        assert "util" in of_first[0] and "mem" in of_first[1] and "power" in of_first[2]
        await s.press(*["j"] * 7)
        assert any(row.lstrip("▸ ").startswith("7 ") for row in _page(s))


async def test_the_mouse_reads_the_moment_and_the_device_under_it() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(100, 30)) as s:
        await s.press("@timelines")
        await s.until(lambda: any(full in text for text in _page(s) for full in ("█" * 10, "▇" * 10)))
        line = next(n for n, text in enumerate(_page(s)) if text.startswith("  3 "))
        await s.pilot.hover(Lines, offset=(90, line))
        await s.until(lambda: any(text.endswith("GPU 3: 97 %, 66.0G, 610 W") for text in _page(s)))
        await s.pilot.click(Lines, offset=(88, line + 1))
        await s.until(lambda: s.main.app_state.cursor == EIGHT[3].key)


async def test_what_one_run_saw_is_there_at_the_next_start(tmp_path: Path) -> None:
    minute, environ = time.time() // 60 * 60, {"XDG_STATE_HOME": str(tmp_path)}
    source = StillSource(box(*EIGHT, time=minute - 180))
    async with session(source=source, environ=environ) as s:
        await s.until(lambda: s.main.app_state.timelines and s.main.app_state.timelines.adopted)
        read = len(source.wanted)
        await s.until(lambda: len(source.wanted) > read + 2)
        await s.settle()
        source.snapshot = box(*EIGHT, time=minute - 120)
        await s.until(lambda: list(tmp_path.rglob("*.ring")))
    async with session(box(*EIGHT, time=minute), environ=environ) as s:
        await s.until(lambda: s.main.app_state.timelines and s.main.app_state.timelines.adopted)
        timelines = s.main.app_state.timelines
        assert timelines is not None
        values = timelines.values(EIGHT[0].key, "utilization", Span.at(timelines.until, 3600, 60))
        assert values[-4] == values[-1] == 97 and isnan(values[-3])


async def test_the_page_says_which_moment_is_read_and_which_devices_it_is_read_of() -> None:
    async with session(source=_WithPast(box(*EIGHT)), size=(130, 40)) as s:
        await s.press("@timelines")
        await s.until(lambda: any("█" * 10 in text for text in _page(s)))
        assert " at " not in _page(s)[0]
        await s.press("left", "left")
        at = re.search(r" at (\d\d:\d\d:\d\d) ", _page(s)[0])
        assert at is not None and any(text.startswith(f" {at[1]} GPU 0") for text in _page(s))
        await s.press("escape")
        assert " at " not in _page(s)[0] and "timelines" in _page(s)[0]


async def test_a_page_without_a_chart_says_why() -> None:
    parent = gpu(0, mig=True, utilization=None)
    async with session(box(parent, instance(parent), gpu(1)), size=(100, 30)) as s:
        await s.press("@timelines", "tab")
        assert "1 of 3 GPUs" in _page(s)[0] and "utilization" in _page(s)[0]
        s.main.set_app_state(replace(s.main.app_state, cursor=parent.key))
        await s.press("enter")
        assert any("no utilization (MIG)" in text for text in _page(s))
        await s.press("j")
        assert s.main.app_state.cursor == gpu(1).key and "GPU 1" in _page(s)[0]


@each_row("height", range(20, 45))
def test_the_charts_of_all_devices_are_equally_high(height: int) -> None:
    app_state = _seen(*(gpu(n) for n in range(6)))
    lines, frame = charts_of(app_state, 100, height, 300)
    assert frame is not None and lines
    counts = {frame.devices.count(key) for key in frame.shown}
    assert len(counts) == 1
