"""Lists, opens and creates the files of claims: links and pipes are not followed.

Each file is its owner's alone: others can read it, and only he can write it, and so lock it
(system/record_locks.py). Whose it is the kernel tells (fstat), whatever its name says. What is not a regular
file that all can read and only its owner can write is treated as absent. One with several names is as good as
any: what it means is in its lock, which no other user can make.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.allocating.claims.folder import RECORD, TICKET, VARIABLE, Place, Problems, places
from gputui.system.record_locks import lock, locked
from gputui.system.trust import is_unmapped
from gputui.system.users import Persons

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims: pathlib alone takes some milliseconds.)
    from pathlib import Path

_MAX_BYTES = 16 * 1024
"""That are read of a file; what a longer one says counts for nothing."""

MOST_RECORDS, MOST_TICKETS = 1024, 128
"""Of one person that are looked at, the newest ones, in both formats together: who makes more hides his own
only. The users inside his containers (/etc/subuid) are no other persons."""

TOKEN = "[0-9a-f]{32}"
"""What `new_token` makes, as a pattern."""

NAME = (
    r"(?P<key>[0-9A-Za-z]+-[0-9A-Za-z+-]{1,80})@(?P<uid>[0-9]{1,10})\."
    rf"(?:step(?P<step>[1-9][0-9]{{0,3}})\.)?(?P<token>{TOKEN})\{RECORD}"
)
"""A record's. (Compiled by `re` when there is one: on most boxes nobody has claimed anything.)"""
WAITING = rf"wait\.(?P<uid>[0-9]{{1,10}})\.(?P<token>{TOKEN})\{TICKET}"
"""That of a place in the queue (queue.py)."""

_UNFINISHED = ".new"
"""How the name of a file ends that is being made (`create_locked`)."""
_MOMENT = 60.0
"""Seconds after which nobody is making it any more; who is, and was stopped so long, is refused."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing of a file: we have no descriptor or memory left."""


class UntrustedFileError(Exception):
    """At this name is something that gputui does not make; the message says what."""


class Found(NamedTuple):
    """A name that fits, in a folder."""

    place: Place
    match: re.Match[str]

    @property
    def path(self) -> str:
        return f"{self.place.folder}/{self.match.string}"

    @property
    def key(self) -> str:
        """The device of a record."""
        return self.match["key"].replace("+", "/")

    @property
    def step(self) -> int:
        """Of a record: see `Claim.step`."""
        return int(self.match["step"] or 0)

    @property
    def is_own(self) -> bool:
        """Whether it stands in our own folder."""
        return self.place.uid == os.geteuid()


class Listing(NamedTuple):
    """The names of records and of tickets, each kind in the order of the names."""

    records: list[Found]
    tickets: list[Found]


_seen: dict[str | None, tuple[float, Listing, Problems]] = {}
"""By the value of `VARIABLE` what was listed last, and until when that is good, by the clock that nobody
sets."""

_CHEAP, _WORTH = 0.005, 20
"""Seconds of CPU time that a listing may cost each time that somebody looks; and how many times as long as it
has cost one that costs more is good for. So who fills the folders costs others a twentieth of their time at
most, and one listing a call."""


def seen(environ: Mapping[str, str], problems: Problems) -> Listing:
    """As `listed`, for those who look again and again: where that costs much, what was found a moment ago.

    Not for who is about to take devices.
    """
    named = environ.get(VARIABLE)
    until, listing, wrong = _seen.get(named, (0.0, Listing([], []), problems))
    if time.monotonic() >= until:
        wrong, began = Problems(), time.thread_time()
        listing = listed(environ, wrong)
        cost = time.thread_time() - began
        _seen[named] = time.monotonic() + (_WORTH * cost if cost > _CHEAP else 0.0), listing, wrong
    problems.missing.extend(wrong.missing)
    problems.ignored.extend(wrong.ignored)
    return listing


def forget_what_was_seen() -> None:
    """Have the next `seen` list everything, however short ago that was done."""
    _seen.clear()


def listed(environ: Mapping[str, str], problems: Problems) -> Listing:
    """What is in the folders of all users; what is wrong, and how much is left out because one person has too
    much, is added to `problems`."""
    persons, found = Persons(), Listing([], [])
    kinds = {RECORD: (NAME, found.records), TICKET: (WAITING, found.tickets)}
    read: Counter[int | str] = Counter()
    in_own = set[tuple[str, int]]()
    for place in places(environ, problems):
        try:
            for name in _names(place, persons, read):
                pattern, those = kinds.get(name[name.rfind(".") :], ("", []))
                match = re.fullmatch(pattern, name)
                if not match:
                    continue
                file = Found(place, match)
                if place.uid is not None and not file.is_own:
                    # (One whose number is not known here may be anybody.)
                    if not is_unmapped(place.uid):
                        in_own.add((name, place.uid))
                elif (name, owner_of(file) if in_own else None) in in_own:
                    # It says the same as that in its user's own folder. (Another's of this name does not.)
                    continue
                those.append(file)
        except OSError as error:
            told = problems.missing if error.errno in _SHORT else place.told
            told.append(f"claims cannot be read: {place.folder}: {error.strerror}")
    return Listing(
        _shared_out(found.records, MOST_RECORDS, persons, problems),
        _shared_out(found.tickets, MOST_TICKETS, persons, problems),
    )


def _names(place: Place, persons: Persons, read: Counter[int | str]) -> Iterator[str]:
    """The names in a folder that may fit; of one person no more than may count, in all of his folders."""
    if place.names is not None or place.uid is None:
        yield from place.names or ()
        return
    person = _person(place, place.uid, persons)
    with os.scandir(place.folder) as entries:
        for entry in entries:
            read[person] += 1
            if read[person] > MOST_RECORDS + MOST_TICKETS:
                place.told.append(f"some claims are ignored: there are too many files in {place.folder}")
                return
            if entry.name.endswith(_UNFINISHED) and place.uid == os.geteuid():
                _remove_if_left(entry)
            yield entry.name


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    """Remove what one of our own programs was killed over (`create_locked`): there is no room for many."""
    with contextlib.suppress(OSError):
        if time.time() - entry.stat(follow_symlinks=False).st_ctime > _MOMENT:
            os.unlink(entry.path)  # noqa: PTH108 - no pathlib in `pick`


def _shared_out(found: list[Found], most: int, persons: Persons, problems: Problems) -> list[Found]:
    """Of each person the newest ones, where there are many."""
    left_out: Counter[tuple[bool, str]] = Counter()
    if len(found) > most:
        of_each: Counter[int | str] = Counter()
        kept = []
        for each in sorted(found, key=lambda each: each.match["token"], reverse=True):
            uid = owner_of(each)
            if uid is None:
                left_out[False, "gputui does not make such files"] += 1
                continue
            person = _person(each.place, uid, persons)
            of_each[person] += 1
            if of_each[person] <= most:
                kept.append(each)
            else:
                # (In a container all who have no number there look like one.)
                unknown = is_unmapped(uid) and each.place.told is problems.missing
                left_out[unknown, f"{most} of one person are read: the newest"] += 1
        found = kept
    for (unknown, why), number in left_out.items():
        told = problems.missing if unknown else problems.ignored
        told.append(f"{number} records are ignored: {why}")
    return sorted(found, key=lambda each: each.match.string)


def owner_of(found: Found) -> int | None:
    """Whose it is; None where it is gone, or nothing that gputui makes: others can have given such a file of
    somebody a name here."""
    if found.place.uid is not None:
        return found.place.uid
    with contextlib.suppress(OSError):
        facts = os.lstat(found.path)
        return None if _distrust(facts) else facts.st_uid
    return None


def _person(place: Place, uid: int, persons: Persons) -> int | str:
    """Who is one person: in a container those who have no number there are, but for those whose folders root
    has made."""
    return place.folder if place.alone and is_unmapped(uid) else persons.of(uid)


class Held(NamedTuple):
    """A file of which somebody has a range locked: what the kernel tells of both, and what it says itself,
    None where that is no JSON or too much of it."""

    facts: os.stat_result
    start: int
    length: int
    document: Any


def held_file(path: str, start: int = 0, length: int = 0) -> Held | None:
    """A file of which its owner has some of this range locked (`record_locks.locked`); None where he has not,
    or there is no file.

    Raises UntrustedFileError, and OSError where we have no descriptor left.
    """
    name = path.rpartition("/")[2]
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _SHORT:
            raise
        what = "a symbolic link" if error.errno in (errno.ELOOP, errno.EMLINK) else error.strerror
        raise UntrustedFileError(f"{name} is {what}") from None
    try:
        facts = os.fstat(descriptor)
        distrust = _distrust(facts)
        if distrust:
            raise UntrustedFileError(f"{name} is {distrust}")
        taken = locked(descriptor, start, length)
        if taken is None:
            return None
        data = os.read(descriptor, _MAX_BYTES + 1)
    except OSError as error:
        raise UntrustedFileError(f"{name}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    import json

    document = None
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(data) if len(data) <= _MAX_BYTES else None
    return Held(facts, *taken, document)


def _distrust(found: os.stat_result) -> str | None:
    """Why a file is not trusted, None if it is."""
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "writable by others than its owner"
    if not found.st_mode & stat.S_IROTH:
        return "not readable by all users"
    return None


def create_locked(folder: Path, name: str, data: bytes, start: int, length: int) -> int:
    """Create a file with a range of it locked, and then give it its name; the descriptor is open for writing.

    Until it is locked nobody else can open it, so that nobody else's lock can be in the way. The folder may
    be another user's (format 1), who could put a link in its place at any moment. Raises OSError.
    """
    new = f".{os.urandom(12).hex()}{_UNFINISHED}"
    descriptor = -1
    place = os.open(folder, _OPEN | os.O_DIRECTORY)
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place)
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lock(descriptor, start, length)
        os.fchmod(descriptor, 0o644)
        os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=place)
        error.filename = str(folder)
        raise
    finally:
        os.close(place)
    return descriptor


def new_token() -> str:
    """What ends the name of a new file: the time, by which files are in order, and what nobody can guess."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"
