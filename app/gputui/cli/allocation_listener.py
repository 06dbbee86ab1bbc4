"""Print warnings, progress and the end of a wait on the way to an allocation."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.allocating.request import Notice
from gputui.cli.common import say, terminal_columns, warn
from gputui.inventory.formatting import Tell, duration, printable

if TYPE_CHECKING:
    from gputui.allocating.allocation import Allocation
    from gputui.allocating.waiting_loop import Progress

_LOG_EVERY = 600.0
"""Seconds between two progress lines in a log."""


class AllocationListener:
    """Prints messages on stderr. On a terminal, progress is one line that rewrites itself; elsewhere it is a
    line at each step and every `_LOG_EVERY` seconds. `tell` prints warnings and notes."""

    def __init__(self, explain: bool = False, tell: Tell = say) -> None:
        self._explain, self._tell = explain, tell
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = ""
        self._last_line: tuple[int, float] | None = None

    def notice(self, notice: Notice) -> None:
        """Print a warning or a note; a reason only with `--why`."""
        if notice.kind == "reason" and not self._explain:
            return
        self._clear_progress()
        tell = say if notice.kind == "reason" else self._tell
        tell(f"warning: {notice.text}" if notice.kind == "warning" else notice.text)

    def progress(self, progress: Progress) -> None:
        """Show the progress of the wait."""
        words = printable(f"gputui: {progress.words}")
        if self._terminal:
            words = words[: terminal_columns() - 1]
            if words != self._shown:
                print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
                self._shown = words
            return
        now, ahead = time.monotonic(), len(progress.ahead)
        if self._last_line is None or self._last_line[0] != ahead or now - self._last_line[1] >= _LOG_EVERY:
            self._last_line = (ahead, now)
            say(progress.words)

    def waited(self, allocation: Allocation | None, seconds: float) -> None:
        """Clear the progress line, and notify the person who waited."""
        self._clear_progress()
        if allocation is not None:
            labels = ", ".join(f"GPU {allocation.snapshot.label(device)}" for device in allocation.devices)
            job, verb = allocation.request.job, "were" if len(allocation.devices) > 1 else "was"
            what = f"job {job} starts on {labels}" if job else f"{labels} {verb} allocated"
            _notify(f"{what} after a wait of {duration(seconds)}")

    def _clear_progress(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = ""


def _notify(message: str) -> None:
    """Ring the bell, raise a notification (OSC 9, OSC 777), and start the `notify` command of the
    settings."""
    # Imported late here and below: most calls do not wait.
    from gputui.allocating.settings import SettingsError, settings
    from gputui.launching.terminal_notification import terminal_notification

    say(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(terminal_notification(message), end="", file=sys.stderr, flush=True)
    try:
        words = settings(os.environ).notify
    except SettingsError as error:
        warn(error)
        return
    if words:
        _start_unattended([word.replace("{message}", f"gputui: {message}") for word in words])


def _start_unattended(argv: Sequence[str]) -> None:
    """Start a command that is not our child: the command that this process becomes must not have a child that
    it has not started."""
    import subprocess
    from pathlib import Path

    from gputui.system.environment import given_environment
    from gputui.system.trust import program

    place = program(argv[0], os.environ.get("PATH"))
    if place is None:
        warn(f"the command of wait.notify cannot be started: {argv[0]}")
        return
    try:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", str(Path(place).absolute()), *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=given_environment(),
            check=False,
        )
    except (OSError, ValueError) as error:
        warn(f"the command of wait.notify cannot be started: {argv[0]}: {error}")
