"""GputuiApp, the Textual application: signals, themes, readings for the main screen, and the exit."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rich.cells import cached_cell_len
from rich.console import RenderableType
from textual import events
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.widget import Widget

from gputui.inventory.formatting import TextWriter, printable
from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import Sampler
from gputui.sources.source import Clock
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.changed_cells import ChangedCells, Changes
from gputui.tui.early_signals import EarlySignals
from gputui.tui.messages import NewReading
from gputui.tui.outcome import Outcome
from gputui.tui.readings import Mailbox, Reading
from gputui.tui.screens.main import MainScreen
from gputui.tui.screens.page import Page
from gputui.tui.terminal_size import terminal_size
from gputui.tui.theme import DARK, THEMES, default_theme
from gputui.tui.typed_ahead import TypedAhead
from gputui.tui.widgets.lines import Piece

if TYPE_CHECKING:
    from gputui.jobs.experiments.request import Comparisons

_NOBODY_PRESSED = re.compile("^<|_(shift|control|alt|super|hyper|meta|lock)$|^iso_level")
"""Textual's names of keys that a terminal sends by itself or with another key: modifiers, ignored bytes."""

_TERMINAL_CHECK = 2.0
"""Seconds between two checks that the terminal still exists: Textual spins on a dead one (PR #6690)."""


class GputuiApp(App[Outcome]):
    """The application: one main screen for one sampler.

    write    sends an escape sequence to the terminal, on any thread; None: through /dev/tty
    clock    seconds since the epoch
    signals  the signals that may already have arrived
    """

    TITLE = "gputui"
    ENABLE_COMMAND_PALETTE = False
    # Textual reads the styles of every other screen from that screen.
    CSS_PATH = "screens/main.tcss"

    def __init__(
        self,
        app_state: AppState,
        sampler: Sampler,
        mailbox: Mailbox,
        comparisons: Comparisons,
        write: TextWriter | None = None,
        clock: Clock = time.time,
        driver_class: type[Driver] | None = None,
        signals: EarlySignals | None = None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        # Until the terminal has reported its size, the screen has Rich's, which trusts COLUMNS and LINES.
        self.console.size = terminal_size()
        self.sampler = sampler
        self._first_state, self._mailbox, self._write = app_state, mailbox, write
        self._clock, self._comparisons = clock, comparisons
        self._signals = signals
        for each in THEMES:
            self.register_theme(each)
        self.theme = app_state.screen.theme or default_theme(app_state.environ)
        self._typed_ahead = TypedAhead(self)
        self._cells = ChangedCells()
        self.unsaved: Callable[[], str | None] = lambda: None
        """Returns, once the screen is gone, why the settings are not saved; None where they are saved."""

    def get_default_screen(self) -> MainScreen:
        app_state, reading = self._first_state, self._mailbox.latest
        if reading is not None and isinstance(reading.result, Snapshot):
            app_state = app_state.with_snapshot(reading.result)
        main = MainScreen(
            app_state,
            self.sampler,
            self._comparisons,
            self.end_without_terminal,
            self._clock,
            self._write,
            self.paint,
        )
        self.unsaved = main.unsaved
        return main

    @property
    def main(self) -> MainScreen:
        """The screen below all others."""
        main = self.screen_stack[0]
        assert isinstance(main, MainScreen)
        return main

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DARK.variables

    def get_line_filters(self) -> Sequence[LineFilter]:
        # Textual chooses them before there is a theme: the terminal's own colours would be black on black.
        return [NoColor()] if self.no_color and self.native_ansi_color else super().get_line_filters()

    def on_mount(self) -> None:
        self.call_after_refresh(in_background, "import what the first selection needs", _settle)
        self._mailbox.listener = self._post_reading
        if self._mailbox.latest is not None:
            self._post_reading(self._mailbox.latest)
        self._answer_signals()
        self.app_resume_signal.subscribe(self, lambda _: self.call_later(self.main.repaint))
        self.set_interval(_TERMINAL_CHECK, self._check_terminal)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Do as Textual's method does, but send only the cells that have changed."""
        super()._display(screen, self._cells.only_changes(renderable))

    def paint(self, pieces: Iterable[Piece]) -> bool:
        """Send the changed cells of these lines of the present screen at once, without Textual's compositor,
        which takes twice as long. Return whether they were sent."""
        changes: Any = Changes(self._cells, pieces)
        super()._display(self.screen, changes)
        return bool(changes.sent)

    def _answer_signals(self) -> None:
        """Exit at a signal with the terminal restored; a signal that has already arrived counts too."""
        if self._signals is None:
            return
        loop = asyncio.get_running_loop()
        for number in self._signals.answered:
            # The default handler stays where the platform has no such handlers (Windows).
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._leave_at_signal, number)
        if self._signals.came is not None:
            self._leave_at_signal(self._signals.came)

    def pop_screen(self) -> AwaitComplete:
        """Do as Textual's method does, and make the widgets of the closed screen drop their painted lines.

        A cache of Textual's keeps the last thousand widgets alive (textual #6665): 170 KiB for each page.
        """
        closed = self.screen
        popped = super().pop_screen()
        for widget in closed.walk_children(Widget, with_self=True):
            # `refresh` is the public way to make a widget drop its lines.
            widget.refresh()
            vertical, horizontal = widget.scrollbars_enabled
            if vertical:
                widget.vertical_scrollbar.refresh()
            if horizontal:
                widget.horizontal_scrollbar.refresh()
        # Rich caches the widths of 4096 texts. The texts of pages hold times and figures and do not recur.
        cached_cell_len.cache_clear()
        return popped

    async def on_event(self, event: events.Event) -> None:
        # A forwarded event that no screen has used arrives a second time.
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            # These work on every screen: Textual's own bindings for them stop at a modal screen.
            everywhere = {"ctrl+c": self.action_help_quit, "ctrl+z": self.action_suspend_process}
            at_once = everywhere.get(event.key) if isinstance(event, events.Key) else None
            if (at_once is None or not self._typed_ahead.started) and self._typed_ahead.takes(event):
                return
            if not self.screen_stack:
                # The key was typed during the exit: no screen is left to use it.
                return
            self.main.key_pressed(getattr(event, "key", ""))
            if at_once is not None:
                at_once()
                return
        await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Show a message for a key that no handler has stopped and that has no meaning here."""
        # This runs before Textual looks up the binding. Its tab goes to the next widget, and there is none.
        bound = self.screen.active_bindings.get(event.key) if self.screen_stack else None
        if not self.screen_stack or (bound is not None and not bound.binding.action.startswith("app.focus_")):
            return
        if isinstance(self.screen, MainScreen | Page) and not _NOBODY_PRESSED.search(event.key):
            name = event.character if event.character and event.character.isprintable() else event.key
            keymap = self.main.app_state.screen.keymap
            keys, more, jobs = (key_of(each, keymap) for each in ("help", "palette", "jobs"))
            words = (
                f"{printable(name.strip() or event.key)}: no action here; {more} finds all, {keys} lists keys"
            )
            if event.key == "S" and self.screen is self.main and self.main.app_state.own_jobs:
                words = f"{jobs} opens the jobs: S there stops one"
            self.main.show_message(words, kind="passing")
            self.main.redraw_page()

    def on_ready(self) -> None:
        self._typed_ahead.start()

    def on_unmount(self) -> None:
        self._typed_ahead.stop()

    def _post_reading(self, reading: Reading) -> None:
        """Post a reading to the main screen; called on any thread."""
        if self.is_running and self.screen_stack:
            self.screen_stack[0].post_message(NewReading(reading))

    def leave(self, status: int) -> None:
        """Exit with a status and nothing to launch."""
        self.exit(Outcome(status=status), return_code=status)

    def _check_terminal(self) -> None:
        if not self.screen_stack:
            # The last tick of a timer may arrive after the screens are gone.
            return
        self.main.tick()
        if not self._has_terminal():
            self.end_without_terminal()

    def _leave_at_signal(self, number: int) -> None:
        """Exit at a signal, and restore the terminal unless it is gone, as it usually is at SIGHUP.

        Restoring a terminal that is gone would block for ever: the first error ends Textual's writer thread.
        """
        if not self._has_terminal():
            self.end_without_terminal()
        self.leave(128 + number)

    def _has_terminal(self) -> bool:
        """Whether the terminal still exists; True in a headless test."""
        if self.is_headless:
            return True
        with contextlib.suppress(OSError, ValueError):
            return os.isatty(sys.__stdin__.fileno() if sys.__stdin__ else 0)
        return False

    def end_without_terminal(self) -> NoReturn:
        """Exit at once: nothing can be painted or restored on a terminal that is gone."""
        self.sampler.stop(patience=0.0)
        os._exit(128 + signal.SIGHUP)

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Do as Textual's method does, but stop readings meanwhile: they would pile up for hours."""
        self._mailbox.listener = None
        self.sampler.focus(False)
        try:
            with super().suspend():
                yield
        finally:
            self._mailbox.listener = self._post_reading
            self.sampler.focus(True)

    def on_app_focus(self) -> None:
        self.sampler.focus(True)

    def on_app_blur(self) -> None:
        self.sampler.focus(False)

    def action_help_quit(self) -> None:
        """Exit at Ctrl-C, as any program in a shell would."""
        self.leave(130)


def _settle() -> None:
    """Import what the first selection would wait for (50 ms), and enable garbage collection again."""
    # A module that fails here fails again where it is needed, and the error is shown there.
    with contextlib.suppress(ImportError):
        importlib.import_module("gputui.launching.compose")
    # The imported objects stay: the collector need not scan them again and again.
    gc.freeze()
    gc.enable()
