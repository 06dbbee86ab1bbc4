"""One run of the screen, from the first reading to what is to be launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gputui.inventory.snapshot import Snapshot
from gputui.launching.compose import Plan
from gputui.launching.launch import Launch
from gputui.launching.words import assignments
from gputui.sources.sampler import Sampler
from gputui.sources.source import Source


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
    mailbox = Mailbox()
    sampler = Sampler(source, mailbox.put, interval)
    source.open()
    # The first reading goes on while Textual is imported (0.17 s).
    sampler.start()
    from gputui.tui.app import GputuiApp

    additions, argv = assignments(command)
    app = GputuiApp(
        sampler=sampler,
        mailbox=mailbox,
        plan=Plan(command=argv, additions=additions),
        environ=environ,
        label=source.label,
    )
    try:
        return app.run() or Outcome(status=app.return_code or 0)
    finally:
        sampler.stop()
