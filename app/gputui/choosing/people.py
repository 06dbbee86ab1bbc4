"""The box by user: the devices and memory of each, since when, and which users are idle. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gputui.choosing.claimed_use import ClaimedUse, differing
from gputui.choosing.idleness import is_long, unused_by
from gputui.choosing.rules import DEFAULT_RULES
from gputui.choosing.verdict import Verdicts
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.process import Process, earliest, known_sum
from gputui.inventory.snapshot import Snapshot


@frozen
class Holding:
    """One user's processes on one device.

    memory    bytes, None where the driver does not report any
    since     when the oldest of them started, in epoch seconds
    idle      seconds for which the user has had the device without using it, None where that is unknown
    """

    device: Device
    processes: tuple[Process, ...]
    memory: int | None
    since: float | None
    idle: float | None

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes, by their pids."""
        return tuple(process.pid for process in self.processes)

    @property
    def main(self) -> Process:
        """The process that has the most memory there."""
        return max(self.processes, key=lambda process: process.memory or 0)


@frozen
class Person:
    """A user, None for processes whose owner is unknown.

    claims    devices claimed without a process
    unclaimed_uses
              the jobs that use devices which they have not claimed
    claiming  whether a claim is our own
    clients   the agents that asked for the claims
    after     seconds at 0 % after which a holding counts as idle
    """

    user: str | None
    holdings: tuple[Holding, ...]
    claims: tuple[Device, ...] = ()
    unclaimed_uses: tuple[ClaimedUse, ...] = ()
    claiming: bool = False
    clients: tuple[str, ...] = ()
    after: float = DEFAULT_RULES.idle

    @property
    def own(self) -> bool:
        """Whether this person is the user of this program."""
        return self.claiming or any(process.own for each in self.holdings for process in each.processes)

    @property
    def memory(self) -> int | None:
        """The sum of the known memory sizes, in bytes; None if none is known."""
        return known_sum(holding.memory for holding in self.holdings) if self.holdings else 0

    @property
    def since(self) -> float | None:
        """When the oldest process started, in epoch seconds."""
        return earliest(holding.since for holding in self.holdings)

    @property
    def idle(self) -> tuple[Holding, ...]:
        """The holdings whose devices have been idle for long."""
        return tuple(holding for holding in self.holdings if is_long(holding.idle, self.after))


def people(
    snapshot: Snapshot, idle: Mapping[str, float] = MappingProxyType({}), after: float = DEFAULT_RULES.idle
) -> tuple[Person, ...]:
    """All users with processes or claims, by memory, the most first.

    `idle` maps a device's key to the seconds for which it has been at 0 % (`idleness.idle_seconds`); a
    holding counts as idle `after` so many.
    """
    found: dict[str | None, list[Holding]] = {}
    for device in snapshot.devices:
        by_user: dict[str | None, list[Process]] = {}
        for process in device.computing:
            by_user.setdefault(process.user, []).append(process)
        for user, processes in by_user.items():
            unused = unused_by(user, device, idle.get(device.key), snapshot)
            memory = known_sum(process.memory for process in processes)
            since = earliest(process.started for process in processes)
            holding = Holding(device, tuple(processes), memory, since, unused)
            found.setdefault(user, []).append(holding)
    claimed: dict[str | None, dict[str, Device]] = {}
    for claim in snapshot.claims:
        claimed_device = snapshot.by_key.get(claim.key)
        if claimed_device is not None and not any(
            h.device.key == claim.key for h in found.get(claim.user, ())
        ):
            claimed.setdefault(claim.user, {})[claim.key] = claimed_device
    unclaimed_uses = differing(snapshot)
    persons = [
        Person(
            user,
            tuple(found.get(user, ())),
            tuple(claimed.get(user, {}).values()),
            tuple(use for use in unclaimed_uses if use.user == user),
            any(claim.own for claim in snapshot.claims if claim.user == user),
            tuple(
                dict.fromkeys(each.client for each in snapshot.claims if each.client and each.user == user)
            ),
            after,
        )
        for user in {*found, *claimed}
    ]
    return tuple(sorted(persons, key=lambda each: (-(each.memory or 0), each.user or "")))


def of_nobody(snapshot: Snapshot, judged: Verdicts, persons: Iterable[Person]) -> tuple[Device, ...]:
    """The devices in use with no visible process; without those that a person has claimed, which are below
    that person."""
    claimed = {device.key for each in persons for device in each.claims}
    return tuple(each for each in snapshot.devices if judged[each.key].unseen and each.key not in claimed)
