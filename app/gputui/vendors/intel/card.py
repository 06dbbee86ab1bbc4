"""The facts that xe and i915 report about one GPU in sysfs: its tiles, clock, sensors and idle time.

Sources: Linux, Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and sysfs-driver-intel-i915-hwmon. A
counter yields a rate only from the second reading on.
"""

from __future__ import annotations

from gputui.inventory.device import Facts
from gputui.inventory.light_dataclasses import dataclass
from gputui.system.drm import Card, GpuFiles
from gputui.system.root import Root
from gputui.vendors.intel.names import MAX

_MOST_TILES = 16
_SHORTEST = 0.02
"""The shortest time between two readings, in seconds, at which a counter of milliseconds is meaningful."""


@dataclass
class _Counter:
    """A counter's last value, its time (seconds), and the rate between the last two readings."""

    value: int | None = None
    at: float = 0.0
    rate: float | None = None

    def count(self, value: int | None, now: float) -> float | None:
        """Return the rate per second; None at the first reading, and where the counter went back."""
        if value is None:
            self.value = self.rate = None
        elif self.value is None:
            self.value, self.at, self.rate = value, now, None
        elif now - self.at >= _SHORTEST:
            more = value - self.value
            self.rate = more / (now - self.at) if more >= 0 else None
            self.value, self.at = value, now
        return self.rate


class IntelCard(GpuFiles):
    """One GPU's files."""

    own_bridges = frozenset({"8086:4fa0", "8086:4fa1", "8086:4fa4", "8086:e2ff", "8086:e2f0", "8086:e2f1"})
    """The bridges of Arc A and Flex, and of Battlemage (pci.ids)."""

    def __init__(self, root: Root, card: Card) -> None:
        super().__init__(root, card)
        self._of_card = card.folder.removesuffix("/device")
        self._energy: dict[str, _Counter] = {}
        self._idle: dict[int, _Counter] = {}
        self.tiles = self._tiles()

    @property
    def is_max(self) -> bool:
        """Whether it is a Data Center GPU Max, whose tiles are devices unless a program asks otherwise."""
        return self.card.device_id in MAX

    def _tiles(self) -> int:
        names = self._root.names(self.card.folder)
        found = sum(name.startswith("tile") and name[4:].isdigit() for name in names)
        if not found and self.is_max:
            # i915 exposes the tiles of a Max as gt0 and gt1; on other cards, gt1 is the media engine.
            names = self._root.names(f"{self._of_card}/gt")
            found = sum(name.startswith("gt") and name[2:].isdigit() for name in names)
        return max(1, min(found, _MOST_TILES))

    def _first(self, *paths: str) -> int | None:
        for path in paths:
            found = self._root.number(path)
            if found is not None and found >= 0:
                return found
        return None

    def clock(self, tile: int = 0) -> int | None:
        """Return the current clock in MHz; 0 while the engines sleep, None while the whole card sleeps."""
        if self.asleep:
            return None
        return self._first(
            f"{self.card.folder}/tile{tile}/gt{2 * tile}/freq0/act_freq",
            f"{self.card.folder}/tile{tile}/gt{tile}/freq0/act_freq",
            *((f"{self._of_card}/gt_act_freq_mhz",) if tile == 0 else ()),
            f"{self._of_card}/gt/gt{tile}/rps_act_freq_mhz",
        )

    def max_clock(self) -> int | None:
        """Return the highest clock, MHz."""
        return self._first(
            f"{self.card.folder}/tile0/gt0/freq0/rp0_freq",
            f"{self._of_card}/gt_RP0_freq_mhz",
            f"{self._of_card}/gt/gt0/rps_RP0_freq_mhz",
        )

    def utilization(self, tile: int, now: float) -> int | None:
        """Return the percentage of the time since the last reading in which the engines of a tile were awake.

        That is an upper limit of their work; `now` in seconds. A sleeping GPU runs nothing.
        """
        if self.asleep:
            return 0
        idle = self._first(
            f"{self.card.folder}/tile{tile}/gt{2 * tile}/gtidle/idle_residency_ms",
            f"{self.card.folder}/tile{tile}/gt{tile}/gtidle/idle_residency_ms",
            f"{self._of_card}/gt/gt{tile}/rc6_residency_ms",
        )
        counter = self._idle.setdefault(tile, _Counter())
        rate = counter.count(idle, now)
        if rate is None or (rate == 0 and not self._root.here):
            # A recording's counters do not move.
            return None
        return round(min(100.0, max(0.0, 100 - rate / 10)))

    def _sensed(self, now: float) -> Facts:
        limit = self._limit()
        return {
            "temperature": self.temperature("pkg"),
            "power": self._power(now),
            "power_limit": None if not limit else limit / 1e6,
            "sm_clock": self.clock(),
        }

    def _limit(self) -> int | None:
        """Return the sustained limit that is set; where none is reported, the limit of bursts. µW."""
        for suffix in ("_max", "_cap"):
            found = self.sensors.labelled("power", ("card", "pkg"), suffix)
            found = found or self.sensors.number(f"power1{suffix}")
            if found is not None and found > 0:
                return found
        return None

    def _power(self, now: float) -> float | None:
        """Return the power in W between the last two readings: the card's, or the chip's if
        the card's counter stops."""
        labels = [label for kind, label in self.sensors.labels if kind == "energy"]
        channels = [self.sensors.labels["energy", label] for label in ("card", "pkg") if label in labels]
        rates: list[float] = []
        for channel in channels or ["energy1"]:
            rate = self._energy.setdefault(channel, _Counter()).count(
                self.sensors.number(f"{channel}_input"), now
            )
            rates += [rate] if rate else []
        return round(rates[0] / 1e6, 3) if rates else None

    @property
    def linked(self) -> str | None:
        # The card's own endpoint reports 2.5 GT/s x1, whatever the slot is.
        return self.slot
