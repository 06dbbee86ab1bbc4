"""The folder for state, and atomic writes.

A file is written under another name in its folder and then renamed: a reader finds the whole of the old text
or of the new one, never half.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class NoHomeError(Exception):
    """There is no place to keep anything; the message has the remedy."""


def state_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/gputui` of `environ` (XDG Base Directory Specification: a relative path does not
    count), else the folder for state of the user who runs this process. Raises NoHomeError."""
    named = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):  # noqa: PTH117
        return Path(named, "gputui")
    # 5 to 10 ms to import (python -X importtime, 4.14 behind os and pathlib), half of it for tempfile.
    import platformdirs

    try:
        return platformdirs.user_state_path("gputui", appauthor=False)
    except RuntimeError:
        raise NoHomeError("there is no home folder for gputui's files; set XDG_STATE_HOME") from None


def write_private(file: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read. Raises OSError, and then leaves what was there."""
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    _replace(file, data, 0o600)


def write_result(file: Path, data: bytes) -> None:
    """Write a file that the user named, with the rights that the umask leaves. Raises OSError."""
    if file.exists() and not file.is_file():
        # A pipe or a device (/dev/stdout) cannot be replaced, and need not be.
        file.write_bytes(data)
        return
    umask = os.umask(0)
    os.umask(umask)
    _replace(file, data, 0o666 & ~umask)


def _replace(file: Path, data: bytes, mode: int) -> None:
    new = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(handle, mode)
            stream.write(data)
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
