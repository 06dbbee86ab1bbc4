"""The page of usage: bars by person, device, job and day, and days that are lost."""

from __future__ import annotations

import functools
import threading

import pytest

from gputui.sources.simulated.source import named
from gputui.timeline.usage import Day, Figures, Recorded, of_past
from gputui.timeline.usage_columns import MOST_ROWS
from gputui.tui.screens import usage
from gputui.tui.screens.usage import UsageScreen
from gputui.tui.widgets.lines import Lines
from tui.support import Session
from tui.support import session as moving

session = functools.partial(moving, interval=1000)


def texts(s: Session, part: str = "#page-body") -> list[str]:
    return [text.replace("▸", " ", 1).rstrip() for text in s.app.screen.query_one(part, Lines).texts]


async def found(s: Session) -> UsageScreen:
    """The page once it has been read in the background."""
    await s.press("@usage")
    page = s.app.screen
    assert isinstance(page, UsageScreen)
    await s.until(lambda: page._found is not None)
    page.draw()
    return page


async def test_a_page_that_is_closed_before_its_usage_is_read_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, failed = threading.Event(), list[object]()
    monkeypatch.setattr(threading, "excepthook", failed.append)

    def recorded(*_: object) -> Recorded:
        read.wait(30)
        return Recorded()

    monkeypatch.setattr(usage, "recorded", recorded)
    async with session("shared") as s:
        await s.press("@usage")
        assert "reading" in texts(s)[1]
        (thread,) = [each for each in threading.enumerate() if each.name == "gputui: read the usage"]
        await s.press("escape")
        read.set()
        await s.until(lambda: not thread.is_alive())
        assert failed == [] and s.app.screen is s.main


async def test_without_usage_it_says_what_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "recorded", lambda *_: Recorded())
    async with session("shared") as s:
        await found(s)
        assert "gputui record --daemon" in " ".join(" ".join(texts(s)).split())
        assert "row" not in texts(s, "#page-footer")[-1], "no key of a row"


async def test_the_page_of_the_demo_is_whole_in_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = of_past(named("shared").past())
    monkeypatch.setattr(usage, "recorded", lambda *_: demo)
    for size in ((80, 24), (130, 40)):
        async with session("shared", size=size) as s:
            await found(s)
            for _ in range(4):
                assert not any("…" in line for line in texts(s)[1:])
                await s.press("tab")
            assert "█ busy ░ idle" in texts(s)[1] and texts(s)[-1]


async def test_of_thousands_of_jobs_the_first_are_shown_and_the_title_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    day, found_days = Day(1.0, 2.0, 3600.0), Recorded()
    for n in range(1000):
        day.count(Figures(60.0 + n), device="", user="mira", job=f"{n:04}")
    found_days.add("2026-11-26", day)
    monkeypatch.setattr(usage, "recorded", lambda *_: found_days)
    async with session("shared", size=(130, 30)) as s:
        await found(s)
        assert "first" not in texts(s)[0]
        await s.press("tab", "tab")
        assert "usage by job" in texts(s)[0] and f"first {MOST_ROWS}" in texts(s)[0]
        await s.press("G")
        assert f"{1000 - MOST_ROWS:04}" in texts(s)[-1]


async def test_each_sum_of_the_days_lost_days_and_foreign_names(monkeypatch: pytest.MonkeyPatch) -> None:
    day = Day(1.0, 2.0, 3600.0, {"GPU-1": "0"})
    day.count(Figures(3600.0, 1800.0), device="GPU-1", user="a\x1b[2Jb", job="")
    seen: list[float] = []

    def recorded(_: object, since: float, until: float) -> Recorded:
        seen.append(round((until - since) / 86_400))
        found = Recorded(damaged={"2026-11-25": "the file\nis damaged"})
        found.add("2026-11-26", day)
        return found

    monkeypatch.setattr(usage, "recorded", recorded)
    async with session("shared", size=(130, 30)) as s:
        await found(s)
        for by in ("user", "device", "job", "day"):
            lines = texts(s)
            assert f"usage by {by}" in lines[0] and by.upper() in lines[1]
            assert "GPU TIME" in lines[1] and "█ busy ░ idle · unknown" in lines[1]
            assert " 1.0h " in lines[2] and "█·" in lines[2] and all(line.isprintable() for line in lines)
            await s.press("tab")
        assert any("2026-11-25" in line for line in texts(s, "#page-footer"))
        await s.press("right")
        await s.until(lambda: seen[-1] == 29)
