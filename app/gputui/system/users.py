"""User names: of a uid, and of the user who runs this process; and which users are one person."""

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
    """The name of a user; the number where this system (a container) has none for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_name() -> str:
    """The name of our effective user, as the owners of processes are named."""
    return user_name(os.geteuid())


class Persons:
    """Tells which users are one person: those whose numbers he may use in his containers (subuid(5)), too.

    Numbers that are given to several users are one more person: one of these could hide another's records.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._ranges: list[tuple[int, int, bytes]] | None = None

    def of(self, uid: int) -> int:
        """The person's own number."""
        if uid not in self._known:
            if self._ranges is None:
                self._ranges = _united(_subordinates())
            first, end, owner = self._ranges[bisect(self._ranges, (uid + 1,)) - 1] if self._ranges else _NONE
            self._known[uid] = _number(owner, first) if first <= uid < end else uid
        return self._known[uid]


def _subordinates() -> Iterator[tuple[int, int, bytes]]:
    """The ranges that /etc/subuid gives to users: first number, end, and the user's name or number."""
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
