"""Messages between threads and screens."""

from __future__ import annotations

from textual.message import Message

from gputui.tui.session import Reading


class Read(Message):
    """The sampler has read. Only the latest counts: one that waits is replaced by the next."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.reading = reading

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Read)
