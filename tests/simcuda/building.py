"""Compiles a simulated driver library; it needs no header, as such an API is plain C types."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from simnvml.building import NATIVE, compiled

LIBRARY = "libcuda.so.1"
"""The name by which every program loads the CUDA driver."""

_SOURCE = Path(__file__).parent / "native" / "simcuda.c"
_SHARED = NATIVE / "nodes.h"
"""The header that decides which device files a process may open, for all simulated drivers."""
_FLAGS = (
    "-std=gnu11",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-Wl,-z,defs",
)


def build() -> Path:
    """The path of the simulated libcuda."""
    return built(_SOURCE, LIBRARY)


def built(source: Path, name: str) -> Path:
    """The library of that name, compiled unless this source has been compiled before. Safe to call from many
    processes."""
    command = (os.environ.get("CC", "cc"), *_FLAGS, f"-Wl,-soname,{name}", f"-I{_SHARED.parent}")
    text = source.read_bytes() + _SHARED.read_bytes()
    digest = hashlib.sha256(" ".join(command).encode() + text).hexdigest()
    return compiled((*command, str(source)), digest, name)
