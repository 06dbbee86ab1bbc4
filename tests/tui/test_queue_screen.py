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
from gputui.inventory.claim import Claim
from gputui.inventory.job import Job
from gputui.inventory.waiter import Waiter
from gputui.jobs.own_call import OwnCall
from gputui.jobs.wait import refreshed
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.tui.app_state import AppState
from gputui.tui.panels import PANELS_BY_NAME
from gputui.tui.screens.queue import QueueScreen
from gputui.tui.views.queue import lines_of_panel, queue_panel
from gputui.tui.widgets.lines import Lines
from messages import numbers
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


async def test_the_panel_and_the_page_and_the_command_line_say_the_same_in_the_same_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of each device: itself, its user, and when it will be free; the times go on between two looks. Of those
    of which nothing is known, the panel has the number."""

    def rows(lines: list[str]) -> list[list[str]]:
        at = next(place for place, line in enumerate(lines) if line.split()[:2] == ["GPU", "USER"])
        found = [line.split() for line in lines[at + 1 :]]
        return [[*row[:2], *row[3:5]] for row in found if row and row[0].isdigit()]

    assert run_subcommand("queue", ["--demo", "shared"]) == 0
    printed = rows(capsys.readouterr().out.splitlines())
    assert [row[0] for row in printed] == ["6", "0", "1", "2", "3"]
    async with session("shared", size=(130, 40)) as s:
        panel = ["".join(text for text, _ in line) for line in queue_panel(s.main.app_state, 60, 20)]
        known = [row for row in printed if row[2] != "unknown"]
        assert rows(panel) == known != printed
        assert f"unknown for the other {len(printed) - len(known)}" in panel[-1]
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
            assert any("devices will be free" in text for text in texts(s)) == bool(line)
        # Nobody in line: one sentence, and nothing that the table has.
        show(s, devices=tuple(held))
        assert len([text for text in texts(s)[1:] if text]) <= 2


async def test_a_panel_is_there_while_somebody_waits() -> None:
    async with session("idle", size=(130, 40)) as s:
        state = s.main.app_state
        assert lines_of_panel(state, 60) == (0, 0)
        show(s, waiter(1), waiter(2, "bo"))
        panel = queue_panel(s.main.app_state, 60, 20)
        words = ["".join(text for text, _ in line) for line in panel]
        assert "2 in line" in words[0] and "next: ana · GPUs 0 and 1 free" in words[4]
        assert len(words) == lines_of_panel(s.main.app_state, 60)[0] == 5
        claim = Claim(IDLE.devices[0].key, "lee", IDLE.time - 3000, "python x.py")
        show(s, claims=(claim,))
        assert lines_of_panel(s.main.app_state, 60) == (0, 0), "the table has the claim"
        show(s, waiter(1), claims=(claim,))
        for width in (80, 48):
            words = ["".join(text for text, _ in line) for line in queue_panel(s.main.app_state, width, 20)]
            assert "EXPECTED FREE" in " ".join(words) and "not in use: ask lee" in " ".join(words)
            assert len(words) == lines_of_panel(s.main.app_state, width)[0]
        show(s, *(waiter(n, f"user{n}") for n in range(30)))
        words = ["".join(text for text, _ in line) for line in queue_panel(s.main.app_state, 60, 6)]
        assert "30 in line" in words[0] and "user2" in words[4] and words[5].startswith(" next: user0")
        # When two lines fit, the most useful one is the next waiter.
        words = ["".join(text for text, _ in line) for line in queue_panel(s.main.app_state, 60, 2)]
        assert len(words) == 2 and words[1].startswith(" next: user0")


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


def test_the_panel_sets_apart_who_holds_what_and_says_of_how_many() -> None:
    state = AppState({}).with_snapshot(box_at("shared"))

    def panel(height: int) -> list[str]:
        return ["".join(text for text, _ in line) for line in queue_panel(state, 60, height)]

    whole = panel(lines_of_panel(state, 60)[0])
    at = next(n for n, line in enumerate(whole) if line.startswith(" GPU"))
    assert whole[at - 1].startswith(" next: ana") and whole[at + 1].startswith(" 6 ")
    every = sum(not verdict.free for verdict in state.verdicts.values())
    assert "unknown for the other" in whole[-1]
    assert len(whole) - at - 2 + numbers(whole[-1])[0] == every
    cut = panel(len(whole) - 1)
    assert "more: " in cut[-1] and len(cut) - at - 2 + numbers(cut[-1])[0] == every
    assert panel(at + 3)[at + 1].startswith(" 6 ")
    # A heading says nothing without a row.
    assert len(panel(at + 2)) == len(panel(at)) == at


def test_the_panel_asks_for_the_same_room_while_others_come_and_go() -> None:
    film = [at(BOXES["shared"], elapsed, IDLE.time) for elapsed in (0, 5, 20, 45, 50)]
    assert len({len(snapshot.waiters) for snapshot in film}) > 1
    asked = PANELS_BY_NAME["queue"].size
    assert len({asked(AppState({}).with_snapshot(snapshot), 140).wants for snapshot in film}) == 1


def test_what_the_next_one_waits_for_and_who_holds_what_is_wrapped_and_not_cut() -> None:
    state = AppState({}).with_snapshot(box_at("shared"))
    for width in range(40, 60):
        least, most = lines_of_panel(state, width)
        for height in (least, most):
            panel = ["".join(text for text, _ in line) for line in queue_panel(state, width, height)]
            next_one = next(n for n, line in enumerate(panel) if line.startswith(" next: ana"))
            assert not any("…" in line for line in panel[next_one:]), (width, panel)
            assert len(panel) == height and "not free" in " ".join(" ".join(panel).split())


async def test_a_column_of_commands_without_room_is_left_out() -> None:
    for size, room in (((50, 15), False), ((80, 24), True)):
        async with session("shared", size=size) as s:
            await s.press("@queue")
            at = next(place for place, line in enumerate(texts(s)) if "EXPECTED FREE" in line)
            assert room == ("COMMAND" in texts(s)[at]) == ("serve.py" in texts(s)[at + 1])
            assert room or not any("…" in row for row in texts(s)[at:])
