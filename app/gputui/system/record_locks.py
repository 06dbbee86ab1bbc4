"""Locks on ranges of a file that only who may write the file can have (F_OFD_SETLK, fcntl(2)).

A write lock of an open file description needs a descriptor that is open for writing, so that nobody but the
owner of a file of mode 0644, and root, can have one. It lives as long as a process has the open file, as
`flock` does, and children inherit it. Others may have *read* locks on a file that they can read; therefore

- whoever looks asks what would stop a read lock (F_OFD_GETLK): only a write lock does;
- whoever holds locks his whole range before others can open the file, and later only gives parts of it back:
  to give back cannot be stopped, and to lock more could be.

F_OFD_GETLK needs no permission but an open descriptor. The locks hold on every local file system (ext4, xfs,
btrfs, tmpfs), among all containers that share the folder by a bind mount, whatever their namespaces; on an
overlay, among those who have the same mount. On NFS they are the server's: they hold among hosts, where the
times in tickets mean nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x" if struct.calcsize("P") == 8 else "hhqqi")
"""`struct flock64`: type, whence, start, length, pid."""

END = 2**62
"""Where ranges end that have no end: the largest offset of a file is 2**63 - 1."""


def lock(descriptor: int, start: int, length: int) -> None:
    """Lock a range for writing. Raises OSError: somebody has it, or the system has no such locks."""
    _call("F_OFD_SETLK", descriptor, fcntl.F_WRLCK, start, length)


def unlock(descriptor: int, start: int, length: int) -> None:
    """Give back a part of what this open file has locked. Raises OSError."""
    _call("F_OFD_SETLK", descriptor, fcntl.F_UNLCK, start, length)


def locked(descriptor: int, start: int = 0, length: int = 0) -> tuple[int, int] | None:
    """The first range (start, length) of this one (length 0: to the end) that somebody else has locked for
    writing; None where nobody has. What this very open file has locked does not count. Raises OSError."""
    kind, _, first, size, _ = _FLOCK.unpack(_call("F_OFD_GETLK", descriptor, fcntl.F_RDLCK, start, length))
    return None if kind == fcntl.F_UNLCK else (first, size)


def _call(command: str, descriptor: int, kind: int, start: int, length: int) -> bytes:
    number = getattr(fcntl, command, None)
    if number is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    return fcntl.fcntl(descriptor, number, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
