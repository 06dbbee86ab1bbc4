"""The queue on the screen: the panel, the page, and leaving the queue with a job of one's own."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import replace
from typing import Any

from gputui.allocating.queue import waiters
from gputui.inventory.claim import Claim
from gputui.inventory.job import Job
from gputui.inventory.waiter import Waiter
from gputui.jobs.own_call import OwnCall
from gputui.jobs.wait import refreshed
from gputui.tui.app_state import AppState
from gputui.tui.screens.queue import QueueScreen
from gputui.tui.views.queue import lines_of_panel, queue_panel
from gputui.tui.widgets.lines import Lines
from tui.support import Session, box_at
from tui.support import session as moving
from tui.test_confirm import in_line
from unit.builders import busy, gpu, job
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
        assert "2 in line" in lines[0]
        assert lines[1].split()[:4] == ["1", "ana", "4", "devices"]
        assert lines[2].strip() == "GPUs 4, 5 and 7 free, needs 1 more"
        assert lines[3].split()[:4] == ["2", "lee", "GPU", "6"] and lines[4].strip() == "after ana"
        assert lines[7].split()[:3] == ["GPU", "6", "bo"] and "idle 7h13m" in lines[7]
        assert lines[8].split()[:3] == ["GPU", "0", "mira"] and "for 3h01m" in lines[8]
        await s.press("S")
        assert "only ana" in texts(s, "#page-footer")[0]
        await s.press("escape")
        assert s.app.screen is s.main


async def test_nothing_moves_when_a_device_is_at_0_percent_for_a_moment() -> None:
    device = busy(gpu(0), job(7, user="mira", command="python t.py"))
    async with session("idle") as s:
        await s.press("@queue")
        places = []
        for utilization in (90, 0, 90):
            show(s, devices=(replace(device, utilization=utilization), gpu(1)))
            (row,) = [text for text in texts(s) if "mira" in text]
            assert ("0 % now" in row) == (utilization == 0)
            places.append(row.index("python"))
        assert len(set(places)) == 1


async def test_the_page_fits_every_size_and_says_so_where_nobody_waits() -> None:
    async with session("shared") as s:
        await s.press("@queue")
        for width, height in ((60, 15), (80, 24), (200, 60)):
            await s.resize(width, height)
            assert any("ana" in line for line in texts(s))
        show(s)
        await s.press("S", "j")
        assert "nobody in line" in texts(s)[0] and "w on the main screen" in texts(s)[1]


async def test_a_panel_is_there_while_somebody_waits_or_holds_a_claim() -> None:
    async with session("idle", size=(130, 40)) as s:
        state = s.main.app_state
        assert lines_of_panel(state, 60) == 0
        show(s, waiter(1), waiter(2, "bo"))
        panel = queue_panel(s.main.app_state, 60, 20)
        words = ["".join(text for text, _ in line) for line in panel]
        assert "2 in line" in words[0] and "next: ana · GPUs 0 and 1 free" in words[3]
        assert len(words) == lines_of_panel(s.main.app_state, 60) == 4
        show(s, claims=(Claim(IDLE.devices[0].key, "lee", IDLE.time - 3000, "python x.py"),))
        # Where there is room for a part only, it is the use that is shown, and not since when.
        for width in (80, 40):
            panel = queue_panel(s.main.app_state, width, 2)
            assert ("nothing runs on it  ", "warn") in panel[1]
        assert len(panel) == lines_of_panel(s.main.app_state, 60) == 2
        show(s, *(waiter(n, f"user{n}") for n in range(30)))
        words = ["".join(text for text, _ in line) for line in queue_panel(s.main.app_state, 60, 6)]
        assert "30 in line" in words[0] and "user3" in words[4] and words[5].startswith(" next: user0")
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
            await s.until(lambda: f"job {job.id}: SIGTERM" in texts(s, "#page-footer")[0])
            show(s, *waiters(os.environ))
            assert "1 in line" in texts(s)[0]


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
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("S", "S")
        assert "demo shared" in texts(s, "#page-footer")[0]
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
        assert "GPU 1 " in body and "No job says when" in body
        assert "▲" in texts(s)[0] and "▼" not in texts(s)[0]
        assert "leave" not in texts(s, "#page-footer")[-1], "a device has no place in line"
        await s.press("S", "pageup")
        assert "▲" not in texts(s)[0] and "leave" in texts(s, "#page-footer")[-1]
        await s.press("pagedown", "pagedown")
        assert "▼" not in texts(s)[0]


def test_the_panel_sets_apart_who_holds_what_and_says_of_how_many() -> None:
    state = AppState({}).with_snapshot(box_at("shared"))

    def panel(height: int) -> list[str]:
        return ["".join(text for text, _ in line) for line in queue_panel(state, 60, height)]

    whole = panel(lines_of_panel(state, 60))
    at = next(n for n, line in enumerate(whole) if line.startswith(" not free"))
    assert whole[at - 1].startswith(" next: ana") and whole[at + 1].startswith(" GPU 6")
    rest, every = len(whole) - at - 1, sum(not verdict.free for verdict in state.verdicts.values())
    assert rest < every and whole[at].endswith(f"({rest} of {every} shown)")
    assert panel(len(whole) - 1)[at].endswith(f"({rest - 1} of {every} shown)")
    # When one line fits, it has at least the numbers.
    assert panel(at + 1)[at].startswith(" not free: GPU 6,") and len(panel(at)) == at


def test_what_the_next_one_waits_for_and_who_holds_what_is_wrapped_and_not_cut() -> None:
    state = AppState({}).with_snapshot(box_at("shared"))
    for width in range(40, 60):
        height = lines_of_panel(state, width)
        panel = ["".join(text for text, _ in line) for line in queue_panel(state, width, height)]
        next_one = next(n for n, line in enumerate(panel) if line.startswith(" next: ana"))
        assert not any("…" in line for line in panel[next_one:]), (width, panel)
        assert len(panel) == height and "needs" in " ".join(panel)


async def test_a_column_of_commands_without_room_is_left_out() -> None:
    async with session("shared", size=(60, 15)) as s:
        await s.press("@queue")
        rows = [line for line in texts(s) if line.startswith(" GPU ")]
        assert rows and not any("…" in row for row in rows)
    async with session("shared", size=(80, 24)) as s:
        await s.press("@queue")
        assert any("serve.py" in line for line in texts(s) if line.startswith(" GPU "))
