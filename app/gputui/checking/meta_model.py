"""A model as the training Python's transformers makes it, counted there on the meta device.

For architectures without a closed form, and to prove the closed form of the others.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.checking import interpreter_process as process
from gputui.inventory.formatting import printable
from gputui.inventory.untrusted_json import DocumentError, JsonValue
from gputui.planning.estimators import Estimate, Offload
from gputui.planning.model import Model, PlanningError
from gputui.planning.reading import configuration, shaped
from gputui.planning.safetensors import Count
from gputui.planning.workload import Workload

SECONDS = 60.0
"""For counting alone: transformers from a cold network file system takes half a minute to import."""

TRACKING_SECONDS = 180.0
"""With torch's memory tracker, which runs each operation of two steps on fake tensors."""

_OFFLOADS: tuple[Offload, ...] = ("none", "optimizer", "all")


@dataclass(frozen=True, slots=True)
class Counted:
    """What transformers made of a configuration; the fields are `Model`'s.

    version          of transformers
    peak             bytes of torch's memory tracker over a step on one device; None where it was not asked,
                     or could not tell: `peak_error`
    estimates        of the deepspeed that is installed; () where there is none: `estimates_error`
    """

    version: str
    architecture: str
    parameters: int
    largest_layer: int
    wrap_class: str | None
    blocks: int
    largest_block: int
    peak: int | None = None
    peak_error: str | None = None
    estimates: tuple[Estimate, ...] = ()
    estimates_error: str | None = None


def count(
    python: Sequence[str],
    environment: Mapping[str, str],
    place: Path,
    *,
    step: Workload | None = None,
    devices: int = 1,
    seconds: float | None = None,
    cancelled: threading.Event | None = None,
) -> Counted:
    """Let the interpreter `python` (its argv) count the model of the folder or config.json `place`.

    With `step`, torch's memory tracker and DeepSpeed's estimators are asked as well. Raises PlanningError,
    one line: no transformers, no answer in time, an architecture that it does not know.
    """
    most = seconds or (SECONDS if step is None else TRACKING_SECONDS)
    spec = {
        "config": str(place.absolute()),
        "step": None
        if step is None
        else {
            "batch": step.batch,
            "sequence": step.sequence,
            "precision": step.precision,
            "checkpointing": step.checkpointing,
        },
        "devices": devices,
        "seconds": most,
    }
    with process.answers() as folder:
        argv = (*python, str(process.SCRIPTS / "meta_model.py"), str(folder), json.dumps(spec))
        ended = process.run(argv, environment, None, most, cancelled)
        try:
            counted = _read(process.read_answer(folder / "model.json"))
            return counted if step is None else _proved(counted, folder, ended.trouble)
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


def _read(node: JsonValue) -> Counted:
    """Raises DocumentError where it is no answer, PlanningError where it is a refusal."""
    if isinstance(node.value, dict) and "error" in node.value:
        error = node["error"].text()
        remedy = ": install it there, or give --parameters N" if "No module named" in error else ""
        raise PlanningError(f"the training Python could not count the model: {printable(error)}{remedy}")
    return Counted(
        version=printable(node["transformers"].text()),
        architecture=printable(node["architecture"].text()),
        parameters=node["parameters"].whole(1),
        largest_layer=node["largest_layer"].whole(1),
        wrap_class=printable(node["wrap_class"].text()) if node["wrap_class"].known else None,
        blocks=node["blocks"].whole(),
        largest_block=node["largest_block"].whole(),
    )


def _proved(counted: Counted, folder: Path, trouble: str | None) -> Counted:
    """With what the tracker and DeepSpeed say; each may fail by itself."""
    try:
        estimates = tuple(
            Estimate(
                each["stage"].whole(),
                _OFFLOADS[_OFFLOADS.index(each["offload"].word(_OFFLOADS))],
                each["gpu"].whole(),
                each["cpu"].whole(),
            )
            for each in _answer(folder / "deepspeed.json", trouble).items(16)
        )
        counted = replace(counted, estimates=estimates)
    except DocumentError as error:
        counted = replace(counted, estimates_error=printable(str(error)))
    try:
        peak = _answer(folder / "peak.json", trouble)["bytes"]["Total"].whole()
        return replace(counted, peak=peak)
    except DocumentError as error:
        return replace(counted, peak_error=printable(str(error)))


def _answer(path: Path, trouble: str | None) -> JsonValue:
    """Raises DocumentError, also for what the child could not do."""
    if trouble is not None and not path.exists():
        raise DocumentError(trouble)
    node = process.read_answer(path)
    if isinstance(node.value, dict) and "error" in node.value:
        raise DocumentError(node["error"].text())
    return node
