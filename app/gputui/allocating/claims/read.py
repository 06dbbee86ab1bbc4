"""Which claims are alive, and who holds them.

A record is a file of the holder's own, `<device>@<uid>.<n>.claim`, on which the kernel holds a lock (flock)
for as long as a process of the job lives. To look whether it does, the record's own lock is tried, never the
one by which devices are taken, so that looking disturbs nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.allocating.claims.files import MOST, MOST_FILES, UntrustedFileError, named_there, open_there
from gputui.allocating.claims.folder import shared_folders

if TYPE_CHECKING:
    from gputui.inventory.claim import Claim

NAME = re.compile(r"(?P<key>[0-9A-Za-z]+-[0-9A-Za-z+-]{1,80})@(?P<uid>[0-9]{1,10})\.(?P<n>[0-9]{1,4})\.claim")
_MOST_TOLD = 3
"""Things that are no claims, told one by one; of the others only how many."""

_LONGEST = 4000

Files = frozenset[tuple[int, int]]
"""Open files, by device and inode."""


def claims(environ: Mapping[str, str]) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
    """The claims that are alive, by device and then by time; and what was found that is no claim.

    What this very process has taken and not passed on yet is left out.
    """
    found: list[Claim] = []
    odd: list[str] = []
    for folder in shared_folders(environ):
        try:
            matches, cut = named_there(folder, NAME)
        except OSError as error:
            odd.append(f"claims cannot be read: {folder}: {error.strerror}")
            continue
        if cut:
            odd.append(f"claims may be missing: {folder} has more than {MOST_FILES} files")
        ours = _our_files() if matches else frozenset()
        for match in matches:
            key = match["key"].replace("+", "/")
            try:
                claim = _alive(f"{folder}/{match.string}", key, int(match["uid"]), ours)
            except UntrustedFileError as error:
                odd.append(f"a claim is passed over: {error}")
            else:
                found += [claim] if claim else []
    return tuple(sorted(found, key=lambda each: (each.key, each.since or 0.0))), _told(odd)


def _told(odd: Sequence[str]) -> tuple[str, ...]:
    if len(odd) <= _MOST_TOLD:
        return tuple(odd)
    return (*odd[:_MOST_TOLD], f"{len(odd) - _MOST_TOLD} more claims are passed over")


def _our_files() -> Files:
    """The files that this process has opened for itself: what it was given, or gives on, is a job's."""
    found: set[tuple[int, int]] = set()
    for descriptor in _descriptors():
        # One is closed by now: that through which the list was read.
        with contextlib.suppress(OSError):
            if not os.get_inheritable(descriptor):
                facts = os.fstat(descriptor)
                found.add((facts.st_dev, facts.st_ino))
    return frozenset(found)


def _descriptors() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - descriptors, not paths
    except OSError:
        # No /proc here, and a short-lived call has no more than these.
        return range(256)


def _alive(path: str, key: str, uid: int, ours: Files) -> Claim | None:
    """The claim of a record, None where its holder is gone or this process. Raises PlantedError."""
    name, descriptor = path.rpartition("/")[2], open_there(path)
    if descriptor is None:
        return None
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid != uid:
            raise UntrustedFileError(f"{name} belongs to {user_name(facts.st_uid)}")
        if (facts.st_dev, facts.st_ino) in ours:
            return None
        if not is_held(descriptor):
            if facts.st_size and uid == os.geteuid():
                # Its holder became a command, or was killed, and could not empty it.
                empty_ended(path)
            return None
        data = os.read(descriptor, MOST + 1)
    finally:
        os.close(descriptor)
    import json

    from gputui.inventory.claim import Claim

    if len(data) > MOST:
        raise UntrustedFileError(f"{name} is longer than {MOST} bytes")
    try:
        return _read(json.loads(data), key, user_name(uid))
    except (ValueError, RecursionError):
        # Held all the same: what it says is only for people.
        return Claim(key, user_name(uid))


def empty_ended(path: str) -> None:
    """Empty a record of ours that nobody holds any more, so that others cannot go on reading what ran.

    A record is locked before it gets its name, and is not locked again: one that is not held stays so. A
    file of several names is left alone: another user may have linked a file of ours from elsewhere.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            facts = os.fstat(descriptor)
            ours = facts.st_uid == os.geteuid() and stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
            if ours and not is_held(descriptor):
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


def is_held(descriptor: int) -> bool:
    """Whether another process holds the lock of an open file; ours is given back at once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _read(document: Any, key: str, user: str) -> Claim:
    from gputui.inventory.claim import Claim

    if not isinstance(document, dict):
        return Claim(key, user)
    since, pid = document.get("since"), document.get("pid")
    if document.get("pids") != pid_namespace():
        # In another container the number means another process.
        pid = None
    return Claim(
        key,
        user,
        float(since) if isinstance(since, (int, float)) and 0 < since < 1e11 else None,
        _text(document.get("command")),
        pid if isinstance(pid, int) and 0 < pid < 2**31 else None,
        _text(document.get("job")),
    )


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None


def pid_namespace() -> str | None:
    """The namespace in which our pids mean something (namespaces(7)); None where there are none."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return None


def user_name(uid: int) -> str:
    """The name of a user; the number where this system (a container) has none for it."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
