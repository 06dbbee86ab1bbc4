"""The folder of the recorded machines.

The files are other people's and stay next to the checkout (`../shared/vendors`), or where
GPUTUI_RECORDED_VENDORS says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).parents[2].parent / "shared" / "vendors"
VENDORS = Path(os.environ.get("GPUTUI_RECORDED_VENDORS", _BESIDE))


def needs(folder: Path) -> Any:
    """Skip tests whose recording is missing, with the reason."""
    return pytest.mark.skipif(not folder.is_dir(), reason=f"no recorded machines at {folder}")


def program(root: Path, name: str, script: str) -> None:
    """Write a program of that machine: a shell script."""
    file = root / "bin" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
