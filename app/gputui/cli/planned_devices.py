"""Select the devices for a plan, and the number for `-n auto`. The box is read once, and nothing is
claimed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property

from gputui.allocating.allocator import Allocator
from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.errors import NotEnoughError
from gputui.choosing.as_if_empty import IN_USE, as_if_empty
from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.named_devices import NONE
from gputui.choosing.pick import Constraints, PickResult, available, pick
from gputui.choosing.verdict import State, Verdict
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import WrongCallError, opened, say
from gputui.cli.planned_training import Subject, subject_of
from gputui.cli.rules import own_settings
from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text, size
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.intent import NO_INTENT, Intent
from gputui.planning.box import box_of
from gputui.planning.fewest import Fewest, fewest
from gputui.planning.model import PlanningError
from gputui.planning.plan import plan, what_would_do
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.source import Want

_FACTS = Want.ALL | Want.HOST


@dataclass(frozen=True, slots=True)
class PlannedDevices:
    """Devices in order, in a snapshot that has their links. `as_if_empty` is the number of devices in use
    that are planned with all of their memory."""

    snapshot: Snapshot
    devices: tuple[Device, ...]
    as_if_empty: int = 0


@dataclass(frozen=True)
class _Candidates:
    """The devices that a call may use: `free` devices in the box's order, and the verdicts on the others."""

    snapshot: Snapshot
    verdicts: Mapping[str, Verdict]
    constraints: Constraints
    named: tuple[Device, ...] | None

    @cached_property
    def free(self) -> tuple[Device, ...]:
        return available(self.snapshot, self.verdicts, self.constraints).devices

    def best(self, count: int) -> tuple[Device, ...]:
        """The best `count` free devices, in their best order; all free devices where there are fewer."""
        return self._picked(count).devices

    def why(self, devices: Sequence[Device]) -> str:
        """One line with the reason that these are the best devices of their number."""
        sets = self._picked(len(devices)).alternatives
        labels = ",".join(map(self.snapshot.label, devices))
        return f"GPU {labels}: {sets[0].reason if sets and sets[0].reason else 'no known difference'}"

    def _picked(self, count: int) -> PickResult:
        return pick(self.snapshot, self.verdicts, replace(self.constraints, count=count))

    def together(self) -> tuple[Device, ...]:
        """The largest set of free devices that can work together, in its best order; only one MIG
        instance."""
        whole = sum(device.parent is None for device in self.free)
        # Of Gaudi devices, only 2, 4 or 8 neighbours can work together.
        group = self.constraints.grouping
        sets = (self.best(count) for count in range(whole, 0, -1) if group.fits(count))
        return next(filter(None, sets), ()) or (self.best(1) if group.fits(1) else ())

    def emptied(self, *also: State) -> _Candidates:
        """The candidates as if each device in use were empty and free; devices in the states `also` become
        free too."""
        snapshot, verdicts = as_if_empty(self.snapshot, self.verdicts, also)
        return replace(self, snapshot=snapshot, verdicts=verdicts)


def _candidates(devices: DeviceRequest) -> _Candidates:
    """Read the box for the request. Raises RequestError, NoSourceError."""
    # The number is not known yet: it is at least the size into which the group divides.
    uncounted = replace(devices, count=None, wait=None)
    request = uncounted.request(own_settings().rules, facts=_FACTS)
    with opened(devices) as source:
        allocator = Allocator(request, source, os.environ, AllocationListener(devices.explain))
        snapshot = allocator.read()
        named = allocator.named(snapshot) if request.names is not None else None
        within = allocator.reach(snapshot) if named is None else {device.key for device in named}
        return _Candidates(
            snapshot, allocator.verdicts(snapshot), allocator.constraints(snapshot, within), named
        )


def devices_for_plan(asked: DeviceRequest, subject: Subject) -> PlannedDevices:
    """The devices that a call names, else the best free devices of its number, else all free devices.

    Where too few are free, the devices in use are planned as if without their processes. Raises
    NotEnoughError where the box has too few devices, or where no number is enough for `-n auto`.
    """
    if asked.names == NONE:
        raise WrongCallError("a plan is for devices: --gpus none means no device")
    count, group = asked.count, asked.group or ALL_REDUCE
    if count is not None and not group.fits(count):
        raise WrongCallError(f"{count} devices cannot be divided into groups of {group}")
    candidates = _candidates(asked)
    if candidates.named is not None:
        if not group.fits(len(candidates.named)):
            raise WrongCallError(f"{len(candidates.named)} devices cannot be divided into groups of {group}")
        return PlannedDevices(candidates.snapshot, candidates.named)
    if asked.auto:
        return PlannedDevices(candidates.snapshot, _enough(subject, candidates, asked).devices)
    devices = candidates.together() if count is None else candidates.best(count)
    if devices and len(devices) == (count or len(devices)):
        if asked.explain:
            say(candidates.why(devices))
        return PlannedDevices(candidates.snapshot, devices)
    # Where the use of devices cannot be known, as on WSL, their memory is known all the same.
    emptied = candidates.emptied("unknown")
    devices = emptied.together() if count is None else emptied.best(count)
    if not devices or len(devices) < (count or 1):
        raise NotEnoughError(_too_few(count or group.unit, emptied))
    if asked.explain:
        say(emptied.why(devices))
    used = sum(candidates.verdicts[device.key].state in IN_USE for device in devices)
    return PlannedDevices(emptied.snapshot, devices, used)


def settle_auto(asked: LaunchRequest, intent: Intent = NO_INTENT) -> LaunchRequest:
    """The launch request with the number of devices that the training needs in place of `-n auto`.

    The memory that it needs must be free on each device. With `--wait`, devices in use count too. Raises
    WrongCallError where no model is given, NotEnoughError.
    """
    subject, devices = subject_of(asked), asked.devices
    found = _enough(subject, _candidates(devices), devices, intent)
    number = len(found.devices)
    text, each = ("1 device", "") if number == 1 else (f"{number} devices", " of each")
    made_by = found.strategy.name
    setup = "" if made_by in ("single", "ddp") else f" (`gputui plan --use {made_by}` writes its files)"
    say(f"note: {subject.model.name}: {text}, {made_by} needs {size(found.needed)}{each}{setup}")
    needed = max(found.needed, devices.min_free or 0)
    return replace(asked, devices=replace(devices, auto=False, count=number, min_free=needed))


def _enough(
    subject: Subject, candidates: _Candidates, asked: DeviceRequest, intent: Intent = NO_INTENT
) -> Fewest:
    """The fewest devices that are enough: free devices, or with `--wait` any. Raises NotEnoughError."""
    firm = intent.count is not None and intent.count.firm
    counts = (intent.count.number,) if intent.count is not None and firm else None
    grouping = asked.group or intent.group or candidates.constraints.grouping

    def among(these: _Candidates) -> Fewest | None:
        try:
            return fewest(subject.model, subject.workload, these.snapshot, these.free, grouping, counts)
        except PlanningError as error:
            raise WrongCallError(str(error)) from None

    found = among(candidates)
    if found is None and asked.wait is not None:
        found = among(candidates.emptied())
    if found is None:
        raise NotEnoughError(_why_not(subject, candidates))
    return found


def _too_few(count: int, candidates: _Candidates) -> str:
    return f"{devices_text(count)} asked for, this box has {len(candidates.free)} that could be planned with"


def _why_not(subject: Subject, candidates: _Candidates) -> str:
    """The message that the model does not fit, with the changes that would help."""
    if not candidates.free:
        return "no device is free"
    devices = candidates.together()
    if not devices:
        return _too_few(candidates.constraints.grouping.unit, candidates)
    count = "the free device" if len(devices) == 1 else f"the {len(devices)} free devices"
    what = f"{subject.model.name} does not fit on {count}"
    try:
        made = plan(subject.model, subject.workload, box_of(candidates.snapshot, devices))
    except PlanningError as error:
        raise WrongCallError(str(error)) from None
    would = "; ".join(what_would_do(made.model, made.workload, made.rows))
    return f"{what}; would do: {would}" if would else what
