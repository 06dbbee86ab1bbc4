"""The processes by person, and the way from there to the processes of one person and back."""

from __future__ import annotations

import functools
import re

import pytest

from gputui.choosing.rules import Rules
from gputui.inventory.claim import Claim
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.tui.screens.processes import ProcessesScreen
from gputui.tui.widgets.lines import Lines
from tui.support import Session
from tui.support import session as moving
from unit.builders import GIB, box, busy, gpu, job

session = functools.partial(moving, interval=1000)


def texts(s: Session, part: str = "#page-body") -> list[str]:
    """The lines without the cursor mark."""
    shown = s.app.screen.query_one(part, Lines).texts
    return [text.replace("▸", " ", 1).rstrip() for text in shown]


def lit(s: Session) -> str:
    """The line under the cursor."""
    picture = s.app.screen.query_one("#page-body", Lines)
    assert picture.lit is not None
    return picture.texts[picture.lit].strip("▸ ")


def people(**memory: int) -> Snapshot:
    """A box with one GPU for each person."""
    return box(
        *(
            busy(gpu(n), job(100 + n, user=user, memory=amount * GIB))
            for n, (user, amount) in enumerate(memory.items())
        )
    )


def show(s: Session, snapshot: Snapshot) -> None:
    """Another reading of the box."""
    s.main.set_app_state(s.main.app_state.with_snapshot(snapshot))
    s.app.screen.draw()  # type: ignore[attr-defined]


async def test_everybody_is_shown_and_what_nobody_is_seen_to_hold() -> None:
    async with session("shared", size=(130, 40)) as s:
        await s.press("@people")
        lines = texts(s)
        assert "4 people" in lines[0]
        assert [line.split()[0] for line in lines[2:10:2]] == ["bo", "ines", "mira", "you"]
        assert lines[3].split()[:2] == ["6", "28412"] and "idle 7h13m" in lines[3]
        assert lines[10].split()[0] == "2" and "22.4G" in lines[10] and "no visible process" in lines[10]
        # The memory figures are in one column.
        assert len({re.search(r"G  ", line).start() for line in lines[2:11]}) == 1  # type: ignore[union-attr]
        assert "esc back" in texts(s, "#page-footer")[-1]


async def test_the_agent_that_asked_for_a_claim_is_told() -> None:
    async with session("idle") as s:
        claim = Claim(s.main.app_state.box.devices[0].key, "ana", None, "python x.py", client="codex")
        await s.press("@people")
        show(s, replace(s.main.app_state.box, claims=(claim,)))
        assert "(by codex)" in "\n".join(texts(s))


async def test_on_an_idle_box_it_says_so_and_no_key_does_harm() -> None:
    async with session("idle") as s:
        await s.press("@people")
        assert not any("command" in line for line in texts(s, "#page-footer"))
        assert "nobody uses a device" in texts(s)[1] and not any(texts(s)[2:])
        assert "process" not in texts(s, "#page-footer")[-1], "no key of a process"
        await s.press("j", "k", "enter", "down")
        assert "by person" in texts(s)[0]


async def test_enter_lists_the_processes_of_that_person_and_of_no_other() -> None:
    async with session(people(jo=9, john=5, mira=1)) as s:
        await s.press("@people", "enter")
        assert isinstance(s.app.screen, ProcessesScreen)
        assert "with “user jo”" in texts(s)[0]
        assert [(t.split()[0], t.split()[2]) for t in texts(s)[2:] if t] == [("0", "jo")]


async def test_a_name_that_cannot_be_printed_and_an_unknown_one_lead_to_their_processes() -> None:
    evil = box(busy(gpu(0), job(7, user="e\x1bvil")), busy(gpu(1), job(8, user=None, memory=GIB)))
    async with session(evil) as s:
        await s.press("@people", "enter")
        assert " 7  " in texts(s)[2]
        await s.press("P", "down", "down", "enter")
        assert [line for line in texts(s)[2:] if line] and " 8  " in texts(s)[2]


async def test_the_cursor_stays_with_its_person_when_memory_changes_the_order() -> None:
    async with session(people(ana=3, bo=2, jun=1)) as s:
        await s.press("@people", "down", "down")
        assert lit(s).startswith("bo")
        show(s, people(bo=9, ana=3, jun=1))
        assert lit(s).startswith("bo")
        await s.press("down", "down")
        assert lit(s).startswith("ana")
        await s.press("enter")
        assert "with “user ana”" in texts(s)[0]


async def test_by_person_and_as_a_list_are_one_page() -> None:
    async with session("shared") as s:
        await s.press("@people")
        for _ in "ab":
            await s.press("enter")
            assert "processes" in texts(s)[0] and "with “user bo”" in texts(s)[0]
            await s.press("P")
            assert "by person" in texts(s)[0] and "4 people" in texts(s)[0]
        assert len(s.app.screen_stack) == 2
        await s.press("P")
        assert "processes" in texts(s)[0] and "with" not in texts(s)[0]
        await s.press("P", "tab")
        assert "processes" in texts(s)[0]
        for key in ("escape", "q", "p"):
            await s.press(key)
            assert s.app.screen is s.main
            await s.press("P")


async def test_the_keys_name_the_forms_that_are_not_shown() -> None:
    async with session("shared", size=(130, 40)) as s:
        for keys, named, unnamed in (
            (("@people",), ("tab tree", "P by device"), "P by person"),
            (("P",), ("tab tree", "P by person"), "list"),
            (("tab",), ("tab list", "P by person"), "tab tree"),
        ):
            await s.press(*keys)
            line = s.app.screen.query_one("#page-footer", Lines).texts[-1]
            assert all(each in line for each in named) and unnamed not in line


async def test_a_filter_leaves_the_people_who_have_such_a_process() -> None:
    async with session(people(ana=3, bo=2, jun=1)) as s:
        await s.press("@people", "slash", *("g", "p", "u", "space", "1"), "enter")
        assert [line.split()[0] for line in texts(s)[2:] if line] == ["bo", "1"]
        assert "1 person" in texts(s)[0]


async def test_an_order_moves_people_with_their_processes() -> None:
    async with session(people(jun=3, bo=2, ana=1)) as s:
        await s.press("@people")
        heads = [line.split()[0] for line in texts(s)[2:8:2]]
        assert heads == ["jun", "bo", "ana"]
        await s.press("s", "s", "s")
        assert "by user" in texts(s)[0]
        assert [line.split()[0] for line in texts(s)[2:8:2]] == ["ana", "bo", "jun"]


async def test_a_process_below_its_person_can_be_sent_a_signal() -> None:
    async with session(people(ana=3)) as s:
        s.main.set_app_state(replace(s.main.app_state, label=""))
        await s.press("@people", "X")
        assert "no process" in " ".join(texts(s, "#page-footer"))
        await s.press("down", "X")
        assert "pid 100" in " ".join(texts(s, "#page-footer"))


async def test_many_people_scroll_and_the_last_is_shown_whole() -> None:
    many = box(*(busy(gpu(n), job(100 + n, user=f"user{n:02}")) for n in range(16)))
    async with session(many) as s:
        await s.press("@people", "G")
        assert lit(s).startswith("15") and "user15" in texts(s)[-2]
        await s.press("g")
        assert lit(s).startswith("user00") and "user00" in texts(s)[2]


async def test_who_holds_memory_and_does_nothing_stands_first_and_is_told_once() -> None:
    idle = box(busy(gpu(0), job(1, user="bo", memory=40 * GIB)), busy(gpu(1), job(2, user="ana")))
    async with session(idle) as s:
        for minute in range(12):
            device = gpu(0, processes=idle.devices[0].processes, memory_used=40 * GIB, utilization=0)
            s.main.set_app_state(
                s.main.app_state.with_snapshot(box(device, idle.devices[1], time=idle.time + 60 * minute))
            )
        await s.press("@people")
        assert [line.split()[0] for line in texts(s)[2:6:2]] == ["bo", "ana"], "whom to ask comes first"
        assert sum(line.count("idle 11m") for line in (*texts(s), *texts(s, "#page-footer"))) == 1
        await s.press("s", "s", "s")
        assert [line.split()[0] for line in texts(s)[2:6:2]] == ["ana", "bo"], "by user"
        await s.press("P", "j", "P")
        assert lit(s).startswith("ana"), "the first row"


async def test_in_the_column_of_commands_there_is_nothing_but_commands() -> None:
    two = replace(
        busy(gpu(0), job(1, user="bo", started=0.0)),
        processes=(job(1, user="bo", started=0.0), job(2, user="bo", memory=GIB)),
    )
    claim = Claim(gpu(1).key, "ana", None, "python x.py")
    devices = (replace(two, utilization=0), gpu(1), busy(gpu(2), job(7, user="me", own=True)))
    snapshot = replace(box(*devices), claims=(claim,))
    async with session(snapshot, size=(130, 40), rules=Rules(idle=0)) as s:
        await s.press("@people")
        heading, *lines = texts(s)[1:8]
        assert {line[heading.index("COMMAND") :] for line in lines} == {"", "python train.py", "python x.py"}
        states = {line[heading.index("STATE") :].split(" ")[0] for line in lines}
        assert states == {"", "idle", "claimed"}
        assert any("2 pids" in line for line in lines)


@pytest.mark.thorough
async def test_every_size_is_painted() -> None:
    async with session("shared") as s:
        await s.press("@people")
        for width, height in ((130, 40), (20, 5)):
            await s.resize(width, height)
            assert all(len(line) <= width for line in texts(s))


async def test_below_the_list_nothing_repeats_a_row_that_has_everything() -> None:
    async with session(people(ana=3, bo=2)) as s:
        await s.press("@people")
        for _ in range(4):
            assert not texts(s, "#page-footer")[0]
            await s.press("down")


async def test_the_foot_of_an_idle_holder_says_how_to_get_the_device() -> None:
    async with session("shared", size=(130, 40)) as s:
        await s.press(":idle")

        def foot() -> str:
            return " ".join(texts(s, "#page-footer"))

        # Who has an idle device is at the top.
        assert lit(s).startswith("bo")
        assert "ask bo" in foot() and "GPU 6" in foot() and "w waits" in foot()
        await s.press("down")
        assert "ask bo" in foot() and "GPU 6" in foot()
        await s.press("down")
        assert "ask" not in foot(), "a person whose devices are in use"
        await s.press("home", "P")
        assert "ask" not in foot()
        # The same in the list by device.
        await s.press("end", *["up"] * 9)
        while "idle" not in lit(s):
            await s.press("down")
        assert "ask bo" in foot() and "GPU 6" in foot()
