"""What there is to ask before a launch on devices that are not free. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.choosing.selection import Selection
from gputui.choosing.verdict import Verdict
from gputui.inventory.snapshot import Snapshot
from gputui.vendors.registry import vendor_of, vendors_of


def not_free(
    selection: Selection, chosen_as: Mapping[str, Verdict], now: Snapshot, verdicts: Mapping[str, Verdict]
) -> dict[str, str]:
    """A line for every selected device that is not free now, by its key: who has it, and what it was before.

    `chosen_as` has the verdict at the moment each device was selected. A device that is not there any more
    has a line, too.
    """
    found = {}
    there = [now.by_key[key] for key in selection if key in now.by_key]
    vendor = vendor_of(there, vendors_of(now.devices))
    for rank, key in enumerate(selection):
        device, before = now.by_key.get(key), chosen_as.get(key)
        if device is None:
            found[key] = f"{vendor.device(rank)} = {key} is not there any more"
            continue
        verdict = verdicts[key]
        if not verdict.free:
            was = f" (was {before.state})" if before and before.state != verdict.state else ""
            found[key] = (
                f"{vendor.device(rank)} = GPU {now.label(device)} is {verdict.state}{was}: {verdict.reason}"
            )
    return found
