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
import re
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gputui.allocating.errors import UnsafeError
from gputui.inventory.formatting import printable
from gputui.system.trust import is_trusted, is_unmapped

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

REMEDY = "`gputui claims --setup` says how root makes a place that no other user can fill"

_FORMAT = re.compile(r"gputui-claims\.([0-9]{1,9})\.")

MAX_FILES, MAX_NAMES = 65_536, 2048
"""Entries that are read in one look of all folders that everybody can fill; and names of ours among them."""


States = dict[str, tuple[int, int, int]]
"""Of folders, by path: device, inode and time stamp."""


class Read:
    """How much was read in one look of folders that everybody can fill."""

    files = names = 0


class Place(NamedTuple):
    """A folder that has records.

    uid    its user, None where all users have their records in it (format 1)
    told   takes what is wrong with it: one of the lists of `Problems`
    alone  whether nobody else can have one of this user's: root has made it
    """

    folder: str
    uid: int | None
    told: list[str]
    alone: bool = False


class Problems(NamedTuple):
    """What was not read in a look, a line each.

    missing  there may be claims that were not seen: nothing is claimed then
    ignored  what is no claim, although its name is one's, or is the matter of who made it
    """

    missing: list[str]
    ignored: list[str]

    def refuse_if_missing(self) -> None:
        """Raises UnsafeError."""
        if self.missing:
            raise UnsafeError(f"{self.missing[0]}. {REMEDY}")


def is_shared(folder: str, trusted: bool = False) -> bool:
    """Whether this is a directory, not a link to one, in which all users can create files and remove only
    their own (mode 1777); `trusted`: and nobody but root and we all of them."""
    facts = _facts(folder)
    return bool(facts and facts.st_mode & 0o1777 == 0o1777 and (not trusted or is_trusted(facts.st_uid)))


def is_set_up() -> bool:
    """Whether root has made a base in which nobody else can make anything."""
    facts = _facts(ADMINISTRATED)
    return facts is not None and is_trusted(facts.st_uid) and not facts.st_mode & 0o022


def bases(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that have folders of users, as every user sees them alike. New ones are made in the first;
    the others may have older ones, made before root set one up."""
    named = environ.get(VARIABLE)
    if named:
        return (named,) if unusable(environ) is None and os.path.lexists(named) else ()
    found = [ADMINISTRATED] if is_set_up() else []
    return (*found, *(each for each in (ADMINISTRATED, *STICKY) if is_shared(each, trusted=True)))


def older_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders in which gputui 0.1.0 looks for records; it makes new ones in the first."""
    named = environ.get(VARIABLE)
    return tuple(filter(is_shared, (named,) if named else (ADMINISTRATED, *FALLBACKS)))


def unusable(environ: Mapping[str, str]) -> str | None:
    """A sentence on what VARIABLE names, where it cannot have claims; None where it can."""
    named = environ.get(VARIABLE)
    if not named or not os.path.lexists(named):
        return None
    if not is_shared(named):
        return f"{VARIABLE} names {printable(named)}, which is not a folder with mode 1777"
    if not is_shared(named, trusted=True):
        return f"{VARIABLE} names {printable(named)}, which another user owns, who can take it away"
    return None


def places(
    environ: Mapping[str, str], problems: Problems, states: States | None = None, read: Read | None = None
) -> Iterator[Place]:
    """The folders that have records, those of format 1 last; what is wrong is added to `problems`, the state
    of all that may be or have one to `states`, and how much was read to `read`."""
    named = environ.get(VARIABLE)
    if states is not None:
        states.update(map(state_of, (named,) if named else (ADMINISTRATED, *STICKY, *FALLBACKS)))
    read = Read() if read is None else read
    set_up = not named and is_set_up()
    why = unusable(environ)
    if why:
        problems.missing.append(why)
    # Where root has set up the base, nobody fills it, and nothing else must be whole.
    elsewhere = problems.ignored if set_up else problems.missing
    for base in bases(environ):
        closed = set_up and base == ADMINISTRATED
        missing = problems.missing if closed else elsewhere
        try:
            inside = os.listdir(base) if closed else names(base, ("",), missing, read, "gputui-claims.")  # noqa: PTH208
            for name in inside:
                folder = f"{base}/{name}"
                if states is not None:
                    states.update([state_of(folder)])
                place = _place(folder, missing, problems, closed)
                if place is not None:
                    yield place
        except OSError as error:
            missing.append(f"claims cannot be read: {base}: {error.strerror}")
    # (Root's own may have been one of format 1 before.)
    older = (*older_folders(environ), *((ADMINISTRATED,) if set_up else ()))
    yield from (Place(folder, None, elsewhere) for folder in older)


def names(
    folder: str, endings: tuple[str, ...], missing: list[str], read: Read, beginning: str = ""
) -> Iterator[str]:
    """The names in a folder that everybody can fill which begin and end so, within bounds. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            fits = entry.name.startswith(beginning) and entry.name.endswith(endings)
            read.files += 1
            read.names += fits
            if read.files > MAX_FILES or read.names > MAX_NAMES:
                missing.append(f"some claims may be missing: there are too many files in {folder}")
                return
            if fits:
                yield entry.name


def _place(folder: str, missing: list[str], problems: Problems, closed: bool) -> Place | None:
    """The folder, if a user has made it for his records, all can read it and nobody else can write it."""
    facts = _facts(folder)
    if facts is None:
        return None
    if facts.st_mode & 0o022 or facts.st_mode & 0o005 != 0o005:
        # (Another user hides his own claims only.)
        told = missing if facts.st_uid == os.geteuid() else problems.ignored
        told.append(f"the claims in {folder} are not read: its mode is {facts.st_mode & 0o7777:o}, not 755")
        return None
    form = _FORMAT.match(folder.rpartition("/")[2])
    if form and int(form[1]) > FORMAT:
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
    base, problems = next(iter(bases(environ)), STICKY[0]), Problems([], [])
    own = (place.folder for place in places(environ, problems) if place.uid == os.geteuid())
    found = min((each for each in own if each.startswith(f"{base}/")), default=None)
    if found is not None:
        return Path(found)
    problems.refuse_if_missing()
    if base == ADMINISTRATED and is_set_up():
        raise UnsafeError(f"root has made no folder in {base} for you: `gputui claims --setup` makes one")
    made = Path(base, f"gputui-claims.{FORMAT}.{os.urandom(8).hex()}")
    error = _make(made, 0o755) if bases(environ) else "it is not root's, with mode 1777"
    if error is not None:
        raise UnsafeError(f"cannot claim devices: {base}: {error}. {REMEDY}")
    return made


def older_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder for our records in format 1, made now if there is none; None where none can be made."""
    from pathlib import Path

    found = next(iter(older_folders(environ)), None)
    for candidate in () if found or VARIABLE in environ else FALLBACKS:
        _make(Path(candidate), 0o1777)
        if is_shared(candidate):
            return Path(candidate)
    return Path(found) if found else None


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


def state_of(folder: str) -> tuple[str, tuple[int, int, int]]:
    """A folder, and what changes whenever anything comes or goes in it, or it is another one."""
    facts = _facts(folder)
    return folder, ((facts.st_dev, facts.st_ino, facts.st_ctime_ns) if facts else (0, 0, 0))


def _facts(folder: str) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        facts = os.lstat(folder)
        return facts if stat.S_ISDIR(facts.st_mode) else None
    return None
