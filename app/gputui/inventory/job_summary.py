"""What is shown of one of the user's own jobs beside the devices."""

from __future__ import annotations

import signal

from gputui.inventory.light_dataclasses import dataclass

ENDED = frozenset(("done", "failed", "stopped", "ended"))
"""The states of `gputui.jobs.job.State` in which nothing more happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job at the moment of a snapshot. Times are epoch seconds; None is "not known".

    title        its name, else its command: untrusted text of the user's own
    state        one of `gputui.jobs.job.State`
    keys         `Device.key` of the devices that it has, in its order; () while it waits
    waits        how many devices it waits for, None where it has them
    status       its exit status; None also where a signal ended it
    signal       the signal that ended it
    tail         the last lines of its log, the last one last, without escape sequences
    last_line    the very last one
    peak_memory  bytes: the most that its processes had on any one device while somebody watched
    peak_process_memory   bytes of RAM: the most that any one of its processes had, known at its end
    """

    id: str
    title: str
    state: str
    keys: tuple[str, ...] = ()
    waits: int | None = None
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    status: int | None = None
    signal: int | None = None
    tail: tuple[str, ...] = ()
    last_line: str | None = None
    peak_memory: int | None = None
    peak_process_memory: int | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in ENDED


def how_it_failed(status: int, signal: int | None) -> str:
    """ "status 1", or "ended by SIGKILL" of what a signal has ended."""
    return f"status {status}" if signal is None else f"ended by {signal_name(signal)}"


def signal_name(number: int) -> str:
    """A signal by its name, "SIGTERM"; "signal 34" for one without a name."""
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"signal {number}")
