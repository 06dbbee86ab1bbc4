"""Every file that gputui writes for itself, and the folder of its state.

A file is written under another name in its folder and then renamed: a reader finds either the old text or the
new text as a whole. Private files are written only where no other user could have placed a link, or could
replace the written file: no other user can change their folder or the path to it (trust.py).

All errors are OSError with a sentence in `strerror`, for the system's errors and for gputui's own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gputui.inventory.others_files import open_checked
from gputui.system.environment import Environ
from gputui.system.trust import ACCESS_LIST, MOST_LINKS, how_changed, is_trusted, who_can_change

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
_NAME_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
"""For a folder that we may write into but not list (mode 0300)."""
_LINK = _NAME_ONLY | getattr(os, "O_SYMLINK", os.O_NOFOLLOW) | os.O_NONBLOCK | os.O_CLOEXEC
"""For a link itself, or whatever else has that name."""
_PATIENCE = 1.0
"""Seconds to wait for another gputui that writes: a person who quits waits that long, too."""


class NoHomeError(Exception):
    """There is no place to keep files; the message has the remedy."""


class UnsafeHomeError(NoHomeError):
    """Another user can change the place, or a folder above it: its content cannot be trusted."""


class NotPrivateError(OSError):
    """Another user could change a file that gputui writes or reads; `strerror` says how."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EPERM, reason)


def state_folder(environ: Environ) -> Path:
    """Return `$XDG_STATE_HOME/gputui` of `environ`, else the state folder of the user who runs this process.

    A relative path does not count (XDG Base Directory Specification). Raise NoHomeError, and UnsafeHomeError
    where other users can change the folder.
    """
    folder = _state_folder(environ)
    reason = who_can_change(str(folder))
    if reason is not None:
        raise UnsafeHomeError(f"{reason}: set XDG_STATE_HOME to a folder that only you can change")
    return folder


def _state_folder(environ: Environ) -> Path:
    named = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):  # noqa: PTH117
        return Path(named, "gputui")
    home = os.environ.get("HOME", os.path.expanduser("~"))  # noqa: PTH111
    if not os.path.isabs(home):  # noqa: PTH117
        raise NoHomeError("there is no home folder for gputui's files; set XDG_STATE_HOME")
    return Path(home, "Library/Application Support" if sys.platform == "darwin" else ".local/state", "gputui")


def private_folder(folder: Path) -> None:
    """Create a folder of gputui's own, with the missing ones above it, or remove the rights of others from an
    existing one.

    Raise OSError, and NotPrivateError where other users can change it or the path to it.
    """
    with _place(folder / "file", folders=True, own=True) as (here, _):
        if os.fstat(here).st_mode & 0o077:
            # (The folder of the descriptor, whatever has its name by now.)
            os.chmod(".", 0o700, dir_fd=here)


def make_folder(folder: str | Path, mode: int = 0o700, parent: int | None = None) -> None:
    """Create one folder of this mode, whatever the umask. Raise OSError.

    `parent` is a descriptor of the folder above. The mode is set by a descriptor of the new folder: a link
    that is in its place by then gives the mode to no other folder.
    """
    os.mkdir(folder, 0o700, dir_fd=parent)
    handle = os.open(folder, os.O_NOFOLLOW | _FOLDER, dir_fd=parent)
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def write_private(
    file: Path, content: str | bytes, synced: bool = False, mode: int = 0o600, folders: bool = False
) -> None:
    """Write a file that only its owner can read, unless `mode` says more; no other user can write into its
    folder. A link there is replaced, not followed.

    `synced`: flush to the disk before returning, for data that must survive a power failure; this may take a
    second. `folders`: make missing folders, for our user alone. Raise OSError, and leave the old file then.
    """
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    with _place(file, folders, last=False, own=True) as (folder, name):
        _replace(folder, name, data, mode, synced)


def append_private(file: Path, content: str) -> int:
    """Add to a file that only its owner can read, and return its size; the file is created if missing.

    Raise OSError, also where the disk is full; a part may be written then.
    """
    data = content.encode()
    with os.fdopen(open_own(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as own:
        os.fchmod(own.fileno(), 0o600)  # whatever the umask left of it
        own.write(data)
        return own.tell()


def create_private(file: Path, flags: int) -> int:
    """Return a descriptor of a new file that only its owner can read, with extra `flags`. Raise OSError."""
    handle = os.open(file, flags | _NEW, 0o600)
    os.fchmod(handle, 0o600)  # whatever the umask left of it
    return handle


def open_own(file: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file of our own, not a link; never block (a named pipe).

    With O_CREAT, a new file is for our user alone. Raise OSError, and NotPrivateError where other users can
    change it.
    """
    handle = os.open(file, flags | _OLD, 0o600)
    facts = os.fstat(handle)
    reason = how_changed(facts, handle)
    if stat.S_ISREG(facts.st_mode) and reason is None:
        return handle
    os.close(handle)
    raise NotPrivateError(f"{reason} it" if reason else "it is not a regular file")


def read_own(file: Path, most: int) -> bytes:
    """Return the beginning of a file that `open_own` opens, at most `most` bytes. Raise OSError."""
    with os.fdopen(open_own(file), "rb") as stream:
        return stream.read(most)


def open_lock(file: Path) -> int:
    """Return a descriptor of a lock file, which is created if missing. Raise OSError."""
    return open_own(file, os.O_RDWR | os.O_CREAT)


def take_lock(file: Path, if_possible: bool = False) -> int | None:
    """Return a descriptor that holds the lock of this file, which is created if missing; None where another
    process holds it. Raise OSError.

    `if_possible`: without the lock where files cannot be locked (some NFS).
    """
    import fcntl

    handle = open_lock(file)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        if not if_possible:
            os.close(handle)
            raise
    return handle


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Hold the lock of this file against other processes of our user; the file is created if missing.

    It must be in a private folder, because everybody who can read a file can lock it. Where files cannot be
    locked (some NFS), go on at once. Raise OSError, also if another process holds the lock for a second.
    """
    deadline = time.monotonic() + _PATIENCE
    while (handle := take_lock(file, if_possible=True)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"another gputui holds {str(file)!r}")
        time.sleep(0.01)
    try:
        yield
    finally:
        os.close(handle)


def write_result(file: Path, data: bytes, private: bool = False, folders: bool = False) -> None:
    """Write a file that the user named, with the present rights of a file of ours, or those that the umask
    leaves to a new file: rights that another user has chosen would be rights to a file of ours. Where others
    can change the folder, they can move any file of ours there: its rights then only limit those of a new
    one.

    `private`: a new file is for the user alone. `folders`: make missing folders. Raise OSError.
    """
    if file.exists() and not file.is_file():
        # A pipe or a device (/dev/stdout) cannot be replaced, and need not be.
        with open_result(file) as stream:
            stream.write(data)
        return
    with _place(file, folders) as (folder, name):
        mode, group = 0o600 if private else None, -1
        with contextlib.suppress(FileNotFoundError):
            facts = os.lstat(name, dir_fd=folder)
            ways = (file, file.resolve())
            ours = facts.st_uid == os.geteuid()
            if ours and any(who_can_change(str(way.parent)) for way in ways):
                # (That of mktemp(1) is for the user alone.)
                mode = facts.st_mode & (_mode_of_new() if mode is None else mode)
            elif ours:
                mode, group = facts.st_mode & 0o777, facts.st_gid
        _replace(folder, name, data, mode, group=group)


def open_given(file: str) -> BinaryIO:
    """Return a stream from a file that the user named, or a pipe of the shell (`<(…)`). Raise OSError.

    A pipe to which nobody writes has ended: to wait for a writer could have no end. So could a pipe that
    another user has open for writing, or a terminal to which their link leads.
    """

    def refuse_another_s(facts: os.stat_result) -> None:
        if not stat.S_ISREG(facts.st_mode) and (reason := who_can_change(file)):
            raise NotPrivateError(f"{reason}, and it is not a regular file")

    handle = open_checked(file, refuse_another_s)
    os.set_blocking(handle, True)
    return os.fdopen(handle, "rb")


def open_result(file: Path) -> BinaryIO:
    """Return a stream to a new or empty file, a pipe or a device that the user named. Raise OSError, also
    where another user could read what is written."""
    # (A link of /proc, as /dev/stdout, may lead to a pipe that has no path.)
    to_none = file.is_symlink() and file.exists() and not file.is_file()
    with _place(file, last=not to_none) as (folder, name):
        try:
            handle = _open_at_once(folder, name, 0 if to_none else os.O_NOFOLLOW)
        except FileNotFoundError:
            handle = _made(folder, name, None)
    try:
        _refuse_another_s(os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "wb")


def _open_at_once(folder: int, name: str, flags: int) -> int:
    """Return a descriptor for writing, of a pipe of ours once somebody reads it. Raise OSError."""
    while True:
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=folder)
            os.set_blocking(handle, True)
            return handle
        except OSError as error:
            facts = os.stat(name, dir_fd=folder)
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(facts.st_mode):
                raise
            # Another user's may be in its place by now, and may have no reader ever.
            _refuse_another_s(facts)
            time.sleep(0.01)


def _refuse_another_s(facts: os.stat_result) -> None:
    is_kept = stat.S_ISREG(facts.st_mode) or stat.S_ISFIFO(facts.st_mode)
    if is_kept and not is_trusted(facts.st_uid):
        raise NotPrivateError("another user has made it, and could read what is written")


@contextlib.contextmanager
def _place(
    file: Path, folders: bool = False, last: bool = True, own: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the folder (a descriptor for its name only) and the name of a file, behind all links.

    Raise OSError for a link of another user, which could lead to any file of ours: others can put one in the
    place of anything that is in a folder of theirs, at any moment.

    folders  make missing folders; those in a folder of another user are for our user alone
    last     follow a link in the place of the file itself
    own      refuse a folder that other users can change, before any is made, and again where it is entered:
             they may have made it in between. New folders are for our user alone
    """
    if own and (reason := who_can_change(str(file.absolute().parent))):
        raise NotPrivateError(reason)
    here = os.open(".", _NAME_ONLY | _FOLDER)
    try:
        ahead, links = [*reversed(file.parts)], 0
        while True:
            name = ahead.pop()
            try:
                step = os.open(name, _LINK, dir_fd=here)
            except FileNotFoundError:
                if not ahead:
                    break
                if not folders:
                    raise
                with contextlib.suppress(FileExistsError):
                    if own:
                        make_folder(name, parent=here)
                    else:
                        os.mkdir(name, 0o777 if _is_own_folder(here) else 0o700, dir_fd=here)
                ahead.append(name)
                continue
            try:
                facts = os.fstat(step)
                if stat.S_ISLNK(facts.st_mode) and not is_trusted(facts.st_uid):
                    raise NotPrivateError("a link of another user leads there")
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if stat.S_ISLNK(facts.st_mode) and (ahead or last):
                    # (On Linux that of the open link: another one may have its name by now.)
                    link, at = ("", step) if _NAME_ONLY else (name, here)
                    ahead += reversed(Path(os.readlink(link, dir_fd=at)).parts)
                    links += 1
                    continue
                # (A descriptor for the name only has no access list to be read: its path has.)
                if own and ahead and (why := how_changed(facts, f"/proc/self/fd/{step}", True)):
                    raise NotPrivateError(f"{why} a folder that leads there")
                if ahead:
                    here, step = step, here
            finally:
                os.close(step)
            if not ahead:
                break
        yield here, name
    finally:
        os.close(here)


def _is_own_folder(folder: int) -> bool:
    return is_trusted(os.fstat(folder).st_uid)


def _made(folder: int, name: str, mode: int | None, group: int = -1) -> int:
    """Return a descriptor of a new file; `mode` None leaves the mode to the umask. Raise OSError.

    A folder of another user gives it neither its group nor an access list (acl(5)), which would be in the
    place of the umask. `group` is the one that `mode` is for: without it, the mode is for no group.
    """
    own = _is_own_folder(folder)
    handle = os.open(name, os.O_WRONLY | _NEW, 0o666 if own and mode is None else 0o600, dir_fd=folder)
    if not own:
        # (It has none, or the file system or the operating system has no access lists.)
        with contextlib.suppress(OSError, AttributeError):
            os.removexattr(handle, ACCESS_LIST)
        group = os.getegid()
        if mode is None:
            mode = _mode_of_new()
    if mode is not None:
        try:
            os.fchown(handle, -1, group)
        except OSError:
            mode &= ~0o070
        os.fchmod(handle, mode)
    return handle


def _mode_of_new() -> int:
    """The mode that the umask leaves to a new file."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


def _replace(
    folder: int, name: str, data: bytes, mode: int | None, synced: bool = False, group: int = -1
) -> None:
    """Write a file in one step: see `_made`."""
    # The file's own name is not part of this name, because it may be as long as a name can be.
    new = f".gputui.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with os.fdopen(_made(folder, new, mode, group), "wb") as stream:
            stream.write(data)
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
