"""Starting a launch from the screen: while the screen waits, or as a job; and remembering it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from textual.app import App, SuspendNotSupported

from gputui.inventory.wording import duration
from gputui.launching.launch import Launch
from gputui.launching.remembered import KeepError, change, with_launch
from gputui.launching.start import StartError, run_child
from gputui.tui.board import Board


def remember(board: Board, environ: Mapping[str, str], now: float) -> str | None:
    """Keep the launch among the last ones; why that could not be, None when it was."""
    try:
        change(environ, lambda known: with_launch(known, board.plan, len(board.selection), now))
    except KeepError as error:
        return str(error)
    return None


def run_and_return(app: App[Any], launch: Launch, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Give the terminal to the command and take it back when it has ended; how it ended, and whether well."""
    began = time.monotonic()
    try:
        with app.suspend(), _signals_for_the_child():
            print(f"gputui: {launch.line}", flush=True)
            try:
                status = run_child(launch, environ)
            except StartError as error:
                return str(error), False
            text = f"{_ended(status)} after {duration(time.monotonic() - began)}"
            print(f"gputui: {text}; ⏎ goes back to the screen", end="", flush=True)
            _wait_for_enter()
    except SuspendNotSupported:
        return "this terminal cannot be given away: ⏎ becomes the command, d starts it as a job", False
    return f"{launch.argv[0].rsplit('/', 1)[-1]} {text}", status == 0


def _ended(status: int) -> str:
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return "done" if status == 0 else f"ended with status {status}"


@contextmanager
def _signals_for_the_child() -> Iterator[None]:
    """Ctrl-C and Ctrl-\\ reach everything on the terminal: here they are for the command alone.

    They are answered, not ignored: what is ignored stays ignored in the command. Ctrl-Z stops both, as the
    shell expects of one job.
    """
    answers: dict[int, Any] = {signal.SIGINT: _nothing, signal.SIGQUIT: _nothing}
    answers |= dict.fromkeys((signal.SIGTSTP, signal.SIGCONT), signal.SIG_DFL)
    before = {number: signal.getsignal(number) for number in answers}
    for number, answer in answers.items():
        signal.signal(number, answer)
    # The event loop hears of signals through this, whatever answers them, and would leave afterwards.
    waker = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(waker)
        for number, answer in before.items():
            signal.signal(number, answer)


def _nothing(number: int, frame: object) -> None:
    """A signal that is the command's."""


def _wait_for_enter() -> None:
    """Until the person has read the end of the output. A terminal that is gone does not answer."""
    stream = sys.__stdin__
    if stream is None or not stream.isatty():
        return
    while True:
        key = os.read(stream.fileno(), 1)
        if key in (b"\n", b"\r", b""):
            return


def as_job(launch: Launch, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Start the launch as a job; what became of it, and whether it runs."""
    from gputui.launching.jobs.job import JobError
    from gputui.launching.jobs.start import start_job

    try:
        job = start_job(launch, environ)
    except (JobError, StartError) as error:
        return str(error), False
    return f"job {job.id} is started: D shows it", True
