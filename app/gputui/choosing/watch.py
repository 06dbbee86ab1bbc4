"""What a single snapshot cannot tell: since when a device has been in its state. Pure; a fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputui.choosing.verdict import State, Verdict


@dataclass(frozen=True, slots=True)
class Watch:
    """By device key: its state, and since when (epoch seconds) it has been seen in that state."""

    seen: Mapping[str, tuple[State, float]] = field(default_factory=dict)

    def after(self, verdicts: Mapping[str, Verdict], now: float) -> Watch:
        """The watch with one more snapshot's verdicts."""
        return Watch(
            {
                key: before
                if (before := self.seen.get(key)) and before[0] == verdict.state
                else (verdict.state, now)
                for key, verdict in verdicts.items()
            }
        )

    def lasting(self, key: str, now: float) -> float | None:
        """Seconds for which the device has been seen in its present state; None if it never was seen."""
        seen = self.seen.get(key)
        return None if seen is None else now - seen[1]
