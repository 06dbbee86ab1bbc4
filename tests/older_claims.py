"""Claims as gputui before 0.1.0 makes and reads them (format 1): one folder for those of all users.

The rules are those of its allocating/claims/lease.py, with their numbers; this file shares no code with the
present one.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import time
import zlib
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")
_NAME = re.compile(
    r"(?P<key>[0-9A-Za-z]+-[0-9A-Za-z+-]{1,80})@\d{1,10}\.(?:step\d+\.)?(?P<token>[0-9a-f]{32})\.claim"
)
_ANNOUNCED, _HELD = 2, 1


def _range_of(key: str) -> int:
    return (0x677075 << 36) + 16 * zlib.crc32(key.encode())


class OlderClaims:
    """The claims that an older gputui sees in a folder, and its own claims there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def held(self) -> dict[str, int]:
        """The held devices, with their holders."""
        return {key: uid for key, uid, size, _ in self._alive() if size == _HELD}

    def hold(self, key: str) -> int:
        """Take a device and keep it; 4 where another program holds it."""
        token = f"{time.time_ns():016x}{os.urandom(8).hex()}"
        path = self._folder / f"{key}@{os.geteuid()}.{token}.claim"
        mine = os.open(path.with_suffix(".new"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._lock(mine, fcntl.F_WRLCK, _range_of(key), _ANNOUNCED)
        os.fchmod(mine, 0o644)
        path.with_suffix(".new").rename(path)
        if any(other == key and name != path.name for other, _, _, name in self._alive()):
            path.unlink()
            return 4
        self._lock(mine, fcntl.F_UNLCK, _range_of(key) + _HELD, _ANNOUNCED - _HELD)
        print("held", flush=True)
        signal.pause()
        return 0

    def _alive(self) -> list[tuple[str, int, int, str]]:
        found = []
        for path in self._folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                with path.open("rb") as file:
                    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, _range_of(match["key"]), _ANNOUNCED, 0)
                    kind, _, _, size, _ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
                    if kind != fcntl.F_UNLCK:
                        found.append((match["key"], os.fstat(file.fileno()).st_uid, size, path.name))
        return found

    def _lock(self, descriptor: int, kind: int, start: int, length: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
