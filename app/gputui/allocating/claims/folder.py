"""Finds the places of claims: a folder for each user that only this user can write, so that everything that
others make, fill, rename or remove is their own.

The folders are together in a *base*: the one that `VARIABLE` names; else the one that root has set up
(`setup`), in which nobody else can make anything; else /tmp, where only root could rename or remove them. The
kernel reports the owner of a folder: its name, `gputui-claims.2.<token>`, gives only the format in which it
is written (`FORMAT`). A user with a folder of a newer format holds devices in a way that this gputui cannot
read; it reports this and refuses.

Format 1, of gputui before 0.1.0, has the records of all users in one folder of mode 1777. Each record is also
made there, and those of others there count, so that neither version is given what the other one holds.

Where root has set up the base, nothing outside it is read or made: whatever others fill hides no claim. So
nothing that was claimed outside may be alive at that time (`claims_setup`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gputui.allocating.errors import UnsafeError
from gputui.inventory.formatting import printable
from gputui.system.trust import is_unmapped, who_can_change

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims and makes none: pathlib alone takes some milliseconds.)
    from pathlib import Path

    from gputui.system.environment import Environ

FORMAT = 2

VARIABLE = "GPUTUI_CLAIMS"
"""Names another base: one that containers share, or one for a test."""

ADMINISTRATED = "/run/gputui"
"""The base that root may set up: a folder for each user, each a small file system of its own."""

STICKY = ("/tmp", "/var/tmp")

FALLBACKS = tuple(f"{place}/gputui-claims" for place in ("/tmp", "/var/tmp", "/dev/shm"))
"""The folder of format 1, unless root or `VARIABLE` says otherwise."""

REMEDY = "`gputui claims --setup` shows how root makes a folder that no other user can fill"

_BEGINNING = "gputui-claims."
"""The prefix of a user's folder where everybody can make one; its format follows."""

RECORD, TICKET = ".claim", ".ticket"
"""The suffixes of a user's files: see files.py."""

MAX_FILES, MAX_NAMES = 65_536, 2048
"""The most entries that one listing reads of all folders that everybody can fill; and the most names of ours.
"""

MAX_BYTES = 256 * 2**10
"""The limit for a user's folder itself; for a folder of all users, 128 times as much. Listing a folder that
once had millions of files takes seconds, even if none is left."""


class Place(NamedTuple):
    """A folder with records.

    uid    its user, None where all users have their records in it (format 1)
    told   the list of `Problems` for what is wrong with it
    alone  whether nobody else can make one for this user, because root has made it
    names  the names of the records and tickets of all users
    """

    folder: str
    uid: int | None
    told: list[str]
    alone: bool = False
    names: Sequence[str] = ()


class Problems(NamedTuple):
    """The files that were not read in a listing, one line each.

    missing  there may be claims that were not seen: nothing is claimed then
    ignored  files that are not claims, although their names are like those of claims, or that concern only
             their maker
    """

    missing: list[str]
    ignored: list[str]

    def refuse_if_missing(self) -> None:
        """Raise UnsafeError if claims may be missing."""
        if self.missing:
            raise UnsafeError(f"{self.missing[0]}. {REMEDY}")


def base(environ: Environ) -> tuple[str | None, bool]:
    """Return the folder that contains the folders of users, the same for every user, and whether root has set
    it up, so that nobody else can make anything in it."""
    named = environ.get(VARIABLE)
    for folder in (named,) if named else (ADMINISTRATED, *STICKY):
        facts = _facts(folder)
        # (With the dot it counts as a folder on the way, which may be sticky.)
        if facts and who_can_change(f"{folder}/.") is None:
            closed = not named and folder == ADMINISTRATED and not facts.st_mode & 0o022
            if closed or _is_shared(folder):
                return folder, closed
    return None, False


def _older_folders(environ: Environ) -> tuple[str, ...]:
    """Return the folders in which gputui before 0.1.0 looks for records; it makes new ones in the first."""
    named = environ.get(VARIABLE)
    return tuple(filter(_is_shared, (named,) if named else (ADMINISTRATED, *FALLBACKS)))


def _is_shared(folder: str) -> bool:
    """Whether this is a directory, not a link to one, in which all users can create files and remove only
    their own."""
    facts = _facts(folder)
    return facts is not None and facts.st_mode & 0o1777 == 0o1777


def unusable(environ: Environ) -> str | None:
    """Return why the folder in VARIABLE cannot have claims; None where it can."""
    named = environ.get(VARIABLE)
    if not named or base(environ)[0] or not os.path.lexists(named):
        return None
    why = who_can_change(f"{named}/.")
    what = "not a folder with mode 1777 that only root and you can remove"
    return f"{VARIABLE} names {printable(named)}, which is {what}" + (f" ({why})" if why else "")


def places(environ: Environ, problems: Problems) -> Iterator[Place]:
    """Return the folders with records: those of users in a base, and then the base itself, because a record
    counts in either format; problems are added to `problems`."""
    there, closed = base(environ)
    if there is None and (why := unusable(environ)):
        problems.missing.append(why)
    files = ours = 0
    for folder in dict.fromkeys(filter(None, (there, *(() if closed else _older_folders(environ))))):
        records, full = list[str](), False
        try:
            # (Anybody can use /tmp itself: earlier content there says nothing.)
            full = folder != there and os.lstat(folder).st_size > 128 * MAX_BYTES
            with os.scandir(folder) as entries:
                for entry in () if full else entries:
                    a_users = folder == there and (closed or entry.name.startswith(_BEGINNING))
                    files, ours = files + 1, ours + a_users
                    full = not closed and (files > MAX_FILES or ours > MAX_NAMES)
                    if full:
                        break
                    if a_users and (place := _place(entry.path, problems, closed)):
                        yield place
                    elif not closed and entry.name.endswith((RECORD, TICKET)):
                        records.append(entry.name)
        except OSError as error:
            problems.missing.append(f"claims cannot be read: {folder}: {error.strerror}")
        if full or len(records) > MAX_NAMES:
            problems.missing.append(f"some claims may be missing: there are too many files in {folder}")
        yield Place(folder, None, problems.missing, names=records[:MAX_NAMES])


def _place(folder: str, problems: Problems, closed: bool) -> Place | None:
    """Return the folder, if a user has made it for their records, all can read it and nobody else can write
    it."""
    if (facts := _facts(folder)) is None:
        return None
    roots = closed and (facts.st_uid == 0 or is_unmapped(facts.st_uid))
    if roots and not os.path.ismount(folder):
        # (Root has made it as a mount point for a user's folder, and this container is older than the mount.)
        problems.missing.append(f"the claims in {folder} cannot be seen: it is not mounted here")
        return None
    why = ""
    if facts.st_mode & 0o027 != 0o005:
        why = f"its mode is {facts.st_mode & 0o7777:o}, not 755"
    elif facts.st_size > MAX_BYTES:
        why = f"the folder itself takes {facts.st_size >> 10} KiB"
    if why:
        # (Another user hides only their own claims.)
        told = problems.missing if facts.st_uid == os.geteuid() else problems.ignored
        told.append(f"the claims in {folder} are not read: {why}")
        return None
    form = folder.rpartition("/")[2].partition(_BEGINNING)[2].partition(".")[0]
    if form.isdecimal() and len(form) < 10 and int(form) > FORMAT:
        from gputui.system.users import user_name

        who = printable(user_name(facts.st_uid))
        problems.missing.append(
            f"{who} uses a newer gputui, whose claims this one cannot read ({folder}); update gputui"
        )
        return None
    # (In a container, one user without a number there could hide the records of another.)
    told = problems.missing if is_unmapped(facts.st_uid) and not closed else problems.ignored
    return Place(folder, facts.st_uid, told, closed)


def own_place(environ: Environ) -> Path:
    """Return the folder for our own records, made now if there is none. Raises UnsafeError."""
    from pathlib import Path

    named = environ.get(VARIABLE)
    if named and not os.path.lexists(named):
        if why := who_can_change(named):
            # (They could put a link in its place before it gets its mode.)
            raise UnsafeError(f"{VARIABLE}: {why}. {REMEDY}")
        _make(Path(named), 0o1777)
    problems = Problems([], [])
    there, closed = base(environ)
    own = sorted(place.folder for place in places(environ, problems) if place.uid == os.geteuid())
    if own:
        return Path(own[0])
    problems.refuse_if_missing()
    if closed:
        raise UnsafeError(
            f"root has made no folder in {there} for you; `gputui claims --setup`, run as root, makes one"
        )
    made = Path(there or named or STICKY[0], f"{_BEGINNING}{FORMAT}.{os.urandom(8).hex()}")
    error = _make(made, 0o755) if there else "it does not belong to root, or its mode is not 1777"
    if error is not None:
        raise UnsafeError(f"cannot claim devices: {made.parent}: {error}. {REMEDY}")
    return made


def older_folder(environ: Environ) -> Path | None:
    """Return the folder for our records in format 1, made now if there is none; None where none can be made,
    and where root has set up the base."""
    from pathlib import Path

    if base(environ)[1]:
        return None
    for candidate in () if VARIABLE in environ or _older_folders(environ) else FALLBACKS:
        _make(Path(candidate), 0o1777)
        if _is_shared(candidate):
            break
    return next(map(Path, _older_folders(environ)), None)


def _make(folder: Path, mode: int) -> str | None:
    """Make a folder, under another name first, so that the final name is always complete. Return the error,
    if any."""
    from gputui.system.files import make_folder

    new = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        make_folder(new, mode)
        try:
            new.rename(folder)
        except OSError:
            new.rmdir()
            raise
    except OSError as error:
        return error.strerror
    return None


def _facts(folder: str) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        facts = os.lstat(folder)
        return facts if stat.S_ISDIR(facts.st_mode) else None
    return None
