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
from typing import TYPE_CHECKING, NamedTuple

from gputui.allocating.claims.folder import VARIABLE, Place, Problems, Read, States, names, places, state_of
from gputui.system.record_locks import lock
from gputui.system.trust import is_unmapped
from gputui.system.users import Persons

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims: pathlib alone takes some milliseconds.)
    from pathlib import Path

MAX_RECORD_BYTES = 16 * 1024
"""Bytes of a record that are read; a longer one is none of ours."""

MOST_RECORDS, MOST_TICKETS = 512, 64
"""Of one person that are looked at, the newest ones: who makes more hides his own only. The users inside his
containers (/etc/subuid) are no other persons."""

TOKEN = "[0-9a-f]{32}"
"""What `new_token` makes, as a pattern."""

NAME = re.compile(
    r"(?P<key>[0-9A-Za-z]+-[0-9A-Za-z+-]{1,80})@(?P<uid>[0-9]{1,10})\."
    rf"(?:step(?P<step>[1-9][0-9]{{0,3}})\.)?(?P<token>{TOKEN})\.claim"
)
TICKET = re.compile(rf"wait\.(?P<uid>[0-9]{{1,10}})\.(?P<token>{TOKEN})\.ticket")
"""A place in the queue (queue.py)."""

_UNNAMED = re.compile(r"\.[0-9a-f]{24}")
"""A file that is being made (`create_locked`)."""
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
    def is_own(self) -> bool:
        """Whether it stands in our own folder."""
        return self.place.uid == os.geteuid()


class Listing(NamedTuple):
    """The names of records and of tickets, each kind in the order of the names."""

    records: list[Found]
    tickets: list[Found]


class _Seen(NamedTuple):
    """What `seen` has found.

    states   of all folders that were listed
    until    when it is looked at again, by the clock that nobody sets, whether or not anything has changed
    settled  whether the states tell if anything has changed since
    """

    states: States
    listing: Listing
    problems: Problems
    until: float
    settled: bool


_remembered: dict[str | None, _Seen] = {}
"""By the value of `VARIABLE`."""

_CHEAP, _WORTH = 0.005, 10
"""Seconds of CPU time that a listing may cost each time that somebody looks; and how many times as long as it
has cost one that costs more is good for. So who fills the folders and changes something all the time costs
others a tenth of their time at most, and one listing a call."""

_SETTLED = 2.0
"""Seconds after which a folder's time stamp (ctime, which nobody can set) tells whether anything came or went
since it was listed: stamps have steps, of up to two seconds."""


def seen(environ: Mapping[str, str], problems: Problems) -> Listing:
    """As `listed`, for those who look again and again: what was found last, if nothing came or went, or if
    that was just now (`_WORTH`).

    Not for who is about to take devices.
    """
    named = environ.get(VARIABLE)
    found = _remembered.get(named)
    if found is None or not _is_good(found):
        wrong, states, now, began = Problems([], []), States(), time.time(), time.thread_time()
        listing = listed(environ, wrong, states)
        cost = time.thread_time() - began
        until = time.monotonic() + (_WORTH * cost if cost > _CHEAP else 0.0)
        settled = all(now - changed / 1e9 >= _SETTLED for _, _, changed in states.values())
        found = _remembered[named] = _Seen(states, listing, wrong, until, settled)
    problems.missing.extend(found.problems.missing)
    problems.ignored.extend(found.problems.ignored)
    return found.listing


def _is_good(found: _Seen) -> bool:
    return time.monotonic() < found.until or (
        found.settled and found.states == dict(map(state_of, found.states))
    )


def forget_what_was_seen() -> None:
    """Have the next `seen` list everything, however short ago that was done."""
    _remembered.clear()


def listed(environ: Mapping[str, str], problems: Problems, states: States | None = None) -> Listing:
    """What is in the folders of all users; what is wrong, and how much is left out because one person has too
    much, is added to `problems`, and what tells whether a folder has changed since to `states`."""
    persons, states = Persons(), {} if states is None else states
    found = Listing([], [])
    kinds = {".claim": (NAME, found.records), ".ticket": (TICKET, found.tickets)}
    read: Counter[int | str] = Counter()
    twice: set[str] = set()
    everybodys = Read()
    for place in places(environ, problems, states, everybodys):
        try:
            for name in _names(place, persons, read, everybodys):
                # (Much quicker than the pattern, where somebody has filled the folder.)
                kind = kinds.get(name[name.rfind(".") :])
                match = kind and kind[0].fullmatch(name)
                if not kind or not match:
                    continue
                file, uid = Found(place, match), int(match["uid"])
                if place.uid is None and name in twice and _owner(file) == uid:
                    # It says the same as that in its user's own folder. (In another's folder, or of another
                    # user, a file of this name is another one.)
                    continue
                kind[1].append(file)
                if place.uid == uid != os.geteuid():
                    twice.add(name)
        except OSError as error:
            told = problems.missing if error.errno in _SHORT else place.told
            told.append(f"claims cannot be read: {place.folder}: {error.strerror}")
    return Listing(
        _shared_out(found.records, MOST_RECORDS, persons, problems),
        _shared_out(found.tickets, MOST_TICKETS, persons, problems),
    )


def _names(place: Place, persons: Persons, read: Counter[int | str], everybodys: Read) -> Iterator[str]:
    """The names in a folder that may fit; of one person no more than may count, in all of his folders."""
    if place.uid is None:
        yield from names(place.folder, (".claim", ".ticket"), place.told, everybodys)
        return
    person = _person(place, place.uid, persons)
    with os.scandir(place.folder) as entries:
        for entry in entries:
            read[person] += 1
            if read[person] > 2 * (MOST_RECORDS + MOST_TICKETS):
                place.told.append(f"some claims are ignored: there are too many files in {place.folder}")
                return
            if _UNNAMED.fullmatch(entry.name) and place.uid == os.geteuid():
                _remove_if_left(entry)
            yield entry.name


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    """Remove what one of our own programs was killed over (`create_locked`): there is no room for many."""
    with contextlib.suppress(OSError):
        if time.time() - entry.stat(follow_symlinks=False).st_ctime > _MOMENT:
            os.unlink(entry.path)  # noqa: PTH108 - no pathlib in `pick`


def _shared_out(found: list[Found], most: int, persons: Persons, problems: Problems) -> list[Found]:
    """Of each person the newest ones, and no more than so many in each format."""
    left_out: Counter[bool] = Counter()
    none_of_ours = 0
    if len(found) > most:
        of_each: Counter[tuple[int | str, bool]] = Counter()
        kept = []
        for each in sorted(found, key=lambda each: each.match["token"], reverse=True):
            uid = _owner(each)
            if uid is None:
                none_of_ours += 1
                continue
            whose = _person(each.place, uid, persons), each.place.uid is None
            of_each[whose] += 1
            if of_each[whose] <= most:
                kept.append(each)
            else:
                left_out[is_unmapped(uid) and each.place.told is problems.missing] += 1
        found = kept
    if none_of_ours:
        problems.ignored.append(f"{none_of_ours} files are ignored: gputui makes none like them")
    for unknown, number in left_out.items():
        # (In a container all who have no number there look like one.)
        told = problems.missing if unknown else problems.ignored
        told.append(f"{number} older records are ignored: {most} of one person are read, the newest")
    return sorted(found, key=lambda each: each.match.string)


def _owner(found: Found) -> int | None:
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


def open_untrusted(path: str | Path) -> int | None:
    """Open a file for reading; None if there is none.

    Raises UntrustedFileError, and OSError where we have no descriptor left.
    """
    name = str(path).rpartition("/")[2]
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _SHORT:
            raise
        what = "a symbolic link" if error.errno in (errno.ELOOP, errno.EMLINK) else error.strerror
        raise UntrustedFileError(f"{name} is {what}") from None
    distrust = _distrust(os.fstat(descriptor))
    if distrust:
        os.close(descriptor)
        raise UntrustedFileError(f"{name} is {distrust}")
    return descriptor


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

    Until it is locked nobody else can open it, so that nobody else's lock can be in the way. Raises OSError.
    """
    new = folder / f".{os.urandom(12).hex()}"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lock(descriptor, start, length)
        os.fchmod(descriptor, 0o644)
        new.rename(folder / name)
    except OSError as error:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            new.unlink()
        error.filename = error.filename or str(folder)
        raise
    return descriptor


def new_token() -> str:
    """What ends the name of a new file: the time, by which files are in order, and what nobody can guess."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"
