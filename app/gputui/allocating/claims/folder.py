"""The shared folder of claims: one for all users of the box, and the same one for each of them.

Candidates are judged by what every user sees alike (kind and mode, by lstat), so that all come to the same
one. In a sticky folder with fs.protected_regular, opening another user's file with O_CREAT fails, even for
root: files there are opened without it first (kernel documentation, sysctl/fs.rst).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # (`pick`, which must be quick, reads claims and makes none: pathlib alone takes some milliseconds.)
    from pathlib import Path

VARIABLE = "GPUTUI_CLAIMS"
"""Names another folder: one that containers share, or a test's own."""

ADMINISTRATED = "/run/gputui"
"""What an administrator may set up: `d /run/gputui 1777 root root` in /etc/tmpfiles.d/gputui.conf."""

FALLBACKS = tuple(f"{place}/gputui-claims" for place in ("/tmp", "/var/tmp", "/dev/shm"))


def candidates(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the folder may be, in order."""
    named = environ.get(VARIABLE)
    return (named,) if named else (ADMINISTRATED, *FALLBACKS)


def is_shared(folder: str) -> bool:
    """Whether this is a folder, and no link to one, in which every user can make files and remove only his
    own."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o1777 == 0o1777


def shared_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that claims may be in. The first is in use; in the others may be those of before an
    administrator set one up, or somebody removed what was in the way of a better place."""
    return tuple(folder for folder in candidates(environ) if is_shared(folder))


def shared_folder(environ: Mapping[str, str]) -> str | None:
    """The folder that is in use, None while nobody on the box has claimed anything."""
    return next(iter(shared_folders(environ)), None)


def make_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder, made now if there is none; None where none can be made."""
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
