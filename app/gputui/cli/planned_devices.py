"""Which devices a plan is for, and how many `-n auto` takes: read once, nothing is claimed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from functools import cached_property

from gputui.allocating.allocator import Allocator
from gputui.allocating.errors import NotEnoughError
from gputui.choosing.as_if_empty import IN_USE, as_if_empty
from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.named_devices import NONE
from gputui.choosing.pick import Constraints, PickResult, available, pick
from gputui.choosing.verdict import State, Verdict
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import WrongCallError, opened, say
from gputui.cli.request_options import AUTO, request_of
from gputui.cli.subject import Subject, subject_of
from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text, size
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.intent import NO_INTENT, Intent
from gputui.launching.launch_options import LaunchOptions
from gputui.planning.box import box_of
from gputui.planning.fewest import Fewest, fewest
from gputui.planning.model import PlanningError
from gputui.planning.plan import plan, what_would_do
from gputui.sources.source import Want

_FACTS = Want.ALL | Want.HOST


@dataclass(frozen=True, slots=True)
class PlannedDevices:
    """Devices in order, in a snapshot that has their links. `as_if_empty` of them are in use, and are planned
    with all of their memory."""

    snapshot: Snapshot
    devices: tuple[Device, ...]
    as_if_empty: int = 0


@dataclass(frozen=True)
class _Candidates:
    """What a call may have of the box: `free` devices, in the box's order, and why the others are not."""

    snapshot: Snapshot
    verdicts: Mapping[str, Verdict]
    constraints: Constraints
    named: tuple[Device, ...] | None

    @cached_property
    def free(self) -> tuple[Device, ...]:
        return available(self.snapshot, self.verdicts, self.constraints).devices

    def best(self, count: int) -> tuple[Device, ...]:
        """The best of those that are free; fewer where there are fewer."""
        return self._picked(count).devices

    def why(self, devices: Sequence[Device]) -> str:
        """Why the best of so many are these: one line."""
        sets = self._picked(len(devices)).alternatives
        labels = ",".join(map(self.snapshot.label, devices))
        return f"GPU {labels}: {sets[0].reason if sets and sets[0].reason else 'no known difference'}"

    def _picked(self, count: int) -> PickResult:
        return pick(self.snapshot, self.verdicts, replace(self.constraints, count=count))

    def together(self) -> tuple[Device, ...]:
        """All that are free and can work together, in their best order; of MIG instances one."""
        whole = sum(device.parent is None for device in self.free)
        # (Of Gaudi's only 2, 4 or 8 neighbours can.)
        group = self.constraints.grouping
        sets = (self.best(count) for count in range(whole, 0, -1) if group.fits(count))
        return next(filter(None, sets), ()) or (self.best(1) if group.fits(1) else ())

    def emptied(self, *also: State) -> _Candidates:
        """The same, with every device that is in use empty and free; free are those in the states `also`."""
        snapshot, verdicts = as_if_empty(self.snapshot, self.verdicts, also)
        return replace(self, snapshot=snapshot, verdicts=verdicts)


def _candidates(args: argparse.Namespace) -> _Candidates:
    """Raises RequestError, NoSourceError."""
    # (How many there will be is not known yet: as many as the group is divided into at least.)
    given, args.n = args.n, None
    request = replace(request_of(args), facts=_FACTS, wait=None)
    args.n = given
    with opened(args) as source:
        allocator = Allocator(request, source, os.environ, AllocationListener(args.why))
        snapshot = allocator.read()
        named = allocator.named(snapshot) if request.names is not None else None
        within = allocator.reach(snapshot) if named is None else {device.key for device in named}
        return _Candidates(
            snapshot, allocator.verdicts(snapshot), allocator.constraints(snapshot, within), named
        )


def devices_for_plan(args: argparse.Namespace, subject: Subject) -> PlannedDevices:
    """Those that a call names; the best free ones of the number that it says; all that are free.

    Where too few are free, those in use are taken as they would be without their processes. Raises
    NotEnoughError where the box has too few, or where nothing does for `-n auto`.
    """
    if args.gpus == NONE:
        raise WrongCallError("a plan is for devices: --gpus none means no device")
    count, group = args.n, args.group or ALL_REDUCE
    if isinstance(count, int) and not group.fits(count):
        raise WrongCallError(f"{count} devices cannot be divided into groups of {group}")
    candidates = _candidates(args)
    if candidates.named is not None:
        if not group.fits(len(candidates.named)):
            raise WrongCallError(f"{len(candidates.named)} devices cannot be divided into groups of {group}")
        return PlannedDevices(candidates.snapshot, candidates.named)
    if args.n == AUTO:
        return PlannedDevices(candidates.snapshot, _enough(subject, candidates, args).devices)
    devices = candidates.together() if count is None else candidates.best(count)
    if devices and len(devices) == (count or len(devices)):
        if args.why:
            say(candidates.why(devices))
        return PlannedDevices(candidates.snapshot, devices)
    # (Where nobody can tell whether they are used, as on WSL, their memory is known all the same.)
    emptied = candidates.emptied("unknown")
    devices = emptied.together() if count is None else emptied.best(count)
    if not devices or len(devices) < (count or 1):
        raise NotEnoughError(_too_few(count or group.unit, emptied))
    if args.why:
        say(emptied.why(devices))
    used = sum(candidates.verdicts[device.key].state in IN_USE for device in devices)
    return PlannedDevices(emptied.snapshot, devices, used)


def settle_auto(
    args: argparse.Namespace, options: LaunchOptions | None = None, intent: Intent = NO_INTENT
) -> None:
    """Put the number of devices that the training needs in the place of `-n auto`.

    So much must be free on each. With `--wait` devices in use count too. Raises WrongCallError where no model
    is given, NotEnoughError.
    """
    if args.n != AUTO:
        return
    subject = subject_of(args, options or LaunchOptions())
    found = _enough(subject, _candidates(args), args, intent)
    args.n = len(found.devices)
    args.min_free = max(found.needed, getattr(args, "min_free", None) or 0)
    number, each = ("1 device", "") if args.n == 1 else (f"{args.n} devices", " of each")
    made_by = found.strategy.name
    setup = "" if made_by in ("single", "ddp") else f" (`gputui plan --use {made_by}` writes its files)"
    say(f"note: {subject.model.name}: {number}, {made_by} needs {size(found.needed)}{each}{setup}")


def _enough(
    subject: Subject, candidates: _Candidates, args: argparse.Namespace, intent: Intent = NO_INTENT
) -> Fewest:
    """The fewest devices that are enough: free ones, or with `--wait` any. Raises NotEnoughError."""
    firm = intent.count is not None and intent.count.firm
    counts = (intent.count.number,) if intent.count is not None and firm else None
    grouping = args.group or intent.group or candidates.constraints.grouping

    def among(these: _Candidates) -> Fewest | None:
        try:
            return fewest(subject.model, subject.workload, these.snapshot, these.free, grouping, counts)
        except PlanningError as error:
            raise WrongCallError(str(error)) from None

    found = among(candidates)
    if found is None and getattr(args, "wait", None) is not None:
        found = among(candidates.emptied())
    if found is None:
        raise NotEnoughError(_why_not(subject, candidates))
    return found


def _too_few(count: int, candidates: _Candidates) -> str:
    return f"{devices_text(count)} asked for, this box has {len(candidates.free)} that could be planned with"


def _why_not(subject: Subject, candidates: _Candidates) -> str:
    """That nothing does, and what would."""
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
