"""Textual messages that are posted to a screen from another thread."""

from __future__ import annotations

from textual.message import Message

from gputui.timeline.store import Store
from gputui.tui.readings import Reading


class NewReading(Message):
    """The sampler has a new reading. Only the latest counts: a waiting message is replaced by the next."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.reading = reading

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, NewReading)


class PastFound(Message):
    """The timelines from before this run have been found."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
