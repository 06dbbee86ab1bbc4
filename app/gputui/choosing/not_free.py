"""The selected devices that are not free when a launch is asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.choosing.selection import Selection
from gputui.choosing.verdict import State, Verdict
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NotFree:
    """A selected device that is not free, which would be `cuda:<rank>`.

    `device` and `verdict` are None where it has vanished from the box; `before` is its state when it was
    selected, None where that is not known.
    """

    rank: int
    device: Device | None
    verdict: Verdict | None
    before: State | None


def not_free(
    selection: Selection, selected_as: Mapping[str, Verdict], now: Snapshot, verdicts: Mapping[str, Verdict]
) -> dict[str, NotFree]:
    """Every selected device that is not free now, by its key; `selected_as` has the verdicts at selection."""
    found = {}
    for rank, key in enumerate(selection):
        device, before = now.by_key.get(key), selected_as.get(key)
        verdict = verdicts[key] if device else None
        if verdict is None or not verdict.free:
            found[key] = NotFree(rank, device, verdict, before.state if before else None)
    return found
