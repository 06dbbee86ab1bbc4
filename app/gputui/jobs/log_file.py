"""Read the bytes of a log. The part that the cap has freed on the disk is a hole, which is skipped.

The file's size and the offset of each byte do not change, so that a reader that follows the log keeps its
place. A hole may be many GB large; the kernel reports where it ends (SEEK_DATA, lseek(2)).
"""

from __future__ import annotations

import os
from pathlib import Path

from gputui.inventory.formatting import MIB, size
from gputui.system.files import open_own


def read_data(descriptor: int, place: int, most: int) -> tuple[int, bytes]:
    """The offset and the bytes of the first data in a log at or after offset `place`, at most `most` bytes.

    The end of the file and b"" where there is no more data. Raises OSError.
    """
    data = os.pread(descriptor, most, place)
    if b"\0" not in data or not hasattr(os, "SEEK_DATA"):
        return place, data
    try:
        start = os.lseek(descriptor, place, os.SEEK_DATA)
    except OSError:
        # The hole reaches to the end of the file (ENXIO).
        return place + max(0, os.fstat(descriptor).st_size - place), b""
    end = os.lseek(descriptor, start, os.SEEK_HOLE)
    return start, os.pread(descriptor, min(most, end - start), start)


def end_of(log: Path, most: int) -> tuple[int, bytes]:
    """The last bytes of a log, at most so many, and the offset where they begin; a hole reads as NUL bytes.

    For a missing log: no bytes, and offset 0.
    """
    try:
        with os.fdopen(open_own(log), "rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - most)
            file.seek(start)
            return start, file.read(most)
    except OSError:
        return 0, b""


def missing(amount: int) -> bytes:
    """The line that is shown in place of `amount` missing bytes of a log."""
    much = size(amount) if amount >= 100 * MIB else f"{amount / MIB:.1f}M"
    return f"\n[gputui: {much} of this log are missing here]\n".encode()
