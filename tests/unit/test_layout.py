"""The layout of the main screen: the panels that get room at each size."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from gputui.choosing.verdict import GLYPHS
from gputui.inventory.claim import Claim
from gputui.inventory.formatting import counted
from gputui.inventory.snapshot import HostLoad
from gputui.inventory.topology import Nic
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.timeline.store import Store
from gputui.tui.app_state import AppState
from gputui.tui.layout import (
    WIDE,
    Column,
    LaunchRoom,
    Layout,
    Part,
    Size,
    has_rules,
    launch_room,
    lay_out,
    share,
    side_width,
)
from gputui.tui.panels import PANELS_BY_NAME, parts
from gputui.tui.views.header import header
from gputui.tui.views.help import help_lines
from gputui.tui.views.launch import launch, lines_wanted
from gputui.tui.views.matrix import Layout as MatrixLayout
from gputui.tui.views.matrix import alike_words, matrix
from gputui.tui.views.processes import processes
from gputui.tui.views.selection import selection_lines
from gputui.tui.views.table import state_of, table
from gputui.tui.views.text import Line
from gputui.tui.views.topology_tree import tree_lines
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, job

BOX = at(BOXES["shared"], 0.0, 1_700_000_000.0)
SOME_PAST = Store()
PROCESSES = Part("processes", Size(4, 12), "table", True)
TIMELINES = Part("timelines", Size(4, 18), "table", True, spare=True)
JOBS = Part("jobs", Size(3, 5), "side", False)
LINKS = Part("links", Size(10, 10), "side", False)
DEVICE = Part("device", Size(7, 17), "side", True, spare=True)


WIDTHS = (40, 60, 80, 120, 149, 150, 160, 179, 180, 200, 320)
HEIGHTS = (5, 8, 10, 12, 13, 15, 24, 40, 60, 100)


def test_nothing_overlaps_and_nothing_is_left_over() -> None:
    parts = [PROCESSES, TIMELINES, JOBS, LINKS]
    least = {part.name: part.size.least for part in parts}
    for width, height, devices in product(WIDTHS, HEIGHTS, (0, 1, 8, 16, 72)):
        below = 5 if height >= 13 else 2
        layout = lay_out(width, height, devices, below, parts)
        body = max(1, height - below - 1 - 2 * layout.roomy)
        assert layout.table >= 1 and layout.table + lines_of(layout.left) <= body
        columns = [each for each in (layout.left, layout.beside) if each is not None]
        if layout.beside is not None:
            assert layout.left.width + 1 + layout.beside.width == width and layout.left.width >= 80
            assert max(layout.table + lines_of(layout.left), lines_of(layout.beside)) <= body
        if width >= WIDE and height >= 40 and 0 < devices < 72:
            # No line stays empty: some panel grows into the remaining space.
            assert layout.beside is not None and lines_of(layout.beside) == body
            assert layout.table + lines_of(layout.left) == body
        for column in columns:
            assert all(lines >= (least[name] if width >= WIDE else 1) for name, lines in column.heights)


def lines_of(column: Column) -> int:
    return sum(lines for _, lines in column.heights)


@each_row(("height", "below"), [(15, 5), (10, 2), (8, 2)])
def test_a_short_terminal_has_three_lines_of_the_table_beside_selection_and_launch(
    height: int, below: int
) -> None:
    assert lay_out(60, height, 8, below, [PROCESSES]).table >= 3


@each_row(("height", "devices", "rows"), [(24, 16, 12), (15, 8, 5), (15, 3, 3), (10, 8, 3)])
def test_the_launch_line_and_its_warnings_leave_rows_of_the_table(
    height: int, devices: int, rows: int
) -> None:
    room = launch_room(height, devices, 9)
    below = (3 if has_rules(height) else 1) + room.lines
    assert lay_out(60, height, devices, below, []).table >= 1 + rows
    assert room.lines >= 1


@each_row("height", [8, 10, 13, 15, 24, 40])
@each_row("width", [20, 40, 60, 80, 130])
def test_a_long_launch_line_is_cut_within_its_room_and_says_how_to_have_all_of_it(
    width: int, height: int
) -> None:
    words = " ".join(f"--option-{n} value" for n in range(100))
    options = LaunchOptions(("torchrun", "--nproc-per-node=4", "train.py", *words.split()))
    app_state = AppState({}, options, label="demo shared").with_snapshot(BOX)
    for index in (0, 2, 5):
        app_state = app_state.toggle(BOX.devices[index])[0]
    assert len(app_state.warnings) + len(app_state.launch.warnings) > 2
    room = launch_room(height, 8, lines_wanted(app_state, width))
    lines = launch(app_state, width, room)
    texts = ["".join(text for text, _ in line) for line in lines]
    assert len(lines) == room.ruled + room.lines and all(len(text) <= width for text in texts)
    assert texts[room.ruled].startswith(" $ ") and (height == 40 or "…" in "".join(texts))
    if width >= 60 and height < 40:
        assert "y copies all" in "".join(texts)


def test_warnings_that_have_no_room_are_counted() -> None:
    options = LaunchOptions(("torchrun", "--nproc-per-node=4", "train.py"))
    app_state = AppState({}, options, label="demo shared").with_snapshot(BOX)
    for index in (0, 2):
        app_state = app_state.toggle(BOX.devices[index])[0]
    count = len(app_state.warnings) + len(app_state.launch.warnings)
    for room, warnings in ((3, 1), (4, 2), (5, 3)):
        lines = launch(app_state, 60, LaunchRoom(room))
        shown = [line for line in lines if any(style == "warn" for _, style in line)]
        more = counted(count - warnings, "more warning")
        assert len(shown) == warnings and _text(lines[-1:]).endswith(f"… {more}: :launch page")
        assert _text(lines[1:3]).endswith(" train.py"), "what starts is whole"


@each_row(("width", "room"), [(80, LaunchRoom(3)), (80, LaunchRoom(6)), (60, LaunchRoom(6))])
def test_warnings_are_whole_in_lines_that_the_launch_line_leaves(width: int, room: LaunchRoom) -> None:
    quiet = replace(BOX, waiters=())
    app_state = AppState({}, LaunchOptions(("sh", "train.sh"))).with_snapshot(quiet)
    for index in (0, 3):
        app_state = app_state.toggle(BOX.devices[index])[0]
    assert len(app_state.warnings) == 2
    lines = [_text([line]) for line in launch(app_state, width, room)]
    assert all(any(warning in line for line in lines) for warning in app_state.warnings)
    assert len([line for line in lines if "!" in line]) == 2


def test_on_a_wide_terminal_warnings_are_whole_and_beside_each_other() -> None:
    options = LaunchOptions(("torchrun", "--nproc-per-node=4", "train.py"))
    app_state = AppState({}, options, label="demo shared").with_snapshot(BOX)
    for index in (0, 2):
        app_state = app_state.toggle(BOX.devices[index])[0]
    told = [*app_state.launch.warnings, *app_state.warnings]
    room = launch_room(60, 8, lines_wanted(app_state, 200))
    lines = launch(app_state, 200, room)
    assert len(told) > room.lines - 1 and len(lines) == 1 + room.lines
    assert all(each in _text(lines) for each in told) and "+" not in _text(lines[-2:])


@each_row("width", [150, 160, 179, 180, 320])
def test_on_a_wide_terminal_commands_are_below_the_table_and_timelines_below_them(width: int) -> None:
    layout = lay_out(width, 60, 8, 5, [PROCESSES, TIMELINES, DEVICE, JOBS, LINKS])
    assert layout.beside is not None
    assert [name for name, _ in layout.left.heights] == ["processes", "timelines"]
    assert [name for name, _ in layout.beside.heights] == ["device", "jobs", "links"]
    heights = dict(layout.heights)
    assert heights["processes"] >= PROCESSES.size.wants and heights["timelines"] >= TIMELINES.size.wants
    # What is left over goes to the details of the device, although all others come first.
    assert heights["device"] == 52 - JOBS.size.wants - LINKS.size.wants
    low = lay_out(width, 25, 8, 5, [PROCESSES, TIMELINES, DEVICE, JOBS, LINKS])
    assert {"device", "timelines"} & dict(low.heights).keys() == set()


def test_a_second_column_that_would_come_later_is_not_opened() -> None:
    """The table would become narrower while the user looks at it."""
    before = lay_out(160, 40, 8, 5, [PROCESSES, TIMELINES])
    kept = [
        replace(part, size=Size(part.size.least, lines))
        for part, (_, lines) in zip([PROCESSES, TIMELINES], before.heights, strict=True)
    ]
    after = lay_out(160, 40, 8, 5, [*kept, JOBS], before)
    assert before.left.width == after.left.width == 160 and after.beside is None
    assert dict(after.heights).keys() == {"processes", "timelines", "jobs"}


@each_row(("width", "height"), [(80, 40), (130, 40), (200, 60)])
def test_a_panel_that_comes_takes_lines_of_the_last_one_of_its_column(width: int, height: int) -> None:
    grown = [Part("processes", Size(4, 8), "table", True), TIMELINES, *[DEVICE] * (width >= WIDE)]
    fixed_end = [LINKS] * (width >= WIDE)
    before = lay_out(width, height, 8, 5, [*grown, *fixed_end])
    kept = dict(before.heights)
    fixed = [
        replace(part, size=Size(part.size.least if part.grows else kept[part.name], kept[part.name]))
        for part in [*grown, *fixed_end]
    ]
    tops = top_of(before)
    after = lay_out(width, height, 8, 5, [*fixed[: len(grown)], JOBS, *fixed_end], before)
    assert "jobs" in dict(after.heights)
    columns = [[each.left, each.beside] for each in (before, after)]
    lines = [[column and lines_of(column) for column in each] for each in columns]
    assert lines[0] == lines[1], "every column has the lines that it had"
    assert {name: top_of(after)[name] for name in tops} == tops, "each begins where it did"


def top_of(layout: Layout) -> dict[str, int]:
    """The line of its column in which each panel begins."""
    columns = [column for column in (layout.left, layout.beside) if column is not None]
    return {
        name: sum(lines for _, lines in column.heights[:place])
        for column in columns
        for place, (name, _) in enumerate(column.heights)
    }


def test_panels_that_do_not_grow_keep_their_height_while_the_others_change() -> None:
    few, many = (Part("processes", Size(4, wants), "side", True) for wants in (4, 90))
    assert share(30, [few, JOBS, LINKS]) == share(30, [many, JOBS, LINKS])
    assert share(30, [JOBS, few, LINKS]) == (("processes", 15), ("jobs", 5), ("links", 10))


def test_without_jobs_and_waiters_there_is_no_panel_of_them_and_its_lines_are_given_back() -> None:
    for width, height in ((80, 40), (130, 40), (200, 60)):
        full, empty = (
            AppState({}).with_snapshot(replace(BOX, waiters=who, jobs=())) for who in (BOX.waiters, ())
        )
        assert full.box.claims, "a claim of another user is in the table"
        before = lay_out(width, height, 8, 6, parts(full, width))
        kept = parts(empty, width, dict(before.heights))
        assert "jobs" in dict(before.heights) and "jobs" not in [part.name for part in kept]
        after = lay_out(width, height, 8, 6, kept, before)
        tops = top_of(before)
        del tops["jobs"]
        assert top_of(after) == tops
        again = lay_out(width, height, 8, 6, parts(full, width, dict(after.heights)), after)
        assert {name: top_of(again)[name] for name in tops} == tops
        assert dict(again.heights).keys() == dict(before.heights).keys()


@each_row("name", ["gb10", "idle", "lost", "mixed", "shared"])
@each_row(("width", "height"), [(80, 24), (80, 40), (100, 30), (110, 60)])
def test_one_column_has_timelines_where_the_other_panels_leave_lines(
    name: str, width: int, height: int
) -> None:
    state = AppState({}).with_snapshot(at(BOXES[name], 0.0, 1_700_000_000.0))
    assert state.snapshot is not None
    state = replace(state, timelines=Store().after(state.snapshot, 1.0))
    asked = parts(state, width)
    layout = lay_out(width, height, len(state.rows), 6, asked)
    heights = dict(layout.left.heights)
    others = {part.name: part.size.wants for part in asked if part.name != "timelines"}
    least = next(part.size.least for part in asked if part.name == "timelines")
    left = height - 3 - 6 - layout.table - sum(others.values())
    assert ("timelines" in heights) == (left >= least)
    if "timelines" in heights:
        assert layout.table + layout.left.lines == height - 9
        assert all(heights[each] >= lines for each, lines in others.items())
    assert height <= 30 or (height == 40 and name == "shared") or "timelines" in heights


def test_what_has_no_room_is_left_out_whole_and_the_most_important_stays() -> None:
    assert share(8, [PROCESSES, JOBS, LINKS]) == (("processes", 5), ("jobs", 3))
    assert share(3, [PROCESSES, JOBS]) == (("jobs", 3),)
    assert share(2, [PROCESSES, JOBS]) == ()


def test_a_small_screen_of_eight_gpus_has_its_lines_for_processes_and_counts_jobs_and_waiters() -> None:
    app_state = AppState({}).with_snapshot(BOX)
    heights = dict(lay_out(80, 24, 8, 6, parts(app_state, 80)).left.heights)
    assert heights == {"jobs": 1, "processes": 5}
    told = _text(PANELS_BY_NAME["jobs"].lines(app_state, 80, 1))
    assert "1 running" in told and "2 in line" in told and "D" in told and ":queue" in told
    quiet = AppState({}).with_snapshot(replace(BOX, waiters=()))
    heights = dict(lay_out(80, 24, 8, 6, parts(quiet, 80)).left.heights)
    assert heights == {"jobs": 1, "processes": 5}
    told = _text(PANELS_BY_NAME["jobs"].lines(quiet, 80, 1))
    assert "1 running" in told and "D" in told and "more" not in told, "more than no row is nothing"
    # A larger one has a running job, and the reason of the first waiter.
    heights = dict(lay_out(80, 28, 8, 6, parts(app_state, 80)).left.heights)
    told = _text(PANELS_BY_NAME["jobs"].lines(app_state, 80, heights["jobs"]))
    assert "▶ running" in told and " next: ana" in told


@each_row("words", [1, 30])
def test_on_a_small_screen_panels_have_half_of_the_lines_and_one_at_most_waits_for_a_note(
    words: int,
) -> None:
    app_state = AppState({}, LaunchOptions(("python", *["--an=option"] * words))).with_snapshot(BOX)
    wanted = lines_wanted(app_state, 80)
    room = launch_room(24, 8, wanted)
    below = len(selection_lines(app_state, 80)) + len(launch(app_state, 80, room))
    layout = lay_out(80, 24, 8, below, parts(app_state, 80))
    assert room.lines <= wanted + 1 and layout.left.lines >= 4 and layout.table == 9
    if words == 1:
        # Every process, and of the jobs and the queue more than a title.
        assert dict(layout.left.heights) == {"processes": 5, "jobs": 2}


def test_a_small_screen_has_rows_of_jobs_where_the_processes_leave_lines() -> None:
    app_state = AppState({}).with_snapshot(replace(box(busy(gpu(0)), gpu(1)), jobs=BOX.jobs))
    heights = dict(lay_out(80, 18, 2, 6, parts(app_state, 80)).left.heights)
    assert heights["processes"] == 4 and heights["jobs"] > 1


def test_processes_without_a_line_are_counted_in_the_rule_and_take_none_from_the_others() -> None:
    app_state = AppState({}).with_snapshot(BOX)
    for height in (2, 3, 4):
        rule, *rows = ["".join(text for text, _ in line) for line in processes(app_state, 80, height)]
        assert f"{5 - height} more: p" in rule and len(rows) == height - 1
        assert all("more" not in row for row in rows)
    assert "more" not in _text(processes(app_state, 80, 5)[:1])


def test_rows_are_counted_in_rows_and_those_of_the_device_at_the_cursor_are_among_them() -> None:
    """A job on two devices is one row; the last row that fits is that of the device at the cursor."""
    jobs = [(gpu(n), job(10 + n, user=f"u{n}", command=f"python {n}.py")) for n in range(6)]
    jobs[1:2] = [(gpu(n), job(30, user="pair", command="torchrun x.py")) for n in (1, 2)]
    devices = [busy(device, process) for device, process in jobs if device.index != 2 or process.pid == 30]
    app_state = AppState({}).with_snapshot(box(*devices))
    for device in app_state.rows:
        rule, *rows = (
            "".join(text for text, _ in line)
            for line in processes(replace(app_state, cursor=device.key), 80, 3)
        )
        labels = [row.split()[0] for row in rows]
        assert "3 more: p" in rule and len(rows) == 2
        assert any(str(device.index) in label for label in labels), (device.index, rows)
        assert labels == ["0", "1,2"] or device.index > 2, "no other row moves"
    headed = processes(app_state, 80, 12)
    assert _text(headed[1:2]).split() == ["GPU", "USER", "MEMORY", "FOR", "PID", "COMMAND"]
    assert "more" not in _text(headed[:1])


def test_the_order_of_the_processes_is_told_only_where_their_first_row_is_idle_or_ones_own() -> None:
    busy_one, own = busy(gpu(0), job(10, user="ana")), busy(gpu(1), job(11, user="me", own=True))
    for told, snapshot in ((False, box(busy_one, gpu(1))), (True, box(busy_one, own)), (True, BOX)):
        rule, *_ = processes(AppState({}).with_snapshot(snapshot), 80, 12)
        assert ("idle first" in _text([rule])) is told


def test_where_all_links_are_the_same_words_say_so_and_other_panels_have_the_room() -> None:
    app_state = AppState({}).with_snapshot(BOX)
    assert PANELS_BY_NAME["links"].size(app_state, 200) == Size(0, 0)
    words = alike_words(app_state).split("  ")
    assert words == ["NV18 between all 8 GPUs: 18 NVLinks", "NUMA 0: GPU 0–3, NUMA 1: GPU 4–7"]


def test_network_devices_are_named_beside_the_gpus_that_they_are_nearest_to() -> None:
    nics = (Nic("mlx5_0"), Nic("mlx5_1"))
    links = (
        *(("PIX", "SYS"),) * 2,
        *(("NODE", "SYS"),) * 2,
        *(("SYS", "SYS"),) * 4,
        ("X", "SYS"),
        ("SYS", "X"),
    )
    assert BOX.topology is not None
    box = replace(BOX, topology=replace(BOX.topology, nics=nics, nic_links=links))
    words = alike_words(AppState({}).with_snapshot(box)).split("  ")
    assert words[-2:] == ["mlx5_0: PIX GPU 0,1", "mlx5_1: SYS every GPU"]


def test_sixteen_gpus_have_no_matrix_beside_the_table_and_words_where_all_links_are_the_same() -> None:
    box = at(BOXES["dgx-2"], 0.0, 1_700_000_000.0)
    assert "between all 16 GPUs" in alike_words(AppState({}).with_snapshot(box))
    cut = (("X", *["SYS"] * 15), *(("SYS", *row[1:]) for row in box.links[1:]))
    for links in (box.links, cut):
        app_state = AppState({}).with_snapshot(replace(box, links=links))
        assert PANELS_BY_NAME["links"].size(app_state, 130) == Size(0, 0)


def test_links_that_differ_stay_a_matrix_with_their_meaning_where_there_is_room() -> None:
    app_state = AppState({}).with_snapshot(at(BOXES["rtx4090"], 0.0, 1_700_000_000.0))
    panel = PANELS_BY_NAME["links"]
    least, wants, *_ = panel.size(app_state, 200)
    assert least == 10 and "on one CPU socket" in _text(panel.lines(app_state, side_width(200), wants))
    assert len(panel.lines(app_state, side_width(200), least)) == least
    # In a narrow column the matrix has two lines of headings: the meaning of each sign is there, too.
    wants = panel.size(app_state, WIDE).wants
    assert "on different CPU sockets" in _text(panel.lines(app_state, side_width(WIDE), wants))


def test_a_link_between_selected_devices_is_told_in_plain_words() -> None:
    app_state = AppState({}).with_snapshot(at(BOXES["rtx4090"], 0.0, 1_700_000_000.0))
    for index in (0, 7):
        app_state = app_state.toggle(app_state.box.devices[index])[0]
    assert "weakest link SYS (on different CPU sockets)" in _text(selection_lines(app_state, 100))


@each_row("name", list(BOXES))
def test_at_200_by_60_every_process_has_a_line_and_no_command_is_cut(name: str) -> None:
    app_state = AppState({}).with_snapshot(at(BOXES[name], 60.0, 1_700_000_000.0))
    devices = len(app_state.rows)
    asked = [*parts(app_state, 200), Part("timelines", Size(4, 3 + 2 * devices), "table", True)]
    layout = lay_out(200, 60, devices, 5, asked)
    assert layout.beside is not None
    assert layout.table + lines_of(layout.left) == lines_of(layout.beside) == 60 - 5 - 3
    shown = processes(app_state, layout.left.width, dict(layout.left.heights)["processes"])
    assert "…" not in _text(shown) and "more" not in _text(shown)


def test_a_panel_that_asks_for_nothing_has_only_lines_that_nobody_wants() -> None:
    ended = Part("jobs", Size(2, 0, 3), "side", False, spare=True)
    assert share(12, [ended, PROCESSES]) == (("processes", 12),)
    assert share(14, [ended, PROCESSES]) == (("processes", 12), ("jobs", 2))
    assert share(20, [ended, PROCESSES]) == (("processes", 17), ("jobs", 3))


def test_a_log_takes_the_room_that_nobody_else_wants() -> None:
    log = Part("jobs", Size(2, 7, 30), "side", False)
    heights = dict(share(30, [log, PROCESSES]))
    assert heights == {"jobs": 18, "processes": 12}
    assert dict(share(16, [log, PROCESSES])) == {"jobs": 7, "processes": 9}


@pytest.mark.parametrize("width", [80, 100])
def test_instances_have_a_bar_and_watts_beside_their_profile(width: int) -> None:
    app_state = AppState({}).with_snapshot(at(BOXES["a100-mig"], 0.0, 1_700_000_000.0))
    heading, gpu, instance, *_ = (
        "".join(text for text, _ in line) for line in table(app_state, width, 9).lines
    )
    assert "W" in heading.split() and "█" in instance and " 3g.40gb " in instance and "MIG " not in instance
    assert " 52" in gpu and "A100" in gpu


@each_row("width", range(50, 201, 10))
def test_the_header_names_a_demo_before_the_load_and_the_versions(width: int) -> None:
    load = HostLoad(cpu=19.0, memory_used=10, memory_total=100, load=12.5, cpus=64)
    app_state = AppState({}, label="demo shared").with_snapshot(
        replace(BOX, host=replace(BOX.host, load=load))
    )
    text = _text([header(app_state, width, None, 1_700_000_000.0)])
    assert "demo shared" in text and ("cpu 19%" in text or width < 80)


def test_nothing_in_the_header_moves_when_the_load_comes_and_changes() -> None:
    loads = (
        None,
        HostLoad(cpu=None, memory_used=1, memory_total=100, load=0.5, cpus=64),
        *(HostLoad(cpu=cpu, memory_used=99, memory_total=100, load=cpu, cpus=64) for cpu in (2.0, 100.0)),
    )
    for width in (60, 80, 100, 130):
        told = []
        for load in loads:
            app_state = AppState({}).with_snapshot(replace(BOX, host=replace(BOX.host, load=load)))
            line = "".join(text for text, _ in header(app_state, width, None, 1_700_000_000.0))
            blank = re.sub(r"(cpu|ram|load) +[0-9./]+%?", lambda found: " " * len(found[0]), line)
            told.append(blank)
        assert len({*told}) == 1, told


def test_nothing_breaks_however_small_it_is() -> None:
    for name, width, height in product(("shared", "a100-mig", "dgx-2"), (1, 5, 20, 40), (1, 2, 5, 10)):
        app_state = AppState({}, LaunchOptions(("python", "train.py"))).with_snapshot(
            at(BOXES[name], 0.0, 1_700_000_000.0)
        )
        assert launch(app_state, width, launch_room(height, len(app_state.rows), 1))
        layout = lay_out(width, height, len(app_state.rows), 2, parts(app_state, width))
        assert table(app_state, width, layout.table).lines
    tiny = table(AppState({}).with_snapshot(BOX), 20, 2).lines
    assert "●" in _text(tiny)


@each_row("width", [60, 80, 99, 124])
def test_the_state_has_room_for_what_it_says_before_bars_limits_and_names(width: int) -> None:
    app_state = AppState({}).with_snapshot(BOX)
    lines = ["".join(text for text, _ in line) for line in table(app_state, width, 9).lines]
    assert any(line.rstrip().endswith("held, no visible process") for line in lines)
    assert "H100" not in "".join(lines), "one name of all devices is in the header"
    if width >= 99:
        assert all(name in lines[0] for name in ("UTIL", "MEMORY", "°C", "W", "MBW%", "CLOCK"))


def test_a_wider_terminal_never_has_a_poorer_table_except_where_the_second_column_opens() -> None:
    widths = [lay_out(width, 40, 8, 6, [LINKS]).left.width for width in range(WIDE, 241)]
    assert widths == sorted(widths) and widths[0] >= 80
    sides = [side_width(width) for width in range(WIDE, 241)]
    assert sides == sorted(sides)
    app_state = AppState({}).with_snapshot(BOX)

    def heading(width: int) -> list[str]:
        return "".join(text for text, _ in table(app_state, width, 9).lines[0]).split()

    assert heading(lay_out(WIDE, 40, 8, 6, [LINKS]).left.width) == heading(100)


def test_each_process_has_one_line_in_a_narrow_panel() -> None:
    app_state = AppState({}).with_snapshot(BOX)
    lines = ["".join(text for text, _ in line) for line in processes(app_state, 46, 20)]
    assert lines[1].split() == ["GPU", "USER", "MEMORY", "FOR", "COMMAND"]
    assert sorted(line.split()[0].lstrip("◔") for line in lines[2:]) == ["0", "1", "3", "6"]
    assert any(line.endswith("…") for line in lines)


def test_a_wide_panel_wraps_commands_where_lines_are_free() -> None:
    long = " ".join(["torchrun", *(f"--option-{n}" for n in range(20))])
    app_state = AppState({}).with_snapshot(box(busy(gpu(0), job(7, command=long))))
    low, high = (
        ["".join(text for text, _ in line) for line in processes(app_state, 100, height)] for height in (2, 9)
    )
    assert low[-1].endswith("…") and len(low) == 2
    assert " ".join(" ".join(high[1:]).split()).endswith(long)
    assert all(len(line) < 100 for line in [*low, *high])


def test_a_command_that_is_cut_keeps_the_name_of_its_script() -> None:
    told = job(7, user="ana", command="/usr/bin/python3 /data/of/the/team/runs/train.py --lr 3e-4")
    app_state = AppState({}).with_snapshot(box(busy(gpu(0), told)))
    narrow, wide = ("".join(t for t, _ in processes(app_state, width, 3)[2]) for width in (56, 110))
    assert " …/train.py --lr 3e-4" in narrow and "/data/of/the/team/runs/train.py --lr 3e-4" in wide


def test_remarks_are_wrapped_only_where_there_is_room() -> None:
    options = LaunchOptions((sys.executable, "-c", "from transformers import Trainer"))
    app_state = AppState({}, options).with_snapshot(BOX)
    for index in (4, 5):
        app_state = app_state.toggle(BOX.devices[index])[0]
    low, high = (
        launch(app_state, 80, launch_room(height, 8, wanted)) for height, wanted in ((24, 1), (40, 5))
    )
    assert len(low) < len(high) and _text(high).strip().endswith("per device")
    assert ":launch page" in _text(low)


@each_row("name", list(BOXES))
@each_row(("width", "height", "most"), [(160, 40, 23), (200, 60, 30)])
def test_few_lines_of_a_column_are_blank(name: str, width: int, height: int, most: int) -> None:
    state = _with_past(name)
    # Of a partition, a driver tells next to nothing.
    most += 12 * any(device.parent or device.partition is not None for device in state.rows)
    layout = lay_out(width, height, len(state.rows), 6, parts(state, width))
    assert layout.beside is not None
    for column in filter(None, (layout.left, layout.beside)):
        shown = [
            "".join(text for text, _ in line).strip()
            for panel, lines in column.heights
            # The timelines of all GPUs are below the table: those of one GPU are on its page.
            if panel != "device"
            for line in _panel(state, panel, column.width, lines)
        ]
        assert shown.count("") <= most, (column, shown.count(""))


@each_row("width", [160, 200])
@each_row("height", range(40, 68, 3))
def test_lines_that_make_no_chart_higher_go_to_the_panel_above(width: int, height: int) -> None:
    """Up to seven lines below the charts of eight devices were blank."""
    state = _with_past("shared")
    layout = lay_out(width, height, len(state.rows), 8, parts(state, width))
    assert layout.beside is not None
    name, lines = layout.left.heights[-1]
    drawn = PANELS_BY_NAME[name].lines(state, layout.left.width, lines)
    assert len(drawn) == lines and "now" in _text(drawn[-1:])


@each_row("name", list(BOXES))
@each_row(("width", "height"), [(160, 40), (200, 60)])
def test_no_panel_touches_the_last_column(name: str, width: int, height: int) -> None:
    state = _with_past(name)
    layout = lay_out(width, height, len(state.rows), 6, parts(state, width))
    for column in filter(None, (layout.left, layout.beside)):
        for panel, lines in column.heights:
            for line in _panel(state, panel, column.width, lines):
                text = "".join(text for text, _ in line).rstrip()
                assert len(text) < column.width, (panel, text)


def _with_past(name: str) -> AppState:
    """A box of the demo with the last five minutes."""
    state = AppState({}).with_snapshot(at(BOXES[name], 60.0, 1_700_000_000.0))
    store, now = Store(), 1_700_000_060.0
    for second in range(-300, 1, 10):
        past = at(BOXES[name], 60.0 + second, 1_700_000_000.0)
        store.add(now + second, past.devices, 2.0)
    assert state.snapshot is not None
    return replace(state, timelines=store.after(state.snapshot, 1.0))


def _panel(state: AppState, name: str, width: int, lines: int) -> list[Line]:
    drawn = PANELS_BY_NAME[name].lines(state, width, lines)[:lines]
    return [*drawn, *[((" ", ""),)] * (lines - len(drawn))]


def test_the_facts_of_the_device_at_the_cursor_follow_it() -> None:
    state = AppState({}).with_snapshot(at(BOXES["mixed"], 0.0, 1_700_000_000.0))
    panel = PANELS_BY_NAME["device"]
    for device in state.rows:
        state = replace(state, cursor=device.key)
        shown = _text(panel.lines(state, 48, 30))
        assert f"─ GPU {device.index}" in shown and str(device.name) in shown and "throttling" in shown
        # Facts without room are left out by groups.
        assert "throttling" not in _text(panel.lines(state, 48, 12))


def _text(lines: Sequence[Line]) -> str:
    return " ".join(text.strip() for line in lines for text, _ in line)


def test_the_place_in_the_selection_is_a_mark_of_its_own() -> None:
    app_state = AppState({}).with_snapshot(BOX).toggle(BOX.devices[4])[0]
    spans = table(app_state, 80, 9).lines[5]
    assert ("[1]", "slot") in spans and not any(style == "slot" and text.isspace() for text, style in spans)


def test_the_title_names_a_launcher_that_the_line_has_not_yet_as_such() -> None:
    app_state = AppState({}, LaunchOptions(("python", "train.py"))).with_snapshot(BOX)
    room = launch_room(40, 8, 1)
    assert _text(launch(app_state, 80, room)[:1]).startswith("─ launch: python ")
    torchrun = replace(app_state, options=replace(app_state.options, launcher="torchrun"))
    assert "launch: torchrun, once GPUs are selected" in _text(launch(torchrun, 80, room)[:1])
    assert "launch: torchrun" in _text(launch(torchrun.toggle(BOX.devices[4])[0], 80, room)[:1])


def test_without_a_launcher_the_title_names_the_program_that_starts() -> None:
    for command, name in (("/usr/bin/sleep", "30"), "sleep"), (("python3", "x.py"), "python3"):
        app_state = AppState({}, LaunchOptions(command)).with_snapshot(BOX).toggle(BOX.devices[4])[0]
        assert _text(launch(app_state, 80, launch_room(40, 8, 1))[:1]).startswith(f"─ launch: {name} ")


def test_the_title_says_that_the_command_may_be_a_job_where_nothing_else_is_told() -> None:
    app_state = AppState({}, LaunchOptions(("python", "train.py"))).with_snapshot(BOX)
    for state in (app_state, app_state.toggle(BOX.devices[4])[0]):
        told = _text(launch(state, 80, launch_room(24, 8, 1))[:1])
        assert "⏎ run · d as a job" in told and "come back" not in told
    untyped = replace(app_state, options=LaunchOptions())
    assert "job" not in _text(launch(untyped, 80, launch_room(24, 8, 1)))


def test_without_a_command_the_warnings_and_the_key_to_type_one_are_whole() -> None:
    app_state = AppState({}).with_snapshot(BOX)
    for chosen in ((4,), (4, 5), (0, 4)):
        state = app_state
        for index in chosen:
            state = state.toggle(BOX.devices[index])[0]
        lines = launch(state, 80, launch_room(24, 8, lines_wanted(state, 80)))
        shown = _text(lines)
        assert f"CUDA_VISIBLE_DEVICES={','.join(map(str, chosen))}" in shown
        assert "⏎ asks for a command and starts it" in shown
        assert ("GPU 0 is busy" in shown) is (0 in chosen)


def test_a_device_has_one_sign_in_the_table_the_tree_and_the_matrix() -> None:
    app_state = AppState({}).with_snapshot(at(BOXES["shared"], 0.0, 1_700_000_000.0))
    own = [device for device in app_state.rows if app_state.own_job_on(device.key)]
    assert own
    rows = [" ".join(t for t, _ in line) for line in table(app_state, 120, 9).lines[1:]]
    tree, keys = tree_lines(app_state, 120)
    cells = matrix(app_state, MatrixLayout.of(app_state, 120, 0, 0), 0, 8, None)
    for place, device in enumerate(app_state.rows):
        sign = state_of(app_state, device)[0]
        assert (sign == "▶") is (device in own)
        assert sign in rows[place]
        assert sign in _text([tree[keys.index(device.key)]])
        assert _text([cells[place + 1]]).endswith(sign)


def test_in_the_tree_the_names_of_ten_and_more_gpus_stand_below_each_other() -> None:
    app_state = AppState({}).with_snapshot(at(BOXES["dgx-2"], 0.0, 1_700_000_000.0))
    lines, keys = tree_lines(app_state, 120)
    rows = ["".join(t for t, _ in line) for line, key in zip(lines, keys, strict=True) if key is not None]
    assert len(rows) == 16 and len({row.index("V100") for row in rows}) == 1
    assert "between all 16 GPUs" in _text(lines[-1:])


def test_the_help_explains_every_sign_of_a_row() -> None:
    shown = _text(help_lines({}, "", 100))
    assert all(sign in shown for sign in ("▶", "▸", "[1]", *GLYPHS.values()))


def test_the_room_of_the_processes_is_for_the_devices_that_there_are_now() -> None:
    size = PANELS_BY_NAME["processes"].size
    held = replace(gpu(0), memory_used=22 * GIB)
    state = AppState({})
    assert size(state, 160) == Size(0, 0)
    state = state.with_snapshot(box(held))
    assert state.verdicts[held.key].state == "held" and size(state, 160) == Size(4, 4)
    claim = Claim(held.key, "lee", NOW - 10)
    state = state.with_snapshot(replace(box(gpu(0)), claims=(claim,)))
    assert state.verdicts[held.key].state == "claimed" and size(state, 160) == Size(4, 4)
