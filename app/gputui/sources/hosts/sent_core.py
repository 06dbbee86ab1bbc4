"""gputui without its screen as a zip file, which is sent to a box that has no gputui."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import zipfile
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

_START = b"""\
import contextlib
import os

with contextlib.suppress(OSError):
    # A copy that is not started any more is removed some day: remote_script.KEPT_DAYS.
    os.utime(__file__)
from gputui.cli.main import entry

entry()
"""
START = "start.py"
"""The file in it that starts gputui."""
NAMES = "names"
"""The file in it that lists the other files, one per line."""

_NOT_SENT = ("tui", "__pycache__")
_DEPENDENCIES = {
    "pynvml": "pynvml",
    "yaml": "yaml",
    "tomllib" if sys.version_info >= (3, 11) else "tomli": "tomli",
}
"""The dependencies, their parts in Python only, and their names on the box. Python 3.10 has no tomllib; tomli
is the same module under another name."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def _once(made: Callable[[], T]) -> Callable[[], T]:
    """Wrap `made` so that it runs once, in one thread only: the threads of twenty boxes call
    it at the same moment."""
    lock, kept = Lock(), lru_cache(maxsize=1)(made)

    @wraps(made)
    def asked() -> T:
        with lock:
            return kept()

    return asked


@lru_cache(maxsize=1)
def _files() -> dict[str, Path]:
    """Return the files, by their names on the box."""
    found: dict[str, Path] = {}
    package = Path(__file__).parents[2]
    _add(found, package, package.name)
    for module, name in _DEPENDENCIES.items():
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            place = Path(spec.origin)
            _add(found, place.parent if spec.submodule_search_locations else place, name)
    return found


def _add(found: dict[str, Path], place: Path, name: str) -> None:
    if place.is_file():
        found[f"{name}{place.suffix}"] = place
        return
    for file in sorted(place.rglob("*")):
        inside = file.relative_to(place)
        if file.is_file() and file.suffix not in (".so", ".pyc") and not set(inside.parts) & {*_NOT_SENT}:
            found[f"{name}/{inside.as_posix()}"] = file


@_once
def digest() -> str:
    """Return a name for exactly this content: 16 hexadecimal digits."""
    made = hashlib.sha256(_START)
    for name, file in _files().items():
        data = file.read_bytes()
        made.update(f"{name}\0{len(data)}\0".encode() + data)
    return made.hexdigest()[:16]


@_once
def zipped() -> bytes:
    """Return the zip file: the same bytes for the same content."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in _files().items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo(START, _EPOCH), _START)
        archive.writestr(zipfile.ZipInfo(NAMES, _EPOCH), "".join(f"{name}\n" for name in (*_files(), START)))
    return made.getvalue()
