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
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
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
    """A name that ends as one of ours, in a folder. (Most do not matter; `step` checks the whole name.)"""

    place: Place
    name: str

    @property
    def path(self) -> str:
        return f"{self.place.folder}/{self.name}"

    @property
    def key(self) -> str:
        """The device of a record."""
        return self.name.partition("@")[0].replace("+", "/")

    @property
    def token(self) -> str:
        return self.name.rpartition(".")[0][-32:]

    @property
    def step(self) -> int | None:
        """Of a record: see `Claim.step`. None for a name that we do not make."""
        match = re.fullmatch(NAME, self.name)
        return match and int(match["step"] or 0)


class Listing(NamedTuple):
    """The names of records and of tickets."""

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
    persons, folders, found = Persons(), dict[int | None, str](), Listing([], [])
    of_each: defaultdict[int | str | None, list[Found]] = defaultdict(list)
    for place in places(environ, problems):
        try:
            if place.uid is None:
                for name in place.names:
                    file = Found(place, name)
                    uid = owner_of(file)
                    # (A file that is also in its user's own folder says the same there.)
                    if uid not in folders or not os.path.lexists(f"{folders[uid]}/{name}"):
                        of_each[uid if uid is None else _person(place, uid, persons)].append(file)
                continue
            if place.uid != os.geteuid() and not is_unmapped(place.uid):
                # (One whose number is not known here may be anybody.)
                folders[place.uid] = place.folder
            theirs = of_each[_person(place, place.uid, persons)]
            left = max(0, MOST_RECORDS + MOST_TICKETS - len(theirs))
            theirs += [Found(place, name) for name in _names(place, left)]
        except OSError as error:
            told = problems.missing if error.errno in _SHORT else place.told
            told.append(f"claims cannot be read: {place.folder}: {error.strerror}")
    for who, theirs in of_each.items():
        for those, end, most in zip(found, (RECORD, TICKET), (MOST_RECORDS, MOST_TICKETS), strict=True):
            alike = [each for each in theirs if each.name.endswith(end)]
            those += _newest(alike, most, who is not None, problems)
    return found


def _names(place: Place, most: int) -> list[str]:
    """The names in a user's folder, at most this number."""
    with os.scandir(place.folder) as entries:
        names = [entry.name for entry in islice(entries, most + 1)]
    if len(names) > most:
        place.told.append(f"some claims are ignored: there are too many files in {place.folder}")
    for name in names if place.uid == os.geteuid() else ():
        # Remove what our own killed programs have left (`create_locked`): there is room for few.
        with contextlib.suppress(OSError):
            path = f"{place.folder}/{name}"
            if name.endswith(_UNFINISHED) and time.time() - os.lstat(path).st_ctime > _MOMENT:
                os.unlink(path)  # noqa: PTH108 - no pathlib in `pick`
    return names[:most]


def _newest(theirs: list[Found], most: int, known: bool, problems: Problems) -> list[Found]:
    """The newest files of one person, where there are many; none where the owner is not known."""
    if len(theirs) <= most:
        return theirs
    theirs.sort(key=lambda each: each.token)
    end = len(theirs) - most * known
    kept, left_out = theirs[end:], theirs[:end]
    # (In a container all who have no number there look like one.)
    unknown = any(
        each.place.told is problems.missing and is_unmapped(owner_of(each) or 0) for each in left_out
    )
    told = problems.missing if unknown else problems.ignored
    why = f"{most} of one person are read: the newest" if known else "gputui does not make such files"
    told.append(f"{len(left_out)} records are ignored: {why}")
    return kept


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
