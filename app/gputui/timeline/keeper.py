"""Keeper: the files in the state folder: the last hours, for the next run, and the usage of each day.

They are kept for each machine, as home folders are shared between machines. Of several runs, the one that has
the lock writes. Nothing fails where there can be no file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from gputui.inventory.errors import reason_of
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import earliest
from gputui.inventory.snapshot import Snapshot
from gputui.system.environment import Environ
from gputui.system.files import (
    NoHomeError,
    open_own,
    private_folder,
    read_own,
    state_folder,
    take_lock,
    write_private,
)
from gputui.timeline import ring_file
from gputui.timeline.store import Store, Timelines
from gputui.timeline.usage import (
    DAMAGED,
    DamagedDayError,
    Day,
    Meter,
    file_of,
    folder_of,
    host_name,
    read_day,
)

_OF_NO_USE = 86_400.0
"""Seconds after which a file without writes is removed: a container leaves one file for each of its names."""
_DAYS_KEPT = 400
_UP_TO_NOW = 120.0
"""Seconds since the last kept minute within which a program keeps the past now."""


class Keeper:
    """Reads the file once, and writes to it once a minute, both away from the screen's thread.

    clock    seconds since the epoch
    problem  why the past is not kept, None while it is
    """

    def __init__(self, environ: Environ, clock: Callable[[], float] = time.time) -> None:
        self._environ, self._clock = environ, clock
        self._meter = Meter()
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
            store = ring_file.read(read_own(self._file(), ring_file.LARGEST + 1), int(self._clock() // 60))
        self._read = True
        return store

    def keep(self, store: Store, snapshot: Snapshot) -> None:
        """Note a reading: when a minute has ended, write it on a separate thread."""
        minute, before = int(snapshot.time // 60), self._minute
        if before is None or minute < before:
            self._minute = minute
        elif minute > before and self._read and not (self._writing and self._writing.is_alive()):
            self._minute = minute
            self._writing = threading.Thread(
                target=self._write,
                args=(store, minute, self._meter.take()),
                name="gputui: keep the past",
                daemon=True,
            )
            self._writing.start()
        self._meter.add(snapshot)

    def note(self, read: Callable[[], Snapshot]) -> None:
        """Add one reading to the usage, for a call that ends at once; none while another run reads. Raise
        OSError and NoHomeError."""
        if self._has_lock(self._file()):
            try:
                meter = Meter(self._day(self._clock())[1])
                meter.add(read())
                self._keep_day(meter.take())
            finally:
                self.close()

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
        return state_folder(self._environ) / f"timeline-{host_name()}.ring"

    def _write(self, store: Store, end: int, day: Day) -> None:
        """Write the minutes before `end`: they no longer change while they are read. Add `day` to the usage
        of its day."""
        try:
            file = self._file()
            if self._has_lock(file):
                self._keep_day(day)
                if keys := ring_file.kept_keys(store, end):
                    try:
                        # What is not a file of our own is left alone.
                        os.close(open_own(file))
                    except FileNotFoundError:
                        _remove_old(file)
                    write_private(file, ring_file.whole(store, keys, end - 1))
            self.problem = None
        except KeyError:
            pass  # one of very many devices was dropped during the write: the next minute writes again
        except (OSError, NoHomeError, ImportError) as error:
            self.problem = reason_of(error)

    def _day(self, moment: float) -> tuple[Path, Day]:
        """Return the file of a day, and the usage in it: a damaged one is put aside. Raise OSError."""
        folder = folder_of(state_folder(self._environ))
        private_folder(folder)
        file = file_of(folder, moment)
        try:
            return file, read_day(file)
        except DamagedDayError:
            file.replace(file.with_suffix(DAMAGED))
            return file, Day()

    def _keep_day(self, day: Day) -> None:
        """Add to the usage of a day, except what another run has added before. Raise OSError."""
        if not day.until:
            return
        file, kept = self._day(day.until)
        if day.since < kept.until - 1:
            return
        if not kept.until:
            # (Damaged ones, too.)
            for old in sorted(file.parent.glob("[0-9]*"))[:-_DAYS_KEPT]:
                old.unlink()
        kept.add(day)
        write_private(file, kept.text())

    def _has_lock(self, file: Path) -> bool:
        """Return whether this run is the one that writes: it becomes so once no other run writes."""
        private_folder(file.parent)
        if self._lock is None:
            self._lock = take_lock(file.with_name(f".{file.stem}.lock"))
        return self._lock is not None


def with_kept_past(snapshot: Snapshot, environ: Environ) -> Snapshot:
    """The snapshot with since when its devices at 0 % have been so, where their past is kept up to now."""
    store, devices = Keeper(environ, lambda: snapshot.time).read(), []
    for device in snapshot.devices:
        past = store.devices.get(device.key)
        until = 0.0 if past is None else 60.0 * (past.newest + 1)
        # The present minute is kept at its end.
        if device.utilization == 0 and snapshot.time - until < _UP_TO_NOW:
            held = earliest([each.started for each in device.computing])
            since = Timelines(store, until).unused_since(device.key, until, 0.0, inf, held)
            device = replace(device, idle_since=since)
        devices.append(device)
    return replace(snapshot, devices=tuple(devices))


def _remove_old(file: Path) -> None:
    """Remove the files of machines that have not been seen for a day."""
    for other in file.parent.glob("timeline-*.ring"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > _OF_NO_USE:
                other.unlink()
                other.with_name(f".{other.stem}.lock").unlink(missing_ok=True)
