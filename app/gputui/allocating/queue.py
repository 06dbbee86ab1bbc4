"""The queue: one ticket file for each waiting program, in the shared folder, in the order they were drawn.

A ticket is a file of the waiter's own that the kernel keeps locked while the waiter lives: whoever dies is
out of the line. Its place is the time of its last change as the kernel has it (ctime), which nobody can set
back. Everyone looks at the nearest ticket before his own that could want the same devices, and at no other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gputui.allocating.claims.files import MAX_RECORD_BYTES, UntrustedFileError, list_matching, open_untrusted
from gputui.allocating.claims.folder import make_folder, shared_folders
from gputui.allocating.claims.read import TICKET, is_held
from gputui.inventory.formatting import printable
from gputui.inventory.waiter import Waiter
from gputui.system.users import user_name

_MAX_COMMAND = 500
_MAX_JOB = 40
_MOST_DEVICES = 1024
_MOST_NAMED = 3
"""Waiters that a sentence names; the others are only counted."""


def waiters(environ: Mapping[str, str]) -> tuple[Waiter, ...]:
    """Everybody in line, the first one first."""
    found = []
    for folder in shared_folders(environ):
        try:
            matches, _ = list_matching(folder, TICKET)
        except OSError:
            continue
        for match in matches:
            with contextlib.suppress(UntrustedFileError):
                waiter = _alive(Path(folder, match.string), int(match["uid"]))
                found += [waiter] if waiter else []
    return tuple(sorted(found, key=lambda waiter: waiter.place))


def in_line_for(keys: Collection[str], environ: Mapping[str, str]) -> tuple[Waiter, ...]:
    """Those in line who could take one of these devices, the first one first; steps inside leases are not."""
    return wanting(waiters(environ), keys)


def wanting(line: Sequence[Waiter], keys: Collection[str]) -> tuple[Waiter, ...]:
    """Those of a line who could take one of these devices; steps inside leases are not."""
    return tuple(each for each in line if each.step == 0 and each.wants_of(keys))


def in_words(line: Sequence[Waiter]) -> str:
    """Who is ahead in line: "1 person is ahead of you in line for these: ana (4 devices)", and
    "your own job waits ahead (x3f1, 3 devices)"."""
    others, own = [w for w in line if not w.ours], [w for w in line if w.ours]
    said = []
    if others:
        how_many = "1 person is" if len(others) == 1 else f"{len(others)} are"
        said.append(f"{how_many} ahead of you in line for these: {names_in_line(others)}")
    if own:
        named = [f"{f'{printable(w.job)}, ' if w.job else ''}{devices(w.count)}" for w in own[:_MOST_NAMED]]
        more = f" and {len(own) - len(named)} more" if len(own) > len(named) else ""
        what = "job" if all(w.job for w in own) else "run"
        plural, verb = ("s", "wait") if len(own) > 1 else ("", "waits")
        said.append(f"your own {what}{plural} {verb} ahead ({'; '.join(named)}{more})")
    return "; ".join(said)


def names_in_line(line: Sequence[Waiter]) -> str:
    """The first ones of a line: "ana (4 devices), your job x3f1 (1 device) and 2 more"."""
    named = [f"{_name(each)} ({devices(each.count)})" for each in line[:_MOST_NAMED]]
    more = len(line) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _name(waiter: Waiter) -> str:
    if waiter.ours:
        return f"your job {printable(waiter.job)}" if waiter.job else "you"
    return printable(waiter.user)


def devices(count: int) -> str:
    """ "1 device", "4 devices"."""
    return "1 device" if count == 1 else f"{count} devices"


def nth(number: int) -> str:
    """ "1st", "22nd"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


class Ticket:
    """Our own place in line, from `draw` to `leave`, or to the end of this process."""

    def __init__(self, path: Path, descriptor: int, devices: frozenset[str] | None, step: int = 0) -> None:
        self._path, self._descriptor, self._devices, self._step = path, descriptor, devices, step
        self._place = _place(os.fstat(descriptor), path)

    @classmethod
    def draw(
        cls,
        environ: Mapping[str, str],
        count: int,
        devices: frozenset[str] | None,
        command: str,
        step: int = 0,
        job: str | None = None,
    ) -> Ticket | None:
        """Get in line; None where there is no folder for it, and no line. Raises OSError.

        `command` is what every user may read of it (`secrets.program_and_script`). `step`, `job`: see
        `Waiter`.
        """
        folder = make_folder(environ)
        if folder is None:
            return None
        _clear(folder)
        about = {
            "schema": 1,
            "count": count,
            "devices": None if devices is None else sorted(devices),
            "since": time.time(),
            "command": command[:_MAX_COMMAND],
            "step": step,
            "job": job,
        }
        # (The kernel's clock for files ticks every few milliseconds.)
        token = f"{time.time_ns():016x}{os.urandom(4).hex()}"
        new, path = folder / f".{token}", folder / f"wait.{os.geteuid()}.{token}.ticket"
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(descriptor, 0o644)
            os.write(descriptor, json.dumps(about).encode())
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last change of the file, and so its place in line.
            new.rename(path)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        return cls(path, descriptor, devices, step)

    def ahead(self, environ: Mapping[str, str]) -> tuple[Waiter, ...]:
        """Those before us who could take what we wait for."""
        before = (w for w in waiters(environ) if w.place < self._place and w.step == self._step)
        return tuple(waiter for waiter in before if waiter.wants_of(self._devices))

    def leave(self) -> None:
        """Get out of line. Harmless the second time."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def _clear(folder: Path) -> None:
    """Remove what our own killed waiters have left: a ticket in use is locked before it has a name."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"wait.{os.geteuid()}.*.ticket"):
            with contextlib.suppress(UntrustedFileError):
                if _alive(path, os.geteuid()) is None:
                    path.unlink(missing_ok=True)


def is_waiting(waiter: Waiter) -> bool:
    """Whether he still is: one look at his ticket, and at nothing else."""
    try:
        descriptor = open_untrusted(Path(waiter.path))
    except UntrustedFileError:
        return False
    if descriptor is None:
        return False
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def _alive(path: Path, uid: int) -> Waiter | None:
    """The waiter of a ticket, None where he is gone. Raises UntrustedFileError."""
    descriptor = open_untrusted(path)
    if descriptor is None:
        return None
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid != uid or not is_held(descriptor):
            return None
        data = os.read(descriptor, MAX_RECORD_BYTES + 1)
    finally:
        os.close(descriptor)
    known = Waiter(_place(facts, path), user_name(uid), path=str(path), ours=uid == os.geteuid())
    try:
        return _read(json.loads(data) if len(data) <= MAX_RECORD_BYTES else None, known)
    except (ValueError, RecursionError):
        return known


def _place(facts: os.stat_result, path: Path) -> tuple[int, str]:
    return facts.st_ctime_ns, path.name.split(".")[2]


def _read(document: Any, known: Waiter) -> Waiter:
    """The waiter that is `known` from the system, with what he himself says."""
    if not isinstance(document, dict):
        return known
    count, devices, since, command = (document.get(key) for key in ("count", "devices", "since", "command"))
    step, job = document.get("step"), document.get("job")
    named = isinstance(devices, list) and len(devices) <= _MOST_DEVICES
    named = named and all(isinstance(key, str) for key in devices or ())
    return replace(
        known,
        # (True is an int to Python, and no number to those who read our JSON.)
        count=count if type(count) is int and 0 < count < 10_000 else 1,
        devices=frozenset(devices) if named and isinstance(devices, list) else None,
        since=float(since) if isinstance(since, (int, float)) and 0 < since < 1e11 else None,
        command=command[:_MAX_COMMAND] if isinstance(command, str) else None,
        step=step if type(step) is int and 0 < step < 10_000 else 0,
        job=job if isinstance(job, str) and len(job) <= _MAX_JOB else None,
    )
