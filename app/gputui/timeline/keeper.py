"""Keeper: the file in the state folder that passes the past from one run of the screen to the next.

There is one file for each machine, as home folders are shared between machines. Of several runs, the one that
has the lock writes. Nothing fails where there can be no file.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gputui.system.files import NoHomeError, open_own, private_folder, state_folder, take_lock, write_private
from gputui.timeline import ring_file
from gputui.timeline.store import Store

_OF_NO_USE = 86_400.0
"""Seconds after which a file without writes is removed: a container leaves one file for each of its names."""


class Keeper:
    """Reads the file once, and writes to it once a minute, both away from the screen's thread.

    clock    seconds since the epoch
    problem  why the past is not kept, None while it is
    """

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        self._environ, self._clock = environ, clock
        self._read = False
        self._minute: int | None = None
        self._lock: int | None = None
        self._writing: threading.Thread | None = None
        self.problem: str | None = None

    def read(self) -> Store:
        """Return what is kept of the last twelve hours: nothing where there is no valid file.

        Only for a thread that may wait.
        """
        store = Store()
        with contextlib.suppress(OSError, NoHomeError, ring_file.DamagedError):
            handle = open_own(self._file())
            try:
                with os.fdopen(handle, "rb", closefd=False) as stream:
                    store = ring_file.read(stream.read(ring_file.LARGEST + 1), int(self._clock() // 60))
            finally:
                os.close(handle)
        self._read = True
        return store

    def keep(self, store: Store, now: float) -> None:
        """Note the time `now`: when a minute has ended, write it on a separate thread."""
        minute, before = int(now // 60), self._minute
        if before is None or minute < before:
            self._minute = minute
        elif minute > before and self._read and not (self._writing and self._writing.is_alive()):
            self._minute = minute
            self._writing = threading.Thread(
                target=self._write, args=(store, before, minute), name="gputui: keep the past", daemon=True
            )
            self._writing.start()

    def join(self, patience: float) -> None:
        """Wait until a write in progress has finished."""
        if self._writing is not None:
            self._writing.join(patience)

    def close(self) -> None:
        """Release the lock, so that another run can write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _file(self) -> Path:
        # Windows has no uname(2), and no locks of this kind either.
        host = re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename)[:64] if hasattr(os, "uname") else "host"
        return state_folder(self._environ) / f"timeline-{host}.ring"

    def _write(self, store: Store, start: int, end: int) -> None:
        """Write the minutes from `start` to before `end`: they no longer change while they are read."""
        try:
            file = self._file()
            private_folder(file.parent)
            if self._has_lock(file):
                _write(file, store, max(start, end - ring_file.MINUTES), end)
            self.problem = None
        except KeyError:
            pass  # one of very many devices was dropped during the write: the next minute writes again
        except (OSError, NoHomeError, ImportError) as error:
            self.problem = (error.strerror if isinstance(error, OSError) else "") or str(error)

    def _has_lock(self, file: Path) -> bool:
        """Return whether this run is the one that writes: it becomes so once no other run writes."""
        if self._lock is None:
            self._lock = take_lock(file.with_name(f".{file.stem}.lock"))
        return self._lock is not None


def _write(file: Path, store: Store, start: int, end: int) -> None:
    keys = ring_file.kept_keys(store, end)
    if not keys:
        return
    head = ring_file.head(store, keys)
    try:
        handle = open_own(file, os.O_RDWR)
    except FileNotFoundError:
        _remove_old(file)
        write_private(file, ring_file.whole(store, keys, end - 1))
        return
    try:
        if os.fstat(handle).st_size == ring_file.size(keys) and os.pread(handle, len(head), 0) == head:
            for minute in range(start, end):
                os.pwrite(handle, ring_file.record(store, keys, minute), ring_file.place(keys, minute))
            return
    finally:
        os.close(handle)
    # Another set of devices: the store has everything that the file had.
    write_private(file, ring_file.whole(store, keys, end - 1))


def _remove_old(file: Path) -> None:
    """Remove the files of machines that have not been seen for a day."""
    for other in file.parent.glob("timeline-*.ring"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > _OF_NO_USE:
                other.unlink()
                other.with_name(f".{other.stem}.lock").unlink(missing_ok=True)
