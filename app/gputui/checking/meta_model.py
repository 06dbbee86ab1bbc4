"""A model as the training Python's transformers makes it, counted there on the meta device.

For architectures without a closed form; what proves the closed form of the others is `plan_proof.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from gputui.checking import SCRIPTS
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.typed_json import DocumentError, Form, Positive, Record, text
from gputui.planning.model import Model, PlanningError
from gputui.planning.reading import configuration, shaped
from gputui.planning.safetensors import Count
from gputui.system import child_process as process

SECONDS = 60.0
"""For counting alone: transformers from a cold network file system takes half a minute to import."""


Shown = Annotated[str, Form(lambda value: printable(text(value)))]


@dataclass(frozen=True, slots=True)
class Counted:
    """What transformers made of a configuration; `version` is its own, the other fields are `Model`'s."""

    version: Shown
    architecture: Shown
    parameters: Positive
    largest_layer: Positive
    wrap_class: Shown | None
    blocks: int
    largest_block: int


def count(
    python: Sequence[str],
    environment: Mapping[str, str],
    place: Path,
    *,
    seconds: float = SECONDS,
    cancelled: threading.Event | None = None,
) -> Counted:
    """Let the interpreter `python` (its argv) count the model of the folder or config.json `place`.

    Raises PlanningError, one line: no transformers, no answer in time, an architecture that it does not know.
    """
    spec = {"config": str(place.absolute()), "seconds": seconds}
    with process.answers() as folder:
        argv = (*python, str(SCRIPTS / "meta_model.py"), str(folder), json.dumps(spec))
        ended = process.run(argv, environment, None, seconds, cancelled)
        try:
            return _read(process.read_answer(folder / "model.json"))
        except DocumentError as error:
            why = ended.trouble or (ended.last_line if ended.status else "") or str(error)
            raise PlanningError(
                f"{printable(python[-1])} could not count the model: {printable(why)}"
            ) from None


def meta_model(
    python: Sequence[str],
    environment: Mapping[str, str],
    place: Path,
    name: str,
    *,
    seconds: float = SECONDS,
    cancelled: threading.Event | None = None,
) -> Model:
    """The model of `place` (a folder or a config.json) with exact counts, its activations like Llama's.

    Raises PlanningError as `count` does.
    """
    counted = count(python, environment, place, seconds=seconds, cancelled=cancelled)
    model = shaped(Count(counted.parameters, counted.largest_layer), name, configuration(place))
    exact = replace(
        model,
        architecture=counted.architecture,
        wrap_class=counted.wrap_class,
        counted="transformers",
        notices=(*model.notices, f"counted by transformers {counted.version}"),
    )
    if not counted.blocks:
        return exact
    return replace(exact, blocks=counted.blocks, largest_block=counted.largest_block)


_COUNTED = Record(
    Counted, "transformers=version architecture parameters largest_layer wrap_class blocks largest_block"
)


def _read(answer: Any) -> Counted:
    """Raises DocumentError where it is no answer, PlanningError where it is a refusal."""
    if isinstance(answer, dict) and isinstance(error := answer.get("error"), str):
        remedy = ": install it there, or give --parameters N" if "No module named" in error else ""
        raise PlanningError(f"the training Python could not count the model: {printable(error)}{remedy}")
    return _COUNTED.read(answer)
