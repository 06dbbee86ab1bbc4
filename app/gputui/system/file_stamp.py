"""Whether a file has changed since it was looked at."""

from __future__ import annotations

import os


def stamp_of(path: str | os.PathLike[str]) -> object:
    """Return a value that changes when the file does, and when it is replaced; None where there is none."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - every second
    except (OSError, ValueError):
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
