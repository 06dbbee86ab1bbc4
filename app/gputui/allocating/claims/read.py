"""Reads the claims that are alive, and who holds them.

A record, `<device>@<uid>.<token>.claim`, is the holder's own file, in his own folder (folder.py), of which
the kernel keeps a range locked (system/record_locks.py) for as long as a process of the job lives; of a step
inside a lease it is `<device>@<uid>.step1.<token>.claim`. Where the range begins says which device it is for,
so that a record under another name claims nothing; how long it is says how far the holder is (lease.py has
the rules): two bytes while he looks whether somebody else is there, one byte once the device is his. What a
record contains is for people only, and so is the user in its name: whose it is, the kernel tells.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.allocating.claims.files import Found, UntrustedFileError, held_file, listed, owner_of
from gputui.allocating.claims.folder import Problems
from gputui.system.lock_holders import File, file_of
from gputui.system.namespaces import pid_namespace
from gputui.system.record_locks import locked
from gputui.system.users import user_name

if TYPE_CHECKING:
    from gputui.inventory.claim import Claim
    from gputui.inventory.process import Identity

ANNOUNCED, HELD = 2, 1
"""Bytes of the range that is locked, which can only become shorter: see `lease.take`."""

_FIRST_RANGE = 0x677075 << 36
"""Where the ranges of devices begin, each of sixteen bytes: far behind what any program locks."""

_MAX_PROBLEMS = 3
"""Problems that are returned one by one; the others are only counted."""

_MAX_TEXT = 4000
"""Characters of a command or job id that are read of a record."""
_MAX_ROOTS = 64
"""Roots that are read of one record: a job has two, its command and its supervisor; jobs share a claim."""


def range_of(key: str) -> int:
    """Where the range of a device begins. (Two devices of one box have the same once in 4 billion.)"""
    return _FIRST_RANGE + 16 * zlib.crc32(key.encode())


class Record(NamedTuple):
    """A record that is alive.

    held    whether the device is its holder's: if not, he is just looking whether he may have it
    token   of those who just look, the one with the lowest token goes first
    """

    claim: Claim
    file: File
    held: bool
    token: str


def claims(
    environ: Mapping[str, str], found: Iterable[Found] | None = None, problems: Problems | None = None
) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
    """The claims that are alive, sorted by device, step and time, and the problems, a line each; `found` are
    the names of the records where they have been listed already, with these `problems`.

    Claims that this very process has taken, and no command has inherited yet, are left out.
    """
    problems = problems or Problems()
    alive = list(records(environ, problems, found=found))
    # (Files that this process does not pass on: inheritable ones belong to a job.)
    ours = {*open_files(inheritable=False).values()} if alive else ()
    # (Some are there in both formats.)
    settled = {(each.token, each.claim): each.claim for each in _settled(alive) if each.file not in ours}
    in_order = sorted(settled.values(), key=lambda each: (each.key, each.step, each.since or 0.0))
    more = len(problems.ignored) - _MAX_PROBLEMS
    others = (f"{more} more claims are ignored",) if more > 0 else ()
    return tuple(in_order), (*problems.missing, *problems.ignored[:_MAX_PROBLEMS], *others)


def records(
    environ: Mapping[str, str],
    problems: Problems,
    keys: Collection[str] | None = None,
    found: Iterable[Found] | None = None,
) -> Iterator[Record]:
    """The records that are alive, of these devices (None: of all); what is wrong is added to `problems`.

    Our own are told for each format, and so are those of whom another number is known here.
    """
    for each in listed(environ, problems).records if found is None else found:
        if keys is not None and each.key not in keys:
            continue
        try:
            record = _alive(each)
        except UntrustedFileError as error:
            problems.ignored.append(f"a claim is ignored: {error}")
        except OSError as error:
            problems.missing.append(f"a claim cannot be read: {each.path}: {error.strerror}")
        else:
            if record:
                yield record


def _settled(alive: Sequence[Record]) -> Iterator[Record]:
    """Of each device and step those who hold it; or else of those who just look the first, who may get it."""
    shown = set[tuple[str, int]]()
    for record in sorted(alive, key=lambda each: (not each.held, each.token)):
        place = record.claim.key, record.claim.step
        if record.held or place not in shown:
            shown.add(place)
            yield record


def open_files(inheritable: bool) -> dict[int, File]:
    """The open files, by descriptor, that the programs that this process starts inherit, or those that they
    do not."""
    try:
        numbers: Iterable[int] = map(int, os.listdir("/dev/fd"))  # noqa: PTH208 - descriptors, not paths
    except OSError:
        # No /proc here, and a short-lived call has no more than these. (A lease has one a device, above 100.)
        numbers = range(512)
    found = {}
    for number in numbers:
        # (The descriptor through which the list was read is closed by now.)
        with contextlib.suppress(OSError):
            if os.get_inheritable(number) == inheritable:
                found[number] = file_of(os.fstat(number))
    return found


def _alive(found: Found) -> Record | None:
    """The record of this name; None if its holder has ended, or we make no such name. Raises
    UntrustedFileError, OSError."""
    step = found.step
    if step is None:
        return None
    held = held_file(found.path, range_of(found.key), ANNOUNCED)
    if held is None:
        if owner_of(found) == os.geteuid():
            # Its holder executed a command, or was killed, and could not remove it.
            remove_ended(found.path)
        return None
    from gputui.inventory.light_dataclasses import replace

    # (What it says is for people only: the device is held all the same.)
    claim = replace(
        _read(held.document, found.key, user_name(held.facts.st_uid)),
        own=held.facts.st_uid == os.geteuid(),
        step=step,
        record=found.path,
    )
    return Record(claim, file_of(held.facts), held.length == HELD, found.token)


def remove_ended(path: str) -> None:
    """Empty and remove a record of ours that nobody holds any more, so that others cannot go on reading what
    ran.

    A record is locked before it gets its name and never again, so that one that is not locked has ended. What
    it says must be its own name: another user may have linked another file of ours to this one.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            facts = os.fstat(descriptor)
            ours = facts.st_uid == os.geteuid() and stat.S_ISREG(facts.st_mode)
            if ours and locked(descriptor) is None and _says_its_name(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.unlink(path)  # noqa: PTH108 - no pathlib in `pick`
        finally:
            os.close(descriptor)


def _says_its_name(descriptor: int, path: str) -> bool:
    """Whether the file was made for this name; one that has been emptied already may have any."""
    name = path.rpartition("/")[2].encode()
    return (
        os.pread(descriptor, 300, 0).startswith(b'{"record": "%s"' % name) or not os.fstat(descriptor).st_size
    )


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
    # True is an int in Python, but not a number for readers of our JSON.
    return type(value) is int and 0 < value < 2**31


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None
