"""Select the devices for a plan, and the number for `-n auto`. The box is read once, and nothing is
claimed."""

from __future__ import annotations

import os

from gputui.allocating.allocator import Allocator
from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.errors import NotEnoughError
from gputui.allocating.shortage import only_here
from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.named_devices import NONE
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import WrongCallError, opened, own_settings, say, say_notes
from gputui.cli.planned_training import Subject, subject_of
from gputui.inventory.light_dataclasses import replace
from gputui.launching.intent import NO_INTENT, Intent
from gputui.planning.box import box_of
from gputui.planning.devices import Candidates, PlannedDevices
from gputui.planning.fewest import Fewest
from gputui.planning.plan import what_would_do
from gputui.planning.serving import Serving
from gputui.planning.serving_plan import plan_for, unquantized
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.source import Want

_FACTS = Want.ALL | Want.HOST


def _candidates(devices: DeviceRequest) -> Candidates:
    """Read the box for the request; its named devices are the selected ones. Raises RequestError,
    NoSourceError."""
    # The number is not known yet: it is at least the size into which the group divides.
    uncounted = replace(devices, count=None, wait=None)
    request = uncounted.request(own_settings().rules, facts=_FACTS)
    with opened(devices) as source:
        allocator = Allocator(request, source, os.environ, AllocationListener(devices.explain))
        snapshot = allocator.read()
        named = allocator.named(snapshot) if request.names is not None else ()
        within = {device.key for device in named} if named else allocator.reach(snapshot)
        constraints = allocator.constraints(snapshot, within)
        return Candidates(snapshot, allocator.verdicts(snapshot), constraints, named)


def devices_for_plan(asked: DeviceRequest, subject: Subject) -> PlannedDevices:
    """The devices that a call names, else the best free devices of its number, else all free devices.

    Where too few are free, the devices in use are planned as if without their processes. Raises
    NotEnoughError where the box has too few devices, or where no number is enough for `-n auto`.
    """
    if asked.names == NONE:
        raise WrongCallError("a plan needs devices, and --gpus none names none")
    count, group = asked.count, asked.group or ALL_REDUCE
    candidates = _candidates(asked)
    number = len(candidates.selected) or count
    if number and not group.fits(number):
        raise WrongCallError(f"{number} GPUs cannot be divided into groups of {group}")
    if asked.auto and not candidates.selected:
        return PlannedDevices(candidates.snapshot, _enough(subject, candidates, asked).devices)
    found = candidates.planned(None if candidates.selected else count)
    if found is None:
        raise NotEnoughError(
            only_here(count or group.unit, len(candidates.emptied("unknown").free), "planned with")
        )
    if asked.explain and not candidates.selected:
        labels = ",".join(map(found.snapshot.label, found.devices))
        say(f"GPU {labels}: {found.reason or 'no known difference'}")
    return found


def settle_auto(asked: LaunchRequest, intent: Intent = NO_INTENT) -> LaunchRequest:
    """The launch request with the number of devices that the training needs in place of `-n auto`.

    The memory that it needs must be free on each device. With `--wait`, devices in use count too. Raises
    WrongCallError where no model is given, NotEnoughError.
    """
    subject, devices = subject_of(asked), asked.devices
    found = _enough(subject, _candidates(devices), devices, intent)
    by = found.strategy
    plain = by.kind in ("single", "ddp", "serve")
    setup = "" if plain else f" (`gputui plan --use {by.name}` writes its files)"
    notes = unquantized(subject.model, subject.workload) if isinstance(subject.workload, Serving) else ()
    say_notes((*notes, f"{subject.model.name}: {found.words}{setup}"))
    needed = max(found.needed, devices.min_free or 0)
    return replace(asked, devices=replace(devices, auto=False, count=len(found.devices), min_free=needed))


def _enough(
    subject: Subject, candidates: Candidates, asked: DeviceRequest, intent: Intent = NO_INTENT
) -> Fewest:
    """The fewest devices that are enough: free devices, or with `--wait` any. Raises NotEnoughError."""
    firm = intent.count is not None and intent.count.firm
    counts = (intent.count.number,) if intent.count is not None and firm else None
    grouping = asked.group or intent.group or candidates.constraints.grouping
    found = candidates.fewest(subject.model, subject.workload, asked.wait is not None, grouping, counts)
    if found is None:
        raise NotEnoughError(_why_not(subject, candidates))
    return found


def _why_not(subject: Subject, candidates: Candidates) -> str:
    """The message that the model does not fit, with the changes that would help."""
    free = len(candidates.free)
    if not free:
        return "no GPU is free"
    unselected = replace(candidates, selected=())
    found = unselected.planned()
    if found is None or found.how != "free":
        return only_here(candidates.constraints.grouping.unit, free, "planned with")
    count = "the free GPU" if len(found.devices) == 1 else f"the {len(found.devices)} free GPUs"
    what = f"{subject.model.name} does not fit on {count}"
    # Where the devices differ, the best one alone may need the smaller change.
    for devices, on in ((found, ""), (unselected.planned(1) or found, "on one ")):
        made = plan_for(subject.model, subject.workload, box_of(devices.snapshot, devices.devices))
        if would := "; ".join(what_would_do(made)):
            return f"{what}; would fit {on}with {would}"
    return what
