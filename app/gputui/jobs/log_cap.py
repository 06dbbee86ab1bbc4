"""The cap of a log: its middle is freed on the disk, and the rest keeps its offsets.

Neither the command, which writes into the file itself, nor a reader of the log notices. The supervisor of the
job loads this file by its path (supervise.py), and it imports nothing of gputui.
"""

from __future__ import annotations

import contextlib
import os
import signal

_HEAD = 1 << 20
"""Bytes at the beginning of a log that are kept under any cap: the command's first output. A freed range
begins and ends at a multiple of it, so that it covers whole blocks of any file system."""
_LOOK, _LOOK_OFTEN, _LOOK_SELDOM = 1.0, 0.05, 10.0
"""Seconds to the first check of the size of a log, and the least and the most between two checks."""
_PUNCH = 1 | 2
"""FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE of linux/falloc.h."""


class LogCap:
    """Keeps the beginning and the end of the log, our stdout: about `most` bytes on the disk (0: all)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._given_back = _HEAD
        self.pause = _LOOK if most and hasattr(signal, "sigtimedwait") else None
        """Seconds until the next check, None when none is needed."""

    def look(self) -> None:
        """Free the part of the log that exceeds the cap."""
        if self.pause is None:
            return
        facts = os.fstat(1)
        grown, self._size = facts.st_size - self._size, facts.st_size
        if self._size < self._given_back:
            # Somebody has emptied it.
            self._given_back = _HEAD
        end = (self._size - self._most + _HEAD) // _HEAD * _HEAD
        if end > self._given_back and facts.st_blocks * 512 > self._most:
            try:
                _give_back(_HEAD, end - _HEAD)
            except (OSError, AttributeError) as error:
                self.pause = None
                why = getattr(error, "strerror", None) or error
                with contextlib.suppress(OSError):
                    os.write(1, f"gputui: the log has no cap (log_cap) on this file system: {why}\n".encode())
                return
            self._given_back = end
        room = self._most / 16
        if grown > room:
            self.pause = max(self.pause / 4, _LOOK_OFTEN)
        elif grown < room / 4:
            self.pause = min(self.pause * 2, _LOOK_SELDOM)


def _give_back(start: int, length: int) -> None:
    """Make a hole in the log (fallocate(2)). Raises OSError, AttributeError where the call does not exist."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or libc.fallocate
    offset = ctypes.c_longlong
    call.argtypes = (ctypes.c_int, ctypes.c_int, offset, offset)
    if call(1, _PUNCH, start, length):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
