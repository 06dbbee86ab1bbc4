"""Opens and creates files in a folder that every user can write: links and pipes are not followed.

A file is trusted by what every user sees alike (lstat), so that all come to the same one. What is not a
regular file with one name that all can read is treated as absent.
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

MAX_RECORD_BYTES = 16 * 1024
"""Bytes of a record that are read; a longer one is none of ours."""

MAX_FILES = 65_536
"""Directory entries that are read, in whatever order the system has them."""

_YOUNG = 1.0
"""Seconds for which a new file may not have its mode yet."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedFileError(Exception):
    """At this name is something that gputui does not make; the message says what."""


def list_matching(folder: str, pattern: re.Pattern[str]) -> tuple[list[re.Match[str]], bool]:
    """The matches of the names in a folder, sorted, and whether some entries were not read.

    No more than `MAX_FILES` entries are read. Raises OSError.
    """
    found: list[re.Match[str]] = []
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_FILES:
                return sorted(found, key=lambda match: match.string), True
            match = pattern.fullmatch(entry.name)
            if match is not None:
                found.append(match)
    return sorted(found, key=lambda match: match.string), False


def open_untrusted(path: str | Path) -> int | None:
    """Open a file for reading and locking; None if there is none. Raises UntrustedFileError."""
    name = str(path).rpartition("/")[2]
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UntrustedFileError(f"{name}: {error.strerror}") from None
    distrust = _distrust(found)
    if distrust:
        raise UntrustedFileError(f"{name} is {distrust}")
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "a symbolic link" if error.errno in (errno.ELOOP, errno.EMLINK) else error.strerror
        raise UntrustedFileError(f"{name} is {what}") from None
    opened = os.fstat(descriptor)
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) or _distrust(opened):
        os.close(descriptor)
        raise UntrustedFileError(f"{name} was changed while it was opened")
    return descriptor


def _distrust(found: os.stat_result) -> str | None:
    """Why a file is not trusted, None if it is."""
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_nlink != 1:
        return "a file with several hard links"
    if not found.st_mode & stat.S_IROTH:
        return "not readable by all users"
    return None


def create_public(path: Path) -> int | None:
    """Create a file that all users can read and open it; None if the name exists. Raises OSError."""
    try:
        descriptor = os.open(path, _OPEN & ~os.O_NONBLOCK | os.O_CREAT | os.O_EXCL, 0o444)
    except FileExistsError:
        return None
    os.fchmod(descriptor, 0o444)
    return descriptor


def is_being_created(path: Path) -> bool:
    """Whether a file is about to get its mode: `create_public` sets it a moment after the creation."""
    try:
        found = os.lstat(path)
    except OSError:
        return True
    young = abs(time.time() - found.st_ctime) < _YOUNG
    return young and stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and not found.st_mode & stat.S_IROTH


def is_same_file(path: Path, descriptor: int) -> bool:
    """Whether the open file still has this name; somebody may have removed or replaced it."""
    try:
        now, opened = os.lstat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)
