"""User names: of a uid, and of the user who runs this process; and the accounts that belong to one person."""

from __future__ import annotations

import contextlib
import os
import pwd
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import lru_cache

_SUBORDINATE = "/etc/subuid"
_MOST_BYTES = 2**20
_NONE = 0, 0, b""


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Return the name of a user; the number where this system (a container) has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
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
        self._ranges: list[tuple[int, int, bytes]] | None = None

    def of(self, uid: int) -> int:
        """Return the person's own uid."""
        if uid not in self._known:
            if self._ranges is None:
                self._ranges = _united(_subordinates())
            first, end, owner = self._ranges[bisect(self._ranges, (uid + 1,)) - 1] if self._ranges else _NONE
            self._known[uid] = _number(owner, first) if first <= uid < end else uid
        return self._known[uid]


def _subordinates() -> Iterator[tuple[int, int, bytes]]:
    """Yield the ranges that /etc/subuid gives to users: first number, end, and the user's name or number."""
    with contextlib.suppress(OSError), open(_SUBORDINATE, "rb") as stream:  # noqa: PTH123
        for line in stream.read(_MOST_BYTES).splitlines():
            with contextlib.suppress(ValueError):
                name, first, count = line.split(b":")
                yield int(first), int(first) + int(count), name


def _united(ranges: Iterable[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """The ranges in order; those that overlap are one, which is nobody's unless all are of one owner."""
    found: list[tuple[int, int, bytes]] = []
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
