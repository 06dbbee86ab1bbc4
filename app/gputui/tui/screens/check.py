"""CheckScreen: checks the launch: what the command's own Python sees, compared with the selection.

On request, it measures the bandwidth of copies between the selected devices and of an all-reduce over them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gputui.checking.check import check
from gputui.checking.measurement import Measured, measure
from gputui.checking.render import measured_lines, name_of
from gputui.checking.report import Report
from gputui.inventory.formatting import duration
from gputui.system.environment import Environ
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import Page, shown
from gputui.tui.views.check import report_lines
from gputui.tui.views.text import Line, clip, prompt_lines, title, wrap

_PATIENCE = 2.0
"""Seconds that the exit of gputui waits for the end of a check."""


class CheckScreen(Page):
    """Begins the check when it is shown; leaving the page ends the check.

    It checks the launch of the app state at the opening of the page. `on_measured` is called with the
    measurement.
    """

    BINDINGS = [
        shown("R", "again", "check again", about="Ask the interpreter again"),
        shown("m", "measure", "measure the links", about="Measure the bandwidth between the devices"),
    ]

    def __init__(self, view: MainView, environ: Environ, on_measured: Callable[[Measured], None]) -> None:
        super().__init__(view)
        self._environ, self._on_measured = environ, on_measured
        self._launch = view.app_state.launch
        self._report: Report | None = None
        self._measured: Measured | None = None
        self._busy = ""
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self._left = False
        self._began = time.monotonic()

    def on_mount(self) -> None:
        self.action_again()

    def on_unmount(self) -> None:
        self._cancelled.set()
        if not self._left and self._thread is not None:
            # gputui exits: no process that it started may be left behind.
            self._thread.join(_PATIENCE)

    def _work(self, what: str, work: Callable[[threading.Event], tuple[Report, Measured | None]]) -> None:
        """Do work that takes seconds in the background, and show its result."""
        cancelled = threading.Event()
        self._busy, self._began, self._cancelled = what, time.monotonic(), cancelled
        # When the work is done, this screen may be gone, and have no application.
        later = self.app.call_later

        def run() -> None:
            found = work(cancelled)
            if not cancelled.is_set():
                later(self._finish, *found)

        self._thread = in_background("check", run)
        self.draw()

    def _finish(self, report: Report, measured: Measured | None) -> None:
        self._report, self._measured, self._busy = report, measured, ""
        if measured is not None:
            self._on_measured(measured)
        self.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self._busy and action in ("again", "measure"))

    def lines(self, width: int, height: int) -> list[Line]:
        lines = [title("check", width), *prompt_lines(wrap(self._launch.line, width - 4))]
        if self._report is not None:
            lines += [clip(line, width) for line in report_lines(self._report, width)]
        if self._measured is not None:
            lines += self._measurement(self._measured, width)
        if self._busy:
            waited = duration(time.monotonic() - self._began)
            lines += [(("", ""),), clip(((f" {self._busy} … {waited}", "dim"),), width)]
        return self.scrolled(lines, height)

    def _measurement(self, measured: Measured, width: int) -> list[Line]:
        snapshot = self.app_state.box
        skipped = [f"{name_of(key, snapshot)} is not measured: {why}" for key, why in measured.skipped]
        texts = [*measured_lines(measured, snapshot), *skipped]
        lines: list[Line] = [(("", ""),), title("measured", width)]
        for each in texts[1:]:
            # A row of the matrix is not wrapped; a sentence is.
            pieces = [each] if "  " in each else wrap(each, width - 2)
            lines += [clip(((f" {piece}", ""),), width) for piece in pieces]
        return lines

    # Key actions

    def action_again(self) -> None:
        self._report = self._measured = None
        launch, box, environ = self._launch, self.app_state.box, self._environ

        def work(cancelled: threading.Event) -> tuple[Report, None]:
            return check(launch, box, environ, cancelled=cancelled), None

        self._work("starting the command's own Python", work)

    def action_measure(self) -> None:
        report, app_state = self._report, self.app_state
        if report is None:
            return
        self._measured = None
        told = self._launch, report, app_state.box, app_state.rules, self._environ

        def work(cancelled: threading.Event) -> tuple[Report, Measured]:
            return report, measure(*told, cancelled=cancelled)

        self._work("measuring the links", work)

    def leave(self) -> None:
        self._left = True
        self._cancelled.set()
        super().leave()
