"""The proof of a plan: what transformers, torch and DeepSpeed of the training's own Python say of a model."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gputui.checking import SCRIPTS
from gputui.checking.check import SECONDS
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.typed_json import DocumentError, Record, few
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch import Launch
from gputui.planning.estimators import Estimate
from gputui.planning.workload import Precision
from gputui.system import child_process as process

PARTS = ("weights", "gradients", "optimizer", "buffers", "activations", "temporary")
"""What memory is for, as torch's tracker divides it; temporary: gradients of activations, and the like."""

_MOST_ERROR = 500


@dataclass(frozen=True, slots=True)
class Step:
    """A training step with AdamW on one device. `model` is a folder, a config.json or a cached hub id."""

    model: str
    batch: int = 1
    sequence: int = 2048
    precision: Precision = "autocast"
    checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class Tracked:
    """The peak of a step by torch's memory tracker: bytes, and what of them is for what (`PARTS`)."""

    peak: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PlanProof:
    """All that the training's Python said. None or empty: not known there.

    name           of the class of the model in transformers
    parameters     tied ones once
    largest_layer  parameters of the largest module without those inside it, as DeepSpeed means it
    wrap           classes of layers (`_no_split_modules`) that the model has
    versions       of torch, transformers and deepspeed
    remarks        why there is less than one would expect, though nothing failed
    problems       what failed
    """

    name: str | None = None
    parameters: int | None = None
    largest_layer: int | None = None
    wrap: tuple[str, ...] = ()
    tracked: Tracked | None = None
    estimates: tuple[Estimate, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """JSON-ready values; bytes."""
        tracked = self.tracked and {"peak": self.tracked.peak, "parts": dict(self.tracked.parts)}
        return {**asdict(self), "wrap": list(self.wrap), "tracked": tracked, "versions": dict(self.versions)}


@dataclass(frozen=True, slots=True)
class ClosedForms:
    """The same by closed forms; None or empty: there is none. `peak` is of the step that was tracked."""

    parameters: int | None = None
    largest_layer: int | None = None
    peak: int | None = None
    estimates: tuple[Estimate, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One number by the closed form, and by the training's own Python. `what`: parameters, largest_layer,
    peak, or an estimate ("zero3 gpu, offload all")."""

    what: str
    closed: int
    proved: int

    @property
    def share(self) -> float:
        """How much more the closed form says: 0.1 is 10 % more, -0.1 less."""
        return (self.closed - self.proved) / self.proved if self.proved else float(self.closed != self.proved)


def differences(proof: PlanProof, closed: ClosedForms) -> tuple[Difference, ...]:
    """Every number that both know, those that agree too."""
    told = {(each.stage, each.offload): each for each in proof.estimates}
    pairs = [
        ("parameters", closed.parameters, proof.parameters),
        ("largest_layer", closed.largest_layer, proof.largest_layer),
        ("peak", closed.peak, proof.tracked.peak if proof.tracked else None),
    ]
    for each in closed.estimates:
        other = told.get((each.stage, each.offload))
        if other is not None:
            pairs.append((f"zero{each.stage} gpu, offload {each.offload}", each.gpu, other.gpu))
            pairs.append((f"zero{each.stage} cpu, offload {each.offload}", each.cpu, other.cpu))
    return tuple(
        Difference(what, ours, theirs)
        for what, ours, theirs in pairs
        if ours is not None and theirs is not None
    )


def prove(
    launch: Launch,
    environ: Mapping[str, str],
    step: Step,
    devices: int = 1,
    *,
    python: str | None = None,
    seconds: float = SECONDS,
    cancelled: threading.Event | None = None,
) -> PlanProof:
    """Ask the interpreter of `launch`, which sees no device then; a launch without a command: python.

    `devices` is for DeepSpeed's estimates, of one machine. A step takes the tracker 5 to 60 s. Raises nothing
    for what goes wrong in the child: the proof says it, with what was answered before. May be called on any
    thread; takes up to `seconds`, or until `cancelled` is set.
    """
    environment = launch.environment(environ)
    for name, value in launch.vendor.visibility.changes(()):
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    try:
        found = interpreter(launch.argv, environment, launch.directory, python)
    except InterpreterError as error:
        return PlanProof(problems=(str(error),))
    # A path is one here, not where the command starts.
    model = os.path.abspath(step.model) if Path(step.model).exists() else step.model  # noqa: PTH100
    spec = {**asdict(step), "model": model, "devices": devices, "seconds": seconds}
    with process.answers() as folder:
        argv = (*found.argv, str(SCRIPTS / "plan_proof.py"), str(folder), json.dumps(spec))
        ended = process.run(argv, environment, launch.directory, seconds, cancelled)
        proof = read(folder, ended)
    return replace(proof, remarks=(found.doubt, *proof.remarks)) if found.doubt else proof


def read(folder: Path, ended: process.Ended) -> PlanProof:
    """Whatever the child answered, also where something else failed. Raises nothing for what it wrote."""
    proof, remarks, problems = PlanProof(), list[str](), list[str]()
    for part, taken in (("model", _model), ("estimates", _estimates), ("tracked", _tracked)):
        try:
            if (folder / f"{part}.json").exists():
                proof = taken(process.read_answer(folder / f"{part}.json"), proof)
                continue
        except DocumentError as error:
            problems.append(f"{part}: the answer cannot be read: {error}")
            continue
        told = _error(folder / f"{part}.error")
        why = told or ended.trouble or f"the interpreter ended without answering: {ended.last_line}"
        if part == "model" and not why.startswith("ModuleNotFoundError"):
            problems.append(why)
        else:
            # Libraries that are not there, and functions of theirs that are private, need not be.
            remarks.append(f"{_WITHOUT[part]}: {why}")
        if part == "model" or told is None:
            # What comes after it was not asked for.
            break
    return replace(proof, remarks=(*proof.remarks, *remarks), problems=tuple(problems))


_WITHOUT = {
    "model": "no proof without transformers",
    "estimates": "no estimates of DeepSpeed's",
    "tracked": "no step was tracked",
}


def _error(path: Path) -> str | None:
    """The line that says what went wrong; None where nothing does."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_ERROR).splitlines()
    except OSError:
        return None
    return lines[0].strip() if lines else "failed"


@dataclass(frozen=True, slots=True)
class _Versions:
    torch: str
    transformers: str


@dataclass(frozen=True, slots=True)
class _Estimates:
    estimates: tuple[Estimate, ...]
    version: str


@dataclass(frozen=True, slots=True)
class _Step:
    peak: int
    parts: dict[str, int]
    without: tuple[str, ...]


_MODEL = Record(
    PlanProof,
    "class=name parameters largest_layer wrap versions",
    "",
    name=str,
    parameters=int,
    largest_layer=int,
    versions=_Versions,
    wrap=few(str, 64),
)
_ESTIMATES, _STEP = Record(_Estimates), Record(_Step)


def _model(answer: Any, proof: PlanProof) -> PlanProof:
    facts = _MODEL.facts(answer)
    versions = facts.pop("versions")
    told = ("torch", versions.torch), ("transformers", versions.transformers)
    return replace(proof, versions=told, **facts)


def _estimates(answer: Any, proof: PlanProof) -> PlanProof:
    told = _ESTIMATES.read(answer)
    version = ("deepspeed", told.version)
    return replace(proof, estimates=told.estimates, versions=(*proof.versions, version))


def _tracked(answer: Any, proof: PlanProof) -> PlanProof:
    step = _STEP.read(answer)
    if missing := [name for name in PARTS if name not in step.parts]:
        raise DocumentError(f"{missing[0]!r} is missing", "parts")
    tracked = Tracked(step.peak, tuple((name, step.parts[name]) for name in PARTS))
    without = f"tracked without attention dropout ({', '.join(step.without)})"
    return replace(proof, tracked=tracked, remarks=(*proof.remarks, *([without] if step.without else [])))
