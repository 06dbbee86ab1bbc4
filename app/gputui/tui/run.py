"""run_screen: one run of the screen, from the first reading to the outcome."""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING

from gputui.allocating.settings import DEFAULT_INTERVAL, ScreenSettings
from gputui.choosing.rules import Rules
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.source import WithJobs
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.shell_words import assignments
from gputui.sources.sampler import Sampler
from gputui.sources.source import Source
from gputui.tui.app_state import AppState
from gputui.tui.asyncio_without_tls import import_asyncio
from gputui.tui.early_signals import EarlySignals
from gputui.tui.first_frame import FirstFrame
from gputui.tui.readings import Mailbox
from gputui.tui.replaced_files import guard_imports, stamp_of_package
from gputui.tui.screen_settings import checked
from gputui.vendors.registry import order_to_read

if TYPE_CHECKING:
    from gputui.jobs.experiments.request import Comparisons
    from gputui.system.environment import Environ
    from gputui.tui.outcome import Outcome

_USUALLY, _PATIENCE = 0.1, 2.0
"""Seconds in which most drivers start, and after which the screen opens without one: a start takes 1.5 s
where the persistence daemon does not run, and a call may hang for ever."""


def run_screen(
    source: Source,
    command: tuple[str, ...],
    environ: Environ,
    comparisons: Comparisons,
    rules: Rules,
    screen: ScreenSettings,
    interval: float | None,
    example: tuple[str, ...],
) -> Outcome:
    """Show the screen until the user leaves it or launches.

    interval  seconds between readings, None for the value of the settings
    example   a command that is shown where none is given, and is not started

    Raises NoSourceError where the source cannot be opened, SettingsError for invalid settings.
    """
    screen = checked(screen)
    additions, argv = assignments(command or example)
    options = LaunchOptions(command=argv, additions=additions)
    if source.label:
        # The saved sort order and filter of this machine do not apply to another box.
        screen = screen._replace(sort=None, filter="")
    given = () if command else example
    app_state = AppState(
        environ,
        options,
        source.label,
        rules=rules,
        screen=screen,
        example=given,
    )
    interval = interval or screen.interval or DEFAULT_INTERVAL
    stamp = stamp_of_package()
    with FirstFrame(app_state) as first_frame, EarlySignals() as signals:
        mailbox, arrived = Mailbox(), threading.Event()
        mailbox.listener = lambda _: arrived.set()
        once = order_to_read(environ)
        source = WithJobs(source, environ, first_frame.paint)
        sampler = Sampler(source, mailbox.put, interval, owners_at_once=rules.by_owner, once=once)
        # The first reading (0.06 s) runs while Textual is imported (0.17 s).
        sampler.start()
        try:
            sampler.wait_until_open(_USUALLY)
            # The first frame's view is imported first: the other imports would keep the GIL from the reading.
            importlib.import_module("gputui.tui.views.first_frame")
            import_asyncio()
            from gputui.tui.app import GputuiApp
            from gputui.tui.outcome import Outcome
            from gputui.tui.terminal_driver import TerminalAfter

            guard_imports(stamp)
            # A driver that cannot be started ends the run here; a hanging driver is reported on the screen.
            sampler.wait_until_open(_PATIENCE)
            if first_frame.painted:
                # The screen starts with the frame's content and with the jobs, so that nothing moves later.
                arrived.wait(_PATIENCE)
            terminal = TerminalAfter(first_frame)
            app = GputuiApp(
                app_state,
                sampler,
                mailbox,
                comparisons,
                write=terminal.write,
                driver_class=terminal.driver_class,
                signals=signals,
            )
            outcome = app.run() or Outcome(status=app.return_code or 0)
            warnings = (outcome.warning, app.unsaved())
            return replace(outcome, warning="; ".join(filter(None, warnings)) or None)
        finally:
            sampler.stop()
