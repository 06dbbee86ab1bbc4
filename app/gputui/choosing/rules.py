"""The rules for verdicts: how much use still counts as free, and which processes do not count. Pure."""

from __future__ import annotations

from gputui.inventory.formatting import GIB, MIB
from gputui.inventory.light_dataclasses import frozen


@frozen
class Rules:
    """Memory in bytes, utilization in percent, times in seconds.

    memory, utilization                  a device without processes is free up to these
    desktop_memory, desktop_utilization  the same for a device with graphics processes only: a desktop's few
                                         hundred MiB do not make a workstation's only GPU busy
    window   seconds for which a device must have been free before the screen and `--wait` treat it as free
    idle     seconds at 0 % after which a user with memory in use counts as idle; a checkpoint takes minutes
    idle_release  seconds at 0 % after which the user's own jobs are stopped; 0: never
    ignore   users whose processes do not count (a monitoring daemon's)
    mine     the user's own name, where their own processes do not count; None where they do
    never    devices that are never picked, by index or beginning of a UUID
    prefer   devices that are picked before others, in this order
    """

    memory: int = 512 * MIB
    utilization: int = 10
    desktop_memory: int = GIB
    desktop_utilization: int = 30
    window: float = 10.0
    idle: float = 600.0
    idle_release: float = 0.0
    ignore: frozenset[str] = frozenset()
    mine: str | None = None
    never: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()

    @property
    def by_owner(self) -> bool:
        """Whether a verdict depends on whose processes are on a device."""
        return bool(self.ignore) or self.mine is not None

    def counts(self, user: str | None) -> bool:
        """Whether a process of this user makes a device busy. With an unknown user (None) it always does."""
        return user is None or (user not in self.ignore and user != self.mine)


DEFAULT_RULES = Rules()
