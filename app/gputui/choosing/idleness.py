"""How long a user has had a device without using it: one answer for the table, the users, the queue. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.inventory.formatting import Seen
from gputui.inventory.process import earliest
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    from gputui.choosing.state_times import Watch


_WORTH_SAYING = 60.0
"""Seconds at 0 % from which a table says so: a job that loads its data is at 0 % for less."""


def known_idle(snapshot: Snapshot) -> dict[str, float]:
    """The seconds for which each device has been at 0 %, by its key, as the snapshot itself knows them."""
    now = snapshot.time
    return {d.key: Seen.span(d.idle_since, now) for d in snapshot.devices if d.idle_since is not None}


def idle_seconds(watch: Watch, snapshot: Snapshot) -> dict[str, float]:
    """The seconds for which each device has been at 0 % in every snapshot, by its key; `snapshot` is the last
    one."""
    return {key: Seen.span(since, snapshot.time) for key, since in watch.idle_since.items()}


def unused_by(user: str | None, device: Device, idle: float | None, snapshot: Snapshot) -> float | None:
    """The seconds for which a user (None: the unknown owner) has had a device without using it; None where
    that is unknown; a `Seen` where it may be longer.

    `idle`: the seconds for which the device has been at 0 %, None where unknown. The time before the user's
    claim and processes does not count.
    """
    if idle is None:
        return None
    claim = snapshot.claimed.get(device.key)
    computing = [each for each in device.computing if each.user == user]
    claimed = claim.since if claim is not None and claim.user == user else None
    since = earliest([claimed, *(process.started for process in computing)])
    return None if since is None else max(0.0, min(idle, snapshot.time - since))


def is_long(unused: float | None, after: float) -> bool:
    """Whether a user has had a device without using it for `after` seconds, the limit of the rules."""
    return unused is not None and unused >= after


def is_worth_saying(unused: float | None, after: float) -> bool:
    """Whether a table tells that a user has not used a device, even where that is not yet `is_long`."""
    return is_long(unused, min(after, _WORTH_SAYING))
