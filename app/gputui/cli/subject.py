"""The subject of a plan, or of `-n auto`: the model and the workload from a call and its command.

Values that the call does not set may come from its command (`--model_name_or_path`, `--bf16`, a YAML file).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.cli.common import WrongCallError, say
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass

if TYPE_CHECKING:
    from gputui.launching.launch_options import LaunchOptions
    from gputui.launching.training_words import Training
    from gputui.planning.model import Model
    from gputui.planning.workload import Workload


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a plan. `place` is the folder or file of the model, None for a number of parameters."""

    model: Model
    workload: Workload
    training: Training
    place: Path | None


def subject_of(args: argparse.Namespace, options: LaunchOptions, weights_only: bool = False) -> Subject:
    """Return the model and the workload of a call. Raises WrongCallError for invalid or missing ones."""
    from gputui.launching.training_words import training_of
    from gputui.planning.model import PlanningError

    training = training_of(options, os.environ)
    for doubt in training.doubts:
        say(f"note: {doubt}")
    try:
        model, place = _model(args, options, training)
        return Subject(model, _workload(args, training, model, weights_only), training, place)
    except PlanningError as error:
        raise WrongCallError(printable(str(error))) from None


def _model(args: argparse.Namespace, options: LaunchOptions, training: Training) -> tuple[Model, Path | None]:
    """Raises PlanningError."""
    from gputui.checking.trained_model import trained_model
    from gputui.planning.reading import find_model, of_parameters, parameters_of
    from gputui.system.environment import given_environment

    if args.parameters is not None:
        return of_parameters(parameters_of(args.parameters)), None
    # HF_HOME may be one of the variables before the command.
    environ = {**os.environ, **dict(options.additions)}
    name, here = args.model, Path()
    if name is None:
        name, here = training.model, here / (options.directory or "")
    if name is None:
        where = "the command names none" if options.command else "there is no command that names one"
        raise WrongCallError(f"no model is given (--model, --parameters), and {where}")
    model = trained_model(name, options, {**given_environment(), **os.environ}, here)
    return model, find_model(name, environ, here)


def _workload(args: argparse.Namespace, training: Training, model: Model, weights_only: bool) -> Workload:
    """Return the workload: the call wins over the command, and that over defaults. Raises PlanningError."""
    from gputui.checking.trained_model import workload_of

    given = {
        "batch": args.batch,
        "sequence": args.sequence,
        "precision": args.precision,
        "optimizer": args.optim,
        "checkpointing": args.checkpointing,
        "lora": args.lora,
        "accumulation": args.accumulation,
        "weights_only": weights_only,
    }
    return workload_of(training, model, {name: value for name, value in given.items() if value is not None})
