"""The box by people: who has which devices, how much memory, since when, and who only holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.choosing.watch import Watch
from gputui.inventory.device import Device
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot

IDLE_AFTER = 600.0
"""Seconds at 0 % after which somebody who holds memory is called idle; a checkpoint takes minutes."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One user's processes on one device.

    memory    bytes, None where the driver does not tell
    since     start of the oldest of them, seconds since the epoch
    idle      seconds for which the device has been seen doing nothing while they had it, None where that is
              not known
    """

    device: Device
    processes: tuple[Process, ...]
    memory: int | None
    since: float | None
    idle: float | None


@dataclass(frozen=True, slots=True)
class Person:
    """A user, or None for processes whose owner is not known; `claims` are devices held without a process."""

    user: str | None
    holdings: tuple[Holding, ...]
    claims: tuple[Device, ...] = ()

    @property
    def memory(self) -> int | None:
        """Bytes in all, as far as they are known; None where none of them are."""
        sizes = [holding.memory for holding in self.holdings if holding.memory is not None]
        return sum(sizes) if sizes or not self.holdings else None

    @property
    def since(self) -> float | None:
        """Start of the oldest process."""
        return min((h.since for h in self.holdings if h.since is not None), default=None)

    @property
    def idle(self) -> tuple[Holding, ...]:
        """What is held by somebody who has long done nothing with it."""
        return tuple(h for h in self.holdings if h.idle is not None and h.idle >= IDLE_AFTER)


def people(snapshot: Snapshot, quiet: Mapping[str, float] | None = None) -> tuple[Person, ...]:
    """Everybody with something on the box, who has the most memory first.

    `quiet` has the seconds for which a device has been seen at 0 %, by its key (`quiet_for`).
    """
    found: dict[str | None, list[Holding]] = {}
    for device in snapshot.devices:
        by_user: dict[str | None, list[Process]] = {}
        for process in device.processes or ():
            if process.kind != "graphics":
                by_user.setdefault(process.user, []).append(process)
        for user, processes in by_user.items():
            seen = (quiet or {}).get(device.key)
            found.setdefault(user, []).append(_holding(device, processes, seen, snapshot.time))
    claimed: dict[str | None, dict[str, Device]] = {}
    for claim in snapshot.claims:
        there = snapshot.by_key.get(claim.key)
        if there is not None and not any(h.device.key == claim.key for h in found.get(claim.user, ())):
            claimed.setdefault(claim.user, {})[claim.key] = there
    persons = [
        Person(user, tuple(found.get(user, ())), tuple(claimed.get(user, {}).values()))
        for user in {*found, *claimed}
    ]
    return tuple(sorted(persons, key=lambda each: (-(each.memory or 0), each.user or "")))


def _holding(device: Device, processes: list[Process], quiet: float | None, now: float) -> Holding:
    sizes = [process.memory for process in processes if process.memory is not None]
    since = min((p.started for p in processes if p.started is not None), default=None)
    # The hours for which a device did nothing before they came are nobody's fault.
    idle = None if quiet is None or since is None else max(0.0, min(quiet, now - since))
    return Holding(device, tuple(processes), sum(sizes) if sizes else None, since, idle)


def quiet_for(watch: Watch, snapshot: Snapshot) -> dict[str, float]:
    """Seconds for which each device has been seen at 0 % without a break, by its key."""
    return {
        device.key: snapshot.time - since
        for device in snapshot.devices
        if (since := watch.quiet.get(device.key)) is not None
    }
