"""Lets a process, and all that it starts, open every file of the machine except some: Landlock, Linux ≥ 5.19.

A confined process cannot open the excluded files for reading or writing, whatever it sets or reads, and
cannot lift the confinement. Linux does not refuse an open for neither (access mode 3), which no driver's
library uses. It does not refuse a file of the same device in another place either, as in the /dev of a
chroot. Nothing else changes for the process, except what PR_SET_NO_NEW_PRIVS and Landlock themselves forbid:
sudo and other setuid programs have no effect, mounts cannot be changed, and root can create no device files.
No root is needed.

A Landlock ruleset lists what is allowed, downwards from a folder: here, each entry of `/`. The folders on the
path to an excluded file are not listed themselves; their entries are allowed one by one. So an entry that is
created later directly in one of these folders (`/`, `/dev`) cannot be opened either (the kernel's
userspace-api/landlock.rst).

This file needs only the standard library: the supervisor of jobs reads it by its path.
"""

from __future__ import annotations

# ruff: noqa: PTH120
# A launch waits for this module, and pathlib takes milliseconds. Paths are bytes.
import ctypes
import errno
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the numbers are the same on every architecture."""
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _MAKE_CHAR, _REFER = 1 << 1, 1 << 2, 1 << 6, 1 << 13
"""Rights of linux/landlock.h.

REFER (to link or rename from one folder to another) is refused by every ruleset that does not grant it,
handled or not; the first version has no way to grant it. MAKE_CHAR is granted nowhere: root could create
another file of an excluded device.
"""
_FILE = _WRITE_FILE | _READ_FILE
_FOLDER = _FILE | _REFER
_NEEDED_VERSION = 2
_NO_NEW_PRIVS, _GET_NO_NEW_PRIVS = 38, 39
"""PR_SET_NO_NEW_PRIVS and PR_GET_NO_NEW_PRIVS of linux/prctl.h."""
_BADFD = getattr(errno, "EBADFD", 77)
_PATH_ONLY = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC

_WHY = {
    errno.ENOSYS: "the kernel has no Landlock (Linux 5.13 and newer can have it)",
    errno.EOPNOTSUPP: "Landlock is switched off in this kernel (`lsm=` of its command line)",
    errno.E2BIG: "16 confinements are nested already, the most that Landlock allows",
    errno.EPROTONOSUPPORT: (
        "the kernel's Landlock is its first version (Linux 5.13 to 5.18): under it no file could be moved to"
        " another folder"
    ),
    errno.EPERM: "the kernel refuses Landlock's system calls here (a seccomp filter, such as a container's)",
}


class LandlockError(OSError):
    """This process cannot be confined; `strerror` is a sentence."""

    def __init__(self, number: int) -> None:
        super().__init__(number, why(number))


def why(number: int) -> str:
    """Return the sentence for an error of Landlock's system calls (an errno)."""
    return _WHY.get(number) or f"Landlock fails: {os.strerror(number)}"


def check() -> None:
    """Raise LandlockError where this process cannot start a confined process."""
    version = _call(_CREATE_RULESET, None, 0, _VERSION)
    if version < _NEEDED_VERSION:
        raise LandlockError(errno.EPROTONOSUPPORT)
    if _library().prctl(_GET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (0, 0, 0, 0))):
        # This process may be confined itself. The only way to learn how often is one more confinement, of a
        # thread that ends at once.
        in_confined_thread((), lambda: None)


def confine(left_out: Sequence[str | bytes]) -> None:
    """Confine the calling thread, and what it starts from now on: it cannot open files at these absolute
    paths.

    For a link, its target is excluded; a missing path is not an error. Raise LandlockError.
    """
    rules = _ruleset(left_out)
    try:
        _restrict(rules)
    finally:
        os.close(rules)


def started(left_out: Sequence[str | bytes], start: Callable[[], T]) -> T:
    """Return the result of `start`, which starts a process: a confined one where `left_out` is not empty."""
    return in_confined_thread(left_out, start) if left_out else start()


def in_confined_thread(left_out: Sequence[str | bytes], start: Callable[[], T]) -> T:
    """Return or raise the result of `start`, called in a separate confined thread; our own thread stays free.

    A process that it starts is confined, and stays a child of this process. Raise LandlockError.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            confine(left_out)
            results.append(start())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
            errors.append(error)

    thread = threading.Thread(target=run, name="confined")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@lru_cache(1)
def _library() -> ctypes.CDLL:
    """Return the C library. Each CDLL object creates classes of its own, which takes longer than a call."""
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    """Make a system call. Raise LandlockError."""
    if sys.platform != "linux":
        raise LandlockError(errno.ENOSYS)
    # syscall(2) takes longs: a C int would leave the upper half of a register as it was.
    found: int = _library().syscall(
        *(ctypes.c_long(each) if isinstance(each, int) else each for each in (number, *arguments))
    )
    if found < 0:
        raise LandlockError(ctypes.get_errno())
    return found


def _restrict(rules: int) -> None:
    one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if _library().prctl(_NO_NEW_PRIVS, one, zero, zero, zero):
        raise LandlockError(ctypes.get_errno())
    _call(_RESTRICT_SELF, rules, 0)


def _ruleset(left_out: Sequence[str | bytes]) -> int:
    """Return the descriptor of a ruleset that allows everything else. Raise LandlockError."""
    handled = ctypes.c_uint64(_FOLDER | _MAKE_CHAR)
    rules = _call(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    try:
        for path, is_folder in _allowed([os.path.realpath(os.fsencode(each)) for each in left_out]):
            _allow(rules, path, _FOLDER if is_folder else _FILE)
    except BaseException:
        os.close(rules)
        raise
    return rules


def _allowed(left_out: Sequence[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the entries of the folders on the path to the excluded files, and whether each is a folder."""
    if not left_out:
        yield b"/", True
        return
    ways = {b"/"}
    for path in left_out:
        while (path := os.path.dirname(path)) not in ways:
            ways.add(path)
    never = {*left_out, *ways}
    for folder in ways:
        try:
            entries = os.scandir(folder)
        except OSError:
            # The folder is gone, and the excluded file with it; or nobody can see its content.
            continue
        with entries:
            for entry in entries:
                # A link's target is allowed or excluded by itself; /dev/fd and /dev/stdin may lead to a pipe.
                if entry.path not in never and not entry.is_symlink():
                    yield entry.path, entry.is_dir(follow_symlinks=False)


def _allow(rules: int, path: bytes, rights: int) -> None:
    try:
        handle = os.open(path, _PATH_ONLY)
    except OSError:
        # The entry is gone by now, or cannot be opened anyway.
        return
    try:
        if rights & _REFER and not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights = _FILE
        beneath = struct.pack("=Qi", rights, handle)
        _call(_ADD_RULE, rules, _PATH_BENEATH, beneath, 0)
    except LandlockError as error:
        if error.errno != _BADFD:
            # EBADFD: a file of no file system, which Landlock never refuses.
            raise
    finally:
        os.close(handle)
