"""A waiter: a program in line for devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.inventory.device import Among
from gputui.inventory.light_dataclasses import field, frozen

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Moment, Positive


@frozen
class Waiter:
    """A program in line. Facts that are not from the system are its own statements, untrusted.

    place    the order: the kernel's time of the ticket, then within one tick the order of the tickets' names
    user     the ticket's owner
    count    the number of devices that it waits for
    devices  the UUIDs of suitable devices, None for any
    step     the step of the future claim (`Claim.step`): programs that wait inside a lease block nobody
             outside it, and other users do not block them
    job      the id of the waiting job, None for a launch that is not a job
    client   the agent that asks, None for a person or a script
    min_free, max_util   the bytes that must be free on each device, and its largest utilization in percent
    ours     whether the ticket belongs to our own user
    silent   whether it has lost its place: it is stopped, or its driver does not answer
    """

    place: tuple[int, str]
    user: str
    count: Positive = 1
    devices: frozenset[str] | None = None
    since: Moment | None = None
    command: str | None = None
    path: str = field(default="", compare=False)
    step: int = 0
    job: str | None = None
    ours: bool = False
    silent: bool = False
    client: str | None = None
    min_free: int | None = None
    max_util: int | None = None

    def wants_of(self, keys: Among) -> bool:
        """Whether it could take one of these devices (None: any device)."""
        return self.devices is None or keys is None or not self.devices.isdisjoint(keys)


Waiters = tuple[Waiter, ...]
"""Those who wait in line, the first one first."""
