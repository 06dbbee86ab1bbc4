"""Locks on ranges of a file that only a process that may write the file can have (F_OFD_SETLK, fcntl(2)).

A write lock of an open file description needs a descriptor that is open for writing, so only root and the
owner of a file of mode 0644 can have one. The lock lives as long as a process has the open file, as with
`flock`, and children inherit it. Other users may have *read* locks on a file that they can read. Therefore:

- A process that checks asks what would block a read lock (F_OFD_GETLK): only a write lock does.
- The holder locks its whole range before other processes can open the file, and later only unlocks parts of
  it: unlocking cannot be blocked, and locking more could be.

F_OFD_GETLK needs no permission but an open descriptor. The locks hold on every local file system (ext4, xfs,
btrfs, tmpfs), among all containers that share the folder by a bind mount, whatever their namespaces; on an
overlay, among the containers with the same mount. On NFS they are the server's: they hold among hosts, where
the times in tickets mean nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x" if struct.calcsize("P") == 8 else "hhqqi")
"""`struct flock64`: type, whence, start, length, pid."""

END = 2**62
"""The end of ranges without an end: the largest offset of a file is 2**63 - 1."""


def lock(descriptor: int, start: int, length: int) -> None:
    """Lock a range for writing. Raise OSError: another process has it, or the system has no such locks."""
    _call("F_OFD_SETLK", descriptor, fcntl.F_WRLCK, start, length)


def unlock(descriptor: int, start: int, length: int) -> None:
    """Unlock a part of the range that this open file has locked. Raise OSError."""
    _call("F_OFD_SETLK", descriptor, fcntl.F_UNLCK, start, length)


def locked(descriptor: int, start: int = 0, length: int = 0) -> tuple[int, int] | None:
    """Return the first range (start, length) within this one that another open file has locked for writing.

    `length` 0 is a range to the end. None where there is no such lock; the locks of this open file itself do
    not count. Raise OSError.
    """
    kind, _, first, size, _ = _FLOCK.unpack(_call("F_OFD_GETLK", descriptor, fcntl.F_RDLCK, start, length))
    return None if kind == fcntl.F_UNLCK else (first, size)


def _call(command: str, descriptor: int, kind: int, start: int, length: int) -> bytes:
    number = getattr(fcntl, command, None)
    if number is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    return fcntl.fcntl(descriptor, number, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
