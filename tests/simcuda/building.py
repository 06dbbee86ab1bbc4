"""Compiles a simulated driver library; it needs no header, as such an API is plain C types."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from simnvml.building import cache

LIBRARY = "libcuda.so.1"
"""The name by which every program loads the CUDA driver."""

_SOURCE = Path(__file__).parent / "native" / "simcuda.c"
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
    """The simulated libcuda."""
    return compiled(_SOURCE, LIBRARY)


def compiled(source: Path, name: str) -> Path:
    """The library of that name, compiled unless this very source has been before. Safe to call from many
    processes."""
    compiler = os.environ.get("CC", "cc")
    flags = (*_FLAGS, f"-Wl,-soname,{name}")
    digest = hashlib.sha256(" ".join((compiler, *flags)).encode() + source.read_bytes()).hexdigest()
    library = cache() / digest[:16] / name
    if library.exists():
        return library
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"the tests need a C compiler, and there is no `{compiler}`")
    library.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        made = Path(directory) / name
        command = [compiler, *flags, str(source), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"the simulated {name} does not compile:\n{result.stderr}")
        # Another process may have been as fast: both have made the same.
        made.replace(library)
    return library
