"""The request of the plan page, and the plan that it yields. Pure: each key makes a new request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gputui.checking.trained_model import said_of, workload_of
from gputui.choosing.as_if_empty import IN_USE, as_if_empty
from gputui.choosing.best import best
from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.pick import available, pick
from gputui.choosing.verdict import State, Verdict
from gputui.inventory.device import Device
from gputui.inventory.formatting import gpus
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.training_words import NO_TRAINING, Training
from gputui.planning.box import box_of
from gputui.planning.fewest import fewest
from gputui.planning.model import Model, PlanningError
from gputui.planning.plan import Plan, Row, plan
from gputui.planning.workload import OPTIMIZERS, PRECISIONS, Workload
from gputui.tui.app_state import AppState

_RANKS = (0, 8, 16, 32, 64, 128)
_MOST_BATCH = 1 << 16
_PERHAPS_FREE: tuple[State, ...] = ("unknown",)


@dataclass(frozen=True)
class PlanRequest:
    """A model, its training, and the number of devices.

    name      the model's name from the command, or from a person where `typed`; "" where neither gives one
    model     None until it is read
    problem   the reason that the model cannot be read
    training  the training as the command states it
    given     fields of the workload that a person has changed here
    count     the number of devices; None: the selected devices, else all free ones
    """

    name: str = ""
    typed: bool = False
    model: Model | None = None
    problem: str = ""
    training: Training = NO_TRAINING
    given: Mapping[str, Any] = field(default_factory=dict)
    count: int | None = None

    @property
    def said(self) -> Mapping[str, Any]:
        """The fields of the workload that the command or a person has set."""
        return {**said_of(self.training), **self.given}

    @property
    def workload(self) -> Workload:
        """The workload to plan. Raises PlanningError for an invalid one."""
        return workload_of(self.training, self.model, self.given)

    def having(self, **changed: object) -> PlanRequest:
        """The request with changed fields of the workload."""
        return replace(self, given={**self.given, **changed})

    def as_said(self) -> PlanRequest:
        """The request as the command states it, for the same model."""
        return replace(self, given={}, count=None)

    def batch(self, more: bool) -> PlanRequest:
        """Twice the batch, or half of it."""
        now = self.workload.batch
        return self.having(batch=min(_MOST_BATCH, 2 * now) if more else max(1, now // 2))

    def next_precision(self) -> PlanRequest:
        place = PRECISIONS.index(self.workload.precision)
        return self.having(precision=PRECISIONS[(place + 1) % len(PRECISIONS)])

    def next_optimizer(self) -> PlanRequest:
        names = list(OPTIMIZERS)
        return self.having(optimizer=names[(names.index(self.workload.optimizer) + 1) % len(names)])

    def other_checkpointing(self) -> PlanRequest:
        return self.having(checkpointing=not self.workload.checkpointing)

    def next_rank(self) -> PlanRequest:
        """The request with LoRA of the next usual rank; the last rank is followed by none."""
        now = self.workload.lora
        return self.having(lora=next((rank for rank in _RANKS if rank > now), 0))


def request_of(training: Training) -> PlanRequest:
    """The request of a command's training."""
    return PlanRequest(name=training.model or "", training=training)


Origin = Literal["selected", "free", "as if empty", "perhaps in use"]


@dataclass(frozen=True)
class PlannedDevices:
    """Devices in the order of a launch, in a snapshot that has their links and memory.

    how     "as if empty": some devices are in use, and the plan treats them as empty; "perhaps in use": the
            use of some devices cannot be known
    in_use  the devices in use
    most    the greatest possible number of devices
    """

    snapshot: Snapshot
    devices: tuple[Device, ...]
    how: Origin
    in_use: tuple[Device, ...]
    most: int

    def as_read(self, app_state: AppState) -> PlannedDevices:
        """The same devices in the newest snapshot, if it contains all of them."""
        snapshot = app_state.snapshot
        if snapshot is None or snapshot is self.snapshot:
            return self
        found = [snapshot.by_key.get(device.key) for device in self.devices]
        there = tuple(device for device in found if device is not None)
        return replace(self, snapshot=snapshot, devices=there) if len(there) == len(found) else self

    @property
    def labels(self) -> str:
        """ "GPUs 4 and 5"."""
        return gpus([self.snapshot.label(device) for device in self.devices])


def devices_for(app_state: AppState, count: int | None) -> PlannedDevices | str:
    """The devices of a plan for `count` devices, or the reason that there are none.

    They are the selected devices, filled up with the best free ones. Where too few are free, devices in use
    are taken as if they were empty.
    """
    snapshot, selected = app_state.snapshot, app_state.selected
    if snapshot is None:
        return app_state.problem or "no reading yet"
    if app_state.limits and app_state.limits.unknown and not selected:
        return f"it is unknown which devices {app_state.limits.words} means: select them on the main screen"
    # Where the use of devices cannot be known, as on WSL, their memory is known all the same.
    emptied, as_free = as_if_empty(snapshot, app_state.verdicts, _PERHAPS_FREE)
    keys = app_state.selection.keys
    most = _together(app_state, emptied, as_free, keys)
    if not most:
        helps = "no device is free: select those to plan for on the main screen"
        return helps if snapshot.devices else "no devices in this box"
    if selected and (count is None or count <= len(selected)):
        devices = selected
        if count is not None and count < len(selected):
            in_box = tuple(device for device in snapshot.devices if device.key in keys)
            devices = best(snapshot, in_box, count, limit=1)[0].devices
        return PlannedDevices(snapshot, devices, "selected", (), most)
    free = _together(app_state, snapshot, app_state.verdicts, keys)
    # Some devices work together only in groups of certain sizes.
    for wanted in [min(most, count)] if count is not None else range(free or most, 0, -1):
        if wanted <= free:
            found = pick(snapshot, app_state.verdicts, app_state.constraints(snapshot, wanted, keys))
            if found.alternatives:
                return PlannedDevices(snapshot, _in_order(found.devices, selected), "free", (), most)
        elif planned := _partly_in_use(app_state, emptied, as_free, wanted, most):
            return planned
    return f"no {count or most} devices can work together here"


def _partly_in_use(
    app_state: AppState, emptied: Snapshot, as_free: Mapping[str, Verdict], count: int, most: int
) -> PlannedDevices | None:
    """The best set of `count` devices, not all of which are free. It contains the selected and the free
    devices, or only the selected ones, if such a set exists."""
    selected = app_state.selection.keys
    free = (d.key for d in emptied.devices if app_state.verdicts[d.key].free and d.parent is None)
    vendors = {device.key: device.vendor for device in emptied.devices}
    ours = {vendors[key] for key in selected}
    first = [key for key in free if not ours or vendors[key] in ours]
    for kept in ((*selected, *(key for key in first if key not in selected)), selected):
        constraints = app_state.constraints(emptied, count, kept)
        # A device that may not be picked must not be required, either.
        within = [key for key in kept if constraints.within is None or key in constraints.within]
        if len({vendors[key] for key in within}) > 1 or len(within) > count:
            continue
        found = pick(emptied, as_free, replace(constraints, required=within))
        if found.alternatives:
            ordered = _in_order(found.devices, app_state.selected)
            in_use = tuple(d for d in ordered if app_state.verdicts[d.key].state in IN_USE)
            unknown = any(app_state.verdicts[d.key].state == "unknown" for d in ordered)
            how: Origin = "as if empty" if in_use else "perhaps in use" if unknown else "free"
            return PlannedDevices(emptied, ordered, how, in_use, most)
    return None


def _in_order(devices: tuple[Device, ...], selected: tuple[Device, ...]) -> tuple[Device, ...]:
    """The devices with the selected ones first, in the order of the selection."""
    by_key = {device.key: device for device in devices}
    first = tuple(by_key[device.key] for device in selected if device.key in by_key)
    return (*first, *(device for device in devices if device not in first))


def _together(
    app_state: AppState, snapshot: Snapshot, verdicts: Mapping[str, Verdict], keys: tuple[str, ...]
) -> int:
    """The number of devices that can work together; MIG instances count as one."""
    one, two = (
        available(snapshot, verdicts, app_state.constraints(snapshot, count, keys)).devices
        for count in (1, 2)
    )
    return len(two) if len(two) > 1 else min(1, len(one))


def plan_of(request: PlanRequest, app_state: AppState, found: PlannedDevices) -> Plan:
    """The plan of a request whose model is read. Raises PlanningError."""
    if request.model is None:
        raise PlanningError(request.problem or "no model is read")
    if app_state.options.nodes > 1:
        raise PlanningError("the launch is for several machines, and a plan is for one")
    host = found.snapshot.host.memory_free
    box = box_of(found.snapshot, found.devices, host_memory=host, measured=app_state.measured)
    # Use groups that a person has asked for, as with `plan --group`, but not those that the command states.
    asked = app_state.grouping if found.devices == app_state.selected else ALL_REDUCE
    if asked != ALL_REDUCE and asked == app_state.intent.group:
        asked = ALL_REDUCE
    return plan(request.model, request.workload, box, asked)


def devices_of_row(row: Row, found: PlannedDevices) -> tuple[Device, ...]:
    """The devices of a plan that a row uses: all, or the best ones where the row uses fewer."""
    if row.strategy.devices == len(found.devices):
        return found.devices
    in_box = [d for d in found.snapshot.devices if d in found.devices]
    return best(found.snapshot, in_box, row.strategy.devices, limit=1)[0].devices


def fewest_for(request: PlanRequest, app_state: AppState) -> int | None:
    """The fewest free devices that hold the training; where none do, the fewest of all devices as if
    empty."""
    snapshot = app_state.snapshot
    if request.model is None or snapshot is None:
        return None
    for box, verdicts in ((snapshot, app_state.verdicts), as_if_empty(snapshot, app_state.verdicts)):
        able = available(box, verdicts, app_state.constraints(box, 1)).devices
        found = fewest(request.model, request.workload, box, able)
        if found is not None:
            return len(found.devices)
    return None
