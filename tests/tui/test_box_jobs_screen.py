"""The jobs of other boxes on the whole screen."""

from __future__ import annotations

from time import localtime, strftime

import pytest

from gputui.inventory.job import Job, JobDevice
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.box_jobs import BoxJobs, JobsOfBoxes, LogEnd
from gputui.launching.launch import Launch
from gputui.sources.hosts.channel import Channels
from gputui.sources.hosts.ssh import Way
from gputui.tui.controllers import box_nodes
from gputui.tui.controllers.box_nodes import BoxNodes
from gputui.tui.screens.box_jobs import BoxJobsScreen
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.screens.page import page_keys
from gputui.tui.start_launch import Returned
from gputui.tui.widgets.lines import Lines
from tui.support import OPENED, Session, session
from tui.test_boxes_screen import four, line_of
from tui.test_boxes_screen import opened as opened_boxes
from tui.test_people_screen import lit, texts


class Told(JobsOfBoxes):
    """Boxes with states that the test sets; no box is contacted."""

    def __init__(self, *states: BoxJobs) -> None:
        super().__init__((), Way(1))
        self.told = states
        self.end: LogEnd | None = None
        self.looked: list[str] = []
        self.asked: list[str | None] = []

    @property
    def states(self) -> tuple[BoxJobs, ...]:
        return self.told

    def look_at(self, job: Job | None) -> None:
        if job is not None:
            self.looked.append(job.address)

    @property
    def log(self) -> LogEnd | None:
        return self.end if self.end and self.looked and self.end.job == self.looked[-1] else None

    def ask_now(self, box: str | None = None) -> None:
        self.asked.append(box)


def job(box: str, id: str, state: str = "running", title: str = "train", **more: object) -> Job:
    ended = OPENED - 60 if state in ("done", "failed", "stopped") else None
    given = {
        "line": f"torchrun {title}.py",
        "directory": "/home/ana/x",
        "started": OPENED - 600,
    }
    devices = () if state == "waiting" else tuple(JobDevice(n, f"GPU-{n}", None) for n in range(2))
    return Job(box=box, id=id, name=title, state=state, devices=devices, ended=ended, **{**given, **more})  # type: ignore[arg-type]


ONE = BoxJobs("gpu1", (job("gpu1", "m6u5"), job("gpu1", "k3f9", "failed", status=1)), since=OPENED)
GONE = BoxJobs("gone", error="connection refused")
BOXES = (
    ONE,
    BoxJobs("gpu2", (), since=OPENED),
    GONE,
    BoxJobs("lab"),
    BoxJobs("z", (job("z", "w", "waiting"),)),
)


def opened(s: Session, *states: BoxJobs) -> Told:
    told = Told(*states)
    calls = BoxNodes(s.main, s.main.launch, dict(s.main.app_state.environ), Channels((), Way(1), 1.0))
    s.main.open(BoxJobsScreen(s.main, told, calls))
    return told


def rows(s: Session) -> dict[str, str]:
    """The lines of the list, by their first word."""
    found = (line[1:].strip() for line in texts(s)[1:] if line.strip())
    return {line.split(" ")[0]: line for line in found if not line.startswith(("─", "ID "))}


async def test_each_job_has_its_box_and_each_box_that_has_none_says_why() -> None:
    async with session("idle") as s:
        opened(s, *BOXES)
        await s.press()
        found = rows(s)
        assert "1 running, 1 waiting, 1 ended" in texts(s)[0] and "asking 1 of 5" in texts(s)[0]
        assert "running" in found["gpu1:m6u5"] and "GPU 0,1" in found["gpu1:m6u5"]
        assert "status 1" in found["gpu1:k3f9"] and "in line" in found["z:w"]
        assert (
            "no jobs" in found["gpu2"] and "connection refused" in found["gone"] and "asking" in found["lab"]
        )


async def test_a_device_of_another_box_is_none_of_ours_whatever_its_key() -> None:
    async with session("idle", size=(130, 40)) as s:
        assert s.main.app_state.snapshot is not None
        key = s.main.app_state.snapshot.devices[0].key
        theirs = replace(job("gpu1", "m6u5"), devices=(JobDevice(7, key, None),))
        opened(s, BoxJobs("gpu1", (theirs,), since=OPENED))
        await s.press()
        assert "GPU 7" in rows(s)["gpu1:m6u5"]
        assert not any("devices of" in line for line in texts(s))


async def test_the_job_at_the_cursor_shows_what_it_is_and_the_end_of_its_log() -> None:
    async with session("idle", size=(80, 24)) as s:
        told = opened(s, *BOXES)
        told.end = LogEnd("gpu1:k3f9", ("out of", "memory"))
        await s.press("down")
        assert lit(s).startswith("gpu1:k3f9") and told.looked[-1] == "gpu1:k3f9"
        shown = texts(s)
        assert any("torchrun train.py" in line for line in shown)
        assert [line.strip() for line in shown if line.strip()][-2:] == ["out of", "memory"]
        told.end = LogEnd("gpu1:k3f9", (), "connection refused")
        await s.press("home", "down")
        assert "connection refused" in "".join(texts(s)[8:])
        # For a box that cannot be asked, the page shows the whole reason, and a refresh asks that box again.
        await s.press("down", "down", ":refresh")
        assert lit(s).startswith("gone") and told.asked == ["gone"]


async def test_jobs_of_a_box_that_has_gone_stay_with_their_time() -> None:
    async with session("idle", size=(130, 40)) as s:
        opened(s, BoxJobs("gpu1", ONE.jobs, error="no answer in time", since=OPENED), GONE)
        await s.press("down")
        found = rows(s)
        told = strftime("%H:%M:%S", localtime(OPENED))
        assert told in found["gpu1"] and "no answer" in found["gpu1"] and told not in found["gone"]
        assert lit(s).startswith("gpu1:m6u5")


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(80, 24), (30, 6)])
async def test_hostile_and_very_many_lines_leave_the_page_whole(size: tuple[int, int]) -> None:
    evil = "\x1b]0;x\x07\u202e" + "x" * 3000
    many = tuple(job("gpu1", f"j{n}", title=evil[:400]) for n in range(30))
    bad = BoxJobs("b" * 255, None, error=evil)
    odd = job("gpu3", "o", "unheard-of", evil, status=3)
    async with session("idle", size=size) as s:
        told = opened(
            s, BoxJobs("gpu1", many), bad, BoxJobs("gpu3", (odd,), more=7, unreadable=2, error=evil)
        )
        told.end = LogEnd("gpu1:j0", (evil,) * 40)
        for key in ("end", "up", "home"):
            await s.press(key)
            shown = [*texts(s), *texts(s, "#page-footer")]
            assert [line for line in shown if not line.isprintable() or len(line) > size[0]] == []
            assert len(shown) <= size[1]


async def test_a_log_is_followed_by_the_call_that_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[tuple[tuple[str, ...], str | None]] = []

    def lend(launch: Launch, line: str | None = None) -> Returned:
        lent.append((tuple(launch.argv), line))
        return Returned("gputui ended with status 130", how="ended with status 130")

    async with session("idle") as s:
        monkeypatch.setattr(s.main.launch, "lend_terminal", lend)
        opened(s, *BOXES)
        await s.press("enter")
        ((argv, line),) = lent
        assert argv[-6:] == ("jobs", "log", "-f", "-n", "1000", "gpu1:m6u5")
        assert line == "gputui jobs log -f -n 1000 gpu1:m6u5"
        # A row of a box has no log to follow.
        await s.press("down", "down", "down", "enter", "S", "S")
        assert len(lent) == 1


async def test_a_job_is_stopped_by_a_key_that_is_pressed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    def stop(name: str, _environ: object) -> tuple[str, bool]:
        stopped.append(name)
        return "gone: no such\x1b job", False

    monkeypatch.setattr(box_nodes, "stop_there", stop)
    async with session("idle") as s:
        told = opened(s, *BOXES)
        await s.press("S", "down", "S")
        assert stopped == [] and "ended" in s.main.message
        await s.press("up", "S")
        footer = s.app.screen.query_one("#page-footer", Lines).texts
        assert any("⏎ yes  esc no" in line for line in footer) and stopped == []
        await s.press("S")
        await s.until(lambda: stopped == ["gpu1:m6u5"] and told.asked == ["gpu1"])
        await s.until(lambda: "no such" in s.main.message)


async def test_the_page_opens_over_the_boxes_and_closes_to_them() -> None:
    async with session("idle") as s:
        page = opened_boxes(s, four("a"))
        await s.press("3", "D")
        shown = s.app.screen
        # The page's box is asked by an ssh that may already have reported that it does not know this name.
        assert isinstance(shown, BoxJobsScreen) and list(rows(s)) == ["a"]
        await s.press("escape")
        # The page still has its selection.
        assert s.app.screen is page and line_of(page)
        await s.press("D", "D")
        assert isinstance(s.app.screen, JobsScreen) and len(s.app.screen_stack) == 2
        assert any(":nodes, D" in line for line in texts(s))


async def test_in_a_demo_the_jobs_are_simulated_and_nothing_is_done() -> None:
    async with session("idle") as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo idle"))
        await s.press("@nodes", "D")
        found = rows(s)
        assert "gpu1:m6u5" in found and "refused" in found["gpu4"] and "no jobs" in found["gpu2"]
        for keys in (("enter",), ("S", "S")):
            await s.press(*keys)
            assert "simulated" in s.main.message


async def test_the_help_lists_each_key_of_the_page_once() -> None:
    keys = [key for row, _ in page_keys(BoxJobsScreen.BINDINGS) for key in row.split()]
    assert sorted(keys) == sorted(set(keys))


async def test_jobs_come_before_boxes_without_any_and_the_first_has_the_cursor_until_a_key_moves_it() -> None:
    async with session("idle") as s:
        told = opened(s, BoxJobs("a"), GONE, BoxJobs("gpu1"))
        await s.press()
        s.app.screen.draw()  # type: ignore[attr-defined]
        assert list(rows(s)) == ["gone", "a", "gpu1"]
        told.told = (BoxJobs("a", (), since=OPENED), GONE, ONE)
        s.app.screen.draw()  # type: ignore[attr-defined]
        assert list(rows(s))[:4] == ["gpu1:m6u5", "gpu1:k3f9", "gone", "a"] and "m6u5" in lit(s)
        await s.press("down")
        told.told = (BoxJobs("a", (job("a", "new"),)), GONE, ONE)
        s.app.screen.draw()  # type: ignore[attr-defined]
        assert "k3f9" in lit(s) and next(iter(rows(s))) == "a:new"
