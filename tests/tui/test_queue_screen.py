"""The queue on the screen: the panel, the page, and leaving the queue with a job of one's own."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import replace
from typing import Any

import pytest

from gputui.allocating.queue import waiters
from gputui.allocating.settings import ScreenSettings
from gputui.cli.dispatch import run_subcommand
from gputui.inventory.job import Job, JobDevice
from gputui.inventory.waiter import Waiter
from gputui.jobs.own_call import OwnCall
from gputui.jobs.wait import refreshed
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.tui.app_state import AppState
from gputui.tui.layout import Size
from gputui.tui.panels import PANELS_BY_NAME
from gputui.tui.screens.queue import QueueScreen
from gputui.tui.views.jobs_and_queue import MOST_LINES, panel
from gputui.tui.widgets.lines import Lines
from tui.support import Session, box_at
from tui.support import session as moving
from tui.test_confirm import in_line
from unit.builders import box, busy, gpu, job
from unit.jobs_support import Desk, ended, until

session = functools.partial(moving, interval=1000)

IDLE = box_at("idle")

_WAITS = """
import os, signal
from gputui.allocating.queue import Ticket
Ticket.draw(os.environ, 2, None, "python mine.py", job=os.path.basename(os.environ["GPUTUI_JOB"]))
signal.pause()
"""


def texts(s: Session, part: str = "#page-body") -> list[str]:
    """The lines without the cursor mark."""
    shown = s.app.screen.query_one(part, Lines).texts
    return [text.replace("▸", " ", 1).rstrip() for text in shown]


def show(s: Session, *line: Waiter, **facts: Any) -> None:
    """Show another reading of the box, with these waiters."""
    s.main.set_app_state(s.main.app_state.with_snapshot(replace(IDLE, waiters=line, **facts)))
    if isinstance(s.app.screen, QueueScreen):
        s.app.screen.draw()


def waiter(place: int, user: str = "ana", **more: Any) -> Waiter:
    return Waiter((place, ""), user, 2, since=IDLE.time - 60, command="python t.py", **more)


def waiting_job(desk: Desk) -> Job:
    """A job of ours that is in line."""
    before = len(waiters(os.environ))
    call = OwnCall(2, ("python", "mine.py"), (), ("gputui", "run"))
    job = desk.start(sys.executable, "-c", _WAITS, queued=call)
    until(lambda: len(waiters(os.environ)) == before + 1)
    return job


async def test_the_page_of_the_demo_box_says_who_waits_for_what_and_who_has_it() -> None:
    async with session("shared") as s:
        await s.press("@queue")
        lines = texts(s)
        assert "2 in line" in lines[0] and lines[1].split()[:3] == ["PLACE", "USER", "WANTS"]
        assert lines[2].split()[:4] == ["1", "ana", "GPU", "0,1,2,3"]
        assert lines[3].split()[:4] == ["2", "lee", "GPU", "6"]
        assert lines[4].strip() == "next: ana · GPUs 0, 1, 2 and 3 are not free"
        assert lines[5].strip() == "next: lee · GPU 6 is not free"
        assert lines[8].split()[:5] == ["GPU", "USER", "FOR", "EXPECTED", "FREE"]
        assert lines[9].split()[:2] == ["6", "bo"] and "idle 7h13m: ask bo" in lines[9]
        assert lines[10].split()[:3] == ["0", "mira", "3h01m"]
        await s.press("escape")
        assert s.app.screen is s.main


async def test_the_page_and_the_command_line_say_the_same_in_the_same_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of each device: itself, its user, and when it will be free; the times go on between two looks."""

    def rows(lines: list[str]) -> list[list[str]]:
        at = next(place for place, line in enumerate(lines) if line.split()[:2] == ["GPU", "USER"])
        found = [line.split() for line in lines[at + 1 :]]
        return [[*row[:2], *row[3:5]] for row in found if row and row[0].isdigit()]

    assert run_subcommand("queue", ["--demo", "shared"]) == 0
    printed = rows(capsys.readouterr().out.splitlines())
    assert [row[0] for row in printed] == ["6", "0", "1", "2", "3"]
    async with session("shared", size=(130, 40)) as s:
        await s.press("@queue")
        assert rows(texts(s)) == printed


async def test_nothing_moves_while_a_device_is_used_and_idle_and_becomes_free() -> None:
    """Only the row of a device that is free again goes."""
    held = [busy(gpu(n), job(7 + n, user="mira", command=f"python t{n}.py")) for n in range(2)]
    async with session("idle") as s:
        await s.press("@queue")
        shown: list[list[tuple[str, int]]] = []
        for utilization in (90, 0, None):
            one = gpu(0) if utilization is None else replace(held[0], utilization=utilization)
            show(s, replace(waiter(1), command="x"), devices=(one, held[1]), time=IDLE.time + len(shown))
            there = [text for text in texts(s) if ".py" in text or "in 10s" in text]
            shown.append([(text.split()[0], text.index("python") if ".py" in text else 0) for text in there])
        assert shown[0] == shown[1] and [label for label, _ in shown[2]] == ["0", "1"]
        assert shown[2][1] == shown[0][1]


async def test_the_page_fits_every_size_and_says_so_where_nobody_waits() -> None:
    # The panel of one device is hidden: it would read its details, and that reading replaces this snapshot.
    async with session("shared", screen=ScreenSettings(hidden=("device",))) as s:
        await s.press("@queue")
        for width, height in ((60, 15), (80, 24), (200, 60)):
            await s.resize(width, height)
            assert any("ana" in line for line in texts(s))
        show(s)
        await s.press("S", "j")
        assert "nobody in line" in texts(s)[0] and "w on the main screen joins it" in texts(s)[1]


async def test_only_what_somebody_waits_for_and_what_is_in_the_way_is_shown() -> None:
    held = [busy(gpu(n), job(7 + n, user="mira", command=f"python t{n}.py")) for n in range(2)]
    async with session("idle") as s:
        await s.press("@queue")
        for line, rows in (
            ((), 0),
            ((waiter(1, devices=frozenset({held[1].key})),), 1),
            ((waiter(1, devices=frozenset({held[1].key})), waiter(2)), 2),
        ):
            show(s, *line, devices=tuple(held))
            assert sum("mira" in text for text in texts(s)) == rows
            assert any("GPUs will be free" in text for text in texts(s)) == bool(line)
        # Nobody in line: one sentence, and nothing that the table has.
        show(s, devices=tuple(held))
        assert len([text for text in texts(s)[1:] if text]) <= 2


def words_of_panel(state: AppState, width: int, height: int) -> list[str]:
    found = ["".join(text for text, _ in line) for line in panel(state, width, height)]
    assert len(found) <= height and all(len(line) < width or line.startswith(" ─") for line in found), found
    return found


def of(**facts: Any) -> AppState:
    return AppState({}).with_snapshot(replace(box_at("shared"), **facts))


async def test_a_panel_is_there_while_somebody_waits() -> None:
    size = PANELS_BY_NAME["jobs"].size
    nobody = of(waiters=(), jobs=())
    assert nobody.box.claims and not any(size(nobody, width) != Size(0, 0) for width in (80, 130))
    words = words_of_panel(of(waiters=(waiter(1), waiter(2, "bo")), jobs=()), 60, 20)
    assert "2 in line" in words[0] and ":queue" in words[0] and words[3].startswith(" next: ana")
    many = of(waiters=tuple(waiter(n, f"user{n}") for n in range(30)), jobs=())
    words = words_of_panel(many, 60, 6)
    assert "30 in line" in words[0] and "more" not in words[0]
    assert "user3" in words[4] and words[5].startswith(" next: user0")
    # In two lines, what the next one waits for is the most useful.
    words = words_of_panel(many, 60, 2)
    assert len(words) == 2 and words[1].startswith(" next: user0")


def test_ones_own_jobs_are_before_the_waiters_and_every_row_ends_with_its_command() -> None:
    state = of()
    for width in (39, 48, 60, 72, 80):
        head, *rows = words_of_panel(state, width, MOST_LINES)
        assert "jobs and queue" in head and "1 running" in head
        firsts = [row.split()[0] for row in rows]
        assert firsts[:5] == ["m6u5", "k3f9", "1", "2", "next:"]
        assert all(
            word in row
            for word, row in zip(("finetune.py", "finetune.py", "torchrun", "eval.py"), rows[:4], strict=True)
        )
        assert "GPU 0,1,2,3" in rows[2] and "GPU 6" in rows[3]
        words = "running", "failed", "GPU 0", "GPU 6"
        assert len({row.index(word) for word, row in zip(words, rows[:4], strict=True)}) == 1
        # When the devices will be free, and the ends of logs, are on their pages.
        assert not any("EXPECTED" in row or "log of" in row or "loss" in row for row in rows)
    assert all("38m" in row or "3m" in row or "48m" in row or "25m" in row for row in rows[:4])


def test_a_command_is_cut_last() -> None:
    """The devices of a job, which the table has, and then the times are left out before."""
    ended = replace(job_of_ours("a6h9", (3, 7)), state="stopped", argv=("sleep", "600"), name=None)
    row = words_of_panel(of(jobs=(ended,), waiters=()), 39, 8)[1]
    assert row.split()[:3] == ["a6h9", "■", "stopped"] and row.endswith("sleep 600")


def test_a_job_in_line_has_one_row_with_its_place() -> None:
    mine = replace(job_of_ours("e3y2", ()), state="waiting", waits=2)
    after = replace(job_of_ours("k9k9", ()), state="waiting", after=("e3y2",))
    words = words_of_panel(
        of(jobs=(mine, after), waiters=(waiter(1), waiter(2, ours=True, job="e3y2"))), 80, 8
    )
    assert sum("e3y2" in word for word in words) == 1 and "2 e3y2" in words[3]
    assert "k9k9" in words[1] and "2 in line  1 waiting" in words[0], "each is counted once"
    words = words_of_panel(of(jobs=(mine,), waiters=(waiter(1, ours=True, job="e3y2"),)), 80, 8)
    assert "1 in line" in words[0] and "waiting" not in words[0]


def job_of_ours(id: str, indices: tuple[int, ...]) -> Job:
    there = box_at("shared").devices
    devices = tuple(JobDevice(n, there[n].key, None) for n in indices)
    return Job(id=id, argv=("python", "x.py"), state="running", devices=devices, started=IDLE.time - 6)


def test_neither_jobs_nor_waiters_take_all_lines_of_the_panel() -> None:
    jobs = tuple(job_of_ours(f"a{n}a{n}", (n,)) for n in range(8))
    line = tuple(waiter(n, f"user{n}") for n in range(8))
    words = words_of_panel(of(jobs=jobs, waiters=line), 80, MOST_LINES)
    assert len(words) == MOST_LINES and "8 running  8 in line" in words[0] and words[-1].startswith(" next: ")
    assert sum("running" in row for row in words[1:]) == sum("user" in row for row in words[1:-1]) == 3
    assert sum("running" in row for row in words_of_panel(of(jobs=jobs, waiters=line[:1]), 80, 8)[1:]) == 5


async def test_who_has_lost_the_place_in_line_is_told_apart_from_who_waits() -> None:
    async with session(IDLE) as s:
        await s.press("@queue")
        show(s, waiter(1, "bo"), waiter(2, "ana", silent=True))
        await s.until(lambda: any("has lost its place" in text for text in texts(s)))
        assert sum("has lost its place" in text for text in texts(s)) == 1


async def test_two_processes_are_in_line_and_ones_own_job_leaves_it_when_asked_twice(
    desk: Desk, environ: dict[str, str]
) -> None:
    with in_line(2):
        job = waiting_job(desk)
        async with session("idle", environ=environ) as s:
            show(s, *waiters(os.environ))
            await s.press("@queue")
            assert "2 in line, all yours" in texts(s)[0] and job.id in texts(s)[3]
            await s.press("S")
            assert "Ctrl-C" in texts(s, "#page-footer")[0], "the other one is no job"
            await s.press("down", "S")
            assert job.id in texts(s, "#page-footer")[0] and refreshed(job).state == "waiting"
            await s.press("j", "S")
            assert refreshed(job).state == "waiting", "another key in between"
            await s.press("S")
            await s.until(lambda: refreshed(job).state == "stopped")
            await s.until(lambda: f"job {job.id} has left the queue" in texts(s, "#page-footer")[0])
            show(s, *waiters(os.environ))
            assert "1 in line" in texts(s)[0]


async def test_only_ones_own_place_can_be_left() -> None:
    async with session("idle") as s:
        theirs, mine, device = waiter(1, "bo"), waiter(2, ours=True, job="e3y2"), busy(gpu(0))
        s.main.set_app_state(s.main.app_state.with_snapshot(replace(box(device), waiters=(theirs, mine))))
        await s.press("@queue")
        offered = []
        for _ in theirs, mine, device:
            offered.append("leave the queue" in texts(s, "#page-footer")[-1])
            await s.press("S")
            assert ("take job e3y2" in texts(s, "#page-footer")[0]) == offered[-1]
            await s.press("down")
        assert offered == [False, True, False]


async def test_a_job_that_does_not_wait_any_more_is_not_stopped(desk: Desk, environ: dict[str, str]) -> None:
    gate = desk.gate()
    job = desk.sh(gate.wait)
    async with session("idle", environ=environ) as s:
        show(s, waiter(1, ours=True, job=job.id), waiter(2, ours=True, job="gone"))
        await s.press("@queue", "S", "S")
        await s.until(lambda: "no longer waits" in texts(s, "#page-footer")[0])
        await s.press("down", "S", "S")
        await s.until(lambda: "not one of this machine" in texts(s, "#page-footer")[0])
        assert not refreshed(job).over
        s.main.set_app_state(replace(s.main.app_state, label="recorded box.json"))
        await s.press("S", "S")
        assert "recorded box.json" in texts(s, "#page-footer")[0]
        gate.open()
        ended(job)


async def test_a_hostile_name_in_line_is_neutralised() -> None:
    async with session("idle") as s:
        show(s, waiter(1, "mi\x1b[2Jra\n"), waiter(2, "\u202eoxo", job="\x07"))
        await s.press("@queue")
        assert all(text.isprintable() for text in texts(s))


async def test_every_row_of_the_page_can_be_reached_and_the_title_counts_the_hidden_lines() -> None:
    async with session("shared", size=(60, 12)) as s:
        waiters = s.main.app_state.snapshot.waiters if s.main.app_state.snapshot else ()
        s.main.set_app_state(
            s.main.app_state.with_snapshot(
                replace(box_at("shared"), waiters=(*waiters, replace(waiters[0], place=(9, ""))))
            )
        )
        await s.press("@queue")
        assert "3 in line" in texts(s)[0] and "▼" in texts(s)[0] and "▲" not in texts(s)[0]
        await s.press("G")
        body = "\n".join(texts(s))
        assert "\n 3    ines" in body
        assert "▲" in texts(s)[0] and "▼" not in texts(s)[0]
        await s.press("S", "pageup")
        assert "▲" not in texts(s)[0]
        await s.press("pagedown", "pagedown")
        assert "▼" not in texts(s)[0]


def test_beside_the_table_the_panel_asks_for_the_same_room_while_others_come_and_go() -> None:
    film = [at(BOXES["shared"], elapsed, IDLE.time) for elapsed in (0, 5, 20, 45, 50)]
    assert len({len(snapshot.waiters) for snapshot in film}) > 1
    asked = PANELS_BY_NAME["jobs"].size
    some = [of(waiters=(), jobs=(job_of_ours("a1a1", (1,)),)), of(waiters=(waiter(1),) * 30)]
    states = [*some, *(AppState({}).with_snapshot(snapshot) for snapshot in film)]
    assert {asked(state, 160) for state in states} == {Size(2, MOST_LINES)}


def test_what_the_next_one_waits_for_is_wrapped_where_the_panel_has_lines() -> None:
    state = of()
    for width in range(39, 60):
        words = words_of_panel(state, width, MOST_LINES)
        assert "not free" in " ".join(" ".join(words[5:]).split())
        assert not any("…" in line for line in words[5:])
        assert len(words_of_panel(state, width, 6)) == 6


async def test_a_column_of_commands_without_room_is_left_out() -> None:
    for size, room in (((50, 15), False), ((80, 24), True)):
        async with session("shared", size=size) as s:
            await s.press("@queue")
            at = next(place for place, line in enumerate(texts(s)) if "EXPECTED FREE" in line)
            assert room == ("COMMAND" in texts(s)[at]) == ("serve.py" in texts(s)[at + 1])
            assert room or not any("…" in row for row in texts(s)[at:])
