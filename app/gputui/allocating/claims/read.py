"""Reads the claims that are alive, and their holders.

A record, `<device>@<uid>.<token>.claim`, is the holder's own file, in the holder's own folder (folder.py).
The kernel keeps a range of it locked (system/record_locks.py) while a process of the job lives; the record of
a step inside a lease is `<device>@<uid>.step1.<token>.claim`. The start of the range identifies the device,
so a record under another name claims nothing; its length gives the stage of the holder (lease.py has the
rules): two bytes while the holder looks for others, one byte once it holds the device. The content of a
record is for people only, and so is the user in its name: the kernel reports the owner.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.allocating.claims.files import (
    MAX_COMMAND,
    NAME,
    OPEN,
    Found,
    Listing,
    UntrustedFileError,
    held_file,
    in_time,
    listed,
    moment_of,
    word_of,
)
from gputui.inventory.device import Among
from gputui.system.lock_holders import File, file_of
from gputui.system.namespaces import pid_namespace
from gputui.system.process_stat import exists
from gputui.system.record_locks import locked
from gputui.system.users import user_name

if TYPE_CHECKING:
    from gputui.inventory.claim import Claim
    from gputui.system.environment import Environ

ANNOUNCED, HELD = 2, 1
"""The bytes of the locked range, which can only become shorter: see `lease.take`."""

_FIRST_RANGE = 0x677075 << 36
"""Where the ranges of devices begin, each of sixteen bytes: far beyond any program's own locks."""

_MAX_PROBLEMS = 3
"""The most problems that are returned one by one; the others are only counted."""

_MAX_ROOTS = 8
"""The most roots that are read from one record: a job has two, its command and its supervisor; jobs share a
claim."""


def range_of(key: str) -> int:
    """Return where the range of a device begins. (Two devices of one box have the same start once in 4
    billion.)"""
    return _FIRST_RANGE + 16 * zlib.crc32(key.encode())


class Record(NamedTuple):
    """A record that is alive.

    held    whether the holder has the device; otherwise it is still looking for others
    token   among those that look, the one with the lowest token goes first
    """

    claim: Claim
    file: File
    held: bool
    token: str


def claims(
    environ: Environ,
    keys: Among = None,
    names: Listing | None = None,
) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
    """Return the claims that are alive, sorted by device, step and time, and the problems, one line each: see
    `records`. `names` is what has been listed already.

    Claims that this very process has taken, and that no command has inherited yet, are left out.
    """
    names = names or listed(environ, keys or ())
    alive = sorted(records(names, keys), key=lambda each: (not each.held, each.token))
    missing, ignored = names.problems
    # (Files that this process does not pass on: inheritable ones belong to a job.)
    ours = {*open_files(inheritable=False).values()} if alive else ()
    # Of those that look for others, the first may get the device and step, unless somebody holds it.
    first = {(each.claim.key, each.claim.step): each for each in reversed(alive)}
    # (Some exist in both formats.)
    settled = {
        (each.token, each.claim): each.claim
        for each in alive
        if (each.held or each is first[each.claim.key, each.claim.step]) and each.file not in ours
    }
    in_order = sorted(settled.values(), key=lambda each: (each.key, each.step, each.since or 0.0))
    more = len(ignored) - _MAX_PROBLEMS
    others = (f"{more} more claims are ignored",) if more > 0 else ()
    return tuple(in_order), (*missing, *ignored[:_MAX_PROBLEMS], *others)


def records(names: Listing, keys: Among = None) -> Iterator[Record]:
    """Return the records that are alive, of these devices (None: of all) and all of our own; problems are
    added to those of the listing, which is for these devices.

    Our own records are returned for each format, and so are those of a user who has another number here. A
    record that is not opened counts as alive, if it is of a device that the listing is for.
    """
    unopened = {**names.unread}
    for each, opened in in_time(names.records):
        if keys is not None and each.key not in keys and each.uid != os.geteuid():
            continue
        if not opened:
            unopened[each.key] = each.uid
            continue
        try:
            if record := _alive(each):
                yield record
        except UntrustedFileError as error:
            names.problems.ignored.append(f"a claim is ignored: {error}")
        except OSError as error:
            names.problems.missing.append(f"a claim cannot be read: {each.path}: {error.strerror}")
    for key, uid in unopened.items():
        if key is not None:
            from gputui.inventory.claim import Claim

            yield Record(Claim(key, user_name(uid)), (0, 0), True, "")


def open_files(inheritable: bool) -> dict[int, File]:
    """Return the open files, by descriptor, that programs started by this process inherit, or those that they
    do not."""
    try:
        numbers: Iterable[int] = map(int, os.listdir("/dev/fd"))  # noqa: PTH208 - descriptors, not paths
    except OSError:
        # There is no /proc here, and a short-lived call has no more than these. (A lease has one per device,
        # above 100.)
        numbers = range(512)
    found = {}
    for number in numbers:
        # (The descriptor through which the list was read is closed by now.)
        with contextlib.suppress(OSError):
            if os.get_inheritable(number) == inheritable:
                found[number] = file_of(os.fstat(number))
    return found


def _alive(found: Found) -> Record | None:
    """Return the record of this name; None if its holder has ended, or we make no such name. Raises
    UntrustedFileError, OSError."""
    name = re.fullmatch(NAME, found.name)
    if name is None:
        return None
    held = held_file(found.path, range_of(found.key), ANNOUNCED)
    if held is None:
        if found.uid == os.geteuid():
            # Its holder executed a command, or was killed, and could not remove it.
            remove_ended(found.path)
        return None
    from gputui.inventory.claim import Claim

    user, own = held.facts.st_uid, held.facts.st_uid == os.geteuid()
    known = Claim(found.key, user_name(user), step=int(name["step"] or 0), own=own, record=found.path)
    # (Its content is for people only: the device is held in any case.)
    claim = _completed(known, held.document)
    return Record(claim, file_of(held.facts), held.length == HELD, name["token"])


def remove_ended(path: str) -> bool:
    """Remove and empty a record or ticket of ours that nobody holds any more, so that others can no longer
    read its content. Return whether it was one.

    It is locked before it gets its name and never again, so one that is not locked has ended. Its content
    must begin with its own name: another user may have linked another file of ours to this name, or may put a
    link to our own folder in the place of the folder of format 1, where a record of this name is alive.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | OPEN)
        try:
            facts = os.fstat(descriptor)
            ours = facts.st_uid == os.geteuid() and stat.S_ISREG(facts.st_mode)
            made_for = b'{"record": "%s"' % path.rpartition("/")[2].encode()
            if ours and locked(descriptor) is None and os.pread(descriptor, 300, 0).startswith(made_for):
                # (An empty file could be of any name: none is left by a program that is killed here.)
                os.unlink(path)  # noqa: PTH108 - no pathlib in `pick`
                os.ftruncate(descriptor, 0)
                return True
        finally:
            os.close(descriptor)
    return False


def _completed(known: Claim, document: Any) -> Claim:
    """The claim that is `known` from the system, completed with its own statements."""
    from gputui.inventory.light_dataclasses import replace

    if not isinstance(document, dict):
        return known
    pid, roots, command = map(document.get, ("pid", "roots", "command"))
    if document.get("pids") != pid_namespace():
        # A pid of another namespace (a container) is another process here.
        pid = roots = None
    pid = pid if _is_pid(pid) else None
    pairs = roots[:_MAX_ROOTS] if isinstance(roots, list) else []
    return replace(
        known,
        since=moment_of(document.get("since")),
        command=command[:MAX_COMMAND] if isinstance(command, str) else None,
        pid=pid,
        job=word_of(document.get("job")),
        ended=pid is not None and not exists(pid),
        roots=tuple(tuple(pair) for pair in pairs if _is_root(pair)),
        until=moment_of(document.get("until")),
        client=word_of(document.get("client")),
    )


def _is_root(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and _is_pid(pair[0]) and isinstance(pair[1], int)


def _is_pid(value: object) -> bool:
    # True is an int in Python, but not a number for readers of our JSON.
    return type(value) is int and 0 < value < 2**31
