"""The request of the plan page, and the plan that it yields. Pure: each key makes a new request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gputui.checking.trained_model import planned_for, refuse_for_server, workload_of
from gputui.choosing.grouping import ALL_REDUCE
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.launching.training_words import NO_TRAINING, Training
from gputui.planning.box import box_of
from gputui.planning.devices import Candidates, PlannedDevices
from gputui.planning.model import Model, PlanningError
from gputui.planning.plan import Plan
from gputui.planning.serving import Serving
from gputui.planning.serving_plan import plan_for
from gputui.planning.workload import OPTIMIZERS, PRECISIONS, Workload, said_of
from gputui.tui.app_state import NO_DEVICES, AppState

CHOICES: Mapping[str, Sequence[object]] = {
    "precision": PRECISIONS,
    "optimizer": tuple(OPTIMIZERS),
    "lora": (0, 8, 16, 32, 64, 128),
}
"""What a field of the workload is chosen from; a LoRA rank of 0 is none."""
_MOST_BATCH = 1 << 16


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

    def planned(self, model: Model | None) -> Workload | Serving:
        """What the command does with the model. Raises PlanningError."""
        return planned_for(self.training, model, self.given)

    def having(self, **changed: object) -> PlanRequest:
        """The request with changed fields of the workload. Raises PlanningError."""
        if self.training.serving is not None:
            refuse_for_server(changed)
        return replace(self, given={**self.given, **changed})

    def batch(self, more: bool) -> PlanRequest:
        """Twice the batch, or half of it."""
        now = self.workload.batch
        return self.having(batch=min(_MOST_BATCH, 2 * now) if more else max(1, now // 2))

    def other_checkpointing(self) -> PlanRequest:
        return self.having(checkpointing=not self.workload.checkpointing)


def request_of(training: Training) -> PlanRequest:
    """The request of a command's training."""
    return PlanRequest(name=training.model or "", training=training)


def candidates_of(app_state: AppState) -> Candidates | str:
    """The devices that a plan may use here, or the reason that there are none."""
    snapshot, limits = app_state.snapshot, app_state.limits
    if snapshot is None:
        return app_state.problem or "no reading yet"
    if limits and limits.unknown and not app_state.selected:
        return f"it is unknown which devices {limits.words} means: select them on the main screen"
    constraints = app_state.constraints(snapshot, 1)
    return Candidates(snapshot, app_state.verdicts, constraints, app_state.selected)


def devices_for(app_state: AppState, count: int | None) -> PlannedDevices | str:
    """The devices of a plan for `count` devices (at most those of the box), or the reason that there are
    none."""
    candidates = candidates_of(app_state)
    if isinstance(candidates, str):
        return candidates
    most = candidates.most
    if not most:
        helps = "no GPU is free: select those to plan for on the main screen"
        return helps if candidates.snapshot.devices else NO_DEVICES
    found = candidates.planned(None if count is None else min(most, count))
    return found or f"no {count or most} GPUs can work together here"


def plan_of(request: PlanRequest, app_state: AppState, found: PlannedDevices) -> Plan:
    """The plan of a request whose model is read. Raises PlanningError."""
    if request.model is None:
        raise PlanningError(request.problem or "no model is read")
    if app_state.options.nodes > 1:
        raise PlanningError("the launch is for several machines, and a plan is for one")
    box = box_of(found.snapshot, found.devices, app_state.measured)
    # Use groups that a person has asked for, as with `plan --group`, but not those that the command states.
    asked = app_state.grouping if found.devices == app_state.selected else ALL_REDUCE
    if asked != ALL_REDUCE and asked == app_state.intent.group:
        asked = ALL_REDUCE
    return plan_for(request.model, request.planned(request.model), box, asked)


def fewest_for(request: PlanRequest, app_state: AppState) -> int | None:
    """The fewest free devices that hold the training; where none do, the fewest of all devices as if
    empty."""
    candidates = candidates_of(app_state)
    if request.model is None or isinstance(candidates, str):
        return None
    try:
        found = candidates.fewest(request.model, request.planned(request.model), in_use=True)
    except PlanningError:
        return None
    return len(found.devices) if found else None
