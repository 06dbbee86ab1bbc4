"""One run of the screen, from the first reading to what is to be launched."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.shell_words import assignments
from gputui.sources.sampler import Sampler
from gputui.sources.source import Source
from gputui.tui.app_state import AppState

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease
from gputui.tui.first_frame import FirstPicture


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the screen ended: with a launch to become, or a status; `text` is printed once it is gone."""

    launch: Launch | None = None
    lease: Lease | None = None
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
        # (Taken once: another thread may take it away.)
        forward = self.forward
        if forward is not None:
            forward(self.latest)


def run_screen(
    source: Source,
    command: tuple[str, ...],
    interval: float,
    environ: Mapping[str, str],
    rules: Rules = DEFAULT_RULES,
) -> Outcome:
    """Show the screen until the user leaves it or launches. Raises NoSourceError before there is one."""
    additions, argv = assignments(command)
    options = LaunchOptions(command=argv, additions=additions)
    source.open()
    first = AppState(environ, options, source.label, rules=rules)
    with FirstPicture(first) as picture, EarlySignals() as signals:
        mailbox = Mailbox()
        mailbox.forward = lambda reading: picture.paint(reading.news)
        sampler = Sampler(source, mailbox.put, interval, owners_at_once=rules.by_owner)
        # The first reading goes on while Textual is imported.
        sampler.start()
        try:
            from gputui.tui.app import GputuiApp
            from gputui.tui.terminal import driver_after

            app = GputuiApp(
                sampler,
                mailbox,
                options,
                environ,
                source.label,
                rules,
                driver_class=driver_after(picture),
                signals=signals,
            )
            return app.run() or Outcome(status=app.return_code or 0)
        finally:
            sampler.stop()


class EarlySignals:
    """Remembers a signal that should end us until the application can answer it.

    An exception in the middle of an import, or of Textual's start, would leave a half-made screen behind, or
    get lost. A context: afterwards the handlers are those of before.
    """

    NUMBERS: tuple[int, ...] = tuple(
        getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.came: int | None = None
        self._before: dict[int, Any] = {}
        self._ignored: list[int] = []

    @property
    def answered(self) -> tuple[int, ...]:
        """The signals that end us: all but those that whoever started us wants ignored (nohup)."""
        return tuple(self._before)

    def __enter__(self) -> EarlySignals:
        for number in self.NUMBERS:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._remember)
        # Textual answers these too, and gives the default back, not what was before.
        names = ("SIGTSTP", "SIGTTOU", "SIGTTIN", "SIGCONT", "SIGWINCH")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        self._ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for number in self._ignored:
            signal.signal(number, signal.SIG_IGN)

    def _remember(self, number: int, _: FrameType | None) -> None:
        self.came = number
