"""Warn before a launch that its devices cannot hold the model that its command names.

The warning appears only where it is certain and cheap to compute: from a config.json on this machine, with
the least memory that such a training, or such an inference, can need. No launch is refused: a script may do
more than its options say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import Device
from gputui.inventory.formatting import printable, size
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch_options import LaunchOptions
from gputui.system.environment import Environ

if TYPE_CHECKING:
    from gputui.launching.training_words import Training
    from gputui.planning.model import Model

_NAMES_A_MODEL = re.compile(
    r"--?[\w.-]*model|(?=[\w.-]*=)[\w.]*model|serve$|.*\.(?:ya?ml|json|sh)$", re.IGNORECASE
)


def memory_warning(
    options: LaunchOptions, snapshot: Snapshot, devices: Sequence[Device], environ: Environ
) -> str | None:
    """Return one sentence; None where the model fits, and where that is not known."""
    # The imports below take milliseconds.
    if not devices or not any(map(_NAMES_A_MODEL.match, options.command)):
        return None
    free = [snapshot.memory_free(device) for device in devices]
    known = [amount for amount in free if amount is not None]
    if len(known) < len(free):
        return None
    from gputui.launching.training_words import training_of

    training = training_of(options, environ)
    if training.model is None or training.quantized or training.other_optimizer or training.offloads:
        return None
    model = _model(training.model, {**environ, **dict(options.additions)}, Path(options.directory or "."))
    if model is None:
        return None
    if not training.trains:
        weights, all_free = 2 * model.parameters, sum(known)
        if weights <= all_free:
            return None
        return (
            f"{printable(model.name)} does not fit: its weights are {size(weights)} in 16 bits, and"
            f" {size(all_free)} are free"
        )
    return _training_does_not_fit(model, training, snapshot, devices, min(known))


def _model(name: str, environ: Environ, directory: Path) -> Model | None:
    """Return the model by the closed form of its configuration; None where there is none, or its weights are
    packed."""
    from gputui.planning.model import PlanningError
    from gputui.planning.reading import find_model, of_config

    try:
        place = find_model(name, environ, directory)
        found = None if place is None else of_config(place / "config.json", name)
    except (PlanningError, OSError):
        return None
    return found if found is not None and not found.bits else None


def _training_does_not_fit(
    model: Model, training: Training, snapshot: Snapshot, devices: Sequence[Device], free: int
) -> str | None:
    from gputui.planning.box import box_of
    from gputui.planning.memory import needed
    from gputui.planning.model import PlanningError
    from gputui.planning.strategies import strategies
    from gputui.planning.workload import Workload, said_of

    try:
        least_work: dict[str, Any] = {"sequence": 1, "precision": "bf16", "checkpointing": True}
        workload = Workload(**least_work | said_of(training)).for_model(model).on(len(devices))
        box = box_of(snapshot, devices)
        least = min(
            needed(model, workload, each, box.fixed(each.devices)).total
            for each in strategies(model, box, workload)
            if not each.offloads
        )
    except PlanningError:
        return None
    if least <= free:
        return None
    how = f"{workload.precision}, {workload.optimizer}" + (f", LoRA {workload.lora}" if workload.lora else "")
    each = "" if len(devices) == 1 else f" of each of the {len(devices)} GPUs"
    return (
        f"{printable(model.name)} does not fit: training it ({how}) needs at least {size(least)}{each}, and"
        f" {size(free)} are free; `gputui plan` shows what is enough"
    )
