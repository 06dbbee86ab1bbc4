"""Passes readings from the sampler's thread to the screen, without importing Textual."""

from __future__ import annotations

from collections.abc import Callable

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot


@frozen
class Reading:
    """The result of one turn of the sampler, and when that turn began (`time.monotonic`). The `first` one
    leaves out what takes long."""

    result: Snapshot | Exception
    began: float
    first: bool = False


class Mailbox:
    """Holds the latest reading of the sampler's thread, and calls `listener` with each."""

    def __init__(self) -> None:
        self.latest: Reading | None = None
        self.listener: Callable[[Reading], object] | None = None

    def put(self, result: Snapshot | Exception, began: float) -> None:
        """Store a reading and call the listener, on the sampler's thread."""
        self.latest = Reading(result, began, first=self.latest is None)
        # A single read: another thread may set it to None between two reads.
        listener = self.listener
        if listener is not None:
            listener(self.latest)
