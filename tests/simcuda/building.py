"""Compiles the simulated libcuda; it needs no header, as the driver's API is plain C types."""

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
    f"-Wl,-soname,{LIBRARY}",
)


def build() -> Path:
    """The library, compiled unless this very source has been before. Safe to call from many processes."""
    compiler = os.environ.get("CC", "cc")
    digest = hashlib.sha256(" ".join((compiler, *_FLAGS)).encode() + _SOURCE.read_bytes()).hexdigest()
    library = cache() / digest[:16] / LIBRARY
    if library.exists():
        return library
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"the tests need a C compiler, and there is no `{compiler}`")
    library.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        made = Path(directory) / LIBRARY
        command = [compiler, *_FLAGS, str(_SOURCE), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"the simulated libcuda does not compile:\n{result.stderr}")
        # Another process may have been as fast: both have made the same.
        made.replace(library)
    return library
