"""The subject of a plan, or of `-n auto`: the model and the workload from a call and its command.

Values that the call does not set may come from its command (`--model_name_or_path`, `--bf16`, a YAML file).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.cli.common import WrongCallError, say_notes
from gputui.inventory.light_dataclasses import frozen

if TYPE_CHECKING:
    from gputui.launching.training_words import Training
    from gputui.planning.model import Model
    from gputui.planning.serving import Serving
    from gputui.planning.workload import Workload
    from gputui.requesting.launch_request import LaunchRequest


@frozen
class Subject:
    """The subject of a plan. `place` is the folder or file of the model, None for a number of parameters;
    `said` are the fields of the workload that the call or its command says."""

    model: Model
    workload: Workload | Serving
    place: Path | None
    said: Collection[str]


def subject_of(asked: LaunchRequest, weights_only: bool = False) -> Subject:
    """The model and the workload of a call. Raises WrongCallError where it names no model, and PlanningError
    where it names something that is not one."""
    options = asked.options
    from gputui.checking.trained_model import planned_for, refuse_for_server
    from gputui.launching.training_words import training_of
    from gputui.planning.workload import said_of

    training = training_of(options, os.environ)
    say_notes(training.doubts)
    model, place = _model(asked, training)
    # The call's words count before the command's, and these before what is usual.
    given = {**said_of(asked.model), "weights_only": weights_only}
    if training.serving is not None:
        refuse_for_server(given)
    return Subject(model, planned_for(training, model, given), place, {*said_of(training), *given})


def _model(asked: LaunchRequest, training: Training) -> tuple[Model, Path | None]:
    """Raises PlanningError."""
    from gputui.checking.trained_model import trained_model
    from gputui.planning.reading import find_model, of_parameters, parameters_of
    from gputui.system.environment import given_environment

    options, given = asked.options, asked.model
    if given.parameters is not None:
        return of_parameters(parameters_of(given.parameters), given.parameters), None
    # (HF_HOME may be one of the variables before the command.)
    environ = {**os.environ, **dict(options.additions)}
    name, here = given.model, Path()
    if name is None:
        name, here = training.model, here / (options.directory or "")
    if name is None:
        where = "the command names none" if options.command else "there is no command that names one"
        raise WrongCallError(f"no model is given (8B, --model, --parameters), and {where}")
    serves = training.serving is not None
    model = trained_model(name, options, {**given_environment(), **os.environ}, here, serves=serves)
    return model, find_model(name, environ, here)
