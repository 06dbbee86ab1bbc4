"""One run of the screen, from the first reading to what is to be launched."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from gputui.inventory.snapshot import Snapshot
from gputui.launching.compose import Plan
from gputui.launching.launch import Launch
from gputui.launching.words import assignments
from gputui.sources.sampler import Sampler
from gputui.sources.source import Source
from gputui.tui.board import Board
from gputui.tui.first_picture import FirstPicture


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the screen ended: with a launch to become, or a status; `text` is printed once it is gone."""

    launch: Launch | None = None
    status: int = 0
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one turn of the sampler brought, and when that turn began (`time.monotonic`)."""

    news: Snapshot | Exception
    began: float


class Mailbox:
    """Where the sampler's thread leaves readings: the latest stays, and `forward` hears of each."""

    def __init__(self) -> None:
        self.latest: Reading | None = None
        self.forward: Callable[[Reading], object] | None = None

    def put(self, news: Snapshot | Exception, began: float) -> None:
        """Called on the sampler's thread."""
        self.latest = Reading(news, began)
        if self.forward is not None:
            self.forward(self.latest)


def run_screen(
    source: Source, command: tuple[str, ...], interval: float, environ: Mapping[str, str]
) -> Outcome:
    """Show the screen until the user leaves it or launches. Raises NoSourceError before there is one."""
    additions, argv = assignments(command)
    plan = Plan(command=argv, additions=additions)
    source.open()
    with FirstPicture(Board(environ, plan, source.label)) as picture, _ended_by_signals():
        mailbox = Mailbox()
        mailbox.forward = lambda reading: picture.paint(reading.news)
        sampler = Sampler(source, mailbox.put, interval)
        # The first reading goes on while Textual is imported. The thread inherits that it is never the one
        # that a signal is delivered to, or holding them below would hold nothing.
        hold_signals(True)
        sampler.start()
        hold_signals(False)
        try:
            from gputui.tui.app import GputuiApp
            from gputui.tui.terminal import driver_after

            app = GputuiApp(sampler, mailbox, plan, environ, source.label, driver_class=driver_after(picture))
            # From here on the application answers signals, as soon as it can.
            hold_signals(True)
            return app.run() or Outcome(status=app.return_code or 0)
        finally:
            sampler.stop()


ENDING_SIGNALS: tuple[int, ...] = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)
)
"""The signals at which the screen is left with the terminal restored; the status is 128 + n."""


def hold_signals(hold: bool) -> None:
    """Let signals wait while Textual starts: in the middle of that it cannot end cleanly."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if hold else signal.SIG_UNBLOCK, ENDING_SIGNALS)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Until the application has its own handlers, a signal that ends us still restores the terminal."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS if number != signal.SIGINT}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, end)
    try:
        yield
    finally:
        hold_signals(False)
        for number, handler in before.items():
            signal.signal(number, handler)
