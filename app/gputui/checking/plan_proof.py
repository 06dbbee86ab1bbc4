"""The answers of transformers, torch and DeepSpeed in the training's own Python about a model.

`prove` asks for the proof of a plan; `meta_model` asks for an architecture without a closed form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from gputui.checking import SCRIPTS
from gputui.checking.check import SECONDS
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.typed_json import DocumentError, Form, Positive, Record, text
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch import Launch
from gputui.planning.estimators import Estimate
from gputui.planning.model import Model, PlanningError
from gputui.planning.reading import configuration, shaped
from gputui.planning.safetensors import Count
from gputui.planning.workload import Workload
from gputui.system import child_process as process
from gputui.system.child_process import Cancelled
from gputui.system.environment import Environ
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import with_changes

T = TypeVar("T")

COUNTING = 60.0
"""The timeout for counting alone: transformers from a cold network file system imports in half a minute."""

_MOST_ERROR = 500


Shown = Annotated[str, Form(lambda value: printable(text(value)))]


@frozen
class Counted:
    """The model that transformers made of a configuration.

    versions       of torch and transformers
    architecture   the class of the model
    parameters     tied ones count once
    largest_layer  parameters of the largest module without those inside it, as in DeepSpeed
    wrap_class, blocks, largest_block
                   those of its transformer blocks, as in `Model`; None and 0 where it names no such class
    """

    versions: dict[str, Shown]
    architecture: Shown
    parameters: Positive
    largest_layer: Positive
    wrap_class: Shown | None
    blocks: int
    largest_block: int


@frozen
class _Estimates:
    estimates: tuple[Estimate, ...]
    version: str


@frozen
class _Tracked:
    """The peak of a step by torch's memory tracker, in bytes. `without`: settings that were left out."""

    peak: int
    without: tuple[str, ...]


_COUNTED, _ESTIMATES, _TRACKED = Record(Counted), Record(_Estimates), Record(_Tracked)


class _NoAnswerError(Exception):
    """A part was not answered; the message is one line. `told`: the script itself gave the reason."""

    def __init__(self, why: str, told: bool) -> None:
        super().__init__(why)
        self.told = told


def _answer(folder: Path, part: str, ended: process.Ended, record: Record[T]) -> T:
    """The answer to one part. Raises _NoAnswerError, and DocumentError for an invalid answer."""
    if (folder / f"{part}.json").exists():
        return record.read(process.read_answer(folder / f"{part}.json"))
    try:
        with (folder / f"{part}.error").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_ERROR).splitlines() or ["failed"]
    except OSError:
        why = ended.trouble or f"the interpreter ended without answering: {ended.last_line}"
        raise _NoAnswerError(why, told=False) from None
    raise _NoAnswerError(lines[0].strip(), told=True)


@frozen
class PlanProof:
    """All answers of the training's Python.

    name       the model's class in transformers, None where it is not known there
    numbers    by what they are: "parameters", "largest_layer", "peak" (bytes of a step by torch's memory
               tracker), and those of `estimated`; those that are not known there are missing
    versions   of torch, transformers and deepspeed
    remarks    why there are fewer answers than expected, although nothing failed
    problems   the failures
    """

    name: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def estimated(estimates: Iterable[Estimate]) -> dict[str, int]:
    """The numbers of DeepSpeed's estimates, by what they are: "zero3 gpu, offload all"."""
    return {
        f"zero{each.stage} {where}, offload {each.offload}": getattr(each, where)
        for each in estimates
        for where in ("gpu", "cpu")
    }


class Difference(NamedTuple):
    """One number by the closed form, and by the training's own Python. `share`: the relative excess of the
    closed form, where 0.1 is 10 % more and -0.1 is 10 % less."""

    what: str
    closed: int
    proved: int
    share: float


def differences(proof: PlanProof, closed: Mapping[str, int]) -> list[Difference]:
    """Every number that both sides know, including those that agree."""
    both = ((what, ours, proof.numbers[what]) for what, ours in closed.items() if what in proof.numbers)
    return [
        Difference(what, ours, theirs, (ours - theirs) / theirs if theirs else float(ours != theirs))
        for what, ours, theirs in both
    ]


def prove(
    launch: Launch,
    environ: Environ,
    model: str,
    workload: Workload,
    devices: int = 1,
    *,
    python: str | None = None,
    seconds: float = SECONDS,
    cancelled: Cancelled = None,
) -> PlanProof:
    """Ask the interpreter of `launch`, which then sees no device. For a launch without a command: python.

    `model` is a folder, a config.json or a cached hub id. A step of the `workload` with AdamW on one device
    is tracked, which takes 5 to 60 s. `devices` is the number on one machine, for DeepSpeed's estimates.

    Failures in the child raise nothing: they are in the proof, with the answers before them. May be called on
    any thread; takes up to `seconds`, or until `cancelled` is set.
    """
    environment = without_devices(launch.environment(environ), (launch.vendor,))
    try:
        found = interpreter(launch.argv, environment, launch.directory, python)
    except InterpreterError as error:
        return PlanProof(problems=(str(error),))
    spec = {
        # A relative path begins here, not where the command starts.
        "model": os.path.abspath(model) if Path(model).exists() else model,  # noqa: PTH100
        "batch": workload.batch,
        "sequence": workload.sequence,
        "precision": workload.precision,
        "checkpointing": workload.checkpointing,
        "devices": devices,
        "seconds": seconds,
    }
    with process.answers() as folder:
        argv = (*found.argv, _SCRIPT, str(folder), json.dumps(spec))
        ended = process.run(argv, environment, launch.directory, seconds, cancelled)
        proof = read(folder, ended)
    return replace(proof, remarks=(found.doubt, *proof.remarks)) if found.doubt else proof


def without_devices(environ: Environ, vendors: Iterable[Vendor]) -> dict[str, str]:
    """The environment in which a program sees no device of these vendors: counting needs none, and must take
    no memory of one."""
    hiding = (change for vendor in vendors for change in vendor.visibility.changes(()))
    return with_changes(environ, hiding)


_SCRIPT = str(SCRIPTS / "plan_proof.py")
_WITHOUT = {
    "model": "no proof without transformers",
    "estimates": "no DeepSpeed estimates",
    "tracked": "no step was tracked",
}
"""The parts of an answer in order, with the text for a missing part."""


def read(folder: Path, ended: process.Ended) -> PlanProof:
    """The child's answers, even where some failed. Raises nothing for the content of the files."""
    name, numbers, versions = None, dict[str, int](), dict[str, str]()
    remarks, problems = list[str](), list[str]()
    for part, without in _WITHOUT.items():
        try:
            if part == "model":
                counted = _answer(folder, part, ended, _COUNTED)
                name, versions = counted.architecture, counted.versions
                numbers |= {"parameters": counted.parameters, "largest_layer": counted.largest_layer}
            elif part == "estimates":
                told = _answer(folder, part, ended, _ESTIMATES)
                versions = {**versions, "deepspeed": told.version}
                numbers |= estimated(told.estimates)
            else:
                tracked = _answer(folder, part, ended, _TRACKED)
                numbers["peak"] = tracked.peak
                if tracked.without:
                    remarks.append(f"tracked without attention dropout ({', '.join(tracked.without)})")
        except DocumentError as error:
            problems.append(f"{part}: the answer cannot be read: {error}")
        except _NoAnswerError as error:
            if part == "model" and not str(error).startswith("ModuleNotFoundError"):
                problems.append(str(error))
            else:
                # Missing libraries, and missing private functions of theirs, are not failures.
                remarks.append(f"{without}: {error}")
            if part == "model" or not error.told:
                # The parts after it were not asked for.
                break
    return PlanProof(name, numbers, versions, tuple(remarks), tuple(problems))


def meta_model(
    python: Sequence[str],
    environment: Environ,
    place: Path,
    name: str,
    *,
    seconds: float = COUNTING,
    cancelled: Cancelled = None,
) -> Model:
    """The model of `place` (a folder or a config.json) with the exact counts of the interpreter `python` (its
    argv), and activations like Llama's.

    Raises PlanningError, one line: no transformers, no answer in time, or an unknown architecture.
    """
    spec = {"model": str(place.absolute()), "seconds": seconds}
    with process.answers() as folder:
        argv = (*python, _SCRIPT, str(folder), json.dumps(spec))
        ended = process.run(argv, environment, None, seconds, cancelled)
        try:
            counted = _answer(folder, "model", ended, _COUNTED)
        except (DocumentError, _NoAnswerError) as error:
            missing = "No module named" in str(error)
            remedy = ": install it there, or give its size (8B) as the model" if missing else ""
            raise PlanningError(
                f"the training Python could not count the model: {printable(str(error))}{remedy}"
            ) from None
    model = shaped(Count(counted.parameters, counted.largest_layer), name, configuration(place))
    exact = replace(
        model,
        architecture=counted.architecture,
        wrap_class=counted.wrap_class,
        counted="transformers",
        notices=(*model.notices, f"counted by transformers {counted.versions.get('transformers', '?')}"),
    )
    if not counted.blocks:
        return exact
    return replace(exact, blocks=counted.blocks, largest_block=counted.largest_block)
