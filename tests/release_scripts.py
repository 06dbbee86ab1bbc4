"""The scripts of release/, which is no package."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[1] / "release"


@functools.cache
def release_script(name: str) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
