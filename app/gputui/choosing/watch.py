"""What one snapshot cannot tell: since when a device is in its state, how it was loaded before. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputui.choosing.verdict import Cooling, State, Verdict
from gputui.inventory.snapshot import Snapshot

LONGEST = 240
"""How many utilizations are kept: four minutes at the usual pace."""

_LOOKED_AWAY = 60.0
"""Seconds between two readings after which nobody can say what was in between (the screen was stopped)."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A fold over snapshots, by device key.

    `seen` has a device's state, and since when (epoch seconds) it has been seen in that state; `loads` its
    last utilizations in percent, oldest first, at most `LONGEST`, None where it was not known; `quiet` since
    when it has been seen at 0 % without a break; `began` when the first snapshot was, `last` the last one.
    """

    seen: Mapping[str, tuple[State, float]] = field(default_factory=dict)
    loads: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    quiet: Mapping[str, float] = field(default_factory=dict)
    began: float | None = None
    last: float | None = None

    def after(self, snapshot: Snapshot, verdicts: Mapping[str, Verdict]) -> Watch:
        """The watch with one more snapshot and its verdicts."""
        now = snapshot.time
        kept = self.quiet if self.last is not None and now - self.last <= _LOOKED_AWAY else {}
        return Watch(
            {
                # (Nothing has begun later than now: the clock may have been set back.)
                key: (before[0], min(before[1], now))
                if (before := self.seen.get(key)) and before[0] == verdict.state
                else (verdict.state, now)
                for key, verdict in verdicts.items()
            },
            {
                device.key: (*self.loads.get(device.key, ())[1 - LONGEST :], device.utilization)
                for device in snapshot.devices
            },
            {
                device.key: min(kept.get(device.key, now), now)
                for device in snapshot.devices
                if device.utilization == 0
            },
            now if self.began is None else self.began,
            now,
        )

    def lasting(self, key: str, now: float) -> float | None:
        """Seconds for which the device has been seen in its present state; None if it never was seen."""
        seen = self.seen.get(key)
        return None if seen is None else now - seen[1]


def settled(verdicts: Mapping[str, Verdict], watch: Watch, now: float, window: float) -> dict[str, Verdict]:
    """The verdicts, with those that say "free" of a device that was not so all through the window taken back:
    between two steps of a sweep a GPU looks free for three seconds.

    `watch` has `now` in it already. What was free from the first reading on is believed.
    """
    found = dict(verdicts)
    for key, verdict in verdicts.items():
        since = watch.seen.get(key, ("free", now))[1]
        if verdict.free and since != watch.began and now - since < window:
            found[key] = Verdict("busy", Cooling(since))
    return found
