"""A result in a file that the user names."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(file: Path, data: bytes) -> None:
    """The whole of it or nothing: a reader never sees half a file. Raises OSError."""
    if file.exists() and not file.is_file():
        # A pipe or a device (/dev/stdout) cannot be replaced, and need not be.
        file.write_bytes(data)
        return
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
