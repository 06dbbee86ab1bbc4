"""The model that a plan is for, and the workload that its command says.

Closed forms count it; an architecture that has none, the transformers of the command's own Python.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputui.checking.plan_proof import meta_model
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.training_words import Training
from gputui.planning.model import Model, PlanningError, UnknownArchitectureError
from gputui.planning.reading import find_model, read_model
from gputui.planning.workload import Workload
from gputui.vendors.registry import vendors

USUAL_SEQUENCE = 2048
"""Tokens, where nobody has said how many, and the model was made for as many."""


def trained_model(
    name: str,
    options: LaunchOptions,
    environ: Mapping[str, str],
    directory: Path,
    cancelled: threading.Event | None = None,
) -> Model:
    """The model of that name (`read_model`); `directory` is where a relative path begins.

    What is read is bounded; where transformers counts, that takes up to a minute. Raises PlanningError.
    """
    # (HF_HOME may be one of the variables before the command.)
    environment = {**environ, **dict(options.additions)}
    try:
        return read_model(name, environment, directory)
    except UnknownArchitectureError as error:
        place = find_model(name, environment, directory)
        if place is None:
            raise
        for vendor in vendors():
            # Counting needs no device, and takes no memory of one.
            hiding = vendor.visibility.changes(())
            environment.update((variable, value) for variable, value in hiding if value is not None)
        try:
            found = interpreter(options.command, environment, options.directory, options.python)
            return meta_model(found.argv, environment, place, name, cancelled=cancelled)
        except (InterpreterError, PlanningError) as why:
            raise PlanningError(f"{error}; {why}") from None


def said_of(training: Training) -> dict[str, Any]:
    """The fields of a workload that a command says."""
    fields = ("batch", "sequence", "precision", "optimizer", "checkpointing", "lora", "accumulation")
    said = {name: getattr(training, name) for name in fields}
    return {name: value for name, value in said.items() if value is not None}


_TRAINER: Mapping[str, Any] = {"batch": 8, "precision": "fp32"}
"""What transformers' Trainer does where nothing is said: TrainingArguments."""


def workload_of(training: Training, model: Model | None, given: Mapping[str, Any]) -> Workload:
    """What somebody has `given`, before what the command says, before what is usual. Raises PlanningError."""
    most = model.max_positions if model is not None else None
    usual = min(USUAL_SEQUENCE, most or USUAL_SEQUENCE)
    trainer = _TRAINER if training.trainer else {}
    workload = Workload(**{"sequence": usual, **trainer, **said_of(training), **given})
    return workload.for_model(model) if model is not None else workload
