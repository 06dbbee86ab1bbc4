"""Lists, opens and creates the files of claims: links and pipes are not followed.

Each file belongs to its owner alone: others can read it, and only the owner can write it, and therefore lock
it (system/record_locks.py). The kernel reports the owner (fstat), whatever the file's name says. Anything but
a regular file that all can read and only its owner can write is treated as absent. A file with several names
is as good as any other: its meaning is in its lock, which no other user can make.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.allocating.claims.folder import RECORD, TICKET, VARIABLE, Place, Problems, places
from gputui.system.record_locks import lock, locked
from gputui.system.trust import is_unmapped
from gputui.system.users import Persons

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims: pathlib alone takes some milliseconds.)
    from pathlib import Path

    from gputui.system.environment import Environ

_MAX_BYTES = 16 * 1024
"""The most bytes that are read of a file; a longer one has no content."""

MOST_FILES, MOST_TICKETS = 384, 128
"""The most files of one person that are listed: a user who makes more hides only their own. The users inside
that person's containers (/etc/subuid) are not other persons. And the most tickets that one person draws, so
that there is always room for records."""

_MOST_FOLDERS = 16
"""The most folders of one person that are listed: one in each base, and those of their containers."""

MOST_READ = 512
"""The most records of all other persons together that one look opens, and the most tickets, however large the
crowd. The persons with the most files are cut first. The folder of format 1 counts as one person, because
others can move files of anybody to it. The devices of records that are not opened count as claimed; where
files in the folder of format 1 are not opened, claims may be missing (`Problems`). Of the tickets of one
person, the first ones are opened."""

MAX_COMMAND = 250
"""The most characters of a command in a record or a ticket. JSON writes one as twelve bytes at worst, and the
screen keeps those of a thousand files."""

MOST_SECONDS = 0.05
"""The CPU seconds after which a look opens no more records of other persons, and no more tickets. A file may
have 16 KiB of JSON, and anybody can lock thousands of parts of it for reading, all of which the kernel goes
through for each look at it."""

_MOST_KEPT = 4 * MOST_READ
"""The names that a listing adds before it leaves out those that are not opened."""

TOKEN = "[0-9a-f]{32}"
"""The pattern of the tokens that `new_token` makes."""

NAME = (
    r"(?P<key>[0-9A-Za-z]+-[0-9A-Za-z+-]{1,80})@(?P<uid>[0-9]{1,10})\."
    rf"(?:step(?P<step>[1-9][0-9]{{0,3}})\.)?(?P<token>{TOKEN})\{RECORD}"
)
"""The pattern of a record's name. (Compiled by `re` on first use: on most boxes nobody has claimed anything.)
"""
WAITING = rf"wait\.(?P<uid>[0-9]{{1,10}})\.(?P<token>{TOKEN})\{TICKET}"
"""The pattern of the name of a place in the queue (queue.py)."""

_UNFINISHED = ".new"
"""The suffix of a file that is being made (`create_locked`)."""
_MOMENT = 60.0
"""Seconds after which nobody is making it any more; a process that was stopped for so long is refused."""

OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file is opened, for reading unless another flag says more."""
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
"""Errors that say nothing about a file: this process has no descriptor or memory left, or the disk is broken.
"""


class UntrustedFileError(Exception):
    """This name belongs to something that gputui does not make; the message describes it."""


class Found(NamedTuple):
    """A name in a folder that ends like one of ours, and its owner. (Most do not matter; who opens it checks
    the whole name.)"""

    name: str
    place: Place
    uid: int

    @property
    def path(self) -> str:
        return f"{self.place.folder}/{self.name}"

    @property
    def key(self) -> str:
        """The device of a record."""
        return _key(self.name)


_Fields = tuple[str, Place, int]
"""The fields of a `Found`; there may be many."""
_Files = defaultdict[int | str, list[_Fields]]
_Unread = dict[str | None, int]
"""The owners of files that are not opened: of records by their device, if it is one that the listing is for
(others may make up tens of thousands), else by None."""


def _key(name: str) -> str:
    return name.partition("@")[0].replace("+", "/")


class Listing(NamedTuple):
    """The names of the records and tickets to open, the owners of the other files (`_Unread`), the problems,
    and the devices that it is for."""

    records: list[Found]
    tickets: list[Found]
    unread: Mapping[str | None, int]
    problems: Problems
    keys: frozenset[str]


_NOTHING = Listing([], [], {}, Problems([], []), frozenset())
_seen: dict[str | None, tuple[float, Listing]] = {}
"""By the value of `VARIABLE`: until when the last listing is valid, by the monotonic clock, and the listing.
"""

_CHEAP, _WORTH = 0.005, 20
"""The CPU seconds that each listing may cost, and for how many times its cost a more expensive listing stays
valid. So users who fill the folders cost others at most a twentieth of their time, and one listing per call.
"""


def seen(environ: Environ, keys: Iterable[str] = ()) -> Listing:
    """Return the result of `listed`, for repeated readings: where listing is expensive, the previous result.

    Not for a process that is about to take devices.
    """
    named = environ.get(VARIABLE)
    until, listing = _seen.get(named, (0.0, _NOTHING))
    if time.monotonic() >= until or not listing.keys.issuperset(keys):
        began = time.thread_time()
        listing = listed(environ, listing.keys.union(keys))
        cost = time.thread_time() - began
        _seen[named] = time.monotonic() + (_WORTH * cost if cost > _CHEAP else 0.0), listing
    # (Whoever opens the files adds problems.)
    return listing._replace(problems=Problems(*map(list, listing.problems)))


def is_anything_there(environ: Environ) -> bool:
    """Whether there are any files; nothing is listed completely to find that."""
    with contextlib.suppress(OSError):
        found = places(environ, Problems([], []))
        return any(place.names or (place.uid is not None and os.listdir(place.folder)) for place in found)  # noqa: PTH208
    return True


def in_time(files: Iterable[Found]) -> Iterator[tuple[Found, bool]]:
    """Return the files, each with whether it is still opened: another user's may not be (`MOST_SECONDS`)."""
    until = time.thread_time() + MOST_SECONDS
    for each in files:
        yield each, each.uid == os.geteuid() or time.thread_time() <= until


def forget_what_was_seen() -> None:
    """Make the next `seen` list everything, however recent the last listing is."""
    _seen.clear()


def listed(environ: Environ, keys: Iterable[str] = ()) -> Listing:
    """List the folders of all users, with problems, and with what is left out because there is too much, for
    these devices."""
    keys = frozenset(keys)
    problems, persons, folders, unread = Problems([], []), Persons(), dict[int, str](), _Unread()
    me, own, others = persons.of(os.geteuid()), list[_Fields](), _Files(list)
    read, sizes, kept = Counter[int | str](), Counter[int | str](), 0
    for place in places(environ, problems):
        try:
            if place.uid is None:
                for name in place.names:
                    # (What another user has mounted there (FUSE) is no file of a claim.)
                    with contextlib.suppress(FileNotFoundError, PermissionError):
                        facts = os.lstat(f"{place.folder}/{name}")
                        if distrust := _distrust(facts):
                            problems.ignored.append(f"{name} is ignored: it is {distrust}")
                        # (A file that is also in its user's own folder says the same there.)
                        elif not os.path.lexists(f"{folders.get(facts.st_uid, '')}/{name}"):
                            others[place.folder].append((name, place, facts.st_uid))
                continue
            unmapped = is_unmapped(place.uid)
            if place.uid != os.geteuid() and not unmapped:
                # (A user whose number is not known here may be anybody.)
                folders[place.uid] = place.folder
            # (In a container, all users without a number there are one person, except those whose folders
            # root has made.)
            who = place.folder if place.alone and unmapped else persons.of(place.uid)
            read[who] += not unmapped
            if read[who] > _MOST_FOLDERS:
                place.told.append(f"some claims are ignored: too many folders of one person: {place.folder}")
                continue
            names = _names(place, MOST_FILES - sizes[who])
            sizes[who] += len(names)
            theirs = own if who == me else others[who]
            theirs += zip(names, repeat(place), repeat(place.uid))
            kept += len(names)
            if kept > _MOST_KEPT:
                others, kept = _shared(others, keys, unread), 0
        except OSError as error:
            told = problems.missing if error.errno in _SHORT else place.told
            told.append(f"claims cannot be read: {place.folder}: {error.strerror}")
    files = [*own, *chain(*_shared(others, keys, unread).values())]
    if unread:
        problems.ignored.append("too many records: the devices of those that were not read count as claimed")
    records, tickets = ([Found(*each) for each in files if each[0].endswith(end)] for end in (RECORD, TICKET))
    return Listing(records, tickets, unread, problems, keys)


def _shared(of_each: _Files, keys: Collection[str], unread: _Unread) -> _Files:
    """Return the files that are opened, and add the others to `unread`: see `MOST_READ`."""
    opened = _Files(list)
    for end in RECORD, TICKET:
        alike = [(who, [each for each in files if each[0].endswith(end)]) for who, files in of_each.items()]
        left = MOST_READ
        for number, (who, theirs) in enumerate(sorted(alike, key=lambda each: len(each[1]))):
            share = left // (len(alike) - number)
            left -= min(share, len(theirs))
            if len(theirs) > share:
                if end == TICKET:
                    # (They are then in the order of drawing.)
                    theirs.sort()
                place = theirs[0][1]
                if place.uid is None:
                    # (Another user can move files of somebody to it.)
                    place.told.append(
                        f"some claims may be missing: there are too many files in {place.folder}"
                    )
            opened[who] += theirs[:share]
            for name, _, uid in theirs[share:]:
                unread[key if (key := _key(name)) in keys else None] = uid
    return opened


def _names(place: Place, most: int) -> list[str]:
    """Return at most this number of names in a user's folder."""
    with os.scandir(place.folder) as entries:
        names = [entry.name for entry in islice(entries, most + 1)]
    if len(names) > most:
        place.told.append(f"some claims are ignored: there are too many files in {place.folder}")
    for name in names if place.uid == os.geteuid() else ():
        # Remove files that our own killed programs have left (`create_locked`): there is room for few.
        with contextlib.suppress(OSError):
            path = f"{place.folder}/{name}"
            if name.endswith(_UNFINISHED) and time.time() - os.lstat(path).st_ctime > _MOMENT:
                os.unlink(path)  # noqa: PTH108 - no pathlib in `pick`
    return names[:most]


class Held(NamedTuple):
    """A file with a locked range: what the kernel reports about both, and its own content, None where that is
    not JSON, or is too long."""

    facts: os.stat_result
    start: int
    length: int
    document: Any


def held_file(path: str, start: int = 0, length: int = 0) -> Held | None:
    """Return a file of which its owner has some of this range locked (`record_locks.locked`); None where the
    owner has not, or there is no file. A file that says its name must still have that name.

    Raises UntrustedFileError, and OSError where we have no descriptor left.
    """
    name, descriptor = path.rpartition("/")[2], -1
    try:
        descriptor = os.open(path, OPEN)
        facts = os.fstat(descriptor)
        distrust = _distrust(facts)
        if distrust:
            raise UntrustedFileError(f"{name} is {distrust}")
        taken = locked(descriptor, start, length)
        if taken is None:
            return None
        data = os.read(descriptor, _MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _SHORT:
            raise
        raise UntrustedFileError(f"{name}: {error.strerror}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    import json

    document = None
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(data) if len(data) <= _MAX_BYTES else None
    if isinstance(document, dict) and document.get("record", name) != name:
        # (Another user can rename it where the folder of format 1 is theirs.)
        raise UntrustedFileError(f"{name} was created under another name")
    return Held(facts, *taken, document)


def _distrust(found: os.stat_result) -> str | None:
    """Return why a file is not trusted, None if it is."""
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_mode & 0o022:
        return "writable by users other than its owner"
    if not found.st_mode & 0o004:
        return "not readable by all users"
    return None


def create_locked(folder: Path, name: str, data: bytes, start: int, length: int) -> int:
    """Create a file, lock a range of it, and then give it its name; the descriptor is open for writing.

    Until it is locked nobody else can open it, so nobody else's lock can be in the way. The folder may belong
    to another user (format 1), who could put a link in its place at any moment. Raises OSError.
    """
    new = f".{os.urandom(12).hex()}{_UNFINISHED}"
    descriptor = -1
    place = os.open(folder, OPEN | os.O_DIRECTORY)
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


def moment_of(value: object) -> float | None:
    """A time in a record or a ticket, in epoch seconds; None where the value is none."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1e11 else None


def word_of(value: object) -> str | None:
    """The id of a job or the name of an agent in a record or a ticket; None for what gputui gives to none.

    They are kept in the usage of the box, of which no neighbour may make megabytes.
    """
    return value if isinstance(value, str) and re.fullmatch(r"[\w.@+-]{1,64}", value, re.ASCII) else None


def new_token() -> str:
    """Return the end of the name of a new file: the time, by which files are ordered, and an unguessable
    part."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"
