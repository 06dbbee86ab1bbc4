"""Compiles the simulated libnvidia-ml against the header of the package nvidia-nvml-dev."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
"""The name by which every program loads NVML."""

NATIVE = Path(__file__).parent / "native"
_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    # NVML dictates the signatures, and a simulation ignores many of the arguments.
    "-Wno-unused-parameter",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-shared",
    "-Wl,-z,defs",
    # A later dlopen by this name finds the library that is loaded already: see SimulatedNvml.use_here.
    f"-Wl,-soname,{LIBRARY}",
)


def header() -> Path:
    """NVML's header, wherever the package nvidia-nvml-dev has put it."""
    for file in importlib.metadata.files("nvidia-nvml-dev") or ():
        if file.name == "nvml.h":
            return Path(str(file.locate()))
    raise FileNotFoundError("the package nvidia-nvml-dev has no nvml.h; `pip install --force-reinstall` it")


def build() -> Path:
    """The library, compiled unless these sources have been before. Safe to call from many processes."""
    include, compiler = header(), os.environ.get("CC", "cc")
    sources = sorted(NATIVE.glob("*.c"))
    digest = hashlib.sha256(" ".join((compiler, *_FLAGS)).encode())
    for file in (include, *sorted(NATIVE.glob("*.h")), *sources):
        digest.update(file.read_bytes())
    command = [compiler, *_FLAGS, f"-I{include.parent}", *map(str, sources)]
    return compiled(command, digest.hexdigest(), LIBRARY)


def compiled(command: Sequence[str], digest: str, name: str) -> Path:
    """The library that a command makes (its output's name is appended), unless one of this digest exists."""
    library = cache() / digest[:16] / name
    if library.exists():
        return library
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"the tests need a C compiler, and there is no `{command[0]}`")
    library.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        made = Path(directory) / name
        result = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"the simulated {name} does not compile:\n{result.stderr}")
        # Another process may have compiled it meanwhile: both files are the same.
        made.replace(library)
    return library


def cache() -> Path:
    """A private cache directory: a program must not load a library from a world-writable place."""
    path = Path(tempfile.gettempdir()) / f"simnvml-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{path} belongs to somebody else, or anybody may write to it")
    return path
