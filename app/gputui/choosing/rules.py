"""What still counts as nobody's: the thresholds and exceptions by which verdicts are made. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.inventory.formatting import GIB, MIB


@dataclass(frozen=True, slots=True)
class Rules:
    """Memory in bytes, utilization in percent, times in seconds.

    memory, utilization                  up to so much a device without a process is free
    desktop_memory, desktop_utilization  the same for one on which programs only draw: a desktop's few hundred
                                         MiB and a moving window do not make a workstation's only GPU busy
    window   for so long a device must have been free before one that watches calls it free
    ignore   users whose processes do not count (a monitoring daemon's)
    mine     a user whose processes do not count either: one's own, where one's own count as free
    never    devices that are not taken, by index or beginning of a UUID
    prefer   devices in the order in which they are taken, the others after them
    """

    memory: int = 512 * MIB
    utilization: int = 10
    desktop_memory: int = GIB
    desktop_utilization: int = 30
    window: float = 10.0
    ignore: frozenset[str] = frozenset()
    mine: str | None = None
    never: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()

    @property
    def by_owner(self) -> bool:
        """Whether a verdict depends on whose processes are on a device."""
        return bool(self.ignore) or self.mine is not None

    def counts(self, user: str | None) -> bool:
        """Whether a process of that user makes a device busy. An unknown owner always does."""
        return user is None or (user not in self.ignore and user != self.mine)


DEFAULT_RULES = Rules()
