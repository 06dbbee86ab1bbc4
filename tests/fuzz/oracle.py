"""torch's own reading of CUDA_VISIBLE_DEVICES, from its source: importing torch takes seconds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

_FUNCTIONS = ("_parse_visible_devices", "_transform_uuid_to_ordinals")


@cache
def torchs_reader() -> Callable[[str, Sequence[str]], list[int] | None] | None:
    """A function from a list and the UUIDs of the GPUs to the positions of the visible ones; None where torch
    is not installed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    source = Path(spec.submodule_search_locations[0], "cuda", "__init__.py").read_text()
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS]
    for node in tree.body:
        # Their return annotations name types that do not exist here.
        cast(ast.FunctionDef, node).returns = None
    value: dict[str, str] = {}
    torch = SimpleNamespace(version=SimpleNamespace(hip=None))
    found: dict[str, Any] = {"torch": torch, "os": SimpleNamespace(getenv=value.get), "cast": cast}
    exec(compile(tree, "torch/cuda/__init__.py", "exec"), found)

    def read(text: str, uuids: Sequence[str]) -> list[int] | None:
        value["CUDA_VISIBLE_DEVICES"] = text
        try:
            visible = found["_parse_visible_devices"]()
        except ValueError:
            # At "-" torch itself fails.
            return None
        if visible and isinstance(visible[0], str):
            return list(found["_transform_uuid_to_ordinals"](visible, list(uuids)))
        # Like `_device_count_nvml`: the first number that is no device ends the list.
        end = next((n for n, number in enumerate(visible) if number >= len(uuids)), len(visible))
        return list(visible[:end])

    return read
