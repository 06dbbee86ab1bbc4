"""Finds or makes the folder of claims, which all users of the box share.

Candidates are judged by what every user sees alike (kind and mode, by lstat), so that all users choose the
same one. In a sticky folder (mode 1777) a user can remove his own files only, but the owner of the folder can
remove all: only root's, and one's own, are trusted. One of another user is used all the same, since there is
no other place that all share, and said to be his.

In a sticky folder with fs.protected_regular, opening another user's file with O_CREAT fails, even for root:
files there are opened without it first (kernel documentation, sysctl/fs.rst).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gputui.inventory.formatting import printable
from gputui.system.trust import is_trusted

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims and makes none: pathlib alone takes some milliseconds.)
    from pathlib import Path

VARIABLE = "GPUTUI_CLAIMS"
"""Names another folder: one that containers share, or a test's own."""

ADMINISTRATED = "/run/gputui"
"""What an administrator may set up (`setup`): nobody else can remove another one's claim there."""

TMPFILES = "tmpfiles.conf"
"""The file beside this one that makes it at each boot (tmpfiles.d(5))."""

FALLBACKS = tuple(f"{place}/gputui-claims" for place in ("/tmp", "/var/tmp", "/dev/shm"))


def candidates(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The paths at which the folder may be, in the order in which they are tried."""
    named = environ.get(VARIABLE)
    return (named,) if named else (ADMINISTRATED, *FALLBACKS)


def is_shared(folder: str) -> bool:
    """Whether this is a directory, not a link to one, in which all users can create files and remove only
    their own (mode 1777)."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o1777 == 0o1777


def shared_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that may have claims. New claims go to the first; the others may have older ones, made
    before an administrator set a folder up, or before the name of a better one became free."""
    return tuple(folder for folder in candidates(environ) if is_shared(folder))


def shared_folder(environ: Mapping[str, str]) -> str | None:
    """The folder for new claims; None while nobody on the box has claimed anything."""
    return next(iter(shared_folders(environ)), None)


def unusable(environ: Mapping[str, str]) -> str | None:
    """A sentence on what VARIABLE names, where it cannot have claims; None where it can."""
    named = environ.get(VARIABLE)
    if not named or is_shared(named) or not os.path.lexists(named):
        return None
    return (
        f"{VARIABLE} names {printable(named)}, which is not a folder with mode 1777: nothing is claimed there"
    )


def setup() -> str:
    """The configuration that makes root's folder at each boot."""
    from pathlib import Path

    return Path(__file__).with_name(TMPFILES).read_text(encoding="utf-8")


def distrusted(environ: Mapping[str, str]) -> str | None:
    """Whose the folder for new claims is, where he is neither root nor we: he can remove all claims."""
    folder = shared_folder(environ)
    try:
        owner = None if folder is None else os.lstat(folder).st_uid
    except OSError:
        return None
    if owner is None or is_trusted(owner):
        return None
    from gputui.system.users import user_name

    return user_name(owner)


def distrust(environ: Mapping[str, str]) -> str | None:
    """A sentence on the folder of an ordinary user; None where the folder is root's or our own."""
    owner = distrusted(environ)
    if owner is None:
        return None
    named = f"{owner} owns {shared_folder(environ)} and can remove the claims of others"
    return f"{named}: `gputui claims --setup` says how root makes a folder"


def removable_on(environ: Mapping[str, str]) -> frozenset[int]:
    """The file systems (st_dev) on which there may be claims whose records somebody else than root can have
    removed: none where the folder for new claims is root's, else those of all others and of missing ones.

    (Its owner can rename the whole folder, in /tmp too, and leaves no trace of it there.) Not of one that the
    variable names: a folder of its own is a world of its own.
    """
    found: set[int] = set()
    if environ.get(VARIABLE):
        return frozenset()
    first = shared_folder(environ)
    for folder in candidates(environ):
        with contextlib.suppress(OSError):
            try:
                facts = os.lstat(folder)
            except FileNotFoundError:
                if folder != ADMINISTRATED:
                    found.add(os.lstat(folder.rpartition("/")[0]).st_dev)
                continue
            if facts.st_uid != 0:
                found.add(facts.st_dev)
            elif folder == first:
                # (Anybody can make one of the others, and locks without a name for it.)
                return frozenset()
    return frozenset(found)


def make_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder for new claims, made now if there is none; None where none can be made."""
    from pathlib import Path

    found = shared_folder(environ)
    if found is not None:
        return Path(found)
    for candidate in candidates(environ):
        if candidate == ADMINISTRATED and VARIABLE not in environ:
            # Only an administrator makes that one, so that the users agree on who did.
            continue
        folder = Path(candidate)
        with contextlib.suppress(OSError):
            # Made under another name: what has this name is ready.
            new = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}")
            new.mkdir(0o700)
            new.chmod(0o1777)
            try:
                new.rename(folder)
            except OSError:
                new.rmdir()
        if is_shared(candidate):
            return folder
    return None
