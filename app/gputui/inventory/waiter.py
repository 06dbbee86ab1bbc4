"""A waiter: somebody in line for devices."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gputui.inventory.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Command, Moment, Positive


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody in line. What is not from the system is his own word, untrusted.

    place    the order: the kernel's time of the ticket, and of those of one tick of it their own
    user     the ticket's owner
    count    devices that are waited for
    devices  the UUIDs that will do, None for any
    step     of which kind the claim will be (`Claim.step`): those who wait inside a lease are in nobody
             else's way, and no other user is in theirs
    job      the id of the job that waits, None where it is no job
    ours     whether the ticket is one of our own user's
    silent   whether he has lost his place: he is stopped, or his driver does not answer
    """

    place: tuple[int, str]
    user: str
    count: Positive = 1
    devices: frozenset[Command] | None = None
    since: Moment | None = None
    command: Command | None = None
    path: str = field(default="", compare=False)
    step: int = 0
    job: Command | None = None
    ours: bool = False
    silent: bool = False

    def wants_of(self, keys: Collection[str] | None) -> bool:
        """Whether he could take one of these devices (None: of any)."""
        return self.devices is None or keys is None or not self.devices.isdisjoint(keys)

    def is_before(self, other: Waiter) -> bool:
        """Whether he is ahead of the other one in line, and could take what the other one waits for."""
        alike = self.step == other.step and (not self.step or self.user == other.user)
        if not alike or not self.wants_of(other.devices):
            return False
        return other.silent if self.silent != other.silent else self.place < other.place
