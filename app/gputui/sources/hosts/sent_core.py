"""gputui without its screen as a zip file, which is sent to a box that has none."""

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
"""The file in it that is gputui."""
NAMES = "names"
"""The file in it that lists the others, one a line."""

_NOT_SENT = ("tui", "__pycache__")
_DEPENDENCIES = {
    "pynvml": "pynvml",
    "platformdirs": "platformdirs",
    "yaml": "yaml",
    "tomllib" if sys.version_info >= (3, 11) else "tomli": "tomli",
}
"""What it needs besides, as far as that is written in Python, and its name there: Python 3.10 has no tomllib,
which is tomli by another name."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def _once(made: Callable[[], T]) -> Callable[[], T]:
    """`made`, called once, and then by one thread only: those of twenty boxes want it at the same moment."""
    lock, kept = Lock(), lru_cache(maxsize=1)(made)

    @wraps(made)
    def asked() -> T:
        with lock:
            return kept()

    return asked


@lru_cache(maxsize=1)
def _files() -> dict[str, Path]:
    """The files, by their names there."""
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
    """A name for this very content: 16 hexadecimal digits."""
    made = hashlib.sha256(_START)
    for name, file in _files().items():
        data = file.read_bytes()
        made.update(f"{name}\0{len(data)}\0".encode() + data)
    return made.hexdigest()[:16]


@_once
def zipped() -> bytes:
    """The zip file: the same bytes for the same content."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in _files().items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo(START, _EPOCH), _START)
        archive.writestr(zipfile.ZipInfo(NAMES, _EPOCH), "".join(f"{name}\n" for name in (*_files(), START)))
    return made.getvalue()
