"""Counts a model from its configuration with transformers: run by the training Python, on no device.

    python meta_model.py FOLDER SPEC

SPEC is JSON: {"config": a folder or a config.json, "step": None or {"batch", "sequence", "precision",
"checkpointing"}, "devices", "seconds"}. The answers are FOLDER/model.json; with a step also
FOLDER/peak.json, the peak of torch's own memory tracker over two steps on fake tensors, and
FOLDER/deepspeed.json, the estimates of the deepspeed that is there. What went wrong with one of these is
{"error"} in its place. Nothing is fetched, and no code of a repository is run.

This file must run on Python 3.8 and newer. Frameworks are imported by a name as a text, because nothing of
gputui itself may import one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def main() -> None:
    folder, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
    if hasattr(signal, "alarm"):
        # gputui ends us in time; this is for when it has been killed itself.
        signal.alarm(int(spec["seconds"]) + 5)
    # What lies beside this file must not be found in place of the user's modules.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    _tell(folder, "model", lambda: _model(spec["config"]))
    if spec["step"] is not None:
        _tell(folder, "deepspeed", lambda: _deepspeed(folder, spec["devices"]))
        _tell(folder, "peak", lambda: _peak(spec["config"], spec["step"]))


def _tell(folder: Path, name: str, found: Any) -> None:
    try:
        answer = found()
    except BaseException as error:  # noqa: BLE001 - a broken framework is an answer, whatever it raises
        lines = str(error).strip().splitlines() or [""]
        answer = {"error": (type(error).__name__ + ": " + lines[0])[:300]}
    part = folder / (name + ".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(folder / (name + ".json"))


def _made(config_path: str, device: str, dtype: Any = None) -> Any:
    """The model, of the class that its configuration names, else of the first that takes it."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(
        config_path, local_files_only=True, trust_remote_code=False
    )
    named = [getattr(transformers, name, None) for name in (getattr(config, "architectures", None) or [])[:1]]
    automatic = [
        getattr(transformers, name) for name in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModel")
    ]
    error = ValueError("no class of transformers takes this configuration")
    with torch.device(device):
        for each in [cls for cls in named if cls is not None]:
            return each._from_config(config) if dtype is None else each._from_config(config, dtype=dtype)
        for each in automatic:
            try:
                return each.from_config(config) if dtype is None else each.from_config(config, dtype=dtype)
            except ValueError as refused:
                error = refused
    raise error


def _model(config_path: str) -> dict[str, Any]:
    model = _made(config_path, "meta")
    names = set(getattr(model, "_no_split_modules", None) or [])
    wrapped: dict[str, list[int]] = {}
    for module in model.modules():
        kind = type(module).__name__
        if kind in names:
            wrapped.setdefault(kind, []).append(sum(one.numel() for one in module.parameters()))
    # Of several, that in which most parameters are: encoders name their embeddings as well.
    largest = max(wrapped, key=lambda each: sum(wrapped[each])) if wrapped else None
    return {
        "transformers": str(importlib.import_module("transformers").__version__),
        "architecture": type(model).__name__,
        "parameters": sum(one.numel() for one in model.parameters()),
        "largest_layer": max(
            sum(one.numel() for one in module.parameters(recurse=False)) for module in model.modules()
        ),
        "wrap_class": largest,
        "blocks": len(wrapped[largest]) if largest else 0,
        "largest_block": max(wrapped[largest]) if largest else 0,
    }


def _deepspeed(folder: Path, devices: int) -> list[dict[str, Any]]:
    counted = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    number, layer = counted["parameters"], counted["largest_layer"]
    second = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
    third = importlib.import_module("deepspeed.runtime.zero.stage3")
    found = []
    for offload in ("none", "optimizer"):
        cpu, gpu = second.estimate_zero2_model_states_mem_needs(
            number, num_gpus_per_node=devices, cpu_offload=offload != "none"
        )
        found.append({"stage": 2, "offload": offload, "gpu": gpu, "cpu": cpu})
    for offload in ("none", "optimizer", "all"):
        cpu, gpu, _ = third.estimate_zero3_model_states_mem_needs(
            number,
            layer,
            num_gpus_per_node=devices,
            cpu_offload=offload != "none",
            cpu_offload_params=offload == "all",
        )
        found.append({"stage": 3, "offload": offload, "gpu": gpu, "cpu": cpu})
    return found


def _peak(config_path: str, step: dict[str, Any]) -> dict[str, Any]:
    """The peak of two steps with AdamW, in bytes. The tracker is a private part of torch, and may be gone."""
    torch = importlib.import_module("torch")
    fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode
    tracker = importlib.import_module("torch.distributed._tools.mem_tracker").MemTracker
    whole = step["precision"] == "bf16"
    with fake():
        model = _made(config_path, "cpu", torch.bfloat16 if whole else torch.float32).train()
        if step["checkpointing"]:
            model.gradient_checkpointing_enable()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        memory = tracker()
        memory.track_external(model, optimizer)
        words = torch.randint(0, 8, (step["batch"], step["sequence"]))
        with memory:
            for number in range(2):
                with torch.autocast("cpu", torch.bfloat16, enabled=step["precision"] in ("autocast", "fp16")):
                    loss = model(input_ids=words, labels=words).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if number == 0:
                    memory.reset_mod_stats()
        (parts,) = memory.get_tracker_snapshot("peak").values()
    return {"bytes": {str(getattr(kind, "value", kind)): amount for kind, amount in parts.items()}}


if __name__ == "__main__":
    main()
