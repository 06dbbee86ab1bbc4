"""The terminal is sent the cells that have changed, and shows what the screen means to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyte
import pytest
from rich.console import COLOR_SYSTEMS
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver

from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.motion import at
from gputui.tui.app import GputuiApp
from tui.support import OPENED, Session, session
from working_box import working_box

BOUND = 1500
"""Bytes that a reading of eight busy devices may cost at 130x40, on average."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the application sends to its terminal, which has all colors."""
    found: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    monkeypatch.setattr(HeadlessDriver, "write", lambda driver, data: found.append(data))
    monkeypatch.setattr(GputuiApp, "_has_terminal", lambda app: True)
    return found


def working(elapsed: float, user: str = "mira") -> Snapshot:
    """Eight devices whose utilization, temperature and power change with every second."""
    return at(working_box(user), elapsed, OPENED)


def take(s: Session, snapshot: Snapshot) -> None:
    """Show a reading."""
    app_state = s.main.app_state.with_snapshot(replace(snapshot, ticks=snapshot.time - OPENED))
    s.main.set_app_state(replace(app_state, timelines=s.main.timelines.after(app_state.box)))


async def read(s: Session, snapshot: Snapshot) -> None:
    """Show a reading, and wait until it is painted."""
    take(s, snapshot)
    await s.settle()


class Shown:
    """A terminal that gets what is sent, next to one on which the whole screen has just been painted."""

    def __init__(self, app: App[object], sent: list[str], size: tuple[int, int]) -> None:
        self._app, self._sent = app, sent
        self.resize(size)

    def resize(self, size: tuple[int, int]) -> None:
        """Become a terminal of this size, with nothing on it."""
        self._screen, self._whole = pyte.Screen(*size), pyte.Screen(*size)
        self._sent.clear()

    def check(self) -> None:
        pyte.Stream(self._screen).feed("".join(self._sent))
        self._sent.clear()
        update = self._app.screen._compositor.render_full_update()
        pyte.Stream(self._whole).feed(update.render_segments(self._app.console))
        assert self._screen.display == self._whole.display
        assert _cells(self._screen) == _cells(self._whole)


def _cells(screen: pyte.Screen) -> list[Mapping[int, object]]:
    return [{x: screen.buffer[y][x] for x in range(screen.columns)} for y in range(screen.lines)]


SIZE = (130, 40)


async def test_a_reading_of_eight_busy_devices_costs_few_bytes(sent: list[str]) -> None:
    async with session(working(0), size=SIZE, interval=1000, command=()) as s:
        s.app.console._color_system = COLOR_SYSTEMS["truecolor"]
        # The charts fill in their first five minutes, of which every second is alike.
        for second in range(1, 300):
            app_state = s.main.app_state.with_snapshot(working(second))
            s.main.timelines.after(app_state.box)
        await read(s, working(300))
        sent.clear()
        readings = 60
        for second in range(301, 301 + readings):
            await read(s, working(second))
        bytes_sent = len("".join(sent).encode())
        assert 100 * readings < bytes_sent <= BOUND * readings


@pytest.mark.parametrize("user", ["mira", "山田 é"])
async def test_the_terminal_shows_the_whole_screen_after_each_change(sent: list[str], user: str) -> None:
    async with session(working(0, user), size=SIZE, interval=1000) as s:
        shown = Shown(s.app, sent, SIZE)
        s.main.repaint()
        await s.settle()
        shown.check()
        for second in range(1, 12):
            await read(s, working(second, user))
            shown.check()
        for keys in (["2", "5"], ["down"], ["p"], ["escape"], ["question_mark"], ["escape"], ["t"]):
            await s.press(*keys)
            shown.check()
        # A reading below a page, which is closed then.
        await read(s, working(20, user))
        shown.check()
        await s.press("escape")
        shown.check()


async def test_every_cell_is_sent_again_to_a_terminal_that_may_have_lost_them(sent: list[str]) -> None:
    async with session(working(0), size=SIZE, interval=1000) as s:
        for size in ((100, 30), SIZE):
            shown = Shown(s.app, sent, size)
            await s.resize(*size)
            shown.check()
        for page in ("escape", "p", "question_mark"):
            await s.press(page)
            shown.resize(SIZE)
            s.app.app_resume_signal.publish(s.app)
            await s.settle()
            shown.check()


async def test_a_reading_is_painted_at_once_where_no_layout_is_due(sent: list[str]) -> None:
    async with session(working(0), size=SIZE, interval=1000) as s:
        shown = Shown(s.app, sent, SIZE)
        s.main.repaint()
        await s.settle()
        shown.check()
        take(s, working(1))
        assert sent, "without Textual's compositor"
        shown.check()
        # The launch line takes another height, and all that is above it moves.
        s.main.set_app_state(s.main.app_state.clear())
        s.main.set_app_state(replace(s.main.app_state, options=LaunchOptions(LONG)))
        sent.clear()
        take(s, working(2))
        assert not sent, "it waits for the new layout"
        await s.settle()
        shown.check()
        await s.press("p")
        shown.check()
        take(s, working(3))
        assert not sent, "a page is above"
        await s.settle()
        await s.press("escape")
        shown.check()
        take(s, working(4))
        shown.check()


LONG = ("python", "train.py", *("--lr" for _ in range(60)))
