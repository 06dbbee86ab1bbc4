"""Opening files of a folder in which everybody may plant things: links, pipes, files without rights.

A file is judged by what every user sees alike; what is not a plain readable file of one name is as none.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims: pathlib alone takes some milliseconds.)
    from pathlib import Path

MOST = 16 * 1024
"""Bytes of a record that are read; a longer one is somebody's joke."""

MOST_FILES = 65_536
"""Names of a folder that are looked at, in whatever order the system has them."""

_YOUNG = 1.0
"""Seconds."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedFileError(Exception):
    """There is something at this name that is no file of ours; the message says what."""


def named_there(folder: str, pattern: re.Pattern[str]) -> tuple[list[re.Match[str]], bool]:
    """The names of a folder that match, sorted; and whether there are so many files that some were not looked
    at. Raises OSError."""
    found: list[re.Match[str]] = []
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_FILES:
                return sorted(found, key=lambda match: match.string), True
            match = pattern.fullmatch(entry.name)
            if match is not None:
                found.append(match)
    return sorted(found, key=lambda match: match.string), False


def open_there(path: str | Path) -> int | None:
    """A descriptor for reading and locking; None where there is no such file. Raises PlantedError."""
    name = str(path).rpartition("/")[2]
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UntrustedFileError(f"{name}: {error.strerror}") from None
    wrong = _wrong(found)
    if wrong:
        raise UntrustedFileError(f"{name} is {wrong}")
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "a link" if error.errno in (errno.ELOOP, errno.EMLINK) else error.strerror
        raise UntrustedFileError(f"{name} is {what}") from None
    opened = os.fstat(descriptor)
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) or _wrong(opened):
        os.close(descriptor)
        raise UntrustedFileError(f"{name} was changed while it was opened")
    return descriptor


def _wrong(found: os.stat_result) -> str | None:
    """What is wrong with a file, None for nothing."""
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if not stat.S_ISREG(found.st_mode):
        return "no plain file"
    if found.st_nlink != 1:
        return "a file of several names"
    if not found.st_mode & stat.S_IROTH:
        return "not readable for all"
    return None


def make_there(path: Path) -> int | None:
    """A new file that all may read, opened; None where there is something already. Raises OSError."""
    try:
        descriptor = os.open(path, _OPEN & ~os.O_NONBLOCK | os.O_CREAT | os.O_EXCL, 0o444)
    except FileExistsError:
        return None
    os.fchmod(descriptor, 0o444)
    return descriptor


def is_being_made(path: Path) -> bool:
    """Whether a file came to be a moment ago and has not its mode yet, as `make_there` does it."""
    try:
        found = os.lstat(path)
    except OSError:
        return True
    young = abs(time.time() - found.st_ctime) < _YOUNG
    return young and stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and not found.st_mode & stat.S_IROTH


def is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one that has this name: it may have been removed or replaced."""
    try:
        now, opened = os.lstat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)
