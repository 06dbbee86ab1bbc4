"""The device table and the strip of the selected devices: columns, scrolling, digits, dragging."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from textual.events import MouseScrollUp

from gputui.allocating.settings import ScreenSettings
from gputui.choosing.rules import DEFAULT_RULES
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import brief
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.job import Job, JobDevice
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.sources.source import Want
from gputui.tui.app_state import AppState
from gputui.tui.device_rows import SORTS
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.settings import SettingsScreen
from gputui.tui.views.columns import COLUMNS
from gputui.tui.views.first_frame import frame
from gputui.tui.views.table import table
from gputui.tui.views.text import width_of
from gputui.tui.widgets.lines import Lines
from table_tests import each_row
from tui.support import Session, StillSource, box_at, session
from unit.builders import GIB, NOW, box, busy, gpu, instance
from unit.builders import job as unit_job


def texts(snapshot: Snapshot, width: int, height: int = 30, **screen: object) -> list[str]:
    """The lines of the table of a box; asserts that each fills the width."""
    settings = ScreenSettings()._replace(**screen)  # type: ignore[arg-type]
    lines = table(AppState({}).with_snapshot(snapshot).with_screen(settings), width, height).lines
    assert all(width_of(line) == width for line in lines)
    return ["".join(text for text, _ in line) for line in lines]


# Columns


@each_row("name", ["shared", "a100-mig", "dgx-2", "rtx3090"])
@each_row("width", [20, 40, 60, 72, 80, 100, 124, 160, 200, 300])
def test_columns_are_shown_whole_or_not_at_all(name: str, width: int) -> None:
    heading, *rows = texts(box_at(name, 75), width)
    state = heading.find("STATE")
    for row in rows if width >= 40 else []:
        assert row[state] in "○●◔◐◆?✕▶", "the state begins below its heading"
        before = row[: heading.find("COMMAND")] if "COMMAND" in heading else row[:state]
        assert "…" not in before, "nothing but a command is cut"


@each_row("name", ["laptop", "wsl", "shared"])
@each_row("width", [80, 130, 200])
def test_watts_stand_below_their_heading(name: str, width: int) -> None:
    heading, *rows = texts(box_at(name, 75), width)
    end = re.search(r"\bW\b", heading)
    assert end is not None
    assert all(re.search(r"\d$", row[: end.end()]) for row in rows), (heading, *rows)


@each_row("width", [40, 60, 80, 130, 200])
def test_memory_that_is_the_hosts_is_its_ram_in_use_and_marked_as_shared(width: int) -> None:
    spark = box_at("gb10")
    assert "G" not in texts(spark, width)[1][20:], "not known before the host has been read"
    load = HostLoad(memory_used=32 * GIB, memory_total=128 * GIB)
    there = replace(spark, host=replace(spark.host, load=load))
    mark = "32.0/128.0G*" if width < 80 else "32.0/128.0G shared"
    assert mark in texts(there, width)[1]
    # The same device next to one that has memory of its own.
    more = (*there.devices, gpu(1, memory_used=8 * GIB))
    both = replace(there, devices=more, links=(), pcie=(), peers=())
    rows = texts(both, width)[1:]
    assert re.search(r"32\.0/128\.0G(\*| shared)", rows[0])
    assert "8.0/80.0G" in rows[1] and "shared" not in rows[1] and "*" not in rows[1]
    assert rows[0].index("128.0G") + 6 == rows[1].index("80.0G") + 5
    # The shared memory changes with the host, though the device itself does not change.
    other = replace(both, host=replace(both.host, load=replace(load, memory_used=GIB)))
    assert "1.0/128.0G" in texts(other, width)[1]


def test_more_columns_are_there_the_wider_the_terminal_is() -> None:
    headings = [texts(box_at("shared"), width)[0].split() for width in range(40, 260, 10)]
    assert headings[0] == ["#", "UTIL", "MEMORY", "STATE"]
    assert all(set(few) <= set(more) for few, more in pairwise(headings))
    assert {"MBW%", "CLOCK", "COMMAND"} <= set(headings[-1])


def test_what_a_column_shows_of_a_device() -> None:
    hot = Telemetry(
        slowdown_temperature=90, throttle=("thermal",), pcie_generation=4, pcie_width=8, max_pcie_width=16
    )
    device = gpu(0, power=1012.4, power_limit=1200.0, temperature=89, sm_clock=1410, telemetry=hot)
    columns = tuple(column.id for column in COLUMNS)
    heading, row, other = texts(box(device, gpu(1, power=None, memory_used=None)), 260, columns=columns)
    for name, shown in (("W", "1012/1200"), ("CLOCK", "1410!"), ("THROTTLE", "thermal"), ("PCIE", "4×8!")):
        assert shown in row, name
    assert "/1200" not in other and "–" in other
    assert heading.split()[-1] == "STATE"


def test_chosen_columns_stand_in_their_order_and_unknown_names_do_no_harm() -> None:
    heading = texts(box_at("shared"), 100, columns=("bus", "memory", "nonsense", "utilization"))[0]
    assert heading.split() == ["#", "BUS", "MEMORY", "UTIL", "STATE"]


def test_a_table_needs_what_its_columns_show() -> None:
    state = AppState({}).with_snapshot(box_at("shared"))
    assert Want.SENSORS in table(state, 80, 10).needs and Want.DETAILS not in table(state, 200, 10).needs
    few = state.with_screen(ScreenSettings(columns=("utilization", "throttle")))
    assert Want.SENSORS not in table(few, 80, 10).needs and Want.DETAILS in table(few, 80, 10).needs


def test_a_sort_and_a_filter_are_told_in_the_heading() -> None:
    for width in (40, 60, 80, 130):
        assert "▼" in texts(box_at("shared"), width, sort="temperature")[0]
        assert "▲" in texts(box_at("shared"), width, sort="state")[0]
        heading, *rows = texts(box_at("shared"), width, filter="free")
        assert "3 of 8" in heading and "free" in heading and len(rows) == 3
        assert "STATE" in heading or width == 40, "a short note leaves the column its name"


@each_row(
    "width, note",
    [
        (140, "3 of 8: filter “free”, esc clears"),
        (120, "3 of 8: “free”, esc clears"),
        (80, "3 of 8: “free”, esc"),
        (60, "3 of 8: “free”, esc"),
    ],
)
def test_the_note_on_a_filter_is_as_long_as_there_is_room(width: int, note: str) -> None:
    assert texts(box_at("shared"), width, filter="free")[0].endswith(f"  {note}")


def test_instances_hang_under_their_gpu() -> None:
    parent = gpu(0, mig=True)
    rows = texts(box(parent, instance(parent, 0), instance(parent, 1), gpu(1)), 80)
    assert [row[6:12].strip() for row in rows[1:]] == ["0", "└ 0:0", "└ 0:1", "1"]


@each_row("sort", [each for each in SORTS if each])
def test_no_sort_takes_instances_from_their_gpu(sort: str) -> None:
    parent = replace(gpu(0, mig=True), utilization=None)
    parts = (replace(instance(parent, 0), utilization=10), replace(instance(parent, 1), utilization=90))
    rows = texts(box(parent, *parts, replace(gpu(1), utilization=50)), 80, sort=sort)
    labels = [row[6:12].strip() for row in rows[1:]]
    at = labels.index("0")
    assert {*labels[at + 1 : at + 3]} == {"└ 0:0", "└ 0:1"}
    if sort == "utilization":
        assert labels == ["0", "└ 0:1", "└ 0:0", "1"]


def test_a_device_of_a_job_of_ours_says_so() -> None:
    devices = (busy(gpu(0)), gpu(1))
    job = Job(
        id="m6u5",
        name="train",
        state="running",
        devices=(JobDevice(0, devices[0].key, None),),
        started=NOW - 3720,
    )
    _, row, other = texts(
        replace(
            box(*devices),
            jobs=(job, replace(job, state="done", devices=(JobDevice(1, devices[1].key, None),))),
        ),
        80,
    )
    assert row.rstrip().endswith("▶ your job m6u5 1h02m")
    assert "○ free" in other


@each_row(
    ("device", "pids"),
    [
        (busy(gpu(0), unit_job(7, user="me"), unit_job(8, user="me")), (8,)),
        (busy(gpu(0), unit_job(7, user=None, note="owner unknown"), unit_job(8, user="me")), None),
        (busy(gpu(0), unit_job(7), unit_job(8, user="me")), None),
        (replace(gpu(0), memory_used=22 * GIB, memory_free=58 * GIB), ()),
        (replace(gpu(0), utilization=60), ()),
    ],
)
def test_a_device_that_a_job_of_ours_shares_names_the_others_as_ls_does(
    device: Device, pids: tuple[int, ...] | None
) -> None:
    own = Job(
        id="m6u5",
        name="train",
        state="running",
        devices=(JobDevice(0, device.key, None),),
        started=NOW - 60,
    )
    claim = Claim(device.key, "me", job="m6u5", own=True, pids=pids)
    shared = replace(box(device), jobs=(own,), claims=(claim,))
    told = brief(verdicts(shared)[device.key], NOW)
    assert f"▶ {told}, your job" in texts(shared, 130)[1]
    assert f"▶ {told}"[:15] in texts(shared, 80)[1], "what is cut is the job, which the sign tells"


# Rows


async def test_devices_that_do_not_fit_are_counted_and_scrolled_to() -> None:
    async with session("dgx-2", size=(80, 15)) as s:
        shown = len(s.texts("#table")) - 1
        assert s.texts("#table")[0].endswith(f"▼ {16 - shown} more")
        assert "more" not in " ".join(s.texts("#table")[1:]), "no state is hidden"
        await s.press("end")
        assert s.texts("#table")[0].endswith(f"▲ {16 - shown} more")
        assert s.texts("#table")[-1].startswith("▸     15")
        table = s.main.query_one("#table")
        for _ in range(16):
            table.post_message(MouseScrollUp(table, 5, 3, 0, -1, 0, False, False, False))
        await s.until(lambda: s.texts("#table")[1].split()[0] == "0")
        assert s.main.app_state.current is not None and s.main.app_state.current.index == 15
        await s.press("up")
        assert any(line.startswith("▸     14") for line in s.texts("#table"))
        heading = s.texts("#table")[0]
        assert re.search(r"▲ \d+ more ▼ 1 more$", heading), heading


@pytest.mark.parametrize(
    ("name", "size"), [("shared", (80, 24)), ("dgx-2", (60, 15)), ("a100-mig", (100, 30))]
)
async def test_the_first_frame_is_what_the_screen_shows_then(name: str, size: tuple[int, int]) -> None:
    async with session(name, size=size, command=()) as s:
        lines = frame(s.main.app_state, *size).split("\r\n")
        plain = [_without_looks(line).rstrip() for line in lines]
        shown = s.texts("#table")
        assert plain[1 : 1 + len(shown)] == shown


def _without_looks(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


async def test_sorting_and_filtering_by_keys() -> None:
    async with session() as s:
        await s.press("@sort", "down", "enter")
        loads = [d.utilization or 0 for d in s.main.app_state.rows]
        assert loads == sorted(loads, reverse=True) and "UTIL▼" in s.texts("#table")[0]
        await s.press("@filter")
        assert isinstance(s.app.screen, LineScreen)
        await s.press(*"free")
        assert "3 of 8" in s.texts("#table")[0] and len(s.texts("#table")) == 4, "while it is typed"
        await s.press("escape")
        assert len(s.texts("#table")) == 9 and s.main.app_state.screen.filter == ""
        await s.press("@filter", *"free", "enter")
        assert "3 of 8" in s.texts("#table")[0] and "esc" in s.texts("#table")[0]
        await s.press("escape")
        assert len(s.texts("#table")) == 9 and s.app.is_running
        s.main.set_app_state(s.main.app_state.with_screen(ScreenSettings(filter="nobody")))
        assert "no GPU matches" in " ".join(s.texts("#table"))
        await s.press("space")
        assert s.selected == []
        await s.press("b")
        assert len(s.selected) == 1 and "8 hidden, 1 selected" in " ".join(s.texts("#table"))


async def test_a_kept_filter_that_matches_nothing_is_not_applied(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    kept = ScreenSettings(filter="olek")
    async with session(screen=kept, environ=environ, size=(100, 24)) as s:
        assert len(s.texts("#table")) == 9
        await s.until(lambda: s.main.message == "filter “olek” matches nothing here: not applied")
        await s.press("@theme", "down", "enter")
        assert s.main.message == "theme light, saved in your settings"
        file = tmp_path / "gputui" / "config.toml"
        await s.until(lambda: file.exists() and "theme" in file.read_text())
        assert "filter" not in file.read_text(), "another box may still have what it asks for"


async def test_a_filter_that_is_typed_is_not_kept(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    async with session(environ=environ) as s:
        await s.press("@filter", *"busy", "enter", "@theme", "down", "enter")
        assert s.main.app_state.screen.filter == "busy"
        file = tmp_path / "gputui" / "config.toml"
        await s.until(lambda: file.exists() and "theme" in file.read_text())
        assert "filter" not in file.read_text()


async def test_typing_replaces_the_last_filter_unless_an_arrow_keeps_it() -> None:
    async with session() as s:
        await s.press("@filter", *"busy", "enter", "@filter", *"ines", "enter")
        assert s.main.app_state.screen.filter == "ines"
        await s.press("@filter", "right", *" busy", "enter")
        assert s.main.app_state.screen.filter == "ines busy"


async def test_a_kept_filter_for_a_user_is_applied_as_soon_as_users_are_known() -> None:
    full = box(busy(gpu(0), unit_job(user="olek")), gpu(1))
    early = replace(full, devices=(busy(gpu(0), unit_job(user=None)), gpu(1)))

    class OwnersLater(StillSource):
        def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
            super().read(want, among)
            return full if Want.OWNERS in want else early

    async with session(source=OwnersLater(early), screen=ScreenSettings(filter="olek")) as s:
        await s.until(lambda: len(s.main.app_state.rows) == 1)
        assert s.main.app_state.screen.filter == "olek" and not s.main.message


async def test_nothing_that_is_set_in_a_demo_is_kept(tmp_path: Path) -> None:
    async with session(environ={"XDG_CONFIG_HOME": str(tmp_path)}) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("@sort", "down", "enter")
        assert s.main.message == "sort by utilization, not saved: demo shared"
        await s.press("@filter", *"free", "enter", "@theme", "down", "enter")
        assert "not saved" in s.main.message and s.main.app_state.screen.theme is not None
        # The rules are used nevertheless, each with the others.
        await s.press("@settings", *"jjj", "e", "ctrl+u", *"3G", "enter", "j", "e", "ctrl+u", *"7", "enter")
        await s.until(lambda: s.main.app_state.rules.utilization == 7)
        assert s.main.app_state.rules.memory == 3 << 30
        await s.press("x")
        await s.until(lambda: s.main.app_state.rules.utilization == DEFAULT_RULES.utilization)
        assert s.main.app_state.rules.memory == 3 << 30 and not [*tmp_path.iterdir()]


async def test_the_columns_page_shows_hides_and_moves_columns() -> None:
    async with session("mixed") as s:
        await s.press("@columns")
        assert isinstance(s.app.screen, SettingsScreen)
        await s.press("space")
        assert "NAME" not in s.texts("#table")[0]
        await s.press("x", "escape", "@columns", "down", "J", "escape")
        heading = s.texts("#table")[0]
        assert heading.index("MEMORY") < heading.index("UTIL")


async def test_the_columns_page_tells_of_the_table_as_wide_as_it_is_beside_the_panels() -> None:
    async with session(size=(130, 40)) as s:
        heading = s.texts("#table")[0].split()
        assert "NAME" not in heading
        await s.press("@columns")
        lines = s.app.screen.body.texts  # type: ignore[attr-defined]
        assert next(line for line in lines if "] NAME " in line).rstrip().endswith("not shown here")
        assert not any(line.rstrip().endswith("not shown here") for line in lines if "] UTIL " in line)
        preview = "\n".join(s.app.screen.query_one("#page-footer", Lines).texts)
        assert [word for word in preview.split("\n")[1].split() if word != "─"] == heading


async def test_on_the_columns_page_showing_and_hiding_moves_no_row() -> None:
    async with session(size=(100, 40)) as s:
        await s.press("@columns")

        def names() -> list[str]:
            lines = s.app.screen.body.texts  # type: ignore[attr-defined]
            return [line.split("]")[1].split()[0] for line in lines if line[1:5] in ("[x] ", "[ ] ")]

        before = names()
        await s.press("down", "space")
        assert names() == before
        assert sum(line.startswith("▸[ ]") for line in s.app.screen.body.texts) == 1  # type: ignore[attr-defined]
        await s.press(*["down"] * 12, "space", *["up"] * 12, "space")
        assert names() == before
        await s.press("x")
        assert names() == before


def test_a_persons_own_columns_leave_the_states_their_room() -> None:
    held = gpu(0, memory_used=20 * GIB)
    columns = ("utilization", "memory", "temperature", "power", "command", "throttle", "fan")
    for width in (60, 80, 100, 124):
        heading, row, _ = texts(box(held, gpu(1)), width, columns=columns)
        if {"COMMAND", "THROTTLE", "FAN"} & {*heading.split()}:
            assert "…" not in row[heading.index("STATE") - 2 :], width
    assert {"THROTTLE", "FAN"} <= {*heading.split()}


async def test_details_are_read_only_while_a_column_shows_them() -> None:
    async with session() as s:
        assert not any(Want.DETAILS in want for want in s.source.wanted)
        s.main.set_app_state(s.main.app_state.with_screen(ScreenSettings(columns=("throttle",))))
        await s.until(lambda: Want.DETAILS in s.source.wanted[-1])
        s.main.set_app_state(s.main.app_state.with_screen(ScreenSettings()))
        await s.until(lambda: Want.DETAILS not in s.source.wanted[-1])


# Digits


class Later:
    """A timer that fires when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> Callable[[], object]:
        self.calls.append(call)
        return lambda: self.calls.remove(call) if call in self.calls else None

    def go_off(self) -> None:
        for call in (*self.calls,):
            self.calls.remove(call)
            call()


async def test_a_digit_takes_the_cursor_along_so_that_j_and_k_act_at_once() -> None:
    async with session() as s:
        await s.press("4", "5", "K")
        assert s.selected == ["5", "4"]
        await s.press("J", "J")
        assert s.selected == ["4", "5"] and s.main.message == "GPU 5 is already the last one"
        await s.press("home", "K")
        assert s.selected == ["5", "4"]


async def test_a_digit_scrolls_to_its_device_on_a_small_terminal() -> None:
    async with session(size=(40, 10)) as s:
        await s.press("7")
        assert any(line.startswith("▸ [1]  7") for line in s.texts("#table")), s.texts("#table")


async def test_two_digits_are_one_number_where_there_are_ten_gpus() -> None:
    async with session("dgx-2") as s:
        s.main.selection.after = later = Later()
        await s.press("1")
        assert s.selected == [] and s.main.message == "GPU 1_"
        await s.press("2")
        assert s.selected == ["12"] and not later.calls
        await s.press("4")
        assert s.selected == ["12", "4"], "no number goes on with 4"
        await s.press("1")
        later.go_off()
        assert s.selected == ["12", "4", "1"]
        # After another key, or a digit that continues no device number, the first digit is a number of its
        # own.
        await s.press("1", "@clear")
        assert s.selected == []
        await s.press("1", "7")
        assert s.selected == ["1", "7"]
        await s.press("t", "1", "0")
        assert s.selected == ["1", "7", "10"]


async def test_a_digit_that_two_vendors_have_is_asked_about() -> None:
    theirs = tuple(replace(gpu(n), vendor="acme", uuid=f"ACME-000{n}") for n in range(2))
    async with session(box(gpu(0), gpu(1), *theirs)) as s:
        await s.press("0")
        assert isinstance(s.app.screen, LineScreen) and "nvidia:0 or acme:0" in s.app.screen.prompt
        await s.press(*"ac", "enter")
        assert s.selected == ["acme:0"]
        # Only devices of the same vendor can be added, so the screen does not ask.
        await s.press("1")
        assert s.selected == ["acme:0", "acme:1"]


async def test_escape_forgets_a_digit_that_waits_and_does_nothing_else() -> None:
    async with session("dgx-2", screen=ScreenSettings(filter="free")) as s:
        s.main.selection.after = later = Later()
        await s.press("1", "escape")
        assert s.selected == [] and not later.calls and not s.main.message
        assert s.main.app_state.screen.filter == "free"
        await s.press("escape")
        assert s.main.app_state.screen.filter == ""
        await s.press("t", "1", "escape")
        assert s.app.screen is not s.main and s.selected == [] and not later.calls
        await s.press("escape")
        assert s.app.screen is s.main


async def test_a_digit_that_waits_is_no_message_to_read_again() -> None:
    async with session("dgx-2") as s:
        s.main.selection.after = Later()
        await s.press("1")
        assert s.main.message
        await s.press("9")
        assert not [each.text for each in s.main.messages if "_" in each.text]


async def test_a_gpu_that_the_filter_hides_is_selected_and_the_cursor_stays_in_sight() -> None:
    async with session(screen=ScreenSettings(filter="busy")) as s:
        cursor = s.main.app_state.cursor
        for selected in (["5"], []):
            await s.press("5")
            assert s.selected == selected
            assert ("hides 1 selected" in s.texts("#table")[0]) is bool(selected)
            assert s.main.app_state.cursor == cursor
            assert any(line.startswith("▸") for line in s.texts("#table"))


async def test_a_digit_goes_to_the_first_free_instance_and_a_second_one_selects_an_instance() -> None:
    async with session("a100-mig") as s:
        s.main.selection.after = later = Later()
        snapshot = s.main.app_state.snapshot
        assert snapshot is not None

        def cursor() -> str:
            current = s.main.app_state.current
            assert current is not None and snapshot is not None
            return snapshot.label(current)

        instances = [d for d in snapshot.devices if d.parent == snapshot.devices[0].key]
        free = [snapshot.label(d) for d in instances if s.main.app_state.verdicts[d.key].free]
        await s.press("0")
        assert cursor() == free[0] and s.selected == []
        await s.press("1")
        assert s.selected == ["0:1"] and cursor() == "0:1" and not later.calls
        await s.press("0", "1")
        assert s.selected == []
        # After the timeout, a digit is a GPU's again.
        await s.press("0")
        later.go_off()
        await s.press("1")
        assert s.selected == ["1"]
        await s.press("@clear", "0", "space")
        assert s.selected == [free[0]]
        await s.press("@clear", "0", "9")
        assert s.selected == [] and "0:9" in s.main.message


# The strip


def at(s: Session, text: str) -> tuple[int, int]:
    """The position of a text in the strip."""
    return s.texts("#selection")[1].index(text), 1


async def drag(s: Session, what: str, where: str) -> None:
    await drag_cell(s, at(s, what), at(s, where))


async def drag_cell(s: Session, begin: tuple[int, int], end: tuple[int, int]) -> None:
    await s.pilot.mouse_down("#selection", offset=begin)
    await s.pilot.hover("#selection", offset=end)
    await s.pilot.mouse_up("#selection", offset=end)
    await s.settle()


async def test_selected_devices_are_dragged_to_their_place() -> None:
    async with session() as s:
        await s.press("4", "5", "7")
        await drag(s, "GPU 7", "GPU 4")
        assert s.selected == ["7", "4", "5"]
        assert s.main.app_state.current is not None and s.main.app_state.current.index == 7
        await drag(s, "GPU 7", "GPU 5")
        assert s.selected == ["4", "5", "7"]


async def test_a_click_beside_the_selected_devices_is_a_click_on_none_of_them() -> None:
    async with session() as s:
        await s.press("4", "5")
        begin, row = at(s, "GPU 5")
        end = s.texts("#selection")[1].index(")", begin) + 1
        first = at(s, "cuda:0")
        for beside in (end, end + 2):
            await drag_cell(s, (beside, row), first)
            assert s.selected == ["4", "5"]
        await drag_cell(s, (end - 1, row), first)
        assert s.selected == ["5", "4"], "the last cell of a device is its own"


async def test_a_click_on_a_selected_device_puts_the_cursor_there_and_j_moves_it() -> None:
    async with session() as s:
        await s.press("4")
        assert "↔" not in s.texts("#selection")[1], "a single device has no order"
        await s.press("5")
        await drag(s, "GPU 5", "GPU 5")
        assert s.selected == ["4", "5"]
        assert "↔cuda:1 = GPU 5" in s.texts("#selection")[1] and s.texts("#table")[6].startswith("▸")
        await s.press("K")
        assert s.selected == ["5", "4"] and "↔cuda:0 = GPU 5" in s.texts("#selection")[1]


async def test_many_selected_devices_stay_apart_and_can_be_dragged() -> None:
    async with session("dgx-2") as s:
        s.main.selection.after = Later()
        await s.press(*"45678", *"0")
        strip = s.texts("#selection")[1]
        assert strip.startswith(" cuda:0…5 = GPU") and "7, 8,↔0" in strip
        await drag(s, "8,", "4,")
        assert s.selected == ["8", "4", "5", "6", "7", "0"]


@each_row(
    ("loads", "order"),
    [
        ((98, 97, 20), "012"),
        ((97, 98, 20), "012"),  # noise
        ((90, 99, 20), "012"),
        ((40, 99, 20), "102"),  # another job
        ((40, 45, 41), "012"),
        ((40, 45, None), "012"),
        ((None, 45, 41), "120"),
    ],
)
def test_noise_moves_no_row_and_a_change_does(loads: tuple[int | None, ...], order: str) -> None:
    def state(before: AppState, *loads: int | None) -> AppState:
        devices = (replace(gpu(n), utilization=load) for n, load in enumerate(loads))
        return before.with_snapshot(box(*devices))

    first = state(AppState({}, screen=ScreenSettings(sort="utilization")), 98, 97, 20)
    assert [device.index for device in first.rows] == [0, 1, 2]
    assert "".join(str(device.index) for device in state(first, *loads).rows) == order
    # Sorting anew shows the values as they are.
    by_hand = state(first, *loads).with_screen(ScreenSettings(sort="memory"))
    by_hand = by_hand.with_screen(ScreenSettings(sort="utilization"))
    seen = [device.utilization for device in by_hand.rows if device.utilization is not None]
    assert seen == sorted(seen, reverse=True)


def test_the_mark_of_a_filter_stands_apart_from_the_names_of_the_columns() -> None:
    for width in range(60, 140):
        head = texts(box_at("shared"), width, filter="bo")[0]
        before = head[: head.index("1 of 8")]
        assert before.endswith("  "), head
