"""Which devices the table lists, and in which order: the box's own unless the user sorts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from gputui.choosing.verdict import GLYPHS, ClaimedBy, UsedBy, Verdict, Verdicts
from gputui.inventory.device import Device
from gputui.inventory.formatting import YOU, short_name
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    from gputui.inventory.job import Job

SORTS = ("utilization", "memory", "temperature", "state", "user")
"""The values of `ScreenSettings.sort` besides None, the box's order."""

UNSORTED = "index"
"""What the screen calls the box's order."""

RISING = ("state", "user")
"""Sorts in rising order: free devices and the letter A come first. The others begin with the most."""

NOISY = {"utilization": 10.0, "memory": 0.02, "temperature": 2.0}
"""Sorts by readings that fluctuate, and the change (%, a share, °C) that makes a row move: a click or a
key is meant for the device that the user sees there."""

YOURS = ("yours", "mine")
"""The words of a filter for the devices that the user has, besides "you"."""

_STATES = tuple(GLYPHS)


def listed(
    snapshot: Snapshot,
    verdicts: Verdicts,
    jobs: Mapping[str, Job],
    sort: str | None,
    filter_text: str,
    before: Sequence[str] = (),
) -> tuple[Device, ...]:
    """The devices that match `filter_text`, sorted; in the box's order where equal or without `sort`.

    jobs    the user's own running jobs by the keys of their devices
    before  the keys of the devices in the order of the last listing: the same devices keep that order as long
            as none exceeds a device above it by more than noise
    """
    found: Sequence[Device] = snapshot.devices
    words = filter_text.lower().split()
    if words:
        found = [d for d in found if _matches(words, d, verdicts[d.key], jobs.get(d.key))]
    measure = _MEASURES.get(sort or "")
    if measure is not None:
        found = _kept(sort or "", found, verdicts, before) or _sorted_by(measure, found, verdicts)
    return tuple(found)


def _kept(
    sort: str, devices: Sequence[Device], verdicts: Verdicts, before: Sequence[str]
) -> list[Device] | None:
    """The devices in the order of `before`, if only noise contradicts it; None if more does."""
    by_key = {device.key: device for device in devices}
    if sort not in NOISY or by_key.keys() != set(before):
        return None
    kept = [by_key[key] for key in before]
    own = {device.key: _MEASURES[sort](device, verdicts[device.key]) for device in kept}

    def out_of_place(values: Sequence[float]) -> bool:
        # The measures rise from the first row to the last.
        return any(later < earlier - NOISY[sort] for earlier, later in combinations(values, 2))

    groups = _boards(kept)
    lists = [[min(own[device.key] for device in group) for group in groups]]
    lists += [[own[device.key] for device in group if device.parent] for group in groups]
    return None if any(map(out_of_place, lists)) else kept


def _boards(devices: Sequence[Device]) -> list[list[Device]]:
    """The devices by their GPU: a GPU that is not divided, or the instances of one."""
    boards: dict[str, list[Device]] = {}
    for device in devices:
        boards.setdefault(device.parent or device.key, []).append(device)
    return list(boards.values())


def _sorted_by(
    measure: Callable[[Device, Verdict], Any], devices: Sequence[Device], verdicts: Verdicts
) -> list[Device]:
    """The devices by a sort key; instances stay below their GPU, which has the place of the first of them."""
    own = {device.key: measure(device, verdicts[device.key]) for device in devices}
    in_order = sorted(_boards(devices), key=lambda board: min(own[device.key] for device in board))
    return [d for board in in_order for d in sorted(board, key=lambda d: (d.parent is not None, own[d.key]))]


def user_of(device: Device, verdict: Verdict) -> str | None:
    """The user who has the device now, None where there is none or the user is not known."""
    if isinstance(verdict.cause, ClaimedBy):
        return verdict.cause.claim.user
    if isinstance(verdict.cause, UsedBy):
        return verdict.cause.processes[0].user
    return next((process.user for process in device.processes or () if process.user), None)


def _matches(words: Sequence[str], device: Device, verdict: Verdict, job: Job | None) -> bool:
    """Whether each word is a part of the device's name, its state, or the name of a user on it."""
    processes, cause = device.processes or (), verdict.cause
    users = {process.user or "" for process in processes} | {user_of(device, verdict) or ""}
    # An idle device is busy, too.
    about = [short_name(device.name or ""), verdict.state, verdict.shown, *users]
    about += ["your job", job.id, job.title] if job else []
    if job or any(each.own for each in processes) or (isinstance(cause, ClaimedBy) and cause.claim.own):
        about += [YOU, *YOURS]
    text = "\n".join(about).lower()
    return all(word in text for word in words)


def _falling(value: float | None) -> float:
    """A sort key: the greatest value first, an unknown value last."""
    return 1.0 if value is None else -value


def _memory_share(device: Device) -> float | None:
    if device.memory_used is None or not device.memory_total:
        return None
    return device.memory_used / device.memory_total


_MEASURES: dict[str, Callable[[Device, Verdict], Any]] = {
    "utilization": lambda device, verdict: _falling(device.utilization),
    "memory": lambda device, verdict: _falling(_memory_share(device)),
    "temperature": lambda device, verdict: _falling(device.temperature),
    "state": lambda device, verdict: _STATES.index(verdict.shown),
    "user": lambda device, verdict: (user_of(device, verdict) is None, user_of(device, verdict) or ""),
}
