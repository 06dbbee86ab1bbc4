"""The application under a pilot, on a box that does not change or changes only when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import textual.app
import textual.pilot
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import active_app
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from gputui.allocating.settings import DEFAULT_SCREEN, ScreenSettings
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.cli.screen import comparison
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.store import all_jobs
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.sampler import Sampler
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import Source, Want
from gputui.tui.app import GputuiApp
from gputui.tui.app_state import AppState
from gputui.tui.outcome import Outcome
from gputui.tui.readings import Mailbox
from gputui.tui.screen_settings import checked
from gputui.tui.screens.main import MainScreen
from gputui.tui.widgets.lines import Lines
from unit.jobs_support import Desk

OPENED = 1_700_000_000.0

_SLICE = 0.004
_USED = 0.0005


async def _idle(min_sleep: float = _SLICE, max_sleep: float = 5) -> None:
    """Wait until the application has nothing to do: the pilot does so three times for each key.

    Textual's own function checks only the CPU time that the process used in 20 ms. These waits took most of
    the time of the screen tests. On a busy machine, a process that has much to do also uses little CPU time,
    so the callbacks that are ready on the event loop count too, and so do the threads that would go on if a
    processor was free.
    """
    loop = asyncio.get_running_loop()
    begun = time.monotonic()
    while True:
        used = time.process_time()
        await asyncio.sleep(_SLICE)
        calm = time.process_time() - used < _USED
        # A callback that has become due meanwhile is ready after one turn of the loop.
        await asyncio.sleep(0)
        lasted = time.monotonic() - begun
        ready = loop._ready  # type: ignore[attr-defined]
        if lasted >= max_sleep or (lasted > min_sleep and calm and not ready and not _other_threads_work()):
            return


def _other_threads_work() -> bool:
    """Whether a thread of the application runs, waits for a processor or for the disk (proc(5))."""
    for thread in threading.enumerate():
        if thread.name.startswith("gputui"):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_bytes()
                if stat.rpartition(b")")[2].split()[0] in b"RD":
                    return True
    return False


for _module in (textual.app, textual.pilot):
    _module.wait_for_idle = _idle


_parse_rules = Stylesheet._parse_rules


@functools.cache
def _parsed(variables: tuple[tuple[str, str], ...], *source: Any, **more: Any) -> list[RuleSet]:
    return _parse_rules(Stylesheet(variables=dict(variables)), *source, **more)


def _parsed_once(self: Stylesheet, *source: Any, **more: Any) -> list[RuleSet]:
    """The rules of a style sheet, parsed once: each application parses the same fifty or so."""
    return _parsed(tuple(self._variables.items()), *source, **more)


Stylesheet._parse_rules = _parsed_once  # type: ignore[method-assign]


_render_update = Compositor.render_update
_unpainted = weakref.WeakSet[Compositor]()


def _painted_later(self: Compositor, *args: Any, **more: Any) -> RenderableType | None:
    """Postpone painting: `_paint` paints once what has changed since.

    An application without a terminal paints after every event and throws the picture away. That took two
    fifths of the time of these tests.
    """
    if not active_app.get().is_headless:
        return _render_update(self, *args, **more)
    self._dirty_regions.clear()
    _unpainted.add(self)
    return None


Compositor.render_update = _painted_later  # type: ignore[method-assign]


def _paint(app: App[Any]) -> None:
    """Paint the screen, where it has changed, as a terminal would show it now."""
    compositor = app.screen._compositor
    if compositor in _unpainted:
        _unpainted.discard(compositor)
        with app._context():
            _render_update(compositor, full=True, screen_stack=app._background_screens)


class StillSource:
    """A source that shows the snapshot, or raises the exception, that the test last put into `snapshot`."""

    label = "still"

    def __init__(self, snapshot: Snapshot | Exception) -> None:
        self.snapshot: Snapshot | Exception = snapshot
        self.wanted: list[Want] = []

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.wanted.append(want)
        if isinstance(self.snapshot, Exception):
            raise self.snapshot
        return self.snapshot

    def close(self) -> None: ...


def box_at(name: str, elapsed: float = 0.0) -> Snapshot:
    """A demo box some seconds after it was opened."""
    return at(BOXES[name], elapsed, OPENED)


class Session:
    """One running application, as a test sees it; `written` holds the sequences sent to its terminal."""

    def __init__(
        self, app: GputuiApp, pilot: Pilot[Outcome], source: StillSource, written: list[str]
    ) -> None:
        self.app, self.pilot, self.source, self.written = app, pilot, source, written

    @property
    def main(self) -> MainScreen:
        screen = self.app.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    def texts(self, widget: str) -> list[str]:
        """The lines that a surface of the main screen shows, without trailing blanks."""
        return [text.rstrip() for text in self.main.query_one(widget, Lines).texts]

    @property
    def selected(self) -> list[str]:
        """The labels of the selected devices, in order."""
        snapshot = self.main.app_state.snapshot
        assert snapshot is not None
        return [snapshot.label(device) for device in self.main.app_state.selected]

    async def press(self, *keys: str) -> None:
        """Press keys. "@export" stands for the action of that id, which may have another key or none, ":save"
        for what is found by that word."""
        every = [each for key in keys for each in (["colon", *key[1:], "enter"] if key[0] == ":" else [key])]
        for is_action, group in itertools.groupby(every, lambda key: key.startswith("@")):
            if not is_action:
                await self.pilot.press(*group)
                continue
            for key in group:
                await self.act(key.removeprefix("@"))
        await self.settle()

    async def act(self, action_id: str) -> None:
        """Perform an action of the main screen as the palette does."""
        await self.settle()
        self.main.key_pressed()
        self.main.choose(action_id)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the screen shows every event that has happened."""
        loop = asyncio.get_running_loop()
        for _ in range(20):
            await self.pilot.pause()
            # The pilot lays out at the end of its pause. The surfaces redraw themselves after that.
            for _ in range(1000):
                if not loop._ready:  # type: ignore[attr-defined]
                    break
                await asyncio.sleep(0)
            if not self.app.is_running:
                return
            if not self.app.screen._layout_required:
                _paint(self.app)
                return

    async def resize(self, width: int, height: int) -> None:
        """Resize the terminal, and wait until every surface has been laid out for the new size."""
        await self.pilot.resize_terminal(width, height)
        await self.until(
            lambda: (
                self.app.screen.size == (width, height)
                and all(each.region.right <= width for each in self.app.screen.query(Lines))
            )
        )
        await self.settle()

    async def until(self, seen: Callable[[], object], patience: float = 120.0) -> None:
        """Let the application run until the condition holds."""
        deadline = time.monotonic() + patience
        while not seen():
            assert time.monotonic() < deadline, f"never so; the table shows {self.texts('#table')}"
            await self.pilot.pause(0.01)


def started(s: Session, key: str, desk: Desk) -> bool:
    """Whether the key started the command, as far as this is possible in a terminal without a person."""
    if key == "enter":
        return not s.app.is_running and s.app.return_value is not None and bool(s.app.return_value.launch)
    if key == "@return":
        return "this terminal cannot be lent to a command" in s.main.message
    return len(all_jobs(desk.environ)) == 1


_APPS: list[GputuiApp] = []


def release_leases() -> None:
    """Release the leases that applications have left to the command that would have replaced them."""
    while _APPS:
        outcome = _APPS.pop().return_value
        if outcome is not None and outcome.allocation is not None:
            outcome.allocation.release()


@asynccontextmanager
async def session(
    box: str | Snapshot | Exception = "shared",
    command: tuple[str, ...] = ("python", "train.py"),
    environ: Mapping[str, str] | None = None,
    size: tuple[int, int] = (80, 24),
    interval: float = 0.25,
    source: Source | None = None,
    rules: Rules = DEFAULT_RULES,
    once: Want | None = None,
    screen: ScreenSettings = DEFAULT_SCREEN,
    at_first_row: bool = True,
) -> AsyncIterator[Session]:
    """The application on a still box, or on a source of the test's own, with its first picture painted.

    at_first_row  whether the cursor is moved from the first free device to the first row
    """
    source = source or StillSource(box_at(box) if isinstance(box, str) else box)
    mailbox = Mailbox()
    sampler = Sampler(source, mailbox.put, interval, owners_at_once=rules.by_owner, once=once)
    given = {
        "TERM": "xterm-256color",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(Path.home()),
        "GPUTUI_CLAIMS": os.environ["GPUTUI_CLAIMS"],
        **(environ or {}),
    }
    written: list[str] = []
    app_state = AppState(given, LaunchOptions(command), rules=rules, screen=checked(screen))
    app = GputuiApp(app_state, sampler, mailbox, comparison, written.append)
    _APPS.append(app)
    async with app.run_test(size=size) as pilot:
        sampler.start()
        running = Session(app, pilot, source, written)
        await running.until(lambda: running.main.app_state.snapshot or running.main.app_state.problem)
        await running.settle()
        if at_first_row:
            running.main.set_app_state(running.main.app_state.move_cursor(-1_000))
            await running.settle()
        yield running
    sampler.stop(patience=5.0)
