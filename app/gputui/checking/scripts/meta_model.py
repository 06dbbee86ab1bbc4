"""Counts a model from its configuration with transformers: run by the training Python, on no device.

    python meta_model.py FOLDER SPEC

SPEC is JSON: {"config": a folder or a config.json, "seconds"}. The answer is FOLDER/model.json, {"error"}
where something went wrong. Nothing is fetched, and no code of a repository is run.

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
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    _tell(folder, "model", lambda: _model(spec["config"]))


def _tell(folder: Path, name: str, found: Any) -> None:
    try:
        answer = found()
    except BaseException as error:  # noqa: BLE001 - a broken framework is an answer, whatever it raises
        lines = str(error).strip().splitlines() or [""]
        answer = {"error": (type(error).__name__ + ": " + lines[0])[:300]}
    part = folder / (name + ".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(folder / (name + ".json"))


def _made(config_path: str) -> Any:
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
    with torch.device("meta"):
        for each in [cls for cls in named if cls is not None]:
            return each._from_config(config)
        for each in automatic:
            try:
                return each.from_config(config)
            except ValueError as refused:
                error = refused
    raise error


def _model(config_path: str) -> dict[str, Any]:
    model = _made(config_path)
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


if __name__ == "__main__":
    main()
