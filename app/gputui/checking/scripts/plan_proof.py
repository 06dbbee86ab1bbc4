"""What the training's own libraries say about a model: run by the interpreter that will train, never by
gputui.

    python plan_proof.py FOLDER SPEC

SPEC is JSON: {"model": a folder, a config.json or a cached hub id, "seconds"}; for a proof also {"batch",
"sequence", "precision", "checkpointing", "devices"}. The answers are FOLDER/model.json (transformers, on the
meta device), and for a proof FOLDER/estimates.json (DeepSpeed) and FOLDER/tracked.json (torch's memory
tracker under fake tensors); errors are in FOLDER/PART.error. It reads no weights, downloads nothing, runs no
code of a repository, and uses no device.

This file must run on Python 3.8 and newer. probe.py explains how it imports torch.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_MOST_MEMORY = 32 * 1024**3
"""Bytes: a configuration with a million layers must not take the host's memory."""

_DROPOUT = ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob")
"""The names of attention dropout in configurations. The CPU's kernel for it keeps all scores, a GPU's does
not."""


def main() -> None:
    folder, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
    signal.alarm(int(spec["seconds"]) + 5)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [each for each in (memory, _MOST_MEMORY, most) if each > 0]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), most))
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})
    found = _part(folder, "model", lambda: _model(spec))
    if found is None or "batch" not in spec:
        return
    _part(folder, "estimates", lambda: _estimates(found, spec))
    _part(folder, "tracked", lambda: _tracked(spec))


def _part(folder: Path, name: str, made: Any) -> Any:
    """Write the answer to a part as soon as it is known: the next part may take all the remaining time."""
    try:
        answer = made()
        part = folder / (name + ".part")
        part.write_text(json.dumps(answer), encoding="utf-8")
        part.replace(folder / (name + ".json"))
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is an answer
        lines = str(error).strip().splitlines() or [""]
        text = (type(error).__name__ + ": " + lines[0])[:500]
        Path(folder, name + ".error").write_text(text, encoding="utf-8", errors="replace")
        return None
    return answer


def _model(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the exact count, the largest layer in DeepSpeed's sense, and the transformer blocks."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    config = _config(transformers, spec)
    with torch.device("meta"):
        model = _built(transformers, config, "batch" in spec)
    names = set(getattr(model, "_no_split_modules", None) or ())
    wrapped: dict[str, list[int]] = {}
    for module in model.modules():
        kind = type(module).__name__
        if kind in names:
            wrapped.setdefault(kind, []).append(sum(each.numel() for each in module.parameters()))
    # Of several classes, the one with the most parameters: encoders name their embeddings, too.
    blocks = max(wrapped, key=lambda kind: sum(wrapped[kind])) if wrapped else None
    return {
        "versions": {
            "torch": str(getattr(torch, "__version__", "?")),
            "transformers": str(transformers.__version__),
        },
        "architecture": type(model).__name__,
        # (Tied weights are one parameter.)
        "parameters": sum(each.numel() for each in model.parameters()),
        "largest_layer": max(
            sum(each.numel() for each in module.parameters(recurse=False)) for module in model.modules()
        ),
        "wrap_class": blocks,
        "blocks": len(wrapped[blocks]) if blocks else 0,
        "largest_block": max(wrapped[blocks]) if blocks else 0,
    }


def _config(transformers: Any, spec: dict[str, Any]) -> Any:
    return transformers.AutoConfig.from_pretrained(
        spec["model"], local_files_only=True, trust_remote_code=False
    )


def _built(transformers: Any, config: Any, headed: bool, **options: Any) -> Any:
    """Return the model, of a class that its configuration names, else of the first class that takes it;
    `headed`: not a bare model, which has no loss."""
    for name in getattr(config, "architectures", None) or ():
        kind: Any = getattr(transformers, name, None)
        if hasattr(kind, "_from_config") and not (headed and name.endswith("Model")):
            return kind._from_config(config, **options)
    error = ValueError("transformers has no model for " + type(config).__name__)
    for name in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModel"):
        try:
            return getattr(transformers, name).from_config(config, **options)
        except ValueError as refused:
            error = refused
    raise error


def _estimates(found: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Return DeepSpeed's own estimates, for one machine. (Given a model, it counts one on the meta device
    wrong.)"""
    two = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
    three = importlib.import_module("deepspeed.runtime.zero.stage3")
    parameters, largest, devices = found["parameters"], found["largest_layer"], spec["devices"]
    told = []
    for offload in ("none", "optimizer"):
        cpu, gpu = two.estimate_zero2_model_states_mem_needs(parameters, devices, 1, offload != "none")
        told.append({"stage": 2, "offload": offload, "gpu": int(gpu), "cpu": int(cpu)})
    for offload in ("none", "optimizer", "all"):
        cpu, gpu, _ = three.estimate_zero3_model_states_mem_needs(
            parameters, largest, devices, 1, offload != "none", offload == "all", True
        )
        told.append({"stage": 3, "offload": offload, "gpu": int(gpu), "cpu": int(cpu)})
    return {"version": str(importlib.import_module("deepspeed").__version__), "estimates": told}


def _tracked(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the peak of a training step with AdamW on one device, in bytes."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode
    tracker = importlib.import_module("torch.distributed._tools.mem_tracker").MemTracker()
    config, precision = _config(transformers, spec), spec["precision"]
    without = [name for name in _DROPOUT if getattr(config, name, 0)]
    for name in without:
        setattr(config, name, 0.0)
    mixed = {"autocast": torch.bfloat16, "fp16": torch.float16}.get(precision)
    with fake():
        model = _built(
            transformers, config, headed=True, dtype=torch.bfloat16 if precision == "bf16" else torch.float32
        ).train()
        if model.main_input_name != "input_ids":
            raise ValueError("no training step is known for a model that takes " + str(model.main_input_name))
        if spec["checkpointing"]:
            model.gradient_checkpointing_enable()
        optimizer = torch.optim.AdamW(model.parameters())
        # The optimizer's states exist from the second step on.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        tracker.track_external(model, optimizer)
        words = torch.zeros((spec["batch"], spec["sequence"]), dtype=torch.long)
        with tracker:
            with torch.autocast("cpu", dtype=mixed, enabled=mixed is not None):
                loss = model(input_ids=words, labels=words).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    by_name = {getattr(key, "value", key): int(value) for key, value in peak.items()}
    return {"peak": by_name["Total"], "without": without}


if __name__ == "__main__":
    main()
