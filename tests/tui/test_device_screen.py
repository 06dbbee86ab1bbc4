"""The page of one device: its keys, the readings for it, and signals sent from it."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection
from dataclasses import replace

import pytest

from gputui.inventory.process import Ancestor
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.tui.app_state import AppState
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.device import DeviceScreen
from gputui.tui.screens.topology import TopologyScreen
from gputui.tui.views.device import device_panel
from gputui.tui.widgets.lines import Lines
from tui.support import Session, box_at
from tui.support import session as moving
from unit.builders import box, busy, gpu, instance, job

session = functools.partial(moving, interval=1000)


def texts(s: Session, part: str = "#page-body") -> list[str]:
    """The lines without the cursor mark."""
    shown = s.app.screen.query_one(part, Lines).texts
    return [text.replace("▸", " ", 1).rstrip() for text in shown]


def lit(s: Session) -> str:
    picture = s.app.screen.query_one("#page-body", Lines)
    return picture.texts[picture.lit].strip("▸ ") if picture.lit is not None else ""


def shown(s: Session) -> str:
    """The index of the device whose page is open."""
    return texts(s)[0].split()[2]


def show(s: Session, snapshot: Snapshot) -> None:
    s.main.set_app_state(s.main.app_state.with_snapshot(snapshot))
    assert isinstance(s.app.screen, DeviceScreen)
    s.app.screen.draw()


def crowded(count: int = 3) -> Snapshot:
    processes = (job(100 + n, ancestors=(Ancestor(90, "torchrun"),)) for n in range(count))
    return box(busy(gpu(0), *processes), busy(gpu(1), job(7)))


async def test_it_opens_on_the_device_at_the_cursor_and_goes_back_to_where_it_was_opened() -> None:
    async with session("shared") as s:
        await s.press("down", "down")
        for key, back in (("right", "left"), ("@device", "escape"), ("@device", "q")):
            await s.press(key)
            assert isinstance(s.app.screen, DeviceScreen) and shown(s) == "2"
            await s.press(back)
            assert s.app.screen is s.main
        await s.press("t", "down", "@device")
        assert isinstance(s.app.screen, DeviceScreen) and shown(s) == "3"
        await s.press("escape")
        assert isinstance(s.app.screen, TopologyScreen)


async def test_of_a_held_device_nobody_says_that_no_process_uses_it() -> None:
    async with session("shared") as s:
        for place, words in ((2, "no visible process"), (4, "no process uses it")):
            s.main.set_app_state(replace(s.main.app_state, cursor=s.main.app_state.box.devices[place].key))
            await s.press("@device")
            assert any(line.strip() == words for line in texts(s))
            await s.press("escape")


async def test_who_may_be_asked_for_an_idle_device_is_said_wherever_it_is_selected() -> None:
    async with session("shared") as s:
        s.main.set_app_state(replace(s.main.app_state, cursor=s.main.app_state.box.devices[6].key))
        await s.press("6")
        (warning,) = [each for each in s.main.app_state.warnings if "GPU 6" in each]
        assert "ask bo" in warning and "idle" not in warning
        await s.press("@device")
        assert any("ask bo" in line for line in texts(s))
        await s.press("escape", "enter")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        assert isinstance(s.app.screen, ConfirmScreen) and "Ask bo." in "".join(s.app.screen.reasons)


async def test_what_is_on_the_page_is_read_in_full_and_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session("idle") as s:
        asked: list[tuple[str, ...]] = []

        def look_at(keys: Collection[str], *_: object) -> None:
            # The page reports its devices with every drawing; the sampler reacts to changes only.
            if asked[-1:] != [tuple(keys)]:
                asked.append(tuple(keys))

        monkeypatch.setattr(s.main._sampler, "look_at", look_at)
        keys = [device.key for device in s.main.app_state.rows]
        # The box has two devices: the second is the last one.
        await s.press("@device", "right_square_bracket", "tab")
        assert shown(s) == "1" and s.main.app_state.cursor == keys[1]
        await s.press("left_square_bracket")
        assert shown(s) == "0"
        await s.press("space")
        assert s.selected == ["0"] and shown(s) == "0" and any("selected: cuda:0" in t for t in texts(s))
        await s.press("space", "escape")
        assert s.selected == [] and s.app.screen is s.main
        assert asked == [(keys[0],), (keys[1],), (keys[0],), ()]


async def test_its_processes_stand_below_who_started_them_and_no_other_devices_do() -> None:
    async with session(crowded(), size=(130, 40)) as s:
        await s.press("@device")
        rows = [row for row in texts(s) if row][-4:]
        assert [row.split()[0] for row in rows] == ["90", "100", "101", "102"]
        assert lit(s).endswith("torchrun")
        await s.press("G")
        assert lit(s).startswith("102")


async def test_what_a_process_uses_of_device_and_host_has_columns_at_80() -> None:
    process = replace(job(100, user="mira"), sm=91, host_cpu=115.0, host_memory=6 * 2**30)
    async with session(box(busy(gpu(0), process)), size=(80, 24)) as s:
        await s.press("@device")
        (heading,) = [text for text in texts(s) if "PID" in text]
        assert heading.split() == ["PID", "USER", "LOAD", "MEMORY", "CPU", "RAM", "FOR", "COMMAND"]


async def test_more_processes_than_rows_scroll_and_their_number_is_said() -> None:
    async with session(crowded(60), size=(130, 30)) as s:
        await s.press("@device", "G")
        assert lit(s).startswith("159") and any("─ processes ─" in text and "▲" in text for text in texts(s))


async def test_the_past_is_charted_where_there_is_room_and_its_span_can_be_changed() -> None:
    async with session("shared", size=(130, 40)) as s:
        await s.press("@device")
        (rule,) = [text for text in texts(s) if "timelines" in text]
        await s.press("minus")
        (longer,) = [text for text in texts(s) if "timelines" in text]
        await s.press("plus")
        assert longer != rule and rule in texts(s)
        await s.resize(80, 24)
        assert not any("timelines" in text for text in texts(s))


async def test_on_a_small_screen_all_of_it_scrolls_and_nothing_is_left_out_in_silence() -> None:
    async with session(crowded(), size=(60, 15)) as s:
        await s.press("@device")
        seen = set(texts(s)[:-1])
        while "more line" in texts(s)[-1]:
            await s.press("pagedown")
            seen |= set(texts(s))
        assert any("driver error" in text for text in seen) and any("102" in text for text in seen)
        await s.press("pageup", "pageup", "pageup", "pageup", "G")
        assert lit(s).startswith("102")
        await s.press("g")
        assert shown(s) == "0"


async def test_on_a_small_screen_its_processes_come_before_the_facts() -> None:
    def places(s: Session) -> list[int]:
        words = ("─ processes ─", "utilization")
        return [next(at for at, text in enumerate(texts(s)) if word in text) for word in words]

    async with session(crowded(1), size=(80, 17)) as s:
        await s.press("@device")
        processes, facts = places(s)
        assert processes < facts and lit(s) and "pgdn" in texts(s)[-1]
        # Where there is room for both, the facts are first: their number is always the same.
        await s.resize(130, 40)
        processes, facts = places(s)
        assert processes > facts


async def test_the_keys_of_the_charts_are_named_only_where_there_are_charts() -> None:
    async with session(size=(130, 60)) as s:
        await s.press("@device")
        await s.until(lambda: "+/- zoom" in texts(s, "#page-footer")[-1])
        assert any("timelines" in text for text in texts(s))
        await s.resize(80, 24)
        await s.until(lambda: "zoom" not in texts(s, "#page-footer")[-1])
        assert not any("timelines" in text for text in texts(s))


async def test_a_device_that_is_gone_is_said_to_be() -> None:
    async with session(crowded(), size=(130, 40)) as s:
        await s.press("@device")
        show(s, box(busy(gpu(1), job(7))))
        assert any("no longer present" in text for text in texts(s))
        await s.press("space", "X", "right_square_bracket")
        assert shown(s) == "1"
        # For a divided GPU, the page lists the processes of its instances, with the instance.
        divided = gpu(1, mig=True)
        show(s, box(divided, replace(instance(divided, 2), processes=(job(8),))))
        assert any(t.split()[:2] == ["1:2", "8"] for t in texts(s))
        show(s, box(gpu(0), replace(gpu(1), processes=None)))
        assert any("does not list" in text for text in texts(s))


async def test_a_process_in_another_namespace_is_never_signalled() -> None:
    elsewhere = job(os.getpid(), user=None, command=None, note="outside this container")
    async with session(box(busy(gpu(0), elsewhere))) as s:
        await s.press("@device", "X")
        assert "outside this container" in "".join(texts(s, "#page-footer"))


@pytest.mark.parametrize("state", ["busy", "claimed"])
async def test_ones_own_job_is_told_once_on_the_page_and_in_the_panel(state: str) -> None:
    snapshot = box_at("shared")
    (own,) = (each for each in snapshot.jobs if each.state == "running")
    key = own.keys[0]
    if state == "claimed":
        quiet = (replace(d, processes=(), memory_used=0, utilization=0) for d in snapshot.devices)
        snapshot = replace(snapshot, devices=tuple(quiet))
    async with session(snapshot, size=(200, 60)) as s:
        await s.press("down")
        current = s.main.app_state.current
        assert current is not None and current.key == key
        assert s.main.app_state.verdicts[key].state == state
        lines = device_panel(s.main.app_state, 60, 30)
        assert {style for line in lines for text, style in line if "your job" in text} == {"mine"}
        panel = ["".join(text for text, _ in line) for line in lines]
        await s.press("@device")
        head = texts(s)[: next(n for n, text in enumerate(texts(s)) if "Load" in text)]
        for told in (" ".join(panel), " ".join(head)):
            assert told.count(own.id) == 1 and told.count(own.title.split()[1]) == 1
            assert f"{state}:" not in told and str(own.last_line).split()[0] in told


@pytest.mark.parametrize("size", [(130, 40), (200, 60)])
async def test_what_is_shown_of_a_device_is_the_same_whether_it_is_selected_or_not(
    size: tuple[int, int],
) -> None:
    async with session("shared", size=size) as s:
        panels = [device_panel(s.main.app_state, width, 17) for width in (39, 50, 72)]
        for lines in panels:
            # The load comes first, and has room wherever anything else has.
            titles = [text.strip() for line in lines[1:] for text, style in line if style == "title"]
            assert titles[0] == "Load"
        await s.press("@device")
        title, *facts = texts(s)
        await s.press("space")
        selected, *same = texts(s)
        assert same == facts and title not in selected and "cuda:0" in selected
        assert panels == [device_panel(s.main.app_state, width, 17) for width in (39, 50, 72)]


@pytest.mark.parametrize("width", [39, 72])
def test_a_temperature_and_its_limits_have_one_line(width: int) -> None:
    hot = Telemetry(slowdown_temperature=92, shutdown_temperature=95)
    state = AppState({}).with_snapshot(box(replace(gpu(0), temperature=68, telemetry=hot)))
    lines = ["".join(text for text, _ in line) for line in device_panel(state, width, 17)]
    (line,) = (line for line in lines if "temperature" in line and "°C" in line)
    assert "68" in line and "92" in line and ("95" in line) == (width == 72)
