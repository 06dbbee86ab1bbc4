"""Remembers across snapshots how long each device has been in its state, and how long it was idle. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.choosing.verdict import Cooling, State, Verdicts
from gputui.inventory.formatting import Seen
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.link import LinkMatrix
from gputui.inventory.snapshot import Snapshot

_LOOKED_AWAY = 90.0
"""Seconds without a reading after which the time in between is unknown (the screen was stopped). Prometheus
scrapes every 60 s by default."""

_SET = 1.0
"""The least difference in seconds between the wall clock and the monotonic clock that counts as a set clock
(or a machine that slept): smaller differences are normal adjustments."""


@frozen
class Watch:
    """The memory of past snapshots, by device key; times are epoch seconds.

    When somebody sets the clock, all times move with it, so durations stay the same.

    seen         a device's state, and the time since which every snapshot has had it in that state,
                 at most since `began`
    idle_since   the time since which every snapshot has had it at 0 %; a `Seen` where nothing is known of the
                 time before
    used         the devices that the last snapshot had above 0 %
    pcie         the last known PCIe classes of pairs of devices: a lost device has none
    wired        the matrix that `pcie` was last updated from
    began, last  the times of the first and the last snapshot; nothing is known from before a time without
                 readings, nor where `last` is None
    ticks        the last snapshot's time by the monotonic clock
    """

    seen: Mapping[str, tuple[State, float]] = field(default_factory=dict)
    idle_since: Mapping[str, float] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    pcie: Mapping[tuple[str, str], str] = field(default_factory=dict)
    wired: LinkMatrix = ()
    began: float | None = None
    last: float | None = None
    ticks: float | None = None

    def after(self, snapshot: Snapshot, verdicts: Verdicts) -> Watch:
        """The watch after one more snapshot with its verdicts."""
        return self._moved(self._set_by(snapshot))._after(snapshot, verdicts)

    def _set_by(self, snapshot: Snapshot) -> float:
        """The seconds by which the clock has been set since the last snapshot."""
        if self.last is None or self.ticks is None or snapshot.ticks is None:
            return 0.0
        seconds = snapshot.time - self.last - (snapshot.ticks - self.ticks)
        return seconds if abs(seconds) > _SET else 0.0

    def _moved(self, seconds: float) -> Watch:
        if not seconds:
            return self
        return replace(
            self,
            seen={key: (state, since + seconds) for key, (state, since) in self.seen.items()},
            idle_since={key: type(since)(since + seconds) for key, since in self.idle_since.items()},
            began=None if self.began is None else self.began + seconds,
            last=None if self.last is None else self.last + seconds,
        )

    def _after(self, snapshot: Snapshot, verdicts: Verdicts) -> Watch:
        now = snapshot.time
        watched = self.last is not None and now - self.last <= _LOOKED_AWAY
        kept = self if watched else Watch()
        return Watch(
            seen={
                # The clock may have been set back: no state begins in the future.
                key: (before[0], min(before[1], now))
                if (before := kept.seen.get(key)) and before[0] == verdict.state
                else (verdict.state, now)
                for key, verdict in verdicts.items()
            },
            idle_since={
                device.key: min(
                    kept.idle_since.get(device.key, now if device.key in kept.used else Seen(now)),
                    device.idle_since or now,
                    now,
                )
                for device in snapshot.devices
                if device.utilization == 0
            },
            used=frozenset(device.key for device in snapshot.devices if device.utilization),
            pcie=self.pcie if snapshot.pcie is self.wired else {**self.pcie, **_classes(snapshot)},
            wired=snapshot.pcie,
            began=now if kept.began is None else min(kept.began, now),
            last=now,
            ticks=snapshot.ticks,
        )

    def since(self, key: str, now: float) -> float:
        """Since when the device is known to be in its present state; `now` if it was never seen."""
        return self.seen.get(key, ("", now))[1]


def _classes(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """The known PCIe classes of pairs of devices, by their keys."""
    keys = [device.key for device in snapshot.devices]
    return {
        (one, other): word
        for one, row in zip(keys, snapshot.pcie, strict=False)
        for other, word in zip(keys, row, strict=True)
        if word is not None and one != other
    }


def with_cooling(verdicts: Verdicts, watch: Watch, now: float, window: float) -> Verdicts:
    """The verdicts, with "cooling" for devices that have been free for less than `window` seconds.

    Between two runs of a sweep a GPU looks free for some seconds. A device that has been free since the first
    snapshot counts as free. `watch` must include the snapshot of `now` already.
    """
    found = dict(verdicts)
    for key, verdict in verdicts.items():
        since = watch.since(key, now)
        if verdict.free and since != watch.began and now - since < window:
            found[key] = replace(verdict, state="cooling", cause=Cooling(since, window))
    return found
