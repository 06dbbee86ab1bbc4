"""Moves inherited file descriptors to high numbers, which commands and shells (`exec 9>lock`) do not use.

A process that was started with its stderr closed gets 2 for the next file that it opens. If that file were a
claim's record, the command's messages would be written into it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

LEAST = 100
_UNDER_A_LIMIT = (60, 30, 12, 3)
"""Tried where the limit of open files (`ulimit -n`) is below `LEAST`: scripts use high numbers least."""


def move_to_high_number(descriptor: int) -> int:
    """Return a descriptor of the same open file, with its locks, of at least 100; close the old number.

    Where the limit of open files leaves no such number (`ulimit -n 64`), use a lower number that is not a
    standard stream. Raise OSError where there is none at all; the old number is closed then, too.
    """
    try:
        for least in (LEAST, *_UNDER_A_LIMIT):
            with contextlib.suppress(OSError):
                return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    finally:
        os.close(descriptor)
