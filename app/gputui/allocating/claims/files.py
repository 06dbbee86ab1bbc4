"""Opens and creates files in a folder that every user can write: links and pipes are not followed.

Each file is its owner's alone: others can read it, and only he can write it, and so lock it
(system/record_locks.py). Whose it is the kernel tells (fstat), whatever its name says. Names end in something
that nobody can guess, so that no name can be taken beforehand. What is not a regular file that all can read
and only its owner can write is treated as absent. One with several names is as good as any: what it means is
in its lock, which no other user can make.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from typing import TYPE_CHECKING

from gputui.system.record_locks import lock

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims: pathlib alone takes some milliseconds.)
    from pathlib import Path

MAX_RECORD_BYTES = 16 * 1024
"""Bytes of a record that are read; a longer one is none of ours."""

MAX_FILES = 65_536
"""Directory entries that are read, in whatever order the system has them."""

MOST_OF_ONE_USER = 512
"""Files of one kind and one owner that are looked at, the newest ones: who makes more hides his own only."""

TOKEN = "[0-9a-f]{32}"
"""What `new_token` makes, as a pattern."""

_SETTLED = 2.0
"""Seconds after which a folder's time stamp (ctime, which nobody can set) tells whether anything came or went
since it was listed: stamps have steps, of up to two seconds."""

Listing = tuple[list[re.Match[str]], bool, int]
"""The matches, whether there are more entries than are read, and how many matches are left out."""

_remembered: dict[tuple[str, re.Pattern[str], int], tuple[tuple[int, int, int], Listing]] = {}
"""What `listed` has found, with the folder's device, inode and time stamp."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedFileError(Exception):
    """At this name is something that gputui does not make; the message says what."""


def listed(folder: str, pattern: re.Pattern[str], most: int = MOST_OF_ONE_USER) -> Listing:
    """As `list_matching`, for those who look again and again: what was found last, if nothing came or went.

    Not for who is about to take devices. Raises OSError.
    """
    facts, now, place = os.lstat(folder), time.time(), (folder, pattern, most)
    state = facts.st_dev, facts.st_ino, facts.st_ctime_ns
    known = _remembered.get(place)
    if known is not None and known[0] == state:
        return known[1]
    found = list_matching(folder, pattern, most)
    if now - facts.st_ctime >= _SETTLED:
        _remembered[place] = state, found
    else:
        _remembered.pop(place, None)
    return found


def list_matching(folder: str, pattern: re.Pattern[str], most: int = MOST_OF_ONE_USER) -> Listing:
    """The matches of the names in a folder, sorted; whether it has more entries than are read; how many
    matches are left out because their owners have too many.

    No more than `MAX_FILES` entries are read, and of one owner the `most` newest by their names (their group
    `token`) are returned. Raises OSError.
    """
    found: list[re.Match[str]] = []
    newest: _NewestOfEach | None = None
    count, cut = 0, False
    ending = pattern.pattern[-6:]
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_FILES:
                cut = True
                break
            # (Much quicker than the pattern, where somebody has filled the folder.)
            match = pattern.fullmatch(entry.name) if entry.name.endswith(ending) else None
            if match is None:
                continue
            count += 1
            if newest is not None:
                newest.add(match)
                continue
            found.append(match)
            if count > most:
                newest = _NewestOfEach(folder, most)
                for each in found:
                    newest.add(each)
    kept = found if newest is None else newest.matches
    return sorted(kept, key=lambda match: match.string), cut, count - len(kept)


class _NewestOfEach:
    """Of each owner, as the kernel tells, so many: a file in somebody else's name takes no place of his.

    No more than these are kept while the folder is read: somebody may have filled it.
    """

    def __init__(self, folder: str, most: int) -> None:
        self._folder, self._most = folder, most
        self._of_each: dict[int, list[tuple[str, str, re.Match[str]]]] = {}

    def add(self, match: re.Match[str]) -> None:
        # (Not imported where there are few files.)
        from heapq import heappush, heappushpop

        try:
            owner = os.lstat(f"{self._folder}/{match.string}").st_uid
        except OSError:
            return
        files = self._of_each.setdefault(owner, [])
        (heappush if len(files) < self._most else heappushpop)(files, (match["token"], match.string, match))

    @property
    def matches(self) -> list[re.Match[str]]:
        return [match for files in self._of_each.values() for _, _, match in files]


def open_untrusted(path: str | Path) -> int | None:
    """Open a file for reading; None if there is none. Raises UntrustedFileError."""
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
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "writable by others than its owner"
    if not found.st_mode & stat.S_IROTH:
        return "not readable by all users"
    return None


def create_locked(folder: Path, name: str, data: bytes, start: int, length: int) -> int:
    """Create a file with a range of it locked, and then give it its name; the descriptor is open for writing.

    Until it is locked nobody else can open it, so that nobody else's lock can be in the way. Raises OSError.
    """
    new = folder / f".{os.urandom(12).hex()}"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if data:
            os.write(descriptor, data)
        lock(descriptor, start, length)
        os.fchmod(descriptor, 0o644)
        new.rename(folder / name)
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return descriptor


def new_token() -> str:
    """What ends the name of a new file: the time, by which files are in order, and what nobody can guess."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"
