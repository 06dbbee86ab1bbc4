"""Confines a process, and all that it starts, to all files of the machine but some: Landlock, Linux ≥ 5.19.

What is confined cannot open the files that are left out for reading or writing, whatever it sets or reads,
and cannot take that off again. (Linux's open for neither, access mode 3, is not refused; no driver's library
asks for it. Nor is a file of the same device that is elsewhere, as in the /dev of a chroot.) Nothing else
changes for it, but for what PR_SET_NO_NEW_PRIVS and Landlock themselves forbid: sudo and other setuid
programs have no effect, mounts cannot be changed, and root can make no device files. No root is needed.

Landlock knows a list of what is allowed, downwards from a folder: here, each entry of `/`, except those on
the way to what is left out, of which the entries are allowed one by one. So what is made later directly in
one of these folders (`/`, `/dev`) cannot be opened either. (The kernel's userspace-api/landlock.rst.)

This file needs nothing but the standard library: the supervisor of jobs reads it by its path.
"""

from __future__ import annotations

# ruff: noqa: PTH120
# (A launch waits for this: pathlib takes milliseconds. Paths are bytes.)
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
"""Rights of linux/landlock.h. REFER (to link or rename from one folder to another) is refused by every
ruleset that does not grant it, handled or not; the first version knows no way to grant it. MAKE_CHAR is
granted nowhere: root could make another file of a device that is left out."""
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
    errno.E2BIG: "16 confinements are within one another already, which is the most that Landlock allows",
    errno.EPROTONOSUPPORT: (
        "the kernel's Landlock is its first version (Linux 5.13 to 5.18): under it no file could be moved to"
        " another folder"
    ),
    errno.EPERM: "the kernel refuses Landlock's system calls here (a seccomp filter, as of a container)",
}


class LandlockError(OSError):
    """This process cannot be confined; `strerror` is a sentence."""

    def __init__(self, number: int) -> None:
        super().__init__(number, why(number))


def why(number: int) -> str:
    """The sentence for an error of Landlock's system calls (an errno)."""
    return _WHY.get(number) or f"Landlock fails: {os.strerror(number)}"


def check() -> None:
    """Raises LandlockError where a process of this one could not be confined."""
    version = _call(_CREATE_RULESET, None, 0, _VERSION)
    if version < _NEEDED_VERSION:
        raise LandlockError(errno.EPROTONOSUPPORT)
    if _library().prctl(_GET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (0, 0, 0, 0))):
        # We may be confined ourselves. Nothing tells how often but one more confinement, of a thread that
        # ends at once.
        in_confined_thread((), lambda: None)


def confine(left_out: Sequence[str | bytes]) -> None:
    """Confine the calling thread, and what it starts from now on: it cannot open what is at these absolute
    paths.

    Of a link, what it leads to is left out; what is not there is no error. Raises LandlockError.
    """
    rules = _ruleset(left_out)
    try:
        _restrict(rules)
    finally:
        os.close(rules)


def started(left_out: Sequence[str | bytes], start: Callable[[], T]) -> T:
    """What `start` returns, which starts a process: it is confined where anything is to be left out."""
    return in_confined_thread(left_out, start) if left_out else start()


def in_confined_thread(left_out: Sequence[str | bytes], start: Callable[[], T]) -> T:
    """What `start` returns or raises, called in a thread of its own that is confined; ours is not.

    A process that it starts is confined, and stays our child. Raises LandlockError.
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
    """The C library. (Each object of it makes classes of its own, which takes longer than a call.)"""
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    """A system call. Raises LandlockError."""
    if sys.platform != "linux":
        raise LandlockError(errno.ENOSYS)
    # (syscall(2) takes longs: a C int would leave the upper half of a register as it was.)
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
    """The descriptor of a ruleset that allows everything else. Raises LandlockError."""
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
    """The entries of the folders on the way to what is left out, and whether each is a folder."""
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
            # (It is gone, and what was to be left out with it; or nobody can see what is in it.)
            continue
        with entries:
            for entry in entries:
                # A link leads to what is allowed by itself or not; /dev/fd and /dev/stdin may lead to a pipe.
                if entry.path not in never and not entry.is_symlink():
                    yield entry.path, entry.is_dir(follow_symlinks=False)


def _allow(rules: int, path: bytes, rights: int) -> None:
    try:
        handle = os.open(path, _PATH_ONLY)
    except OSError:
        # It is gone by now, or nobody can open it either way.
        return
    try:
        if rights & _REFER and not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights = _FILE
        beneath = struct.pack("=Qi", rights, handle)
        _call(_ADD_RULE, rules, _PATH_BENEATH, beneath, 0)
    except LandlockError as error:
        if error.errno != _BADFD:
            # (EBADFD: a file of no file system, which Landlock refuses to nobody.)
            raise
    finally:
        os.close(handle)
