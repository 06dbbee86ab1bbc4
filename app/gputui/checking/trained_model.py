"""The model of a plan, and the workload that its command states.

Closed forms count the model; for an architecture without one, transformers in the command's own Python does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputui.checking.plan_proof import meta_model, without_devices
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.training_words import Training
from gputui.planning.model import Model, PlanningError, UnknownArchitectureError
from gputui.planning.reading import find_model, read_model
from gputui.planning.workload import Workload
from gputui.requesting.launch_request import ModelRequest
from gputui.vendors.registry import vendors

USUAL_SEQUENCE = 2048
"""The default number of tokens; fewer where the model was made for fewer."""


def trained_model(
    name: str,
    options: LaunchOptions,
    environ: Mapping[str, str],
    directory: Path,
    cancelled: threading.Event | None = None,
) -> Model:
    """The model with this name (`read_model`); `directory` is where a relative path begins.

    Reading is bounded; counting by transformers takes up to a minute. Raises PlanningError.
    """
    # HF_HOME may be one of the variables before the command.
    environment = {**environ, **dict(options.additions)}
    try:
        return read_model(name, environment, directory)
    except UnknownArchitectureError as error:
        place = find_model(name, environment, directory)
        if place is None:
            raise
        environment = without_devices(environment, vendors())
        try:
            found = interpreter(options.command, environment, options.directory, options.python)
            return meta_model(found.argv, environment, place, name, cancelled=cancelled)
        except (InterpreterError, PlanningError) as why:
            raise PlanningError(f"{error}; {why}") from None


def said_of(training: Training | ModelRequest) -> dict[str, Any]:
    """The fields of a workload that a command or a call states."""
    fields = ("batch", "sequence", "precision", "optimizer", "checkpointing", "lora", "accumulation")
    said = {name: getattr(training, name) for name in fields}
    return {name: value for name, value in said.items() if value is not None}


_TRAINER: Mapping[str, Any] = {"batch": 8, "precision": "fp32"}
"""The defaults of transformers' Trainer: TrainingArguments."""


def workload_of(training: Training, model: Model | None, given: Mapping[str, Any]) -> Workload:
    """The workload: `given` values, else those of the command, else the defaults. Raises PlanningError."""
    most = model.max_positions if model is not None else None
    usual = min(USUAL_SEQUENCE, most or USUAL_SEQUENCE)
    trainer = _TRAINER if training.trainer else {}
    workload = Workload(**{"sequence": usual, **trainer, **said_of(training), **given})
    return workload.for_model(model) if model is not None else workload
