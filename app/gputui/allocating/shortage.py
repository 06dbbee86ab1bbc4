"""The texts that there are too few devices: the number asked for, the number there, and the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gputui.allocating.errors import NotEnoughError
from gputui.choosing.capacity import most_ever
from gputui.choosing.pick import Constraints, PickResult
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import reason, refusal, refusals
from gputui.inventory.formatting import devices_text, printable
from gputui.inventory.snapshot import Snapshot
from gputui.vendors.registry import vendor_named, vendors_of


def only_here(count: int, can: int, be: str) -> str:
    """The text that the box has only `can` devices for a request of `count`; `be` is the use of them."""
    here = f"only {devices_text(can)} here" if can else "no GPU here"
    return f"{devices_text(count)} asked for, but {here} can be {be}"


def waits_for_ever(count: int, can: int) -> str:
    """The text that waiting for `count` devices does not help where at most `can` could be had."""
    return f"{only_here(count, can, 'used')}, even if all are free; waiting does not help"


def not_enough(
    picked: PickResult, constraints: Constraints, snapshot: Snapshot, where: str, avoid: Mapping[str, str]
) -> NotEnoughError:
    """The error that too few devices are free, with the reason for each of the others.

    `avoid` has the devices that turned out to be unavailable, and the reasons; `where` is the limit on the
    devices.
    """
    reasons = [(f"GPU {snapshot.label(each)}", refusal(why, snapshot.time)) for each, why in picked.refused]
    for key in filter(snapshot.by_key.__contains__, avoid):
        name = f"GPU {snapshot.label(snapshot.by_key[key])}"
        # The line begins with the name already.
        reasons.append((name, avoid[key].removeprefix(name).lstrip(": ").removeprefix("is ")))
    summary, why = _summary(picked, constraints, snapshot, where, avoid)
    return NotEnoughError(
        f"{summary}: {why}" if why else summary,
        (*(device.key for device, _ in picked.refused), *avoid),
        summary,
        reasons if why else (),
        most_ever(snapshot, constraints) >= constraints.count,
    )


def _summary(
    picked: PickResult, constraints: Constraints, snapshot: Snapshot, where: str, avoid: Mapping[str, str]
) -> tuple[str, str]:
    """The text that there are too few devices, and the reasons; "" for none."""
    have = len(picked.devices)
    asked = f"{devices_text(constraints.count)} asked for"
    box = vendors_of(snapshot.devices)
    if box and constraints.vendor is not None and constraints.vendor not in {each.name for each in box}:
        titles = " and ".join(each.title for each in box)
        missing = vendor_named(constraints.vendor).title
        return f"{asked}, but this box has no {missing} device; it has devices of {titles}", ""
    total = have + len(picked.refused) + len(avoid)
    there = f"{have if have else 'none'} of {total} available"
    why = refusals(picked.refused, snapshot) if total else _apart(snapshot, constraints.vendor)
    if 0 < total < constraints.count:
        return f"{asked}, but there {'is' if total == 1 else 'are'} only {total}{where}", ""
    summary = f"{asked}, {there}{where}"
    if snapshot.host.driver is None and not snapshot.time:
        # The reading that `--from` makes of a printed matrix.
        simulated = "--demo FILE simulates its box with all devices idle"
        return f"{summary}: a matrix does not say which devices are in use; {simulated}", ""
    return summary, "; ".join(filter(None, (why, *avoid.values())))


def _apart(snapshot: Snapshot, vendor: str | None) -> str:
    """Why devices without a number are not offered; "" where there are others."""
    if any(device.index >= 0 for device in snapshot.devices):
        return ""
    judged = verdicts(snapshot)
    told = Counter(
        (device.name or vendor_named(device.vendor).title, reason(judged[device.key], snapshot.time))
        for device in snapshot.devices
        if vendor in (None, device.vendor)
    )
    return "; ".join(f"{count}× {printable(name)}: {why}" for (name, why), count in told.items())
