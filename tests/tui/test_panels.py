"""The panels next to the table agree with it and follow its filter; hiding one affects only the display."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import replace

import pytest

from gputui.allocating.settings import ScreenSettings
from gputui.inventory.claim import Claim
from gputui.inventory.job import Job
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.sources.source import Want
from gputui.tui.layout import WIDE
from gputui.tui.views import queue
from gputui.tui.widgets.lines import Lines
from tui.support import Session, box_at
from tui.support import session as moving
from unit.builders import NOW, box, busy, gpu, job

session = functools.partial(moving, interval=1000)


def everything(s: Session) -> str:
    return "\n".join(line for part in ("#table", "#history", "#lists") for line in s.texts(part))


def show(s: Session, snapshot: Snapshot) -> None:
    """Another reading of the box."""
    s.main.set_app_state(s.main.app_state.with_snapshot(snapshot))


def page_of_queue(s: Session) -> str:
    state = s.main.app_state
    lines, _ = queue.listed(state.outlook, state, 80)
    return "\n".join("".join(text for text, _ in line) for line in lines)


# One moment


@pytest.mark.parametrize("later", [0.0, 0.4, 0.6, 3.5, 7.9])
async def test_all_parts_count_the_same_seconds_of_a_device_that_cools_down(later: float) -> None:
    before = replace(box(busy(gpu(0)), gpu(1), time=NOW - 2), waiters=(Waiter((1, ""), "ana", 2, since=NOW),))
    async with session(before, size=(130, 40)) as s:
        # A part that does not change between the two moments must not freeze the parts that do.
        for moment in (NOW, NOW + later):
            show(s, replace(before, devices=(gpu(0), gpu(1)), time=moment))
        passed = re.findall(r"cooling down \((\d+)/10 s\)", everything(s))
        left = re.findall(r" in (\d+)s\b", page_of_queue(s))
        # Once in the table; the list of processes has none.
        assert len(passed) == len(left) == 1, everything(s)
        assert {int(each) for each in passed} == {10 - int(left[0])} == {int(later)}


async def test_the_queue_and_the_table_tell_the_same_age_of_a_claim() -> None:
    waits = Waiter((1, ""), "ana", 2, since=NOW)
    there = replace(box(gpu(0), gpu(1)), claims=(Claim(gpu(0).key, "lee", NOW - 10),), waiters=(waits,))
    async with session(there, size=(130, 40)) as s:
        for second in range(1, 4):
            show(s, replace(there, time=NOW + second))
            told = everything(s) + page_of_queue(s)
            ages = re.findall(r"(?:by lee| lee) +(\d+)s", told)
            assert len(ages) == 2 and {*ages} == {str(10 + second)}, told


# The filter


async def test_what_is_told_of_devices_follows_the_filter_and_says_so() -> None:
    async with session("shared", size=(160, 50)) as s:
        whole = everything(s)
        assert all(user in whole for user in ("mira", "ines", "bo")) and "filter" not in whole
        s.main.set_app_state(s.main.app_state.with_screen(s.main.app_state.screen._replace(filter="ines")))
        assert [device.index for device in s.main.app_state.rows] == [3]
        for name in ("processes", "timelines"):
            head = next(line for line in s.texts("#history") if f"─ {name} " in line)
            assert "filter: ines" in head
        left = everything(s)
        listed = "\n".join(s.texts("#history"))
        assert "train.py --model" not in listed and re.search(r"ines +72.5G", listed)
        # The queue and the user's own jobs are shown for the whole box.
        assert "─ jobs and queue" in left and "1 ana" in left and "m6u5" in left


async def test_a_filter_that_matches_nothing_says_so_and_leaves_the_panels() -> None:
    for size in ((80, 40), (130, 40), (200, 60)):
        async with session("shared", size=size) as s:
            await s.press("@filter", *"olga", "enter")
            table = " ".join(" ".join(s.texts("#table")).split())
            assert "“olga”" in table and "8 hidden" in table and "esc clears" in table
            panels = everything(s)
            assert "─ jobs and queue" in panels and "─ processes" in panels
            assert "none: no GPU matches" in panels, "none is not the whole truth"
            await s.press("escape")
            assert "mira" in everything(s) and "filter" not in everything(s)


@pytest.mark.parametrize("lines", range(21, 27))
async def test_timelines_are_shown_with_a_chart_or_not_at_all(lines: int) -> None:
    async with session("lost", size=(80, lines)) as s:
        drawn = everything(s)
        assert ("─ timelines " in drawn) == (re.search(r"\n +0 +[▁▂▃▄▅▆▇█]", drawn) is not None), drawn


async def test_processes_without_a_command_are_told_apart_beside_the_table() -> None:
    lives = job(300)
    nameless = (job(pid, user=None, command=None, started=None, note="ended") for pid in (100, 200))
    async with session(box(busy(gpu(0), *nameless, lives)), size=(160, 40)) as s:
        rows = [line for line in s.texts("#history") if re.match(r" 0 +(–|mira) ", line)]
        numbers = [re.findall(r"\b[123]00\b", row) for row in rows]
        assert numbers[:2] == [["100"], ["200"]]
        assert "python train.py" in rows[2]


async def test_a_filter_of_any_length_is_told_in_the_room_there_is() -> None:
    async with session("shared", size=(130, 40)) as s:
        s.main.set_app_state(
            s.main.app_state.with_screen(s.main.app_state.screen._replace(filter="\x1b[2J" + "o" * 300))
        )
        assert "esc clears" in " ".join(" ".join(s.texts("#table")).split())
        assert "─ processes" in everything(s) and "\x1b" not in everything(s)
        await s.press("@timelines")
        await s.press("escape")
        assert s.app.screen is s.main and s.main.app_state.screen.filter


async def test_the_page_of_timelines_shows_the_devices_that_the_table_lists() -> None:
    async with session("shared", size=(130, 40)) as s:
        s.main.set_app_state(s.main.app_state.with_screen(s.main.app_state.screen._replace(filter="free")))
        listed = [device.key for device in s.main.app_state.rows]
        await s.press("@timelines")
        body = s.app.screen.query_one("#page-body", Lines)
        assert "3 of 8 GPUs" in body.texts[0] and "filter: free" in body.texts[0]
        for key in (*listed, listed[-1]):
            assert s.main.app_state.cursor == key
            await s.press("j")


# Hiding


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(60, 20), (130, 40)])
async def test_a_screen_with_hidden_panels_says_how_many_and_the_key(size: tuple[int, int]) -> None:
    async with session("shared", size=size) as s:
        assert "hidden" not in s.texts("#selection")[0]
        await s.press("@panels", "enter", "escape")
        assert "1 panel hidden: :panels" in s.texts("#selection")[0]
        await s.press("@panels", "down", "space", "escape")
        assert "2 panels hidden: :panels" in s.texts("#selection")[0]
        await s.press("4")
        assert "2 panels hidden: :panels" in s.texts("#selection")[0]
        await s.press("@panels", "enter", "down", "space", "escape")
        assert "hidden" not in s.texts("#selection")[0]


async def test_the_key_that_shows_panels_is_the_users_own() -> None:
    async with session("shared", screen=ScreenSettings(hidden=("jobs",), keymap={"panels": "ctrl+n"})) as s:
        assert "1 panel hidden: ctrl+n" in s.texts("#selection")[0]


async def test_the_page_of_panels_names_its_keys_and_why_a_panel_is_not_there() -> None:
    async with session("shared", size=(80, 45)) as s:
        await s.press("@panels")
        body, footer = (s.app.screen.query_one(part, Lines) for part in ("#page-body", "#page-footer"))
        assert all(key in footer.texts[-1] for key in ("esc", "/", "space", "?"))
        absent = {line.split("]")[1].split()[0] for line in body.texts if str(WIDE) in line}
        assert absent == {"GPU"} and any("Timelines" in line and "free" in line for line in body.texts)
        await s.resize(160, 40)
        assert not any(str(WIDE) in line for line in body.texts)
        await s.press("escape")
        assert s.app.screen is s.main


# Places


def _places(s: Session) -> list[tuple[int, str]]:
    """The line of each panel's title in the column next to the table, and its first word."""
    heads = [(n, line.split()[1:3]) for n, line in enumerate(s.texts("#lists")) if line.startswith(" ─ ")]
    return [(n, words[0]) for n, words in heads]


async def test_panels_keep_their_lines_until_the_terminal_or_the_filter_changes() -> None:
    # The panel of one device is hidden: it reads its details at once, and that reading would replace this
    # snapshot.
    async with session("shared", size=(130, 40), screen=ScreenSettings(hidden=("device",))) as s:
        snapshot, before = s.main.app_state.snapshot, _places(s)
        assert snapshot is not None and "jobs" in [name for _, name in before]
        quiet = replace(snapshot, claims=(), waiters=())
        table = s.main.table_width
        show(s, quiet)
        assert before == _places(s)
        assert "next: " not in everything(s) and s.main.table_width == table
        show(s, snapshot)
        assert _places(s) == before


@pytest.mark.parametrize("size", [(80, 40), (160, 40), (200, 60)])
async def test_a_queue_and_jobs_that_come_and_go_move_no_other_panel(size: tuple[int, int]) -> None:
    full = replace(box_at("shared"), jobs=(Job(id="m6u5", name="train.py", state="running"),))
    quiet = replace(full, claims=(), waiters=(), jobs=())
    async with session(quiet, size=size) as s:

        def titles() -> dict[str, tuple[str, int]]:
            return {
                text.split()[1]: (part, line)
                for part in ("lists", "history")
                for line, text in enumerate(s.texts(f"#{part}"))
                if text.startswith(" ─ ")
            }

        before = titles()
        show(s, full)
        filled = titles()
        assert "jobs" in filled
        kept = {"processes", "timelines", "GPU"} & filled.keys()
        assert "processes" in kept and all(filled[name] == before[name] for name in kept)
        assert size[0] == 80 or kept > {"timelines", "GPU"}
        show(s, replace(full, waiters=()))
        left = titles()
        assert left.keys() - {"timelines"} == filled.keys() - {"timelines"}
        assert all(left[name] == filled[name] for name in left.keys() & filled.keys())
        show(s, quiet)
        assert titles() == before


# The device at the cursor


async def test_the_details_of_the_device_at_the_cursor_are_read_while_its_panel_is_there() -> None:
    async with session("idle", size=(160, 40)) as s:
        first, second = (device.key for device in s.main.app_state.rows)
        read, asked = s.source.read, list[set[str]]()

        def spy(want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
            if Want.DETAILS in want:
                assert not among or Want.TABLE not in want
                asked.append(set(among or ()))
            return read(want, among)

        s.source.read = spy  # type: ignore[method-assign]
        assert "─ GPU 0" in everything(s) and "throttling" in everything(s)
        await s.press("down")
        await s.until(lambda: asked[-1:] == [{second}])
        assert "─ GPU 1" in everything(s)
        await s.press("up")
        await s.until(lambda: asked[-1:] == [{first}])
        s.main.set_app_state(
            s.main.app_state.with_screen(s.main.app_state.screen._replace(hidden=("device",)))
        )
        await s.until(lambda: asked[-1:] == [set()])
        assert "throttling" not in everything(s)
