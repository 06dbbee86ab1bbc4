"""Taking devices: a lock (flock) a device in the shared folder, for the job to inherit.

The kernel gives it back when the last process that has it is gone.

Two files a device. `<device>.<n>.lock` belongs to whoever came first, has no content, and its lock means
that the device is taken. `<device>@<uid>.<n>.claim` is the holder's own record for others to read, locked
too, so that a reader need not touch the first. A name at which somebody planted something else is passed over
by everyone alike, and the next number is tried.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gputui.inventory.claim import Claim
from gputui.sources.claims.files import PlantedError, is_still, make_there, open_there
from gputui.sources.claims.folder import make_folder
from gputui.sources.claims.read import claims, pid_namespace

_MOST_NAMES = 8
"""Planted names that are passed over for one device."""
_TRIES = 100
_LONGEST_COMMAND = 2000
_LONGEST_RECORD = 16 * 1024


class TakenError(Exception):
    """A device is held by another job. `key` is the device's, `claim` who holds it where that is known."""

    def __init__(self, key: str, claim: Claim | None) -> None:
        who = f"by {claim.user}" if claim else "by another job"
        super().__init__(f"{key} is claimed {who}")
        self.key, self.claim = key, claim


@dataclass
class Lease:
    """Open descriptors that hold devices. They are passed to the job; closing all of them gives it up.

    keys      the devices that are held
    warnings  why some are not: the launch goes on, as claims are advisory
    """

    keys: tuple[str, ...] = ()
    descriptors: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _records: list[int] = field(default_factory=list)

    def belongs_to(self, pid: int, job: str) -> None:
        """Say in the records that a job has the devices now, whose command is that process."""
        for descriptor in self._records:
            about = json.loads(os.pread(descriptor, _LONGEST_RECORD, 0))
            data = json.dumps({**about, "pid": pid, "job": job}).encode()
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))

    def inherit(self) -> None:
        """Let the program that this process becomes have the descriptors."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, True)

    def release(self) -> None:
        """Give the devices back, as far as no other process has the descriptors."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors = []
        self._records = []


def take(keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None) -> Lease:
    """Hold the devices with these UUIDs, all or none. Raises TakenError.

    Where there is no folder for it, or a device has no UUID, the lease is the less, with a warning.
    """
    lease = Lease()
    wanted = sorted(set(keys))
    known = [key for key in wanted if key.startswith(("GPU-", "MIG-"))]
    if len(known) < len(wanted):
        lease.warnings.append("a device without a UUID cannot be claimed")
    if not known:
        return lease
    folder = make_folder(environ)
    if folder is None:
        lease.warnings.append("nothing is claimed: there is no folder that all users can write")
        return lease
    try:
        _keep_folder(folder, lease)
        # In one order for everybody, and without waiting: nobody waits for somebody who waits for him.
        for key in known:
            if _lock(folder, key, lease):
                lease.keys = (*lease.keys, key)
        for key in lease.keys:
            _record(folder, key, lease, command, job)
    except _TakenNowError as error:
        lease.release()
        alive, _ = claims(environ)
        holder = next((each for each in alive if each.key == error.key), None)
        raise TakenError(error.key, holder) from None
    except OSError as error:
        lease.release()
        return Lease(warnings=[*lease.warnings, f"nothing is claimed: {folder}: {error.strerror}"])
    return lease


class _TakenNowError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _keep_folder(folder: Path, lease: Lease) -> None:
    """A shared lock on the folder: systemd-tmpfiles passes locked ones over when it clears /tmp of old files
    (tmpfiles.d(5))."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        lease.descriptors.append(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _lock(folder: Path, key: str, lease: Lease) -> bool:
    """Take the device's lock; False where no name for it is any good. Raises _TakenNowError, OSError."""
    for number in range(_MOST_NAMES):
        path = folder / f"{_file_name(key)}.{number}.lock"
        try:
            descriptor = _opened(path)
        except PlantedError as error:
            lease.warnings.append(f"passed over: {error}")
            continue
        lease.descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _TakenNowError(key) from None
        if is_still(path, descriptor):
            return True
        # It was removed between opening and locking: whoever comes now would lock another file.
        return _lock(folder, key, lease)
    lease.warnings.append(f"{key} is not claimed: every name for it is planted")
    return False


def _opened(path: Path) -> int:
    """The file of that name, made where there is none. Raises PlantedError, OSError."""
    for _ in range(_TRIES):
        descriptor = open_there(path)
        if descriptor is None:
            descriptor = make_there(path)
        if descriptor is not None:
            return descriptor
    raise PlantedError(f"{path.name} comes and goes")


def _record(folder: Path, key: str, lease: Lease, command: str, job: str | None) -> None:
    """Write who holds the device, under a name that others cannot take from us."""
    about = {
        "schema": 1,
        "pid": os.getpid(),
        "pids": pid_namespace(),
        "since": time.time(),
        "command": command[:_LONGEST_COMMAND],
        "job": job,
    }
    new = folder / f".{os.getpid()}.{os.urandom(6).hex()}"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    lease.descriptors.append(descriptor)
    lease._records.append(descriptor)
    try:
        os.fchmod(descriptor, 0o644)
        os.write(descriptor, json.dumps(about).encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for number in range(_MOST_NAMES):
            with contextlib.suppress(PermissionError, IsADirectoryError):
                # Over our own of before; another user's file cannot be replaced in a sticky folder.
                new.rename(folder / f"{_file_name(key)}@{os.geteuid()}.{number}.claim")
                return
        lease.warnings.append(f"others cannot see who holds {key}: every name for it is planted")
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()


def _file_name(key: str) -> str:
    """A UUID has no slash but in the old form of MIG (`MIG-GPU-…/1/0`)."""
    return key.replace("/", "+")
