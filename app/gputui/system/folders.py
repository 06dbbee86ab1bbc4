"""Where gputui keeps what outlives it, and how a file there is written.

XDG Base Directory Specification; not through platformdirs, whose import takes longer than a whole `pick` may.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class NoHomeError(Exception):
    """There is no place to keep anything; the message has the remedy."""


def state_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/gputui`; a relative path there is to be ignored. Raises NoHomeError."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():
        return state / "gputui"
    home = Path(environ.get("HOME", ""))
    if not home.is_absolute():
        try:
            home = Path.home()
        except RuntimeError:
            raise NoHomeError("there is no home folder to keep anything in; set XDG_STATE_HOME") from None
    return home / ".local" / "state" / "gputui"


def write_private(file: Path, text: str) -> None:
    """The whole text or nothing, readable by its owner only. Raises OSError."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
            os.fchmod(handle, 0o600)
            stream.write(text)
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
