"""User names: of a uid, and of the user who runs this process; and the accounts that belong to one person."""

from __future__ import annotations

import contextlib
import os
import pwd
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gputui.inventory.formatting import MIB
from gputui.system.file_stamp import stamp_of

_SUBORDINATE = "/etc/subuid"
_MOST_BYTES = MIB
_Range = tuple[int, int, bytes]
"""The first of some uids, the end of them, and the user whose containers have them; b"" for several users."""


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Return the name of a user; the number where this system (a container) has no name.

    A user of somebody's container is not looked up: there may be hundreds, and a directory service takes
    milliseconds for each. (A container may give all its own uids below 65,536 to containers.)
    """
    with contextlib.suppress(KeyError):
        if uid < 65_536 or _range_of(uid, _ranges(_SUBORDINATE, stamp_of(_SUBORDINATE))) is None:
            return pwd.getpwuid(uid).pw_name
    return str(uid)


def own_name() -> str:
    """Return the name of our effective user, in the form of the owners of processes."""
    return user_name(os.geteuid())


class Persons:
    """Maps uids to persons: the uids that a person may use in containers (subuid(5)) belong
    to that person.

    Uids that several users may use belong to another person: each of these users could hide the others'
    records.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._ranges: tuple[_Range, ...] | None = None

    def of(self, uid: int) -> int:
        """Return the person's own uid."""
        if uid not in self._known:
            if self._ranges is None:
                self._ranges = _ranges(_SUBORDINATE, stamp_of(_SUBORDINATE))
            found = _range_of(uid, self._ranges)
            self._known[uid] = uid if found is None else _number(found[2], found[0])
        return self._known[uid]


def _range_of(uid: int, ranges: Sequence[_Range]) -> _Range | None:
    """Return the range that has a uid; None where it is nobody's."""
    place = bisect(ranges, (uid + 1,)) - 1
    return ranges[place] if place >= 0 and uid < ranges[place][1] else None


@lru_cache(maxsize=1)
def _ranges(path: str, _stamp: object) -> tuple[_Range, ...]:
    # A screen and a waiter ask each second, and the file can have thousands of lines.
    return tuple(_united(_subordinates(path)))


def _subordinates(path: str) -> Iterator[_Range]:
    """Yield the ranges that /etc/subuid gives to users: first number, end, and the user's name or number."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:  # noqa: PTH123
        for line in stream.read(_MOST_BYTES).splitlines():
            with contextlib.suppress(ValueError):
                name, first, count = line.split(b":")
                yield int(first), int(first) + int(count), name


def _united(ranges: Iterable[_Range]) -> list[_Range]:
    """The ranges in order; those that overlap are one, which is nobody's unless all are of one owner."""
    found: list[_Range] = []
    for first, end, owner in sorted(ranges):
        if found and first < found[-1][1]:
            before, until, whose = found.pop()
            first, end, owner = before, max(end, until), owner if owner == whose else b""
        found.append((first, end, owner))
    return found


def _number(owner: bytes, otherwise: int) -> int:
    try:
        return int(owner) if owner.isdigit() else pwd.getpwnam(os.fsdecode(owner)).pw_uid
    except KeyError:
        return otherwise
