"""Readings on their way from the sampler's thread to the screen. Textual need not be imported for them."""

from __future__ import annotations

from collections.abc import Callable

from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Reading:
    """What one turn of the sampler brought, and when that turn began (`time.monotonic`)."""

    result: Snapshot | Exception
    began: float


class Mailbox:
    """Where the sampler's thread leaves readings: the latest stays, and `listener` is called with each."""

    def __init__(self) -> None:
        self.latest: Reading | None = None
        self.listener: Callable[[Reading], object] | None = None

    def put(self, result: Snapshot | Exception, began: float) -> None:
        """Called on the sampler's thread."""
        self.latest = Reading(result, began)
        # (Read once: another thread may set it to None between two reads.)
        listener = self.listener
        if listener is not None:
            listener(self.latest)
