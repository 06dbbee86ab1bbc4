"""How long a user has had a device without using it: one answer for the table, the users, the queue. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.inventory.process import earliest
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    from gputui.choosing.state_times import Watch


def known_idle(snapshot: Snapshot) -> dict[str, float]:
    """The seconds for which each device has been at 0 %, by its key, as the snapshot itself knows them."""
    return {d.key: snapshot.time - d.idle_since for d in snapshot.devices if d.idle_since is not None}


def idle_seconds(watch: Watch, snapshot: Snapshot) -> dict[str, float]:
    """The seconds for which each device has been at 0 % in every snapshot, by its key; `snapshot` is the last
    one."""
    return {key: snapshot.time - since for key, since in watch.idle_since.items()}


def unused_by(user: str | None, device: Device, idle: float | None, snapshot: Snapshot) -> float | None:
    """The seconds for which a user (None: the unknown owner) has had a device without using it; None where
    that is unknown.

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
