"""The model of a plan, and the workload that its command states.

Closed forms count the model; for an architecture without one, transformers in the command's own Python does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputui.checking.plan_proof import meta_model, without_devices
from gputui.inventory.light_dataclasses import replace
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.training_words import Training
from gputui.planning.model import Model, PlanningError, UnknownArchitectureError
from gputui.planning.reading import find_model, read_model
from gputui.planning.serving import Serving
from gputui.planning.workload import Workload, said_of
from gputui.system.child_process import Cancelled
from gputui.system.environment import Environ
from gputui.vendors.registry import vendors

USUAL_SEQUENCE = 2048
"""The default number of tokens; fewer where the model was made for fewer."""


def trained_model(
    name: str,
    options: LaunchOptions,
    environ: Environ,
    directory: Path,
    cancelled: Cancelled = None,
    serves: bool = False,
) -> Model:
    """The model with this name (`read_model`); `directory` is where a relative path begins.

    Reading is bounded; counting by transformers takes up to a minute. Raises PlanningError.
    """
    # HF_HOME may be one of the variables before the command.
    environment = {**environ, **dict(options.additions)}
    try:
        return read_model(name, environment, directory, serves)
    except UnknownArchitectureError as error:
        place = find_model(name, environment, directory)
        if place is None:
            raise
        environment = without_devices(environment, vendors())
        try:
            found = interpreter(options.command, environment, options.directory, options.python)
            return meta_model(found.argv, environment, place, name, cancelled=cancelled)
        except InterpreterError as why:
            raise PlanningError(f"{error}; the command's Python could count it, but {why}") from None
        except PlanningError as why:
            raise PlanningError(f"{error}; {why}") from None


_TRAINER: Mapping[str, Any] = {"batch": 8, "precision": "fp32"}
"""The defaults of transformers' Trainer: TrainingArguments."""


def refuse_for_server(given: Mapping[str, Any]) -> None:
    """Raise PlanningError where one of these values is for trainings only."""
    names = [name.replace("_", "-") for name, value in given.items() if value and name != "sequence"]
    if names:
        raise PlanningError(f"{' and '.join(names)}: for trainings only, and the command starts a server")


def planned_for(training: Training, model: Model | None, given: Mapping[str, Any]) -> Workload | Serving:
    """What the command does with the model: the server that it starts, else the training.

    The sequence that a call gives is the context of a server. Raises PlanningError.
    """
    if training.serving is None:
        return workload_of(training, model, given)
    return replace(training.serving, context=given.get("sequence") or training.serving.context)


def workload_of(training: Training, model: Model | None, given: Mapping[str, Any]) -> Workload:
    """The workload: `given` values, else those of the command, else the defaults. Raises PlanningError."""
    most = model.max_positions if model is not None else None
    usual = min(USUAL_SEQUENCE, most or USUAL_SEQUENCE)
    trainer = _TRAINER if training.trainer else {}
    workload = Workload(**{"sequence": usual, **trainer, **said_of(training), **given})
    if "batch" in given:
        workload = replace(workload, splits=False)
    return workload.for_model(model) if model is not None else workload
