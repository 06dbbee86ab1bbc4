"""Reads the claims that are alive, and who holds them.

A record, `<device>@<uid>.<n>.claim`, is the holder's own file, which the kernel keeps locked (flock) for as
long as a process of the job lives; of a step inside a lease it is `<device>@<uid>.step1.<n>.claim`. A reader
tries the lock of the record, never the lock by which devices are taken, so that reading disturbs nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.allocating.claims.files import (
    MAX_FILES,
    MAX_RECORD_BYTES,
    UntrustedFileError,
    list_matching,
    open_untrusted,
)
from gputui.allocating.claims.folder import shared_folders
from gputui.system.namespaces import pid_namespace
from gputui.system.users import user_name

if TYPE_CHECKING:
    from gputui.inventory.claim import Claim
    from gputui.inventory.process import Identity

_KEY, _STEP = r"(?P<key>[0-9A-Za-z]+-[0-9A-Za-z+-]{1,80})", r"(?:step(?P<step>[1-9][0-9]{0,3})\.)?"
NAME = re.compile(rf"{_KEY}@(?P<uid>[0-9]{{1,10}})\.{_STEP}(?P<n>[0-9]{{1,4}})\.claim")
LOCK = re.compile(rf"{_KEY}\.{_STEP}[0-9]{{1,4}}\.lock")
"""The file by which a device is locked (lease.py)."""
TICKET = re.compile(r"wait\.(?P<uid>[0-9]{1,10})\.[0-9a-f]{1,40}\.ticket")
"""A place in the queue (queue.py)."""

_MAX_PROBLEMS = 3
"""Problems that are returned one by one; the others are only counted."""

_MAX_TEXT = 4000
"""Characters of a command or job id that are read of a record."""
_MAX_ROOTS = 4
"""Roots that are read of one record: a job has two, its command and its supervisor."""

Files = frozenset[tuple[int, int]]
"""Open files, by device and inode."""


def any_waiting(environ: Mapping[str, str]) -> bool:
    """Whether somebody may be in the queue: there is a ticket, alive or not."""
    for folder in shared_folders(environ):
        with contextlib.suppress(OSError):
            if list_matching(folder, TICKET)[0]:
                return True
    return False


def claims(environ: Mapping[str, str]) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
    """The claims that are alive, sorted by device, step and time, and the problems, a line each.

    Claims that this very process has taken, and no command has inherited yet, are left out.
    """
    found: list[Claim] = []
    problems: list[str] = []
    for folder in shared_folders(environ):
        try:
            matches, cut = list_matching(folder, NAME)
        except OSError as error:
            problems.append(f"claims cannot be read: {folder}: {error.strerror}")
            continue
        if cut:
            problems.append(f"some claims may be missing: {folder} has more than {MAX_FILES} files")
        ours = _our_files() if matches else frozenset()
        for match in matches:
            key = match["key"].replace("+", "/")
            try:
                claim = _alive(f"{folder}/{match.string}", key, int(match["uid"]), ours)
            except UntrustedFileError as error:
                problems.append(f"a claim is ignored: {error}")
            else:
                if claim and match["step"]:
                    from dataclasses import replace

                    claim = replace(claim, step=int(match["step"]))
                found += [claim] if claim else []
    found.sort(key=lambda each: (each.key, each.step, each.since or 0.0))
    return tuple(found), _at_most_three(problems)


def _at_most_three(problems: Sequence[str]) -> tuple[str, ...]:
    if len(problems) <= _MAX_PROBLEMS:
        return tuple(problems)
    return (*problems[:_MAX_PROBLEMS], f"{len(problems) - _MAX_PROBLEMS} more claims are ignored")


def _our_files() -> Files:
    """The open files that this process does not pass on. Inheritable ones belong to a job."""
    found: set[tuple[int, int]] = set()
    for descriptor in open_descriptors():
        # The descriptor through which the list was read is closed by now.
        with contextlib.suppress(OSError):
            if not os.get_inheritable(descriptor):
                facts = os.fstat(descriptor)
                found.add((facts.st_dev, facts.st_ino))
    return frozenset(found)


def open_descriptors() -> Iterable[int]:
    """The numbers under which this process may have files open."""
    try:
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - descriptors, not paths
    except OSError:
        # No /proc here, and a short-lived call has no more than these. (A lease has two a device, above 100.)
        return range(512)


def _alive(path: str, key: str, uid: int, ours: Files) -> Claim | None:
    """The claim of a record; None if its holder has ended or is this process. Raises UntrustedFileError."""
    name, descriptor = path.rpartition("/")[2], open_untrusted(path)
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
                # Its holder executed a command, or was killed, and could not empty it.
                empty_ended(path)
            return None
        data = os.read(descriptor, MAX_RECORD_BYTES + 1)
    finally:
        os.close(descriptor)
    import json
    from dataclasses import replace

    from gputui.inventory.claim import Claim

    if len(data) > MAX_RECORD_BYTES:
        raise UntrustedFileError(f"{name} is longer than {MAX_RECORD_BYTES} bytes")
    try:
        claim = _read(json.loads(data), key, user_name(uid))
    except (ValueError, RecursionError):
        # The device is held all the same: the record's content is for people only.
        claim = Claim(key, user_name(uid))
    return replace(claim, own=uid == os.geteuid())


def empty_ended(path: str) -> None:
    """Empty a record of ours that nobody holds any more, so that others cannot go on reading what ran.

    A record is locked before it gets its name and never again, so that one that is not locked has ended. A
    file with several names is left alone: another user may have linked another file of ours to this name.
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
    """Whether another process holds the lock of an open file. Our own try is released at once."""
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
    since, pid, roots = document.get("since"), document.get("pid"), document.get("roots")
    if document.get("pids") != pid_namespace():
        # A pid of another namespace (a container) is another process here.
        pid = roots = None
    pid = pid if _is_pid(pid) else None
    return Claim(
        key,
        user,
        float(since) if isinstance(since, (int, float)) and 0 < since < 1e11 else None,
        _text(document.get("command")),
        pid,
        _text(document.get("job")),
        pid is not None and _has_ended(pid),
        roots=_roots(roots),
    )


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # It is another user's.
        return False
    return False


def _roots(value: object) -> tuple[Identity, ...]:
    from gputui.inventory.process import Identity

    pairs = value[:_MAX_ROOTS] if isinstance(value, list) else []
    return tuple(
        Identity(pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and _is_pid(pair[0]) and isinstance(pair[1], int)
    )


def _is_pid(value: object) -> bool:
    return isinstance(value, int) and 0 < value < 2**31


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None
