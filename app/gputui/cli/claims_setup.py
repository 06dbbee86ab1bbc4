"""Create, as root, a folder for the claims of each user: a small file system that only this user can fill.

The parent folder belongs to root, and no other user can create files in it. So no user can take space or
names from another user's records, whatever they write and however many user ids they have in containers.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gputui.allocating.claims import folder
from gputui.allocating.claims.files import listed
from gputui.allocating.claims.read import claims
from gputui.allocating.errors import RequestError
from gputui.allocating.queue import waiters
from gputui.system.trust import program

_FIRST_USER, _NOBODY = 1000, 65534
"""The range of the user ids of people (login.defs(5))."""
_NO_SHELLS = ("nologin", "false", "sync")
_OPTIONS = "size=1m,nr_inodes=1200,mode=755,nosuid,nodev,noexec"


class _User(NamedTuple):
    name: str
    uid: int
    gid: int

    @property
    def place(self) -> Path:
        return Path(folder.ADMINISTRATED, self.name)

    @property
    def options(self) -> str:
        return f"{_OPTIONS},uid={self.uid},gid={self.gid}"


def set_up(names: Sequence[str]) -> list[str]:
    """Create the folders of these users, or of all users who can log in. Return the lines for /etc/fstab that
    create them at each boot. Without root, only return the lines. Raises RequestError."""
    users = [_named(name) for name in names] or list(_who_can_log_in())
    told = []
    if os.geteuid() == 0:
        if not folder.base({})[1]:
            _refuse_if_claimed()
        base = Path(folder.ADMINISTRATED)
        try:
            base.mkdir(mode=0o755, exist_ok=True)
            os.chown(base, 0, 0)
            base.chmod(0o755)
            _clean(base)
            for user in users:
                _make(user)
        except OSError as error:
            raise RequestError(f"{error.filename}: {error.strerror}") from None
    else:
        told = ["# For /etc/fstab; `gputui claims --setup`, as root, does it now."]
    return told + [f"gputui {user.place} tmpfs {user.options},x-mount.mkdir 0 0" for user in users]


def _refuse_if_claimed() -> None:
    """Raise RequestError if somebody has a claim or waits: afterwards nobody would see it."""
    names = listed({})
    living = claims({}, None, names)[0] or waiters({}, names.tickets)
    if living or names.unread or names.problems.missing:
        raise RequestError(
            "somebody has claimed devices or waits (`gputui claims`, `gputui queue`), which nobody would see"
            " afterwards; set up when it has ended, or at the next boot: for an ordinary user,"
            " `gputui claims --setup` only prints the lines for /etc/fstab"
        )


def _make(user: _User) -> None:
    """Raises OSError, RequestError."""
    if os.path.ismount(user.place):
        return
    if user.place.is_symlink() or not user.place.is_dir():
        # Another user may have created this while the parent folder was writable; mount would follow a link.
        user.place.unlink(missing_ok=True)
    user.place.mkdir(mode=0o755, exist_ok=True)
    words = ["-t", "tmpfs", "-o", user.options, "gputui", str(user.place)]
    done = _run("mount", *words)
    if done.returncode:
        user.place.rmdir()
        raise RequestError(f"mount {' '.join(words)}: {done.stderr.strip()}")


def _run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the system. Raises RequestError where there is none."""
    place = program(name, os.environ.get("PATH"))
    if place is None:
        raise RequestError(f"PATH has no {name!r} that no other user can change")
    return subprocess.run((place, *words), capture_output=True, text=True, check=False)


def _clean(base: Path) -> None:
    """Remove the folders of users whom the system does not know any more, unless they are in use, and what
    others made while everybody could write here: each call would list it for ever. Raises OSError,
    RequestError."""
    with tempfile.TemporaryDirectory(dir=base.parent, ignore_cleanup_errors=True) as away:
        for place in base.iterdir():
            try:
                owner = pwd.getpwuid(place.lstat().st_uid).pw_name
            except KeyError:
                owner = None
            # umount(8) would follow a link.
            if not os.path.ismount(place):
                if place.name != owner:
                    # Whoever has it open may go on making files in it, but no longer here.
                    place.rename(Path(away, place.name))
            elif owner is None and not _run("umount", str(place)).returncode:
                place.rmdir()


def _named(name: str) -> _User:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise RequestError(f"there is no user {name!r}") from None
    return _User(found.pw_name, found.pw_uid, found.pw_gid)


def _who_can_log_in() -> Iterator[_User]:
    for each in pwd.getpwall():
        person = each.pw_uid == 0 or _FIRST_USER <= each.pw_uid < _NOBODY
        if person and each.pw_shell.rpartition("/")[2] not in _NO_SHELLS:
            yield _User(each.pw_name, each.pw_uid, each.pw_gid)
