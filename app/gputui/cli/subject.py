"""What a plan, or `-n auto`, is of: the model and the workload that a call and its command say.

What a call does not say, its command may (`--model_name_or_path`, `--bf16`, a YAML file).
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.cli.common import WrongCallError, say
from gputui.cli.request_options import BATCH, OPTIMIZERS, PRECISIONS, SEQUENCE
from gputui.inventory.formatting import printable

if TYPE_CHECKING:
    from gputui.launching.launch_options import LaunchOptions
    from gputui.launching.training_words import Training
    from gputui.planning.model import Model
    from gputui.planning.workload import Workload


@dataclass(frozen=True, slots=True)
class Subject:
    """What a plan is of. `place` is the folder or file of the model, None for a number of parameters."""

    model: Model
    workload: Workload
    training: Training
    place: Path | None


def subject_of(args: argparse.Namespace, options: LaunchOptions, weights_only: bool = False) -> Subject:
    """The model and the workload of a call. Raises WrongCallError for what is none, or not named."""
    from gputui.launching.training_words import training_of
    from gputui.planning.model import PlanningError

    training = training_of(options, os.environ)
    if training.quantized:
        say("note: the command loads weights in 4 or 8 bits, which is not counted: it needs less")
    try:
        model, place = _model(args, options, training)
        return Subject(model, _workload(args, training, model, weights_only), training, place)
    except PlanningError as error:
        raise WrongCallError(printable(str(error))) from None


def _model(args: argparse.Namespace, options: LaunchOptions, training: Training) -> tuple[Model, Path | None]:
    """Raises PlanningError."""
    from gputui.planning.model import UnknownArchitectureError
    from gputui.planning.reading import find_model, of_parameters, parameters_of, read_model

    if args.parameters is not None:
        return of_parameters(parameters_of(args.parameters)), None
    name, here = args.model, Path.cwd()
    if name is None:
        name, here = training.model, here / (options.directory or "")
    if name is None:
        where = "the command names none" if options.command else "and there is no command that names one"
        raise WrongCallError(f"no model is given (--model, --parameters), {where}")
    place = find_model(name, os.environ, here)
    try:
        return read_model(name, os.environ, here), place
    except UnknownArchitectureError as error:
        if place is None:
            raise
        return _counted_by_transformers(options, place, name, error), place


def _counted_by_transformers(options: LaunchOptions, place: Path, name: str, error: Exception) -> Model:
    """The model as the transformers of the training Python makes it. Raises PlanningError."""
    from gputui.checking.meta_model import meta_model
    from gputui.launching.interpreter import InterpreterError, interpreter
    from gputui.planning.model import PlanningError
    from gputui.system.environment import given_environment
    from gputui.vendors.registry import vendors

    environment = {**given_environment(), **dict(options.additions)}
    for vendor in vendors():
        # Counting needs no device, and shall not take memory of one.
        changes = vendor.visibility.changes(())
        environment.update({key: value for key, value in changes if value is not None})
    try:
        found = interpreter(options.command, environment, options.directory, options.python)
        return meta_model(found.argv, environment, place, name)
    except (InterpreterError, PlanningError) as why:
        raise PlanningError(f"{error}; {why}") from None


def _workload(args: argparse.Namespace, training: Training, model: Model, weights_only: bool) -> Workload:
    """The call's words before the command's, before what is usual. Raises PlanningError."""
    from gputui.planning.workload import Workload

    usual = min(SEQUENCE, model.max_positions or SEQUENCE)

    def first(given: object, said: object, default: object) -> object:
        return given if given is not None else said if said is not None else default

    return Workload(
        batch=first(args.batch, training.batch, BATCH),  # type: ignore[arg-type]
        sequence=first(args.sequence, training.sequence, usual),  # type: ignore[arg-type]
        precision=first(args.precision, training.precision, PRECISIONS[0]),  # type: ignore[arg-type]
        optimizer=first(args.optim, training.optimizer, OPTIMIZERS[0]),  # type: ignore[arg-type]
        checkpointing=first(args.checkpointing, training.checkpointing, False),  # type: ignore[arg-type]
        lora=first(args.lora, training.lora, 0),  # type: ignore[arg-type]
        accumulation=first(args.accumulation, training.accumulation, 1),  # type: ignore[arg-type]
        weights_only=weights_only,
    )
