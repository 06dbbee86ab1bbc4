"""Finds the places of claims: a folder for each user, which he alone can write, so that what others make,
fill, rename or remove is theirs.

The folders stand together in a *base*: what `VARIABLE` names; else what root has set up (`setup`), in which
nobody else can make anything; else /tmp, where root alone could rename or remove them. Whose a folder is the
kernel tells: its name, `gputui-claims.2.<token>`, says only in which format it is written (`FORMAT`). One who
has a folder of a newer format holds devices in a way that this gputui cannot read, which is said and refused.

Format 1, of gputui 0.1.0, has the records of all users in one folder of mode 1777. Each record is made there,
too, and those of others that are there count, so that neither version is given what the other one holds.
Where root has set up the base, no launch depends on that folder, which anybody can fill.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gputui.allocating.errors import UnsafeError
from gputui.inventory.formatting import printable
from gputui.system.trust import is_unmapped, who_can_change

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims and makes none: pathlib alone takes some milliseconds.)
    from pathlib import Path

FORMAT = 2

VARIABLE = "GPUTUI_CLAIMS"
"""Names another base: one that containers share, or a test's own."""

ADMINISTRATED = "/run/gputui"
"""What root may set up: a folder for each user, each a small file system of its own."""

STICKY = ("/tmp", "/var/tmp")

FALLBACKS = tuple(f"{place}/gputui-claims" for place in ("/tmp", "/var/tmp", "/dev/shm"))
"""Where format 1 has its folder, unless root or `VARIABLE` says otherwise."""

REMEDY = "`gputui claims --setup` shows how root makes a folder that no other user can fill"

_BEGINNING = "gputui-claims."
"""How the name of a user's folder begins where everybody can make one; its format follows."""

RECORD, TICKET = ".claim", ".ticket"
"""How the names of a user's files end: see files.py."""

MAX_FILES, MAX_NAMES = 65_536, 2048
"""Entries that are read in one look of all folders that everybody can fill; and names of ours among them."""


class Place(NamedTuple):
    """A folder that has records.

    uid    its user, None where all users have their records in it (format 1)
    told   takes what is wrong with it: one of the lists of `Problems`
    alone  whether nobody else can have one of this user's: root has made it
    names  those of the records and tickets of all users
    """

    folder: str
    uid: int | None
    told: list[str]
    alone: bool = False
    names: Sequence[str] = ()


class Problems:
    """What was not read in a look, a line each.

    missing  there may be claims that were not seen: nothing is claimed then
    ignored  what is no claim, although its name is one's, or is the matter of who made it
    """

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.ignored: list[str] = []

    def refuse_if_missing(self) -> None:
        """Raises UnsafeError."""
        if self.missing:
            raise UnsafeError(f"{self.missing[0]}. {REMEDY}")


def bases(environ: Mapping[str, str]) -> dict[str, bool]:
    """The folders that have folders of users, as every user sees them alike, each with whether root has set
    it up, so that nobody else can make anything in it. New ones are made in the first; the others may have
    older ones, made before root set one up."""
    named, found = environ.get(VARIABLE), {}
    for folder in (named,) if named else (ADMINISTRATED, *STICKY):
        facts = _facts(folder)
        # (With the dot it is a folder on the way: a sticky one is no matter.)
        if facts and who_can_change(f"{folder}/.") is None:
            closed = not named and folder == ADMINISTRATED and not facts.st_mode & 0o022
            if closed or _is_shared(folder):
                found[folder] = closed
    return found


def _older_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders in which gputui 0.1.0 looks for records; it makes new ones in the first."""
    named = environ.get(VARIABLE)
    return tuple(filter(_is_shared, (named,) if named else (ADMINISTRATED, *FALLBACKS)))


def _is_shared(folder: str) -> bool:
    """Whether this is a directory, not a link to one, in which all users can create files and remove only
    their own."""
    facts = _facts(folder)
    return facts is not None and facts.st_mode & 0o1777 == 0o1777


def unusable(environ: Mapping[str, str]) -> str | None:
    """A sentence on what VARIABLE names, where it cannot have claims; None where it can."""
    named = environ.get(VARIABLE)
    if not named or bases(environ) or not os.path.lexists(named):
        return None
    why = who_can_change(f"{named}/.")
    what = "not a folder with mode 1777 that only root and you can remove"
    return f"{VARIABLE} names {printable(named)}, which is {what}" + (f" ({why})" if why else "")


def places(environ: Mapping[str, str], problems: Problems) -> Iterator[Place]:
    """The folders that have records: those of users in a base, and then the base itself, as a record counts
    in whichever format it is; what is wrong is added to `problems`."""
    there = bases(environ)
    if not there and (why := unusable(environ)):
        problems.missing.append(why)
    # Where root has set up the base, nobody fills it, and nothing else must be whole.
    elsewhere = problems.ignored if any(there.values()) else problems.missing
    files = ours = 0
    for base, closed in (there | dict.fromkeys(_older_folders(environ), False)).items():
        missing, records = problems.missing if closed else elsewhere, list[str]()
        try:
            with os.scandir(base) as entries:
                for entry in entries:
                    is_record = entry.name.endswith((RECORD, TICKET))
                    fits = not is_record and (closed or entry.name.startswith(_BEGINNING))
                    files, ours = files + (not closed), ours + (fits and not closed)
                    if files > MAX_FILES or ours > MAX_NAMES:
                        break
                    if is_record:
                        records.append(entry.name)
                    elif fits and (place := _place(entry.path, missing, problems, closed)):
                        yield place
        except OSError as error:
            missing.append(f"claims cannot be read: {base}: {error.strerror}")
        if files > MAX_FILES or ours > MAX_NAMES or len(records) > MAX_NAMES:
            missing.append(f"some claims may be missing: there are too many files in {base}")
        yield Place(base, None, elsewhere, names=records[:MAX_NAMES])


def _place(folder: str, missing: list[str], problems: Problems, closed: bool) -> Place | None:
    """The folder, if a user has made it for his records, all can read it and nobody else can write it."""
    if (facts := _facts(folder)) is None:
        return None
    roots = closed and (facts.st_uid == 0 or is_unmapped(facts.st_uid))
    if roots and not os.path.ismount(folder):
        # (What root has made to mount a user's folder there, in a container that is older than the mount.)
        missing.append(f"the claims in {folder} are not seen: it is not mounted here")
        return None
    if facts.st_mode & 0o022 or facts.st_mode & 0o005 != 0o005:
        # (Another user hides his own claims only.)
        told = missing if facts.st_uid == os.geteuid() else problems.ignored
        told.append(f"the claims in {folder} are not read: its mode is {facts.st_mode & 0o7777:o}, not 755")
        return None
    form = folder.rpartition("/")[2].partition(_BEGINNING)[2].partition(".")[0]
    if form.isdecimal() and len(form) < 10 and int(form) > FORMAT:
        from gputui.system.users import user_name

        who = printable(user_name(facts.st_uid))
        missing.append(
            f"{who} uses a newer gputui, whose claims this one cannot read ({folder}): use the newer one, too"
        )
        return None
    # (Of those who have no number in this container, one could hide the records of another.)
    told = missing if is_unmapped(facts.st_uid) and not closed else problems.ignored
    return Place(folder, facts.st_uid, told, closed)


def own_place(environ: Mapping[str, str]) -> Path:
    """The folder for our own records, made now if there is none. Raises UnsafeError."""
    from pathlib import Path

    named = environ.get(VARIABLE)
    if named and not os.path.lexists(named):
        _make(Path(named), 0o1777)
    problems, there = Problems(), bases(environ)
    base = next(iter(there), named or STICKY[0])
    own = (place.folder for place in places(environ, problems) if place.uid == os.geteuid())
    found = min((each for each in own if os.path.dirname(each) == base), default=None)  # noqa: PTH120
    if found is not None:
        return Path(found)
    problems.refuse_if_missing()
    if there.get(base):
        raise UnsafeError(f"root has made no folder in {base} for you: `gputui claims --setup` makes one")
    made = Path(base, f"{_BEGINNING}{FORMAT}.{os.urandom(8).hex()}")
    error = _make(made, 0o755) if there else "it does not belong to root with mode 1777"
    if error is not None:
        raise UnsafeError(f"cannot claim devices: {base}: {error}. {REMEDY}")
    return made


def older_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder for our records in format 1, made now if there is none; None where none can be made."""
    from pathlib import Path

    for candidate in () if VARIABLE in environ or _older_folders(environ) else FALLBACKS:
        _make(Path(candidate), 0o1777)
        if _is_shared(candidate):
            break
    return next(map(Path, _older_folders(environ)), None)


def _make(folder: Path, mode: int) -> str | None:
    """Make a folder, under another name at first: what has this name is ready. Says what is in the way."""
    new = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        new.mkdir(0o700)
        new.chmod(mode)
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
