"""The queue: a ticket file for each waiting program, in its user's folder, in the order of drawing.

A ticket is a file of the waiter's own. The kernel keeps a range of it locked while the waiter lives, so a
process that dies leaves the line. A ticket's place is the time of its last change in the kernel (ctime),
which nobody can set back. Each waiter looks only at the nearest ticket before its own that could want the
same devices.

The range begins at the second (by the clock since the machine's start) at which the waiter has last reported
that it can take devices. The waiter unlocks the part before it (`Ticket.beat`) at each look after which the
driver has answered, and while it rests. A waiter that is stopped, or whose driver does not answer, no longer
reports. After fifteen seconds it is behind all others, and if it comes back it goes to the end of the line.
Moving a lock writes nothing to a disk, and nobody else can stop it (system/record_locks.py). A waiter lets
only those go first that it has seen in line ever since it drew its ticket: a program that merely moves its
lock again, or locks a file that it made long ago, stays behind.

Like records, tickets are also made in the folder of format 1 (claims/folder.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from gputui.allocating.claims.files import (
    MAX_COMMAND,
    MOST_TICKETS,
    WAITING,
    Found,
    UntrustedFileError,
    create_locked,
    forget_what_was_seen,
    held_file,
    in_time,
    moment_of,
    new_token,
    seen,
    word_of,
)
from gputui.allocating.claims.folder import MAX_FILES, older_folder, own_place
from gputui.allocating.claims.read import remove_ended
from gputui.allocating.errors import UnsafeError
from gputui.choosing.capacity import can_never_start
from gputui.inventory.device import Among
from gputui.inventory.formatting import devices_text, printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter, Waiters
from gputui.system.environment import Environ
from gputui.system.record_locks import END, unlock
from gputui.system.users import user_name

BEAT = 4.0
"""Seconds after which a waiter reports again that it can take devices."""
_SILENT = 14.0
"""Seconds of silence after which a waiter has lost its place."""
_MOST_DEVICES = 1024
_MOST_NAMED = 3
"""The most waiters that a sentence names; the others are only counted."""


def waiters(environ: Environ, found: Iterable[Found] | None = None, keys: Among = None) -> Waiters:
    """All waiters, the first in line first; those that have lost their place are behind all others.

    `found` are the ticket files, where they have been listed already. With `keys`, the devices that they name
    are only those of this box: others may name a thousand, and a screen keeps all waiters.
    """
    there = dict[tuple[str, str], Waiter]()
    for each, opened in in_time(seen(environ).tickets if found is None else found):
        with contextlib.suppress(UntrustedFileError, OSError):
            if opened and re.fullmatch(WAITING, each.name) and (waiter := _alive(each.path)):
                # Some tickets exist in both formats; another user's ticket with this name is a different one.
                if keys is not None and waiter.devices is not None:
                    waiter = replace(waiter, devices=waiter.devices.intersection(keys))
                same = each.name, waiter.user
                there[same] = min(waiter, there.get(same, waiter), key=lambda one: one.place)
    return tuple(sorted(there.values(), key=lambda waiter: (waiter.silent, waiter.place)))


def in_line_for(keys: Collection[str], environ: Environ, box: Snapshot | None = None) -> Waiters:
    """The waiters that could take one of these devices, the first in line first; see `wanting`."""
    return wanting(waiters(environ), keys, box)


def wanting(line: Sequence[Waiter], keys: Among, box: Snapshot | None) -> Waiters:
    """The waiters of a line that could take one of these devices (None: any device).

    Steps inside leases are left out, and waiters that have lost their place or can never start on this box.
    """
    return tuple(
        each
        for each in line
        if each.step == 0 and not each.silent and each.wants_of(keys) and not can_never_start(each, box)
    )


def _by_whose(line: Sequence[Waiter]) -> list[list[Waiter]]:
    """The waiters of other users, and our own."""
    return [[each for each in line if each.ours == own] for own in (False, True)]


def in_words(line: Sequence[Waiter]) -> str:
    """The waiters ahead in line: "1 person is ahead of you in line: ana (4 devices)", and
    "your own job waits ahead (x3f1, 3 devices)"."""
    others, own = _by_whose(line)
    said = []
    if others:
        how_many = "1 person is" if len(others) == 1 else f"{len(others)} people are"
        said.append(f"{how_many} ahead of you in line: {names_in_line(others)}")
    if own:
        named = [
            f"{f'{printable(w.job)}, ' if w.job else ''}{devices_text(w.count)}" for w in own[:_MOST_NAMED]
        ]
        more = f" and {len(own) - len(named)} more" if len(own) > len(named) else ""
        what = "job" if all(w.job for w in own) else "run"
        plural, verb = ("s", "wait") if len(own) > 1 else ("", "waits")
        said.append(f"your own {what}{plural} {verb} ahead ({'; '.join(named)}{more})")
    return "; ".join(said)


def names_in_line(line: Sequence[Waiter]) -> str:
    """Who waits, in few words, other users first: "ana (4 devices), 2 more, 3 of your jobs"."""
    others, own = _by_whose(line)
    said = [f"{printable(w.user)} ({devices_text(w.count)})" for w in others[:_MOST_NAMED]]
    said += [f"{len(others) - len(said)} more"] if len(others) > len(said) else []
    if own:
        what = "job" if all(w.job for w in own) else "run"
        one = f"your {what} {printable(own[0].job or '')}".rstrip()
        said.append(one if len(own) == 1 else f"{len(own)} of your {what}s")
    return ", ".join(said)


class Ticket:
    """Our own place in line, from `draw` to `leave`, or to the end of this process."""

    def __init__(self, files: Sequence[tuple[Path, int]], devices: frozenset[str] | None, step: int) -> None:
        self._files, self._devices, self._step = [*files], devices, step
        self._place = self._drawn
        self._said = _now()
        self._before: set[Waiter] | None = None

    @property
    def _drawn(self) -> tuple[int, str]:
        path, descriptor = self._files[0]
        return _place(os.fstat(descriptor), str(path))

    @classmethod
    def draw(
        cls,
        environ: Environ,
        count: int,
        devices: frozenset[str] | None,
        command: str,
        step: int = 0,
        job: str | None = None,
        client: str | None = None,
        min_free: int | None = None,
        max_util: int | None = None,
    ) -> Ticket:
        """Get in line. Raises UnsafeError, OSError.

        `command` is the text that every user may read (`secrets.program_and_script`). For the others, see
        `Waiter`.
        """
        # The kernel's clock for files ticks every few milliseconds: the token orders tickets within one tick.
        name = f"wait.{os.geteuid()}.{new_token()}.ticket"
        about = {
            "record": name,
            "schema": 1,
            "count": count,
            "devices": None if devices is None else sorted(devices),
            "since": time.time(),
            "command": command[:MAX_COMMAND],
            "step": step,
            "job": job,
            "client": client,
            "min_free": min_free,
            "max_util": max_util,
        }
        now, data = int(_now()), json.dumps(about).encode()
        own, older = own_place(environ), older_folder(environ)
        if _clear(own) >= MOST_TICKETS:
            raise UnsafeError(f"{MOST_TICKETS} of your programs are already in line, and no more are allowed")
        files = [(own / name, create_locked(own, name, data, now, END - now))]
        if older is not None:
            _clear(older)
            with contextlib.suppress(OSError):
                files.append((older / name, create_locked(older, name, data, now, END - now)))
        # Waiters that came before us must be seen.
        forget_what_was_seen()
        return cls(files, devices, step)

    def ahead(self, environ: Environ, box: Snapshot | None = None) -> Waiters:
        """The waiters before us that could take the devices that we wait for.

        Only those that have been there, and wanted the same, in each complete look since we got in line: see
        the top. (On a tmpfs, a ticket that is changed through mmap(2) keeps its place.) Waiters that
        can never start on this box are left out, and waiters inside a lease that is not ours.
        """
        names = seen(environ)
        line = [w for w in waiters(environ, names.tickets) if w.place < self._place and not w.silent]
        if not names.problems.missing:
            self._before = {*line} if self._before is None else self._before.intersection(line)
        before = (
            w
            for w in line
            if (self._before is None or w in self._before) and w.step == self._step and (w.ours or not w.step)
        )
        return tuple(w for w in before if w.wants_of(self._devices) and not can_never_start(w, box))

    def beat(self) -> bool:
        """Report that we can take devices, unless that was just done. Returns whether we have become last,
        after a long silence."""
        now = _now()
        lost = now - self._said > _SILENT
        if not self._files or now - self._said < BEAT / 2:
            return False
        for _, descriptor in self._files:
            with contextlib.suppress(OSError):
                # A length of 0 would mean the whole lock: the clock begins at the start of the machine.
                unlock(descriptor, 0, max(1, int(now)))
                if lost:
                    # The waiters behind us have passed us.
                    os.utime(descriptor)
                    self._before = None
                    forget_what_was_seen()
        self._place = self._drawn
        self._said = now
        return lost

    def leave(self) -> None:
        """Leave the line. A second call does nothing."""
        for path, descriptor in self._files:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(descriptor)
        self._files = []


def _clear(folder: Path) -> int:
    """Remove the tickets of our own killed waiters: a ticket in use is locked before it has a name. Returns
    the number of the others."""
    waiting = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_FILES):
            with contextlib.suppress(OSError):
                own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                if own and re.fullmatch(WAITING, entry.name):
                    waiting += not remove_ended(entry.path)
    return waiting


def is_waiting(waiter: Waiter) -> bool:
    """Whether the waiter is still in line and has its place: looks at its ticket only."""
    try:
        held = held_file(waiter.path)
    except (UntrustedFileError, OSError):
        return False
    return held is not None and not _is_silent(held.start)


def _is_silent(said: int) -> bool:
    """Whether the last report is too long ago. A time in the future is forged."""
    return not -1 <= _now() - said <= _SILENT + 1


def _now() -> float:
    """Seconds since the machine started, by its own clock: our time namespace may have another one."""
    return time.monotonic() - _ahead()


@lru_cache(1)
def _ahead() -> int:
    """Seconds by which the clock of our time namespace is ahead (time_namespaces(7))."""
    own = Path("/proc/self/ns/time")
    with contextlib.suppress(OSError):
        # The file is about the namespace of our children, which a program may have made and not entered.
        if own.readlink() == own.with_name("time_for_children").readlink():
            return int(Path("/proc/self/timens_offsets").read_bytes().split()[1])
    return 0


def _alive(path: str) -> Waiter | None:
    """The waiter of a ticket, None where it is gone. Raises UntrustedFileError, OSError."""
    held = held_file(path)
    if held is None:
        return None
    known = Waiter(
        _place(held.facts, path),
        user_name(held.facts.st_uid),
        path=path,
        ours=held.facts.st_uid == os.geteuid(),
        silent=_is_silent(held.start),
    )
    return _read(held.document, known)


def _place(facts: os.stat_result, path: str) -> tuple[int, str]:
    return facts.st_ctime_ns, path.rpartition("/")[2].split(".")[2]


def _read(document: Any, known: Waiter) -> Waiter:
    """The waiter that is `known` from the system, completed with its own statements."""
    if not isinstance(document, dict):
        return known
    devices, command = document.get("devices"), document.get("command")
    named = isinstance(devices, list) and len(devices) <= _MOST_DEVICES
    named = named and all(isinstance(key, str) for key in devices or ())

    def whole(key: str, most: int) -> int | None:
        value = document.get(key)
        # True is an int in Python, but not a number for readers of our JSON.
        return value if type(value) is int and 0 <= value <= most else None

    return replace(
        known,
        count=whole("count", 9999) or 1,
        devices=frozenset(devices) if named and isinstance(devices, list) else None,
        since=moment_of(document.get("since")),
        command=command[:MAX_COMMAND] if isinstance(command, str) else None,
        step=whole("step", 9999) or 0,
        job=word_of(document.get("job")),
        client=word_of(document.get("client")),
        min_free=whole("min_free", 1 << 60),
        max_util=whole("max_util", 100),
    )
